"""The S layer: the gated linear recurrence of Griffin (De et al. 2024).

    u = conv(W_x n);  g = gelu(W_y n)
    r = sigmoid(W_a u + b_a);  i = sigmoid(W_i u + b_i);  log a = -8 softplus(Lambda) r
    h = a h + sqrt(1 - a^2) (i u);  x += W_o (h g)
"""

from . import kernels as k
from .buffers import ints, zeros
from .linear import linear, scratch


class Recurrence:
    """Its state is d_rnn numbers and the convolution's last conv_width - 1 inputs, whatever the text's length."""

    def __init__(self, section, config):
        d, n, heads = config["d_model"], config["d_rnn"], config["rnn_heads"]
        self.n, self.width = n, config["conv_width"]
        act, conv, state, product = section.params(4)
        self._buf = section.buf
        self.xy = linear(section.matrix(n, d), section.matrix(n, d))
        weights, bias = section.vector(n * self.width, 16), section.vector(n, 32)
        self._conv = ints((n, self.width, weights, bias, conv))
        self.gates = linear(section.matrix(n, n // heads, 8, heads), section.matrix(n, n // heads, 8, heads))
        self._recur = ints((n, section.vector(n, 32), state, 0))
        self.out = linear(section.matrix(d, n))
        self._gate = ints((n, act, product))
        self.scratch = scratch(self.xy + self.gates + self.out)

    def new_state(self):
        return zeros(self.n), zeros((self.width - 1) * self.n)

    def reset(self, state):
        for a in state:
            for i in range(len(a)):
                a[i] = 0

    def step(self, x, n, state, place, work):
        """Add the layer's output for the normalised input n to the residual stream x."""
        h, tail = state
        u, gates, px = work.a, work.b, work.px  # u, then the branch g; r, then i
        t, buf = work.tables, self._buf
        for d in self.xy:
            k.linear(u, n, px, buf, d)
        k.conv(u, u, tail, buf, self._conv)
        for d in self.gates:
            k.linear(gates, u, px, buf, d)
        self._recur[3] = place.first
        k.recur(h, u, gates, buf, t, self._recur)
        k.gate_state(u, h, t, self._gate)
        for d in self.out:
            k.linear(x, u, px, buf, d)
