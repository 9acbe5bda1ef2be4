"""Models that others trained: llama2.c's files and Hugging Face folders, read, refused, packed, and told on a board."""

import copy
import dataclasses
import hashlib
import importlib.util
import itertools
import json
import random
import re
import struct

import models
import numpy as np
import pytest

from safetensors.numpy import save_file

from tools import checkpoint, convert, engines, floating, huggingface, integer, llama2c, originals, pack
from tools.config import Config
from tools.errors import UserError
from tools.fileformat import Packed
from tools.huggingface_tokenizer import section_from_huggingface
from tools.micropython import ROOT
from tools.tokenizer import Tokenizer, section_from_llama2c

WEIGHTS = ROOT / "weights"
HELD_OUT = ROOT / "tests" / "data" / "held_out.txt"
SHIPPED, ORIGINAL = WEIGHTS / "stories260K.scribe", WEIGHTS / "stories260K"
SMALL = llama2c.llama_config(recipe="AAA", vocab_size=512, d_model=64, n_heads=8, n_kv_heads=4, head_dim=8, d_ff=172,
                             context=40, rotary_interleaved=True, norm_eps=1e-5, bos_token_id=1, eos_token_id=1)
UNTIED = dataclasses.replace(SMALL, tie_embeddings=False)


# ---- llama2.c ----

def write_llama2c(path, config, weights, version, group=32):
    """export.py's legacy_export, version1_export and version2_export, in NumPy. Returns what a reader must find."""
    sizes = [config.d_model, config.d_ff, config.n_layers, config.n_heads, config.n_kv_heads, config.vocab_size,
             config.context]
    layers = range(config.n_layers)
    norms = [[f"layers.{i}.{n}.weight" for i in layers] for n in ("temporal_norm", "ff_norm")]
    parts = {p: [f"layers.{i}.{n}.weight" for i in layers] for p, n in llama2c.LAYER_TENSORS.items()}
    def f32(name):
        return weights[name].astype("<f4").tobytes()

    if version == 0:
        sizes[5] *= 1 if config.tie_embeddings else -1
        names = ["embedding.weight", *norms[0], *parts["wq"], *parts["wk"], *parts["wv"], *parts["wo"], *norms[1],
                 *parts["w1"], *parts["w2"], *parts["w3"], "final_norm.weight"]
        data = struct.pack("<7i", *sizes) + b"".join(map(f32, names))
        half = config.head_dim // 2
        angle = np.arange(config.context)[:, None] * 10000.0 ** (-np.arange(half) / half)
        data += np.cos(angle).astype("<f4").tobytes() + np.sin(angle).astype("<f4").tobytes()
        data += b"" if config.tie_embeddings else f32("head.weight")
        path.write_bytes(data)
        return weights
    head = struct.pack("<Ii7iB", 0x616B3432, version, *sizes, config.tie_embeddings)
    head += struct.pack("<i", group) if version == 2 else b""
    data = head + bytes(256 - len(head)) + b"".join(map(f32, [*norms[0], *norms[1], "final_norm.weight"]))
    names = ["embedding.weight", *sum(parts.values(), [])] + ([] if config.tie_embeddings else ["head.weight"])
    found = dict(weights)
    for name in names:
        if version == 1:
            data += f32(name)
            continue
        w = weights[name].astype(np.float32).reshape(-1, group)
        scale = np.abs(w).max(1) / np.float32(127)
        q = np.round(w / scale[:, None]).astype(np.int8)
        data += q.tobytes() + scale.astype("<f4").tobytes()
        found[name] = (q * scale.astype(float)[:, None]).reshape(weights[name].shape)
    path.write_bytes(data)
    return found


@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["shared", "separate"])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_llama2c_versions(tmp_path, version, config):
    path = tmp_path / "model.bin"
    written = write_llama2c(path, config, models.random_weights(config), version)
    found, weights = llama2c.read(path)
    assert found == config and set(weights) == set(written)
    for name, tensor in weights.items():
        np.testing.assert_array_equal(tensor, written[name], err_msg=name)
    assert llama2c.read(path, slide=True)[0].beyond_context == "slide"


def damaged_llama2c(path, what):
    write_llama2c(path, SMALL, models.random_weights(SMALL), what.get("version", 0))
    data = bytearray(path.read_bytes())
    for at, value in what.get("ints", {}).items():
        struct.pack_into("<i", data, at, value)
    path.write_bytes(what.get("all", bytes(data)[: what.get("end")] + what.get("more", b"")))


