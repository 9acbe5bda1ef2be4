"""The feed-forward half of a layer: a dense gated MLP, a top-1 mixture of experts, or both.

    x += W_down(act(W_gate n) * W_up n)           for every token, its weights in RAM
    x += p_e * Expert_e(n),  p = softmax(W_r n)   for the best expert e only, read from flash (Fedus et al. 2021)
"""

from . import kernels as k
from .buffers import heap_lock, heap_unlock, ints
from .linear import linear, scratch

ERRORS = (MemoryError, OSError, ValueError)


class GatedMLP:
    """The three matrices and their shifts: a dense MLP, or the shape that all experts of a layer share."""

    def __init__(self, section, shifts, d, hidden, bits, activation):
        table = k.GELU if activation == "gelu" else k.SIGMOID
        self._gated = ints((hidden, table) + tuple(shifts))
        self.gate_up = linear(section.matrix(hidden, d, bits), section.matrix(hidden, d, bits))
        self.down = linear(section.matrix(d, hidden, bits))
        self.scratch = scratch(self.gate_up + self.down)

    def run(self, y, n, work, buf):
        """y = W_down(...) of n, or y += where the file says so."""
        a, px = work.a, work.px
        for d in self.gate_up:
            k.linear(a, n, px, buf, d)
        k.gated(a, work.tables, self._gated)
        for d in self.down:
            k.linear(y, a, px, buf, d)


class Experts:
    """A layer's router, and the reader of the expert it names."""

    def __init__(self, section, config, layer, library):
        d, self.count = config["d_model"], config["n_experts"]
        act, product, self._mantissa, self._shift, self._out = section.params(5)
        self._buf = section.buf
        self._first = layer * self.count
        self._library = library
        self.router = linear(section.matrix(self.count, d))
        self.mlp = GatedMLP(library.shape(self._first), (act, product), d, config["d_expert"], 4, config["activation"])
        self.scratch = max(scratch(self.router), self.mlp.scratch)
        self.d = d

    def choose(self, n, work):
        """The expert that the router names for the normalised input n; work.out[0] is its probability."""
        a = work.a
        for d in self.router:
            k.linear(a, n, work.px, self._buf, d)
        return k.route(a, work.tables, self.count, self._mantissa, self._shift, work.out)

    def read(self, expert):
        """The expert's bytes, from RAM or flash."""
        try:
            return self._library.expert(self._first + expert)
        except ERRORS:
            pass
        heap_unlock()  # what went wrong can't be said while the heap is locked: once more without
        try:
            return self._library.expert(self._first + expert)
        finally:
            heap_lock()

    def add(self, x, n, probability, buf, work):
        """x += probability * Expert(n), the expert's bytes in `buf`."""
        self.mlp.run(work.b, n, work, buf)
        k.add_scaled(x, work.b, probability, self._out, self.d)

    def step(self, x, n, work):
        """Add the best expert's output for n to the residual stream x."""
        best = self.choose(n, work)
        self.add(x, n, work.out[0], self.read(best), work)
