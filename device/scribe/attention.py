"""The A layer: sliding-window attention, multi-query, grouped-query or multi-head, over a ring buffer.

Position p lives in slot p mod window and nothing is ever moved. Keys are kept rotated, [kv head][slot][element];
values [kv head][element][slot]; both as uint16 (v + 32768).
"""

from array import array
from struct import unpack_from

from . import kernels as k
from .buffers import ints
from .linear import Linear


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
        self._rotate_q = ints((self.heads, dim, rotated, interleaved, top))
        self._rotate_k = ints((self.kv_heads, dim, rotated, interleaved, top))
        self._ring = ints((self.kv_heads, dim, 0, 0, self.slots, self.heads, mantissa, shift))
        self.q = Linear(section.matrix(self.heads * dim, d))
        self.k = Linear(section.matrix(self.kv_heads * dim, d))
        self.v = Linear(section.matrix(self.kv_heads * dim, d))
        self.o = Linear(section.matrix(d, self.heads * dim))

    def packed(self):
        """Elements of the longest packed input."""
        return max(self.q.packed(), self.o.packed())

    def new_state(self):
        count = 2 * self.kv_heads * self.dim * self.slots
        return array("H", bytes(count)), array("H", bytes(count))

    def reset(self, state):
        """Nothing to do: slots not yet written in this text are never read."""

    def step(self, x, n, state, place, work):
        """Add the layer's output for the normalised input n to the residual stream x."""
        keys, values = state
        # a tuple of more than three names would be an allocation
        q, y = work.a, work.b
        px, t, buf = work.px, work.tables, self._buf
        self.q.pack(px, n)
        self.q.run(q, px, buf)
        self.k.run(work.k, px, buf)
        self.v.run(work.v, px, buf)
        k.rotate(q, place.phases, t, self._rotate_q)
        k.rotate(work.k, place.phases, t, self._rotate_k)
        ring = self._ring
        ring[2], ring[3] = place.used, place.slot
        k.remember(keys, values, work.k, work.v, ring)
        k.attend(y, q, keys, values, work.scores, t, ring)
        self.o.pack(px, y)
        self.o.run(x, px, buf)


def rotary_dim(config):
    """How many elements of a head are rotated."""
    return int(config["head_dim"] * config["rotary_fraction"]) // 2 * 2
