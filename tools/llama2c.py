"""llama2.c's .bin checkpoints, versions 0, 1 and 2, to this project's tensors.

The layouts are those that karpathy/llama2.c's export.py writes and its run.c and runq.c read:

version 0   7 int32 (dim, hidden, layers, heads, kv heads, vocabulary, sequence; a negative vocabulary: separate head),
            float32 tensors, each for all layers: embedding, rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3; then
            rms_final, the rotary cosines and sines [sequence, head_dim / 2] each, and the head if separate
version 1   magic, version, the 7 int32, a byte (1: shared head), padded to 256 bytes; float32 tensors: rms_att,
            rms_ffn, rms_final, embedding, wq, wk, wv, wo, w1, w2, w3, and the head if separate
version 2   as 1, an int32 group size after the byte; the norms in float32, then the others, each layer by itself: int8
            values, then a float32 scale for every group of them (Q8_0)
"""

import pathlib
import struct

import numpy as np

from tools import checkpoint
from tools.config import Config
from tools.errors import UserError

MAGIC = 0x616B3432  # "ak42"
HEADER_BYTES = 256  # of versions 1 and 2
ROTARY_BASE = 10000.0  # run.c knows no other
NORM_EPS = 1e-5  # nor here
#: The next text's beginning is where run.c ends a text: its models are trained on BOS, text, BOS, text ...
BOS = 1
SIZES = ("dim", "hidden_dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "seq_len")
LAYER_TENSORS = {"wq": "attention.q", "wk": "attention.k", "wv": "attention.v", "wo": "attention.o",
                 "w1": "mlp.gate", "w2": "mlp.down", "w3": "mlp.up"}


def read(path, slide=False):
    """(Config, {name: float64 tensor}) of a llama2.c checkpoint. Raises UserError: it is not one, or is damaged.

    Nothing larger than the file is allocated: the header's sizes must account for its last byte first.
    """
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) < 28:
        raise UserError(f"{path}: {len(data)} bytes; not a llama2.c model")
    version, sizes, shared, group, at = _header(path, data)
    config = _config(path, sizes, shared, slide)
    order = _tensors(config, version, shared)
    wanted = at + sum(_stored_bytes(shape, group if quantised else 0) for _, shape, quantised in order)
    if len(data) != wanted:
        what = "it is cut short" if len(data) < wanted else "other data follow"
        raise UserError(f"{path}: {len(data):,} bytes where its header (version {version}) asks for {wanted:,}; "
                        f"{what}, or it is not a llama2.c model")
    weights = {}
    for name, shape, quantised in order:
        tensor, at = _read_tensor(path, name, data, at, shape, group if quantised else 0)
        weights[name] = tensor
    if version == 0:
        _check_rotary(path, config, weights.pop("cos"), weights.pop("sin"))
        weights = _by_layer(weights)
    checkpoint.check_tensors(config, weights, path)
    return config, weights


def _header(path, data):
    """(version, {size name: value}, shared head?, group size, where the tensors begin)."""
    if struct.unpack_from("<I", data)[0] != MAGIC:
        sizes = dict(zip(SIZES, struct.unpack_from("<7i", data)))
        shared = sizes["vocab_size"] > 0
        sizes["vocab_size"] = abs(sizes["vocab_size"])
        return 0, sizes, shared, 0, 28
    version = struct.unpack_from("<i", data, 4)[0]
    if version not in (1, 2):
        raise UserError(f"{path}: llama2.c version {version}; 0, 1 and 2 are known")
    if len(data) < HEADER_BYTES:
        raise UserError(f"{path}: {len(data)} bytes; the header alone has {HEADER_BYTES}")
    sizes = dict(zip(SIZES, struct.unpack_from("<7i", data, 8)))
    shared, group = struct.unpack_from("<Bi", data, 36)
    if shared > 1:
        raise UserError(f"{path}: the header's flag of a shared head is {shared}, not 0 or 1")
    if version == 2 and not 1 <= group <= 1 << 16:
        raise UserError(f"{path}: the header's group size is {group}")
    return version, sizes, bool(shared), group if version == 2 else 0, HEADER_BYTES


