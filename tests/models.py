"""Small models with random weights, for tests: every feature, in no time."""

import dataclasses
import functools
import pathlib
import tempfile

import numpy as np

from tools import checkpoint
from tools.config import Config


def random_weights(config, seed=0):
    """Tensors of a checkpoint whose activations have sizes like a trained model's."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in checkpoint.tensor_shapes(config).items():
        if "norm" in name:
            v = rng.uniform(0.5, 1.5, shape)
        elif name.endswith("lam"):
            v = np.log(np.expm1(-np.log(rng.uniform(0.9, 0.999, shape)) / 8 * 2))
        elif name.endswith("bias"):
            v = rng.normal(0, 0.2, shape)
        elif name.startswith("embedding"):
            v = rng.normal(0, 0.7, shape)
        else:
            v = rng.normal(0, 1.5 / np.sqrt(shape[-1]), shape)
        weights[name] = v
    return checkpoint.rounded(weights)


HYBRID = Config(recipe="SSAS", vocab_size=288, d_model=48, d_rnn=40, rnn_heads=2, n_heads=4, n_kv_heads=2, head_dim=8,
                window=20, d_ff=24, n_experts=3, d_expert=20)
LLAMA = Config(recipe="AAA", vocab_size=288, d_model=64, n_heads=8, n_kv_heads=4, head_dim=8, window=24,
               rotary_fraction=1.0, rotary_interleaved=True, activation="silu", d_ff=172, n_experts=0, norm_eps=1e-5)
GRIFFIN = Config(recipe="SSA", vocab_size=300, d_model=72, d_rnn=80, rnn_heads=4, n_heads=3, n_kv_heads=1, head_dim=20,
                 window=16, d_ff=100, n_experts=0, rnn_bias=True, attention_out_bias=True, mlp_bias=True,
                 embedding_scale=72**0.5, logit_softcap=30.0, conv_width=4)
UNTIED = Config(recipe="AS", vocab_size=270, d_model=70, d_rnn=66, rnn_heads=3, n_heads=2, n_kv_heads=2, head_dim=12,
                window=9, rotary_fraction=1.0, activation="silu", d_ff=0, n_experts=4, d_expert=68,
                tie_embeddings=False, qkv_bias=True, attention_out_bias=True, conv_width=3)
ALL = {"hybrid": HYBRID, "llama": LLAMA, "griffin": GRIFFIN, "untied": UNTIED}


def tokenizer_section(vocab_size, folder):
    """A byte-level tokenizer of this vocabulary, as a packed file's section."""
    from tools import bpe
    from tools.tokenizer import section_from_json

    pairs = [(a, b) for a in "etaoinshr" for b in "etaoinshr"][: vocab_size - 257]
    path = folder / f"tokenizer-{vocab_size}.json"
    bpe.build(pairs).save(str(path))
    return section_from_json(path)


@functools.cache
def section_of(vocab_size):
    """`tokenizer_section`, made once for each size."""
    with tempfile.TemporaryDirectory() as folder:
        return tokenizer_section(vocab_size, pathlib.Path(folder))


def packed(config, folder, name, seed=0, endless=False):
    """(path, Packed, weights) of a random model, packed and saved. `endless`, for tied embeddings: it never draws its
    end token greedily, because that one's logit is always 0, and among all the others' one is above."""
    from tools import pack
    from tools.fileformat import Packed

    if endless:
        config = dataclasses.replace(config, eos_token_id=config.vocab_size - 1)
    weights = random_weights(config.check(), seed)
    if endless:
        weights["embedding.weight"][config.eos_token_id] = 0
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, 200)
    model = pack.Packer(config, weights).pack(pack.calibrate(config, weights, [tokens]), {"name": name},
                                              tokenizer_section(config.vocab_size, folder))
    path = folder / f"{name}.scribe"
    model.save(path)
    return path, Packed.load(path), weights
