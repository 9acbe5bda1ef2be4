"""The processes that train one model together: `torchrun --nproc_per_node=N -m tools.train ...`, or one alone.

Every process draws the same batches and takes every N-th row; what must be known of the whole batch is added up here.
"""

import os

import torch
from torch import distributed

from tools.errors import UserError


class Group:
    """This process among those that train together; torchrun's environment says which it is.

    rank, size: its number, from 0, and how many there are; first: whether it writes files and speaks; device: where
    its tensors live. Raises UserError where `device` is not there.
    """

    def __init__(self, device=None):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local = int(os.environ.get("LOCAL_RANK", 0))
        try:
            self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except RuntimeError:
            raise UserError(f"--device {device}: torch knows no such device; cpu and cuda are two") from None
        if self.device.type not in ("cpu", "cuda"):
            raise UserError(f"--device {device}: cpu and cuda are what this runs on")
        if self.device.type == "cuda":
            if not torch.cuda.is_available():
                raise UserError(f"--device {device}: torch sees no GPU here; leave --device out")
            if self.device.index is None:
                self.device = torch.device("cuda", local % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        if self.size > 1:
            distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    @property
    def first(self):
        return self.rank == 0

    def close(self):
        if self.size > 1:
            distributed.destroy_process_group()

    def parallel(self, module):
        """The module, its gradients averaged over the processes."""
        if self.size == 1:
            return module
        return torch.nn.parallel.DistributedDataParallel(module, broadcast_buffers=False)

    def total(self, tensor):
        """The tensor summed over the processes; the argument is left alone."""
        if self.size > 1:
            tensor = tensor.clone()
            distributed.all_reduce(tensor)
        return tensor

    def largest(self, *numbers):
        """The largest of each number over the processes, as floats: what all of them then agree on."""
        if self.size == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX)
        return tensor.tolist()

    def text_of_first(self, text):
        """The first process's string, in every process; theirs is not looked at."""
        if self.size == 1:
            return text
        data = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if self.first else None
        size = torch.tensor([len(data) if self.first else 0], device=self.device)
        distributed.broadcast(size, 0)
        data = data.to(self.device) if self.first else torch.empty(int(size), dtype=torch.uint8, device=self.device)
        distributed.broadcast(data, 0)
        return bytes(data.cpu().tolist()).decode()
