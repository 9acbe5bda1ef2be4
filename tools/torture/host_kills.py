"""kill -9 and full disks under the tools that write models: `pack`, `convert`, and `train` where PyTorch is installed.

What a tool leaves under a final name is always whole; what it was at can be started again, or resumed, and ends as if
nothing had happened. A full disk is a limit on the size of any file (RLIMIT_FSIZE): one line, and nothing half-written.
"""

import importlib
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import numpy as np

from tools import convert, pack
from tools.micropython import ROOT
from tools.torture import Row, scaled
from tools.torture._processes import attempt

MOMENTS = 100  # of each tool
TEMPORARY = (".tmp",)
STORY = "Once there was a fox who had a red hat. The fox sat on the hat.\n<|endofstory|>\n" * 40


def files(folder):
    """{name: bytes} of all files below a folder under final names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.endswith(TEMPORARY)}


class Writer:
    """A tool that writes into a folder: how to run it there, and what a run to the end leaves."""

    def __init__(self, name, main, args, folder):
        self.name, self.main, self.args = name, main, args
        status, said, self.seconds = attempt(main, args(folder / "whole"))
        if status:
            raise RuntimeError(f"{name}: {said}")
        self.whole = files(folder / "whole")
        self.folder = folder / "here"

    def begin(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def again(self):
        """Run to the end in a folder where a run was broken off."""
        return attempt(self.main, self.args(self.folder))

    def problem(self, left):
        """What is wrong with what a broken-off run has left, or ""."""
        for name, data in left.items():
            if data != self.whole.get(name):
                return f"half of {name}" if name in self.whole else f"{name}, which no run to the end leaves"
        return ""

    def equal(self):
        """Whether what is there is what a run to the end leaves, and no temporary file beside it."""
        temporary = [path for path in self.folder.rglob("*") if path.name.endswith(TEMPORARY)]
        return files(self.folder) == self.whole and not temporary


class Trainer(Writer):
    """Training keeps a folder that is replaced step by step; its last model is what counts."""

    def again(self):
        there = any((self.folder / name).exists() for name in ("resume", "resume.old", "model.safetensors"))
        return attempt(self.main, self.args(self.folder) + (["--resume"] if there else []))

    def problem(self, left):
        from safetensors.numpy import load

        for name, data in left.items():
            if name.endswith(".safetensors") and "resume.tmp" not in name and "resume.old" not in name:
                try:
                    load(data)
                except Exception as error:
                    return f"half of {name}: {error}"
            if name in ("config.json", "tokenizer.json") and data != self.whole[name]:
                return f"half of {name}"
        return ""

    def equal(self):
        there = files(self.folder)
        wanted = ("config.json", "tokenizer.json", "model.safetensors", "resume/state.safetensors")
        same = set(there) == set(self.whole) and all(there[name] == self.whole[name] for name in wanted)
        return same and not list(self.folder.glob("*.tmp"))


def writers(folder):
    """The tools, each with inputs of its own."""
    from tools.torture.host_fuzz import TINY, sound

    source = ROOT / "weights" / "stories260K"
    (folder / "m.bin").write_bytes(sound("llama2c1"))
    names = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    names += [b" ", *(bytes([97 + i % 26, 97 + i // 26]) for i in range(TINY.vocab_size - 260))]
    entries = b"".join(np.float32(-i).tobytes() + np.int32(len(name)).tobytes() + name for i, name in enumerate(names))
    (folder / "t.bin").write_bytes(np.int32(6).tobytes() + entries)

    def out(at, name):
        at.mkdir(exist_ok=True)
        return ["-o", str(at / name), "--tokens", "16", "--original", str(at / "original")]

    yield Writer("pack", pack.main, lambda at: [str(source), *out(at, "x.scribe")], folder / "pack")
    yield Writer("convert", convert.main, lambda at: [
        "llama2c", str(folder / "m.bin"), "--tokenizer", str(folder / "t.bin"), *out(at, "x.scribe")],
        folder / "convert")
    if importlib.util.find_spec("torch") is None:
        print("left out: training under kill -9 (PyTorch is not installed)", file=sys.stderr)
        return
    (folder / "text").write_text(STORY)
    train = importlib.import_module("tools.train")
    yield Trainer("train", train.main, lambda at: [
        "--corpus", str(folder / "text"), "--out", str(at), "--steps", "4", "--save-every", "0", "--batch", "2",
        "--seq", "32", "--recipe", "SA", "--vocab", "260", "--d-model", "16", "--d-rnn", "16", "--rnn-heads", "2",
        "--n-heads", "2", "--n-kv-heads", "1", "--head-dim", "8", "--experts", "2", "--d-expert", "8", "--window", "8",
        "--threads", "1"], folder / "train")


def killed(row, writer, **how):
    """One run that is killed, and one after it. Returns False where the first had ended before."""
    writer.begin()
    status, said, _ = attempt(writer.main, writer.args(writer.folder), **how)
    if status not in (0, -signal.SIGKILL):
        row.count(False, f"{how}: status {status}: {said}")
        return True
    problem = writer.problem(files(writer.folder))
    if not problem:
        again, said, _ = writer.again()
        if again or not writer.equal():
            problem = f"status {again}, then not as a run that was never killed: {said}"
    row.count(not problem, f"{how}: {problem}")
    return status != 0


def full(row, writer, limit):
    """One run on a disk that takes no more than `limit` bytes a file."""
    writer.begin()
    status, text, _ = attempt(writer.main, writer.args(writer.folder), limit=limit)
    said = [line for line in text.splitlines() if line.startswith("error:") or "Traceback" in line]
    left = files(writer.folder)
    temporary = [path.name for path in writer.folder.rglob("*") if path.name.endswith(TEMPORARY)]
    problem = writer.problem(left) or (f"left {temporary}" if temporary else "")
    if status not in (0, 2) or status == 2 and len(said) != 1:
        problem = f"status {status}: {text[-300:]}"
    if not problem:
        again, more, _ = writer.again()
        problem = "" if again == 0 and writer.equal() else f"then status {again}: {more}"
    row.count(not problem, f"limit {limit}: {problem}")


def run(amount, seed):
    if os.name != "posix":
        print("left out: kill -9 of the tools (there is none on this system)", file=sys.stderr)
        return
    rng = np.random.default_rng([seed, 4])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("pack", "convert", "train"):
            (folder / name).mkdir()
        for writer in writers(folder):
            moments = scaled(MOMENTS, amount)
            row = Row(f"kill -9 of {writer.name}, before a change of a file")
            at = 1
            while row.tried < moments and killed(row, writer, before=at):
                at += 1 if amount >= 0.5 else int(rng.integers(1, 6))
            yield row
            row = Row(f"kill -9 of {writer.name} at a random moment")
            for _ in range(moments):
                killed(row, writer, after=rng.uniform(0, 1.1 * writer.seconds))
            yield row
            row = Row(f"no room for what {writer.name} writes")
            largest = max(map(len, writer.whole.values()))
            for _ in range(scaled(MOMENTS / 4, amount)):
                full(row, writer, int(largest * rng.uniform(0, 1.1) ** 2))
            yield row