@pytest.mark.parametrize("what, said", [
    ({"all": b""}, "0 bytes"),
    ({"all": b"abc"}, "not a llama2.c model"),
    ({"all": bytes(range(256)) * 50}, "the header's dim"),
    ({"all": b"PK\x03\x04" + b"\xff" * 500}, "the header's dim"),
    ({"end": -4}, "cut short"),
    ({"end": 1000}, "cut short"),
    ({"more": b"1234"}, "other data follow"),
    ({"ints": {0: 0}}, "dim is 0"),
    ({"ints": {4: (1 << 31) - 1}}, "hidden_dim is 2147483647"),
    ({"ints": {4: 1 << 16, 20: 65536, 24: 16384}}, "cut short"),
    ({"ints": {8: 65}}, "n_layers is 65"),
    ({"ints": {12: 7}}, "no multiple of n_heads"),
    ({"ints": {12: 64, 16: 64}}, "rotated in pairs"),
    ({"ints": {16: 3}}, "n_kv_heads"),
    ({"ints": {20: 70000}}, "vocab_size is 70000"),
    ({"ints": {20: -(1 << 31)}}, "vocab_size is 2147483648"),
    ({"ints": {24: 20000}}, "seq_len is 20000"),
    ({"ints": {28 + 4 * 7: 0x7FC00000}}, "not a finite number"),
    ({"version": 1, "ints": {4: 3}}, "version 3"),
    ({"version": 1, "end": 100}, "the header alone"),
    ({"version": 1, "ints": {36: 9}}, "shared head is 9"),
    ({"version": 2, "ints": {37: 0}}, "group size is 0"),
    ({"version": 2, "ints": {37: 48}}, "cut short|other data|no multiple"),
    ({"version": 2, "ints": {256 + 4 * 64 * 7 + 512 * 64: -1}}, "scales of embedding.weight"),
])
def test_llama2c_refuses(tmp_path, capsys, what, said):
    """One line, exit status 2, and nothing written."""
    damaged_llama2c(tmp_path / "bad.bin", what)
    arguments = ["llama2c", str(tmp_path / "bad.bin"), "--tokenizer", str(ORIGINAL / "tokenizer.bin"), "-o",
                 str(tmp_path / "out.scribe"), "--original", str(tmp_path / "original")]
    assert convert.main(arguments) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and line.startswith("error: ") and "bad.bin" in line
    assert re.search(said, line), line
    assert [path.name for path in tmp_path.iterdir()] == ["bad.bin"]


def test_llama2c_refuses_other_rotary_tables(tmp_path):
    path = tmp_path / "model.bin"
    write_llama2c(path, SMALL, models.random_weights(SMALL), 0)
    data = bytearray(path.read_bytes())
    struct.pack_into("<f", data, len(data) - 8, 0.123)
    path.write_bytes(data)
    with pytest.raises(UserError, match="rotary tables"):
        llama2c.read(path)


def test_llama2c_refuses_another_vocabulary(tmp_path, capsys):
    config = dataclasses.replace(SMALL, vocab_size=500)
    write_llama2c(tmp_path / "model.bin", config, models.random_weights(config), 1)
    assert convert.main(["llama2c", str(tmp_path / "model.bin"), "--tokenizer", str(ORIGINAL / "tokenizer.bin"), "-o",
                         str(tmp_path / "out.scribe")]) == 2
    assert "after 500 tokens" in capsys.readouterr().err
    assert not (tmp_path / "out.scribe").exists()


@pytest.mark.parametrize("version", [0, 2])
def test_llama2c_to_the_board(tmp_path, capsys, micropython, version):
    """The whole way for a separate head: convert, and the board's code equals the integers past the window."""
    write_llama2c(tmp_path / "model.bin", UNTIED, models.random_weights(UNTIED), version)
    out = tmp_path / "small.scribe"
    assert convert.main(["llama2c", str(tmp_path / "model.bin"), "--tokenizer", str(ORIGINAL / "tokenizer.bin"), "-o",
                         str(out), "--tokens", "200", "--original", str(tmp_path / "small"), "--slide"]) == 0
    assert "bytes" in capsys.readouterr().out
    tokens = np.random.default_rng(1).integers(0, 512, 100)
    assert (engines.Device(out).logits(tokens) == engines.Integer(out).logits(tokens)).all()
    config, weights, section = originals.load(tmp_path / "small")
    assert config == Packed.load(out).config and config.beyond_context == "slide"
    assert section == Packed.load(out).tokenizer
    float_of_file = engines.Float(out, tmp_path / "model.bin").logits(tokens)
    np.testing.assert_allclose(float_of_file, floating.forward(config, weights, tokens), atol=1e-9)
    assert engines.compare(floating.forward(config, weights, tokens),
                           engines.Integer(out).logits(tokens) * Packed.load(out).scale)[0].mean() < 0.01