def _config(path, sizes, shared, slide):
    def need(ok, why):
        if not ok:
            raise UserError(f"{path}: {why}; not a llama2.c model that runs here")

    for name, value in sizes.items():
        need(0 < value < 1 << 20, f"the header's {name} is {value}")
    need(sizes["n_layers"] <= 64, f"the header's n_layers is {sizes['n_layers']}, above 64")
    need(sizes["vocab_size"] <= 65536, f"the header's vocab_size is {sizes['vocab_size']}, above 65536")
    need(sizes["seq_len"] <= 16384, f"the header's seq_len is {sizes['seq_len']}, above 16384")
    need(sizes["dim"] % sizes["n_heads"] == 0, f"dim {sizes['dim']} is no multiple of n_heads {sizes['n_heads']}")
    head_dim = sizes["dim"] // sizes["n_heads"]
    need(head_dim % 2 == 0, f"heads of {head_dim} elements can't be rotated in pairs")
    try:
        return llama_config(
            recipe="A" * sizes["n_layers"], vocab_size=sizes["vocab_size"], d_model=sizes["dim"],
            n_heads=sizes["n_heads"], n_kv_heads=sizes["n_kv_heads"], head_dim=head_dim, d_ff=sizes["hidden_dim"],
            context=sizes["seq_len"], slide=slide, rotary_base=ROTARY_BASE, rotary_interleaved=True,
            norm_eps=NORM_EPS, tie_embeddings=shared, bos_token_id=BOS, eos_token_id=BOS)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def llama_config(*, context, slide=False, **sizes):
    """The checked Config of a Llama decoder: every text up to `context` tokens is seen whole, and there it stops, or
    with `slide` goes on with a window of that many."""
    fixed = {"d_rnn": 0, "rnn_heads": 0, "conv_width": 1, "n_experts": 0, "d_expert": 0, "rotary_fraction": 1.0,
             "activation": "silu"}
    return Config(**{**fixed, **sizes}, window=context, context=context,
                  beyond_context="slide" if slide else "stop").check()


def _tensors(config, version, shared):
    """[(name, shape, quantised?)] in file order. Version 0 holds one tensor for all layers, by its short name."""
    shapes = checkpoint.tensor_shapes(config)
    layers = range(config.n_layers)
    if version == 0:
        def all_layers(short, name):
            return short, (config.n_layers, *shapes["layers.0." + name]), False

        table = (config.context, config.head_dim // 2)
        linear = [all_layers(short, name + ".weight") for short, name in LAYER_TENSORS.items()]
        order = [("embedding.weight", shapes["embedding.weight"], False),
                 all_layers("rms_att", "temporal_norm.weight"), *linear[:4],
                 all_layers("rms_ffn", "ff_norm.weight"), *linear[4:],
                 ("final_norm.weight", shapes["final_norm.weight"], False),
                 ("cos", table, False), ("sin", table, False)]
    else:
        names = [f"layers.{i}.temporal_norm.weight" for i in layers] + [f"layers.{i}.ff_norm.weight" for i in layers]
        order = [(name, shapes[name], False) for name in [*names, "final_norm.weight"]]
        names = ["embedding.weight"] + [f"layers.{i}.{n}.weight" for n in LAYER_TENSORS.values() for i in layers]
        order += [(name, shapes[name], version == 2) for name in names]
    if not shared:
        order.append(("head.weight", shapes["head.weight"], version == 2))
    return order


def _count(shape):
    return int(np.prod(shape, dtype=object))  # Python integers: a header's sizes can't overflow them


def _stored_bytes(shape, group):
    count = _count(shape)
    return count + 4 * (count // group) if group else 4 * count


def _read_tensor(path, name, data, at, shape, group):
    """(float64 tensor, where the next begins). A group of 0: float32, else int8 with a scale for each group."""
    count = _count(shape)
    if not group:
        return np.frombuffer(data, "<f4", count, at).reshape(shape).astype(np.float64), at + 4 * count
    if count % group:
        raise UserError(f"{path}: {name} has {count} weights, no multiple of the group size {group}")
    q = np.frombuffer(data, "i1", count, at).reshape(-1, group).astype(np.float64)
    scales = np.frombuffer(data, "<f4", count // group, at + count).astype(np.float64)
    # An export.py older than runq.c wrote all scales at the end of the file: same size, other order.
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise UserError(f"{path}: the scales of {name} are not scales; damaged, or written before runq.c existed")
    return (q * scales[:, None]).reshape(shape), at + count + 4 * (count // group)


def _check_rotary(path, config, cos, sin):
    """Version 0 carries the rotary tables. run.c computes its own; refuse a model that was trained with others."""
    if not cos.any() and not sin.any():
        return  # left empty by some writers
    half = config.head_dim // 2
    angle = np.arange(config.context)[:, None] * ROTARY_BASE ** (-np.arange(half) / half)
    if not (np.abs(cos - np.cos(angle)).max() < 0.01 and np.abs(sin - np.sin(angle)).max() < 0.01):
        raise UserError(f"{path}: its rotary tables are not those of base {ROTARY_BASE:g}, the only one of llama2.c")


def _by_layer(weights):
    """Version 0's tensors [layers, ...] as one tensor for each layer."""
    names = {**{short: name + ".weight" for short, name in LAYER_TENSORS.items()},
             "rms_att": "temporal_norm.weight", "rms_ffn": "ff_norm.weight"}
    result = {name: tensor for name, tensor in weights.items() if name not in names}
    for short, name in names.items():
        for i, tensor in enumerate(weights[short]):
            result[f"layers.{i}.{name}"] = tensor
    return result
