"""The four ways to run a packed model's tokens, behind one call: the board's code, the integer reference, the
stand-in, and the float original."""

import dataclasses
import json
import pathlib
import tempfile

import numpy as np

from tools import checkpoint, floating, integer, originals, standin
from tools.errors import UserError
from tools.fileformat import Packed
from tools.micropython import run

NAMES = ("micropython", "integer", "standin", "float")
DEVICE_SCRIPT = pathlib.Path(__file__).parent / "on_device" / "logits.py"
PIECE = 512  # tokens that go through the NumPy references at once


def find_original(path):
    """The folder of a packed model's float16 original: weights/NAME/ beside weights/NAME.scribe."""
    folder = pathlib.Path(path).with_suffix("")
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: the model's original is not there; name it with --original")
    return folder


def load_original(path):
    """(config, float64 weights) of any original that tools.originals reads, rounded to float16 as packing does."""
    config, weights = originals.load_model(path)
    return config, checkpoint.rounded(weights)


class Engine:
    """`logits(tokens)` of one text from its start: an array [T, vocab_size] to multiply by `scale` for nats."""

    def __init__(self, packed, scale):
        self.packed, self.scale = packed, scale

    def pieces(self, tokens):
        """The logits of a long text, at most PIECE tokens at a time."""
        raise NotImplementedError

    def logits(self, tokens):
        return np.concatenate(list(self.pieces(tokens)))


class Integer(Engine):
    def __init__(self, path, original=None):
        packed = Packed.load(path)
        super().__init__(packed, packed.scale)

    def pieces(self, tokens, watch=None):
        """`watch`: see integer.forward."""
        state = integer.State(self.packed.config)
        for at in range(0, len(tokens), PIECE):
            yield integer.forward(self.packed, tokens[at : at + PIECE], state, watch).astype(np.int32)


class Float(Engine):
    """The float reference on the original's weights."""

    def __init__(self, path, original=None):
        super().__init__(Packed.load(path), 1.0)
        self.config, self.weights = load_original(original or find_original(path))
        # whether a story stops at its length or slides on is chosen in packing, and changes no logit
        if dataclasses.replace(self.config, beyond_context=self.packed.config.beyond_context) != self.packed.config:
            raise UserError(f"{original or find_original(path)}: not the original of {path}: its config differs")

    def pieces(self, tokens):
        state = floating.State(self.config)
        for at in range(0, len(tokens), PIECE):
            yield floating.forward(self.config, self.weights, tokens[at : at + PIECE], state)


class StandIn(Float):
    """The float reference on the packed file's weights, expanded."""

    def __init__(self, path, original=None):
        Engine.__init__(self, Packed.load(path), 1.0)
        self.config, self.weights = self.packed.config, standin.expand(self.packed)


class Device(Engine):
    """The board's code, in real MicroPython."""

    def __init__(self, path, original=None, heapsize="256m", timeout=None):
        packed = Packed.load(path)
        super().__init__(packed, packed.scale)
        self.path, self.heapsize, self.timeout = path, heapsize, timeout

    def pieces(self, tokens):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            request = {"model": str(pathlib.Path(self.path).resolve()), "out": str(folder / "logits")}
            np.asarray(tokens, dtype="<u2").tofile(folder / "tokens")
            request["tokens"] = str(folder / "tokens")
            (folder / "request.json").write_text(json.dumps(request))
            run(DEVICE_SCRIPT, folder / "request.json", heapsize=self.heapsize, timeout=self.timeout)
            yield np.fromfile(folder / "logits", dtype="<i4").reshape(len(tokens), -1)


ENGINES = dict(zip(NAMES, (Device, Integer, StandIn, Float)))


def open_engine(name, path, original=None):
    """An Engine by name. Raises UserError for an unknown one or a file that can't be read."""
    if name not in ENGINES:
        raise UserError(f"engine {name!r}: one of {', '.join(NAMES)} is needed")
    return ENGINES[name](path, original)


def log_softmax(nats):
    """[..., vocab_size] logits in nats to log probabilities."""
    nats = nats - nats.max(-1, keepdims=True)
    return nats - np.log(np.exp(nats).sum(-1, keepdims=True))


def divergence(a, b):
    """KL divergence [...] in nats of log probabilities b from a, both [..., vocab_size]."""
    return (np.exp(a) * (a - b)).sum(-1)


def compare(reference, other):
    """(KL divergence in nats, top-1 agreement) a token, of logits in nats [T, vocab_size]."""
    a, b = log_softmax(reference), log_softmax(other)
    return divergence(a, b), reference.argmax(-1) == other.argmax(-1)
