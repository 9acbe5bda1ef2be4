"""An original: a folder with config.json, model.safetensors and tokenizer.json, as training writes it."""

import pathlib

import numpy as np
import safetensors
from safetensors.numpy import save

from tools.config import Config
from tools.errors import UserError
from tools.files import write_bytes


def tensor_shapes(config):
    """{name: shape} of every tensor of a checkpoint: the contract between training, conversion and packing."""
    d, shapes = config.d_model, {}

    def linear(name, rows, cols, bias=False):
        shapes[name + ".weight"] = (rows, cols)
        if bias:
            shapes[name + ".bias"] = (rows,)

    shapes["embedding.weight"] = (config.vocab_size, d)
    if not config.tie_embeddings:
        shapes["head.weight"] = (config.vocab_size, d)
    shapes["final_norm.weight"] = (d,)
    for i, letter in enumerate(config.recipe):
        at = f"layers.{i}."
        shapes[at + "temporal_norm.weight"] = shapes[at + "ff_norm.weight"] = (d,)
        if letter == "S":
            r, block = config.d_rnn, config.d_rnn // config.rnn_heads
            for part in ("x", "y"):
                linear(f"{at}recurrence.{part}", r, d, config.rnn_bias)
            linear(at + "recurrence.out", d, r, config.rnn_bias)
            shapes[at + "recurrence.conv.weight"] = (r, config.conv_width)
            shapes[at + "recurrence.conv.bias"] = shapes[at + "recurrence.lam"] = (r,)
            for part in ("gate_a", "gate_i"):
                shapes[f"{at}recurrence.{part}.weight"] = (config.rnn_heads, block, block)
                shapes[f"{at}recurrence.{part}.bias"] = (r,)
        else:
            q, kv = config.n_heads * config.head_dim, config.n_kv_heads * config.head_dim
            for part, rows in (("q", q), ("k", kv), ("v", kv)):
                linear(f"{at}attention.{part}", rows, d, config.qkv_bias)
            linear(at + "attention.o", d, q, config.attention_out_bias)
        if config.d_ff:
            for part in ("gate", "up"):
                linear(f"{at}mlp.{part}", config.d_ff, d, config.mlp_bias)
            linear(at + "mlp.down", d, config.d_ff, config.mlp_bias)
        if config.n_experts:
            n, h = config.n_experts, config.d_expert
            linear(at + "moe.router", n, d)
            shapes[at + "moe.gate.weight"] = shapes[at + "moe.up.weight"] = (n, h, d)
            shapes[at + "moe.down.weight"] = (n, d, h)
    return shapes


def check_tensors(config, weights, where):
    """Raise UserError, naming the tensor, unless `weights` are exactly the config's, and finite."""
    shapes = tensor_shapes(config)
    for name in sorted(set(shapes) - set(weights)):
        raise UserError(f"{where}: tensor {name} is missing")
    for name in sorted(set(weights) - set(shapes)):
        raise UserError(f"{where}: tensor {name} is not part of this model")
    for name, shape in shapes.items():
        if tuple(weights[name].shape) != shape:
            raise UserError(f"{where}: tensor {name} is {tuple(weights[name].shape)}; the config says {shape}")
        if not np.isfinite(weights[name]).all():
            raise UserError(f"{where}: tensor {name} holds a value that is not a finite number")


def load(folder):
    """(config, weights as float64 by name). Raises UserError when something is missing or does not fit."""
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the one that training wrote")
    config = Config.load(folder / "config.json")
    path = folder / "model.safetensors"
    weights = {name: v.astype(np.float64) for name, v in read_safetensors(path).items()}
    check_tensors(config, weights, path)
    return config, weights


def read_safetensors(path):
    """{name: array} of a file: float64, float32 and float16 as they are, bfloat16 as float32. UserError: others."""
    try:
        parts = safetensors.deserialize(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (safetensors.SafetensorError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({error})") from None
    tensors = {}
    for name, tensor in parts:
        if tensor["dtype"] == "BF16":
            values = (np.frombuffer(tensor["data"], "<u2").astype(np.uint32) << 16).view(np.float32)
        elif tensor["dtype"] in ("F16", "F32", "F64"):
            values = np.frombuffer(tensor["data"], f"<f{int(tensor['dtype'][1:]) // 8}")
        else:
            raise UserError(f"{path}: tensor {name} is {tensor['dtype']}; quantised or other models than float16, "
                            "bfloat16, float32 and float64 are not read")
        tensors[name] = values.reshape(tensor["shape"])
    return tensors


def rounded(weights):
    """The weights as float16 has them, in float64: packing and every comparison start from these."""
    result = {}
    for name, v in weights.items():
        result[name] = v.astype(np.float16).astype(np.float64)
        if not np.isfinite(result[name]).all():
            raise UserError(f"tensor {name} holds {np.abs(v).max():g}, which float16 can't")
    return result


def save_float16(folder, weights):
    """Write model.safetensors in float16, beside and then renamed."""
    tensors = {name: v.astype(np.float16) for name, v in weights.items()}
    write_bytes(pathlib.Path(folder) / "model.safetensors", save(tensors))
