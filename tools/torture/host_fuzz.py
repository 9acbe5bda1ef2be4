"""Fuzzers (Hypothesis) of everything that the host's tools read: packed models, llama2.c and Hugging Face files,
tokenizers, checkpoints, texts. Whatever comes, a reader works or raises UserError with one line.

tests/test_fuzz.py runs the same targets in a short form that is always the same, with the finds of longer runs kept as
explicit examples.
"""

import copy
import dataclasses
import functools
import json
import pathlib
import struct
import sys
import tempfile

import hypothesis
import numpy as np
from hypothesis import strategies as st

from tools import bpe, checkpoint, data, huggingface, integer, llama2c, originals, pack
from tools.errors import UserError
from tools.fileformat import Packed
from tools.micropython import ROOT
from tools.torture import Row, host_files, scaled
from tools.tokenizer import Tokenizer, section_from_json, section_from_llama2c

sys.path.append(str(ROOT / "tests"))  # the small models, and the writers of other tools' files

import models  # noqa: E402
import test_convert  # noqa: E402

EXAMPLES = 1_500  # of each target, in the full run
TINY = dataclasses.replace(test_convert.SMALL, recipe="AA", d_model=16, n_heads=2, n_kv_heads=1, head_dim=8, d_ff=24,
                           vocab_size=300, context=12)
TEXTS = ("", " ", "Once upon a time, there was a fox.", "a  b\n\n\tc's 12 \u00e9\u4eca\U0001f600 \x00", "the the hat  ")
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70), st.sampled_from([2**15, 2**16, 2**31, 2**32, 2**63, 10**30, -2**40]),
    st.floats(), st.text(max_size=6), st.sampled_from(["A" * 65, "SA", "gelu", "BPE", "\ud800", "<|endofstory|>"]),
    st.lists(st.integers(0, 3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2))

#: Changes of bytes: (what, where, number). Places near the beginning, where headers are, come up more than by chance.
PLACES = st.one_of(st.integers(0, 64), st.integers(0, 400), st.integers(0, 1 << 14), st.integers(0, 1 << 22))
NUMBERS = st.one_of(st.integers(0, 255), st.sampled_from(host_files.NUMBERS), st.integers(0, 2**32 - 1))
EDITS = st.lists(st.one_of(st.tuples(st.sampled_from(["set", "word"]), PLACES, NUMBERS),
                           st.tuples(st.sampled_from(["set", "word", "cut", "insert", "drop", "double"]), PLACES,
                                     NUMBERS)), min_size=1, max_size=3)
#: Changes of a JSON document: (what, which value, the new one).
CHANGES = st.lists(st.tuples(st.sampled_from(["put", "put", "put", "put", "put", "drop", "add", "rename", "repeat"]),
                             st.one_of(st.integers(0, 60), st.integers(0, 1 << 20)), ODD), min_size=1, max_size=3)


def edited(original, edits):
    """Bytes with changes made."""
    b = bytearray(original)
    for what, at, value in edits:
        at = at % (len(b) + 1)
        if what == "set" and at < len(b):
            b[at] = value & 255
        elif what == "word":
            at &= -4
            b[at : at + 4] = struct.pack("<I", value)
        elif what == "cut":
            del b[at:]
        elif what == "insert":
            b[at:at] = bytes([value & 255]) * (1 + value % 70)
        elif what == "drop":
            del b[at : at + 1 + value % 70]
        elif what == "double":
            b[at:at] = b[at : at + 1 + value % 200]
    return bytes(b)


def places(document):
    """(container, key) of every value of a JSON document, the outermost first."""
    level, found = [document], []
    while level:
        below = []
        for container in level:
            keys = list(container) if isinstance(container, dict) else range(len(container))
            for key in keys:
                found.append((container, key))
                if isinstance(container[key], (dict, list)):
                    below.append(container[key])
        level = below
    return found


def changed(original, changes):
    """A JSON document with changes made."""
    document = copy.deepcopy(original)
    for what, which, value in changes:
        found = places(document)
        if not found:
            break
        container, key = found[which % len(found)]
        if what == "put":
            container[key] = copy.deepcopy(value)
        elif what == "drop":
            del container[key]
        elif what == "repeat" and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif isinstance(container, dict):
            container["new" if what == "add" else str(value)] = container[key] if what == "rename" else value
            if what == "rename" and str(value) != key:
                del container[key]
    return document


# The sound inputs that are changed, made once.


@functools.cache
def weights():
    return models.random_weights(TINY)