# ---- stories260K ----

@pytest.fixture(scope="module")
def stories260k():
    return originals.load(ORIGINAL)


def greedy(config, weights, steps):
    """What llama2.c does at temperature 0: from BOS, the likeliest token each step, until the next BOS."""
    state, tokens = floating.State(config), [config.bos_token_id]
    for _ in range(steps):
        token = int(floating.forward(config, weights, tokens[-1:], state)[0].argmax())
        if token == config.eos_token_id:
            break
        tokens.append(token)
    return tokens


def test_float_model_writes_what_llama2c_writes(stories260k):
    config, weights, section = stories260k
    text = Tokenizer(section).decode(greedy(config, weights, 200))
    assert text == (ORIGINAL / "greedy_200.txt").read_bytes()


def test_public_checkpoint(shared, leave_out):
    """The same from the public file, in float32, and the shipped original is its float16."""
    if not shared or not (shared / "checkpoints" / "stories260K.bin").is_file():
        leave_out("tests of a public llama2.c model", "put stories260K.bin into ../shared/checkpoints")
    folder = shared / "checkpoints"
    config, weights, section = originals.load(folder / "stories260K.bin")
    assert section is None
    section = section_from_llama2c(folder / "tok512.bin", config.vocab_size)
    text = Tokenizer(section).decode(greedy(config, weights, 200))
    assert text == (folder / "expected_greedy_200.txt").read_bytes()
    shipped, rounded, own = originals.load(ORIGINAL)
    assert shipped == config and own == section == Packed.load(SHIPPED).tokenizer
    for name, tensor in checkpoint.rounded(weights).items():
        np.testing.assert_array_equal(tensor, rounded[name])


def test_shipped_file_is_its_originals(stories260k):
    """The integers of the shipped file are those that packing its original gives."""
    config, weights, _ = stories260k
    packed = Packed.load(SHIPPED)
    assert packed.config == config
    made = pack.Packer(config, weights).matrices
    for i in range(config.n_layers):
        for name in ("attention.q", "attention.o", "mlp.gate", "mlp.down"):
            one, other = packed.sections["LAYR", i, 0][name], made[f"layers.{i}.{name}"]
            assert (one.w == other.w).all() and (one.scales == other.scales).all() and one.exponent == other.exponent


def test_integers_follow_the_float_model(stories260k):
    """Over 1,000 tokens that the float model wrote at temperature 1. int8 weights alone measure 0.0005 and 98.7%."""
    config, weights, _ = stories260k
    packed = Packed.load(SHIPPED)
    lost, kl, same = [], [], []
    for tokens in pack.sample(config, weights, 1100, seed=11):
        truth = floating.forward(config, weights, tokens)
        other = integer.forward(packed, tokens) * packed.scale
        part = engines.compare(truth, other)
        at = np.arange(len(tokens) - 1), tokens[1:]
        lost.append((engines.log_softmax(truth) - engines.log_softmax(other))[at])
        kl.append(part[0])
        same.append(part[1])
    lost, kl, same = map(np.concatenate, (lost, kl, same))
    assert len(same) > 1000
    assert lost.mean() <= 0.002 and kl.mean() <= 0.002 and same.mean() >= 0.985, (lost.mean(), kl.mean(), same.mean())


def test_board_equals_the_integers_past_the_window(micropython):
    packed = Packed.load(SHIPPED)
    tokens = [1, *Tokenizer(packed.tokenizer).encode(HELD_OUT.read_text()[:2000])][:600]
    assert len(tokens) == 600 > packed.config.window
    assert (engines.Device(SHIPPED).logits(tokens) == engines.Integer(SHIPPED).logits(tokens)).all()


