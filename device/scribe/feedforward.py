"""The feed-forward half of a layer: a dense gated MLP, a top-1 mixture of experts, or both.

    x += W_down(act(W_gate n) * W_up n)           for every token, its weights in RAM
    x += p_e * Expert_e(n),  p = softmax(W_r n)   for the best expert e only, read from flash (Fedus et al. 2021)
"""

from . import kernels as k
from .buffers import heap_lock, heap_unlock
from .linear import Linear

ERRORS = (MemoryError, OSError, ValueError)


class GatedMLP:
    """The three matrices and their shifts: a dense MLP, or the shape that all experts of a layer share."""

    def __init__(self, section, shifts, d, hidden, bits, activation):
        self._act, self._product = shifts
        self._table = k.GELU if activation == "gelu" else k.SIGMOID
        self.n = hidden
        self.gate = Linear(section.matrix(hidden, d, bits))
        self.up = Linear(section.matrix(hidden, d, bits))
        self.down = Linear(section.matrix(d, hidden, bits))

    def packed(self):
        """Elements of the longest packed input."""
        return max(self.gate.packed(), self.down.packed())

    def run(self, y, n, work, buf):
        """y = W_down(...) of n, or y += where the file says so."""
        g, u, px = work.a, work.b, work.px
        self.gate.pack(px, n)
        self.gate.run(g, px, buf)
        self.up.run(u, px, buf)
        k.activate(g, work.tables, self._table, self._act, self.n)
        k.multiply(g, u, self._product, self.n)
        self.down.pack(px, g)
        self.down.run(y, px, buf)


class Experts:
    """A layer's router, and the reader of the expert it names."""

    def __init__(self, section, config, layer, library):
        d, self.count = config["d_model"], config["n_experts"]
        act, product, self._mantissa, self._shift, self._out = section.params(5)
        self._buf = section.buf
        self._first = layer * self.count
        self._library = library
        self.router = Linear(section.matrix(self.count, d))
        self.mlp = GatedMLP(library.shape(self._first), (act, product), d, config["d_expert"], 4, config["activation"])
        self.d = d

    def packed(self):
        """Elements of the longest packed input."""
        return max(self.router.packed(), self.mlp.packed())

    def choose(self, n, work):
        """The expert that the router names for the normalised input n; work.out[0] is its probability."""
        self.router.pack(work.px, n)
        self.router.run(work.a, work.px, self._buf)
        return k.route(work.a, work.tables, self.count, self._mantissa, self._shift, work.out)

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
        self.mlp.run(work.b, n, work, buf)  # work.b is free once the product is in work.a
        k.add_scaled(x, work.b, probability, self._out, self.d)

    def step(self, x, n, work):
        """Add the best expert's output for n to the residual stream x."""
        best = self.choose(n, work)
        self.add(x, n, work.out[0], self.read(best), work)