@functools.cache
def sound(name):
    """Bytes or a JSON document of a sound input."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if name in models.ALL:
            return models.packed(models.ALL[name], folder, name)[0].read_bytes()
        if name.startswith("llama2c"):
            config = dataclasses.replace(TINY, tie_embeddings=name[-1] != "0")
            test_convert.write_llama2c(folder / "x", config, models.random_weights(config), int(name[-1]), 8)
            return (folder / "x").read_bytes()
        if name == "safetensors":
            test_convert.save_file(test_convert.llama_tensors(TINY, weights()), folder / "x")
            return (folder / "x").read_bytes()
        if name == "checkpoint":
            checkpoint.save_float16(folder, weights())
            return (folder / "model.safetensors").read_bytes()
    if name == "tokenizer.bin":
        return (test_convert.ORIGINAL / "tokenizer.bin").read_bytes()
    if name == "byte-level":
        return json.loads(bpe.build([("t", "h"), ("th", "e"), ("\u0120", "a"), ("h", "a"), ("ha", "t")]).to_str())
    return {"sentencepiece": test_convert.tokenizer_json, "config": TINY.to_dict,
            "huggingface": lambda: test_convert.llama_json(TINY)}[name]()


@functools.cache
def gemma():
    return {"architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma", "vocab_size": 300,
            "hidden_size": 16, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2,
            "num_key_value_heads": 1, "lru_width": 24, "attention_window_size": 8, "conv1d_width": 4,
            "block_types": ["recurrent", "recurrent", "attention"], "bos_token_id": 2, "eos_token_id": 1}


# Targets: each is a strategy and what is done with one of its values. A UserError of one line is an answer.


def read_packed(name, edits, sealed):
    content = edited(sound(name), edits)
    if sealed and len(content) >= 32:
        content = host_files.seal(content)
    packed = Packed.from_bytes(content)
    integer.forward(packed, np.arange(5) % packed.config.vocab_size)
    assert Packed.from_bytes(packed.to_bytes()).to_bytes() == packed.to_bytes()


def in_folder(act):
    """Call act(folder, ...) with an empty folder."""

    @functools.wraps(act)
    def run(*args):
        with tempfile.TemporaryDirectory() as folder:
            return act(pathlib.Path(folder), *args)

    return run


@in_folder
def read_llama2c(folder, version, edits):
    (folder / "m.bin").write_bytes(edited(sound(f"llama2c{version}"), edits))
    config, found = llama2c.read(folder / "m.bin")
    checkpoint.check_tensors(config, found, "m.bin")


@in_folder
def read_tokenizer_bin(folder, edits, size):
    (folder / "t.bin").write_bytes(edited(sound("tokenizer.bin"), edits))
    reader = Tokenizer(section_from_llama2c(folder / "t.bin", size))
    for text in TEXTS:
        assert reader.decode(reader.encode(text)) == text.encode()


@in_folder
def read_tokenizer_json(folder, name, changes):
    document = changed(sound(name), changes)
    (folder / "tokenizer.json").write_text(json.dumps(document))
    reader = Tokenizer(originals.load_tokenizer(folder, 512))
    for text in TEXTS:
        assert reader.decode(reader.encode(text)) == text.encode()
    try:
        library = bpe.from_json("tokenizer.json", json.dumps(document))
    except UserError:  # a "version" of null, say
        return
    for text in TEXTS:  # what both read means the same
        assert reader.encode(text) == library.encode(text, add_special_tokens=False).ids


@in_folder
def train_with_tokenizer(folder, edits, changes):
    text = json.dumps(changed(sound("byte-level"), changes)).encode()
    (folder / "tokenizer.json").write_bytes(edited(text, edits))
    bpe.load(folder / "tokenizer.json")
    section_from_json(folder / "tokenizer.json")  # what may be trained with can be packed


@in_folder
def read_huggingface(folder, base, changes):
    fields = changed(base, changes)
    (folder / "config.json").write_text(json.dumps(fields))
    (folder / "model.safetensors").write_bytes(sound("safetensors"))
    huggingface.read(folder)


@in_folder
def read_safetensors(folder, edits, ours):
    (folder / "config.json").write_text(json.dumps(sound("config" if ours else "huggingface")))
    (folder / "model.safetensors").write_bytes(edited(sound("checkpoint" if ours else "safetensors"), edits))
    originals.load(folder)


@in_folder
def read_safetensors_header(folder, changes, kind, ours):
    """As `read_safetensors`, with changes in the JSON that says what the tensors are; `kind`: the type of all."""
    content = sound("checkpoint" if ours else "safetensors")
    size = struct.unpack_from("<Q", content)[0]
    head = json.loads(content[8 : 8 + size])
    if kind:
        for tensor in head.values():
            if "dtype" in tensor:
                tensor["dtype"] = kind
    text = json.dumps(changed(head, changes)).encode()
    (folder / "config.json").write_text(json.dumps(sound("config" if ours else "huggingface")))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    originals.load(folder)


@in_folder
def read_config(folder, changes, edits):
    content = json.dumps(changed(sound("config"), changes)).encode()
    (folder / "config.json").write_bytes(edited(content, edits))
    (folder / "model.safetensors").write_bytes(sound("checkpoint"))
    originals.load(folder)


@in_folder
def read_text(folder, content):
    (folder / "text").write_bytes(content)
    assert all(document.strip() for document in data.read_documents(folder / "text"))


@in_folder
def pack_weights(folder, name, factors, zeros, seed, headroom):
    """Weights of any size, tensors or rows of them zero: packing refuses them, or what it writes can't overflow."""
    config = models.ALL[name]
    tensors = models.random_weights(config, seed)
    for i, key in enumerate(sorted(tensors)):
        tensors[key] = tensors[key] * 10.0 ** factors[i % len(factors)]
        if zeros[i % len(zeros)]:
            tensors[key][: 1 + len(tensors[key]) // 2] = 0
    tensors = checkpoint.rounded(tensors)
    tokens = np.random.default_rng(seed).integers(0, config.vocab_size, 40)
    largest = pack.calibrate(config, tensors, [tokens])
    packed = pack.Packer(config, tensors, headroom).pack(largest, {"name": name}, tokenizer(config.vocab_size))
    packed.save(folder / "x.scribe")
    integer.forward(Packed.load(folder / "x.scribe"), tokens)


@functools.cache
def tokenizer(size):
    with tempfile.TemporaryDirectory() as folder:
        return models.tokenizer_section(size, pathlib.Path(folder))


NAMES = st.sampled_from(sorted(models.ALL))
TARGETS = {
    "packed model": (st.tuples(NAMES, EDITS, st.booleans()), read_packed),
    "llama2.c model": (st.tuples(st.integers(0, 2), EDITS), read_llama2c),
    "llama2.c tokenizer.bin": (st.tuples(EDITS, st.one_of(st.just(512), st.integers(-1, 70000))), read_tokenizer_bin),
    "tokenizer.json": (st.tuples(st.sampled_from(["byte-level", "sentencepiece"]), CHANGES), read_tokenizer_json),
    "tokenizer.json for training": (st.tuples(st.one_of(st.just([]), EDITS), CHANGES), train_with_tokenizer),
    "Hugging Face config.json": (st.tuples(st.builds(lambda llama: sound("huggingface") if llama else gemma(),
                                                     st.booleans()), CHANGES), read_huggingface),
    "safetensors": (st.tuples(EDITS, st.booleans()), read_safetensors),
    "safetensors header": (st.tuples(st.one_of(st.just([]), CHANGES), st.sampled_from(
        ["", "", "F16", "BF16", "F32", "F64", "I8", "I16", "U16", "BOOL", "F8_E4M3", "C64", "X"]), st.booleans()),
        read_safetensors_header),
    "config.json": (st.tuples(CHANGES, st.one_of(st.just([]), EDITS)), read_config),
    "text": (st.tuples(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), st.sampled_from(
        [b"<|endofstory|>\n" * 3, b"a\r\n<|endofstory|>\r\nb", b"\xef\xbb\xbfa"]))), read_text),
    "weights to pack": (st.tuples(NAMES, st.lists(st.floats(-9, 5), min_size=1, max_size=7),
                                  st.lists(st.booleans(), min_size=1, max_size=5), st.integers(0, 99),
                                  st.sampled_from([1, 2, 64])), pack_weights),
}
#: A target's share of EXAMPLES, where it is not 1.
SHARES = {"weights to pack": 0.1, "Hugging Face config.json": 0.5, "packed model": 0.5, "tokenizer.json": 0.3}


def answered(act, value):
    """Do it; False: it was refused, in one line. Whatever else is raised is a find."""
    try:
        act(*value)
    except UserError as error:
        assert "\n" not in str(error).rstrip("\n"), f"more than one line: {error}"
        assert len(str(error)) < 2000, "a very long line"
        return False
    return True


def run(amount, seed):
    for name, (strategy, act) in TARGETS.items():
        row = Row(f"fuzz: {name}")

        def one(value):
            row.tried += 1
            answered(act, value)
            row.survived += 1

        wanted = scaled(EXAMPLES * SHARES.get(name, 1), amount)
        test = hypothesis.seed(seed)(hypothesis.settings(
            max_examples=wanted, database=None, deadline=None, derandomize=False, report_multiple_bugs=False,
            phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck))(
                hypothesis.given(strategy)(one)))
        try:
            with np.errstate(all="ignore"):
                test()
        except BaseException as error:  # a panic of a library in Rust, too
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            notes = " ".join(getattr(error, "__notes__", []))
            row.found.append(f"{error!r} {notes}"[:2000])
        yield row