def test_packing_the_original_gives_the_shipped_file(tmp_path):
    """From a fresh clone. (A few tokens of calibration: other points than the shipped ones, the same integers.)"""
    out = tmp_path / "stories260K.scribe"
    assert pack.main([str(ORIGINAL), "-o", str(out), "--tokens", "64", "--original", str(tmp_path / "again")]) == 0
    made, shipped = Packed.load(out), Packed.load(SHIPPED)
    assert made.config == shipped.config and made.tokenizer == shipped.tokenizer
    for key, records in shipped.sections.items():
        for name, record in records.items():
            if hasattr(record, "w"):
                assert (record.w == made.sections[key][name].w).all()
    for path in (tmp_path / "again").iterdir():
        assert path.read_bytes() == (ORIGINAL / path.name).read_bytes()


def test_card_tells_the_truth():
    card = (WEIGHTS / "stories260K.md").read_text()
    assert hashlib.sha256(SHIPPED.read_bytes()).hexdigest() in card
    assert f"{SHIPPED.stat().st_size:,}" in card


# ---- where a story stops ----

STORY = """
import scribe
s = scribe.open({path!r})
options = {{"seed": 5, "top_k": 0, "temperature": 3, "max_tokens": 100}}
s.tell("ab", **options)
print(repr((s.stats()["tokens"] + s.stats()["prompt_tokens"] - 1, s.stats()["stopped_at_context"])))
a = s.write("ab", slide=True, **options)
print(s.stats()["tokens"], s.stats()["stopped_at_context"])
s.write("ab", seed=5, max_tokens=10)
print(s.stats()["stopped_at_context"])
for prompt, more in (("ab" * 60, {{}}), ("a", {{"preset": "gpt"}}), ("a", {{"preset": 7}})):
    try:
        s.stream(prompt, **more)
    except ValueError as error:
        print("ValueError", error)
one = s.write("ab", preset="llama", seed=3, max_tokens=20)
print(one == s.write("ab", temperature=0.6, top_p=0.9, top_k=0, seed=3, max_tokens=20))
print(s.write("ab", preset="llama", temperature=0, max_tokens=20) == s.write("ab", temperature=0, max_tokens=20))
"""


def test_story_stops_at_the_context(micropython, tmp_path):
    """End token out of reach: the one drawn at random at temperature 3 would end the story before."""
    config = dataclasses.replace(models.LLAMA, context=24, beyond_context="stop")
    path, _, weights = models.packed(config, tmp_path, "llama")
    out = micropython(STORY.format(path=str(path))).stdout.splitlines()
    at = out.index("(this model's texts end at 24 tokens)")
    steps, stopped = eval(out[at + 1])
    assert steps == 24 and stopped is True
    assert out[at + 2] == "100 False" and out[at + 3] == "False"
    assert "121 tokens" in out[at + 4] and "end at 24" in out[at + 4] and "slide=True" in out[at + 4]
    assert out[at + 5] == "ValueError preset 'gpt': one of default, llama is needed"
    assert out[at + 6].startswith("ValueError preset 7")
    assert out[at + 7 :] == ["True", "True"]


# ---- Hugging Face ----

def llama_json(config, **more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": config.vocab_size,
            "hidden_size": config.d_model, "intermediate_size": config.d_ff, "num_hidden_layers": config.n_layers,
            "num_attention_heads": config.n_heads, "num_key_value_heads": config.n_kv_heads, "hidden_act": "silu",
            "max_position_embeddings": config.context, "rms_norm_eps": config.norm_eps, "rope_theta": 10000.0,
            "tie_word_embeddings": config.tie_embeddings, "bos_token_id": 1, "eos_token_id": 1, **more}


