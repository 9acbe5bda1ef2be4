"""The S layer: the gated linear recurrence of Griffin (De et al. 2024).

    u = conv(W_x n);  g = gelu(W_y n)
    r = sigmoid(W_a u + b_a);  i = sigmoid(W_i u + b_i);  log a = -8 softplus(Lambda) r
    h = a h + sqrt(1 - a^2) (i u);  x += W_o (h g)
"""

from . import kernels as k
from .buffers import ints, zeros
from .linear import Linear


class Recurrence:
    """Its state is d_rnn numbers and the convolution's last conv_width - 1 inputs, whatever the text's length."""

    def __init__(self, section, config):
        d, n, heads = config["d_model"], config["d_rnn"], config["rnn_heads"]
        self.n, self.width = n, config["conv_width"]
        self._act, conv, state, self._gate = section.params(4)
        self._buf = section.buf
        self.x = Linear(section.matrix(n, d))
        self.y = Linear(section.matrix(n, d))
        weights, bias = section.vector(n * self.width, 16), section.vector(n, 32)
        self._conv = ints((n, self.width, weights, bias, conv))
        self.gate_a = Linear(section.matrix(n, n // heads, 8, heads))
        self.gate_i = Linear(section.matrix(n, n // heads, 8, heads))
        self._recur = ints((n, section.vector(n, 32), state, 0))
        self.out = Linear(section.matrix(d, n))

    def packed(self):
        """Elements of the longest packed input."""
        return max(self.x.packed(), self.gate_a.packed(), self.out.packed())

    def new_state(self):
        return zeros(self.n), zeros((self.width - 1) * self.n)

    def reset(self, state):
        for a in state:
            for i in range(len(a)):
                a[i] = 0

    def step(self, x, n, state, place, work):
        """Add the layer's output for the normalised input n to the residual stream x."""
        # a tuple of more than three names would be an allocation
        h, tail = state
        u, g = work.a, work.b
        px, t, buf = work.px, work.tables, self._buf
        self.x.pack(px, n)
        self.x.run(u, px, buf)
        self.y.run(g, px, buf)
        k.activate(g, t, k.GELU, self._act, self.n)
        k.conv(u, u, tail, buf, self._conv)
        self.gate_a.pack(px, u)
        self.gate_a.run(work.r, px, buf)
        self.gate_i.run(work.i, px, buf)
        self._recur[3] = place.first
        k.recur(h, u, work.gates, buf, t, self._recur)
        k.gate_state(u, h, g, self._gate, self.n)
        self.out.pack(px, u)
        self.out.run(x, px, buf)
