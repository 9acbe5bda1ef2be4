"""The A layer: sliding-window attention, multi-query, grouped-query or multi-head, over a ring buffer.

Position p lives in slot p mod window and nothing is ever moved. Keys are kept rotated, [kv head][slot][element];
values [kv head][element][slot]; both as uint16 (v + 32768).
"""

from array import array
from struct import unpack_from

from . import kernels as k
from .buffers import ints
from .linear import linear, scratch


class Attention:
    def __init__(self, section, config):
        d, dim = config["d_model"], config["head_dim"]
        self.heads, self.kv_heads, self.dim = config["n_heads"], config["n_kv_heads"], dim
        self.window = config["window"]
        self.slots = (self.window + 7) // 8 * 8
        rotated = rotary_dim(config)
        top, mantissa, shift = section.params(3)
        self._buf = section.buf
        self.pairs = rotated // 2
        at = section.vector(self.pairs, 32)
        self.turns = ints(unpack_from("<%di" % self.pairs, section.buf, at))
        interleaved = 1 if config["rotary_interleaved"] else 0
        self._rotate = ints((self.heads + self.kv_heads, dim, rotated, interleaved, top))
        self._ring = ints((self.kv_heads, dim, 0, 0, self.slots, self.heads, mantissa, shift))
        q, kv = self.heads * dim, self.kv_heads * dim
        self.qkv = linear(section.matrix(q, d), section.matrix(kv, d), section.matrix(kv, d))
        self.o = linear(section.matrix(d, q))
        self.scratch = scratch(self.qkv + self.o)

    def new_state(self):
        count = 2 * self.kv_heads * self.dim * self.slots
        return array("H", bytes(count)), array("H", bytes(count))

    def reset(self, state):
        """Nothing to do: slots not yet written in this text are never read."""

    def step(self, x, n, state, place, work):
        """Add the layer's output for the normalised input n to the residual stream x."""
        keys, values = state
        keys, values = state
        q, y, px = work.a, work.b, work.px  # queries, then this token's keys and values
        t, buf, ring = work.tables, self._buf, self._ring
        for d in self.qkv:
            k.linear(q, n, px, buf, d)
        k.rotate(q, place.phases, t, self._rotate)  # keys too
        ring[2], ring[3] = place.used, place.slot
        k.attend(y, q, keys, values, work.scores, t, ring)
        for d in self.o:
            k.linear(x, y, px, buf, d)


def rotary_dim(config):
    """How many elements of a head are rotated."""
    return int(config["head_dim"] * config["rotary_fraction"]) // 2 * 2