def llama_tensors(config, weights):
    """Hugging Face's names, and its half-split order of the rows of queries and keys (export.py's permute_original)."""
    tensors = {"model.embed_tokens.weight": weights["embedding.weight"],
               "model.norm.weight": weights["final_norm.weight"]}
    if not config.tie_embeddings:
        tensors["lm_head.weight"] = weights["head.weight"]

    def permuted(w, heads):
        return w.reshape(heads, config.head_dim // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)

    for i in range(config.n_layers):
        ours, theirs = f"layers.{i}.", f"model.layers.{i}."
        tensors[theirs + "input_layernorm.weight"] = weights[ours + "temporal_norm.weight"]
        tensors[theirs + "post_attention_layernorm.weight"] = weights[ours + "ff_norm.weight"]
        for part in "qkvo":
            w = weights[f"{ours}attention.{part}.weight"]
            w = permuted(w, {"q": config.n_heads, "k": config.n_kv_heads}[part]) if part in "qk" else w
            tensors[f"{theirs}self_attn.{part}_proj.weight"] = w
        for part in ("gate", "up", "down"):
            tensors[f"{theirs}mlp.{part}_proj.weight"] = weights[f"{ours}mlp.{part}.weight"]
    return {name: np.ascontiguousarray(tensor.astype(np.float32)) for name, tensor in tensors.items()}


def write_huggingface(folder, fields, tensors, tokenizer=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    save_file(tensors, folder / "model.safetensors")
    if tokenizer:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["tied", "untied"])
def test_huggingface_llama_equals_llama2c(tmp_path, config):
    """The same model by both roads: interleaved pairs there, half-split here."""
    weights = models.random_weights(config)
    folder = write_huggingface(tmp_path / "hf", llama_json(config), llama_tensors(config, weights))
    found, theirs = huggingface.read(folder)
    assert found == dataclasses.replace(config, rotary_interleaved=False)
    tokens = np.random.default_rng(2).integers(0, config.vocab_size, 40)
    np.testing.assert_allclose(floating.forward(found, theirs, tokens), floating.forward(config, weights, tokens),
                               rtol=0, atol=1e-9)


def test_huggingface_shards_and_bfloat16(tmp_path):
    weights = models.random_weights(SMALL)
    tensors = llama_tensors(SMALL, weights)
    folder = write_huggingface(tmp_path / "hf", llama_json(SMALL), {})
    (folder / "model.safetensors").unlink()
    places, wanted = {}, {}
    for number, names in enumerate((sorted(tensors)[:10], sorted(tensors)[10:])):
        shard = {}
        for name in names:
            bits = (tensors[name].view(np.uint32) >> 16).astype("<u2")
            wanted[name] = (bits.astype(np.uint32) << 16).view(np.float32)
            shard[name] = {"dtype": "bfloat16", "shape": list(bits.shape), "data": bits.tobytes()}
            places[name] = f"model-{number}.safetensors"
        (folder / f"model-{number}.safetensors").write_bytes(raw_safetensors(shard))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    _, found = huggingface.read(folder)
    np.testing.assert_array_equal(found["layers.1.mlp.up.weight"], wanted["model.layers.1.mlp.up_proj.weight"])
    for bad, said in (({**places, "x": "../model-0.safetensors"}, "not the name"),
                      ({**places, "x": "model-0.safetensors"}, "disagree about tensor x"),
                      ({**places, "x": "model-9.safetensors"}, "cannot be read"), ([], "not an index")):
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": bad}))
        with pytest.raises(UserError, match=said):
            huggingface.read(folder)


def raw_safetensors(tensors):
    """The bytes of a safetensors file, of types that NumPy lacks."""
    head, data = {}, b""
    for name, tensor in tensors.items():
        kind = {"bfloat16": "BF16", "int8": "I8"}[tensor["dtype"]]
        at, data = len(data), data + tensor["data"]
        head[name] = {"dtype": kind, "shape": tensor["shape"], "data_offsets": [at, len(data)]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("fields, said", [
    ({"architectures": ["MistralForCausalLM"]}, "architecture 'MistralForCausalLM'"),
    ({"architectures": None}, "architecture None"),
    ({"architectures": [["LlamaForCausalLM"]]}, "architecture"),
    ({"model_type": "gemma"}, "model_type is 'gemma'"),
    ({"hidden_act": "relu"}, "hidden_act is 'relu'"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "scaled rotary"),
    ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "scaled rotary"),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mscale": 2}}, "mscale"),
    ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "whole heads"),
    ({"rope_parameters": [1]}, "an object is needed"),
    ({"rope_theta": "ten"}, "rope_theta"),
    ({"sliding_window": 128}, "sliding_window is 128"),
    ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ({"residual_multiplier": 0.2}, "residual_multiplier"),
    ({"head_dim": 7}, "head_dim is 7"),
    ({"num_attention_heads": 0}, "num_attention_heads"),
    ({"num_key_value_heads": 3}, "n_kv_heads"),
    ({"num_hidden_layers": 10**5}, "num_hidden_layers"),
    ({"num_hidden_layers": 1 << 40}, "num_hidden_layers"),
    ({"num_hidden_layers": 4}, "model.layers.3.input_layernorm.weight is missing"),
    ({"num_hidden_layers": 2}, "is not part of this model"),
    ({"hidden_size": "64"}, "hidden_size is '64'"),
    ({"hidden_size": 128, "head_dim": 8}, r"is \(512, 64\); config.json asks for \(512, 128\)"),
    ({"intermediate_size": 173}, r"mlp.gate_proj.weight is \(172, 64\)"),
    ({"vocab_size": 1 << 19}, "vocab_size"),
    ({"max_position_embeddings": 131072}, "max_position_embeddings"),
    ({"tie_word_embeddings": False}, "lm_head.weight is missing"),
    ({"attention_bias": True}, "q_proj.bias is missing"),
    ({"attention_bias": "yes"}, "attention_bias"),
    ({"eos_token_id": [1, 2]}, "eos_token_id"),
    ({"bos_token_id": None}, "bos_token_id"),
    ({"bos_token_id": 512}, "bos_token_id 512 is not in the vocabulary"),
    ({"rms_norm_eps": 0}, "rms_norm_eps"),
])
def test_huggingface_refuses(tmp_path, capsys, fields, said):
    tensors = llama_tensors(SMALL, models.random_weights(SMALL))
    folder = write_huggingface(tmp_path / "hf", llama_json(SMALL, **fields), tensors, tokenizer_json())
    assert convert.main(["hf", str(folder), "-o", str(tmp_path / "out.scribe")]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and str(folder) in line and re.search(said, line), line
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_huggingface_refuses_damaged_files(tmp_path):
    tensors = llama_tensors(SMALL, models.random_weights(SMALL))
    folder = write_huggingface(tmp_path / "hf", llama_json(SMALL), tensors)
    path = folder / "model.safetensors"
    good = path.read_bytes()
    for data in (b"", good[:100], good[:-1], b"\xff" * 8 + good[8:], good[:8] + b"[" + good[9:]):
        path.write_bytes(data)
        with pytest.raises(UserError, match="not a readable safetensors"):
            huggingface.read(folder)
    for more, said in (({"extra": tensors["model.norm.weight"]}, "tensor extra is not part"),
                       ({"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, "ties head and embedding")):
        save_file({**tensors, **more}, path)
        with pytest.raises(UserError, match=said):
            huggingface.read(folder)
    same = {"lm_head.weight": tensors["model.embed_tokens.weight"],
            "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4, np.float32)}
    save_file({**tensors, **same}, path)
    huggingface.read(folder)
    path.write_bytes(raw_safetensors({"model.norm.weight": {"dtype": "int8", "shape": [64], "data": bytes(64)}}))
    with pytest.raises(UserError, match="is I8"):
        huggingface.read(folder)
    path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(UserError, match="a pickle"):
        huggingface.read(folder)
    for text in ("", "[]", "{", "[" * 100000):
        (folder / "config.json").write_text(text)
        with pytest.raises(UserError, match="config.json"):
            huggingface.read(folder)


def test_huggingface_to_the_board(tmp_path, capsys, micropython):
    weights = models.random_weights(SMALL)
    folder = write_huggingface(tmp_path / "hf", llama_json(SMALL), llama_tensors(SMALL, weights), tokenizer_json())
    out = tmp_path / "small.scribe"
    assert convert.main(["hf", str(folder), "-o", str(out), "--tokens", "150"]) == 0, capsys.readouterr().err
    tokens = np.random.default_rng(3).integers(0, 512, 90)
    assert (engines.Device(out).logits(tokens) == engines.Integer(out).logits(tokens)).all()
    config, weights, section = originals.load(folder)
    assert config == Packed.load(out).config and section == Packed.load(out).tokenizer
    assert convert.main(["hf", str(ORIGINAL), "-o", str(out)]) == 2
    assert "python -m tools.pack" in capsys.readouterr().err
    assert convert.main(["llama2c", str(folder), "--tokenizer", str(ORIGINAL / "tokenizer.bin"), "-o", str(out)]) == 2


# ---- against transformers ----

@pytest.fixture
def transformers(leave_out):
    if importlib.util.find_spec("transformers") is None:
        leave_out("tests against transformers", "pip install -r requirements-hf.txt")
    return pytest.importorskip("torch"), pytest.importorskip("transformers")


def compare_with_transformers(folder, model, torch, length, seed=0):
    """Every parameter random, so that no bias is 0 and no norm 1; logits to 1e-4 of the largest."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.0 if name.endswith(("embed_tokens.weight", "recurrent_param")) else 0.2
            if parameter.dim() > 1 and "embed" not in name:
                scale = 1.5 / parameter.shape[-1] ** 0.5
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)
    model.eval()
    model.save_pretrained(folder)
    tokens = torch.randint(0, model.config.vocab_size, (1, length), generator=generator)
    with torch.no_grad():
        theirs = model(tokens, use_cache=False).logits[0].double().numpy()
    config, weights = huggingface.read(folder)
    ours = floating.forward(config, weights, tokens[0].numpy())
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    print(f"relative error {error:.1e}")
    assert error <= 1e-4
    return config


@pytest.mark.training
@pytest.mark.parametrize("more", [
    {}, {"attention_bias": True, "lru_width": 60, "num_hidden_layers": 5, "conv1d_width": 3},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25}},
    {"block_types": ["attention", "recurrent"], "num_key_value_heads": None, "logits_soft_cap": 3.0}])
def test_recurrent_gemma_equals_transformers(tmp_path, transformers, more):
    torch, module = transformers
    sizes = {"num_hidden_layers": 3, "vocab_size": 300, "hidden_size": 48, "intermediate_size": 200,
             "num_attention_heads": 3, "num_key_value_heads": 1, "attention_window_size": 16}
    model = module.RecurrentGemmaForCausalLM(module.RecurrentGemmaConfig(**{**sizes, **more}))
    config = compare_with_transformers(tmp_path, model, torch, 60)
    assert config.window == 16 and config.d_ff == 100 and config.embedding_scale == 6.9375  # sqrt(48) in bfloat16


@pytest.mark.training
@pytest.mark.parametrize("more", [
    {}, {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_pytorch_tanh", "head_dim": 12},
    {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}])
def test_llama_equals_transformers(tmp_path, transformers, more):
    torch, module = transformers
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 3,
             "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 64}
    compare_with_transformers(tmp_path, module.LlamaForCausalLM(module.LlamaConfig(**{**sizes, **more})), torch, 60)


def test_bfloat16():
    """Against torch's own rounding where it is installed; these are its results."""
    assert huggingface.bfloat16(2560**0.5) == 50.5 and huggingface.bfloat16(48**0.5) == 6.9375
    assert huggingface.bfloat16(8) == 8
    assert huggingface.bfloat16(1 + 2**-8) == 1 and huggingface.bfloat16(1 + 3 * 2**-8) == 1.015625  # ties to even


# ---- tokenizers ----

def ways(name, plain):
    """Every merge of two plain tokens that makes this one."""
    return [[name[:cut], name[cut:]] for cut in range(1, len(name)) if {name[:cut], name[cut:]} <= set(plain)]


def tokenizer_json():
    """tok512.bin as transformers would write it: a merge for every pair of tokens that makes one, the best first."""
    data, at, names, scores = (ORIGINAL / "tokenizer.bin").read_bytes(), 4, [], []
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        names.append(data[at + 8 : at + 8 + length].decode().replace(" ", "\u2581"))
        scores.append(score)
        at += 8 + length
    names[:3] = ["<unk>", "<s>", "</s>"]
    ids = {name: i for i, name in enumerate(names)}
    merges = []
    for name in sorted(names[259:], key=lambda name: -scores[ids[name]]):
        merges += ways(name, names[259:])
    added = [{"id": i, "content": names[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i in range(3)]
    normalizers = [{"type": "Prepend", "prepend": "\u2581"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": None,
            "post_processor": template, "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": ids, "merges": merges}}


def test_sentencepiece_json_equals_llama2c():
    """The same tokens from tokenizer.json, from tok512.bin, and from the library that wrote the first."""
    import tokenizers

    document = tokenizer_json()
    library = tokenizers.Tokenizer.from_str(json.dumps(document))
    ours = Tokenizer(section_from_huggingface("t", document))
    other = Tokenizer(section_from_llama2c(ORIGINAL / "tokenizer.bin", 512))
    texts = [*HELD_OUT.read_text().splitlines()[:200], "", " ", "   a  b ", "aaaaaaa", "....!!", "Ünïcödé 今日 😀"]
    texts += ["\n\n\t", "<s>x", "<0x41>"]
    for one in texts:
        tokens = ours.encode(one)
        assert tokens == other.encode(one)
        if "<s>" not in one:  # there the library cuts the special token out of the text
            assert tokens == library.encode(one, add_special_tokens=False).ids
        assert ours.decode(tokens) == other.decode(tokens)


def one_of_several(document):
    """Index of the last merge of the first token that several merges make."""
    made = ["".join(merge) for merge in document["model"]["merges"]]
    return next(i for i in range(1, len(made)) if made[i] == made[i - 1])


def edited(change):
    document = tokenizer_json()
    change(document)
    return document


@pytest.mark.parametrize("change, said", [
    (lambda d: d.update(normalizer=None), "normalizer"),
    (lambda d: d["normalizer"]["normalizers"].pop(0), "normalizer"),
    (lambda d: d.update(pre_tokenizer={"type": "Metaspace"}), "pre-tokenizer is Metaspace"),
    (lambda d: d.update(post_processor={"type": "ByteLevel"}), "post_processor"),
    (lambda d: d["post_processor"]["single"].append({"SpecialToken": {"id": "</s>"}}), "post_processor"),
    (lambda d: d["post_processor"]["single"][0]["SpecialToken"].update(id="</s>"), "'</s>', which is not id 1"),
    (lambda d: d["added_tokens"][0].update(special=False), "cut out of texts"),
    (lambda d: d["added_tokens"].pop(), "id 2 is '</s>'"),
    (lambda d: d["model"].update(ignore_merges=True), "ignore_merges"),
    (lambda d: d["model"].update(type="Unigram"), "Unigram"),
    (lambda d: d["model"]["vocab"].update({"<0x00>": 600}), "are not 0 to 511"),
    (lambda d: d["model"]["merges"].append(["<0x0A>", "t"]), "not one of two tokens"),
    (lambda d: d["model"]["merges"].append("a b c"), "not one of two tokens"),
    (lambda d: d["model"]["merges"].insert(0, d["model"]["merges"].pop(one_of_several(d))), "comes apart"),
    (lambda d: d["model"]["merges"].pop(one_of_several(d)), "is not among the merges"),
    (lambda d: d["model"].update(vocab=5), "not a tokenizer.json"),
    (lambda d: d["model"].update(merges=None), "not a tokenizer.json"),
])
def test_sentencepiece_json_refuses(change, said):
    with pytest.raises(UserError, match=said):
        section_from_huggingface("tokenizer.json", edited(change))


def test_what_is_accepted_equals_the_library():
    """Vocabularies of a few repetitive tokens, where merges compete: accepted or refused, but never different."""
    import tokenizers

    rng, accepted = random.Random(4), 0
    for _ in range(60):
        document = tokenizer_json()
        names = [*sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)[:259], "\u2581", "a", "b", "c"]
        made = rng.sample([text for n in range(2, 6) for text in map("".join, itertools.product("ab", repeat=n))], 12)
        names += made
        merges = []
        for name in made:
            found = ways(name, names[259:])
            merges += rng.sample(found, len(found))
        document["model"].update(vocab={name: i for i, name in enumerate(names)}, merges=merges)
        try:
            ours = Tokenizer(section_from_huggingface("t", document))
        except UserError:
            continue
        accepted += 1
        library = tokenizers.Tokenizer.from_str(json.dumps(document))
        for _ in range(60):
            text = "".join(rng.choices("ab", [2, 1], k=rng.randint(1, 25)))
            assert ours.encode(text) == library.encode(text, add_special_tokens=False).ids, (text, merges)
    assert accepted > 30


def test_tokenizer_argument(tmp_path):
    """A llama2.c tokenizer may stand in for a tokenizer.json that does not run here."""
    config = SMALL
    document = copy.deepcopy(tokenizer_json())
    document["normalizer"] = None
    tensors = llama_tensors(config, models.random_weights(config))
    folder = write_huggingface(tmp_path / "hf", llama_json(config), tensors, document)
    with pytest.raises(UserError, match="normalizer"):
        originals.load(folder)
    section = originals.load_tokenizer(folder, config.vocab_size, ORIGINAL / "tokenizer.bin")
    assert section == Packed.load(SHIPPED).tokenizer
    assert originals.load_model(folder)[0].vocab_size == 512


def test_kinds_of_originals(tmp_path):
    with pytest.raises(UserError, match="no such file or folder"):
        originals.load(tmp_path / "none")
    with pytest.raises(UserError, match="config.json"):
        originals.load(tmp_path)
    assert originals.kind(ORIGINAL) == "folder"
    assert isinstance(originals.load(ORIGINAL)[0], Config)
