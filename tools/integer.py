"""The integer reference: every intermediate value that a board computes, defined in NumPy.

It runs in int64 and raises OverflowError as soon as a value leaves 32 signed bits, so a 32-bit board can't overflow
where this did not. A whole text, or the next piece of one, goes through each layer at once; the results are those of
token by token. The board's kernels (device/scribe/plain_kernels.py) must agree to the bit.
"""

import numpy as np

from tools.fileformat import ADD, GROUP, PRODUCT_SHIFT, RAW
from tools.fixedpoint import TABLES, int32, limit, mul_shift, normalise, round_shift, saturate, scaled

GATE_SHIFT = 1  # gates have 11 fraction bits, the sigmoid table's index 12


class State:
    """What earlier tokens leave behind, as on a board, but with the keys and values in order instead of in a ring."""

    def __init__(self, config):
        self.position = 0
        self.phases = np.zeros(config.rotary_dim // 2, dtype=np.int64)  # 32-bit turns of the next position
        self.layers = []
        for letter in config.recipe:
            if letter == "S":
                self.layers.append([np.zeros(config.d_rnn, np.int64),
                                    np.zeros((config.conv_width - 1, config.d_rnn), np.int64)])
            else:
                empty = np.zeros((config.n_kv_heads, 0, config.head_dim), np.int64)
                self.layers.append([empty, empty])


def product(x, m):
    """Row sums [T, rows] of the matrix for x [T, cols], before the shift: groups of 64, each times its scale."""
    steps, (rows, cols) = len(x), m.shape
    x = x.reshape(steps, m.blocks, cols).swapaxes(0, 1).astype(float)
    w = m.w.reshape(m.blocks, rows // m.blocks, cols).swapaxes(1, 2).astype(float)
    total = np.zeros((steps, rows), np.int64) + (0 if m.bias is None else m.bias)
    for g in range(m.scales.shape[1]):
        part = slice(g * GROUP, (g + 1) * GROUP)
        # float64 holds these sums exactly (below 2^53), and its matrix product is far faster than int64's
        dot = (x[..., part] @ w[:, part]).swapaxes(0, 1).reshape(steps, rows).astype(np.int64)
        total = int32(total + mul_shift(dot, m.scales[:, g], PRODUCT_SHIFT[m.bits]))
    return total


def matvec(x, m, watch=None, name="", residual=None):
    """One matrix as the board applies it: a 16-bit result, a 32-bit one, or a sum added to `residual`."""
    y = round_shift(product(x, m), m.shift)
    if m.mode == ADD:
        return limit(residual + y)
    return y if m.mode == RAW else saturate(y, watch, name)


def rmsnorm(x, weight, params, watch=None):
    """x [T, d_model] (32 bits) to 16 bits; see plain_kernels.norm."""
    k, point, shift, eps = params
    s = np.zeros((len(x), 1), np.int64)
    for bits in range(15, 31):
        s += (np.abs(x).max(-1, keepdims=True) >> bits) > 0
    a = x >> s
    v = int32((eps >> np.minimum(2 * s + k, 31)) + (a * a >> k).sum(-1, keepdims=True))
    m, j = normalise(np.maximum(v, 1))
    n = int32(a * TABLES.rsqrt_normalised(m)) >> (30 - j - point)
    return saturate(round_shift(n * weight.values, shift), watch, "norm")


def activate(y, table, shift):
    """y * gate(y): GELU or SiLU."""
    x = int32(y << shift) if shift >= 0 else y >> -shift
    return round_shift(y * TABLES.lookup(table, x + 65536), 15)


def sigmoid(gate):
    """A gate's sigmoid, 15 fraction bits."""
    return TABLES.lookup("sigmoid", (gate << GATE_SHIFT) + 65536)


def recurrence(section, x, n, state, first, watch):
    """The S layer, RG-LRU and all; adds to the residual stream x."""
    act_shift, conv_shift, state_shift, gate_shift = section["recurrence.params"]
    u = matvec(n, section["recurrence.x"], watch, "u")
    branch = activate(matvec(n, section["recurrence.y"], watch, "branch"), "gelu", act_shift)
    tail = np.concatenate([state[1], u])
    taps = section["recurrence.conv.weight"].values.reshape(u.shape[1], -1)
    width = taps.shape[1]
    acc = section["recurrence.conv.bias"].values
    for s in range(width):
        acc = int32(acc + tail[s : s + len(n)] * taps[:, s])
    u = saturate(round_shift(acc, conv_shift), watch, "conv")

    r = sigmoid(matvec(u, section["recurrence.gate_a"], watch, "gates"))
    i = sigmoid(matvec(u, section["recurrence.gate_i"], watch, "gates"))
    iu = round_shift(i * u, 15)
    a = TABLES.exp2_neg(mul_shift(section["recurrence.decay"].values, r << 1), 20)
    q = np.minimum((1 << 24) - a + 128 >> 8, 65535)  # 1 - a, 16 fraction bits
    v = int32(q * ((131072 - q) >> 1)) >> 1  # (1 - a)(1 + a), 30 fraction bits
    m, j = normalise(np.maximum(v, 1))
    root = np.where(v > 0, np.minimum((m >> 15) * TABLES.rsqrt_normalised(m) >> 15 >> j, 32767), 0)
    h = np.empty_like(u)
    last = state[0]
    for t in range(len(n)):
        if first and t == 0:
            last = limit(round_shift(iu[t] << 15, state_shift))
        else:
            decayed = last - int32(last * q[t] + 32768 >> 16)
            last = limit(decayed + round_shift(root[t] * iu[t], state_shift))
        h[t] = last
    watch("state", h, 0)
    state[0], state[1] = last, tail[len(tail) - (width - 1) :]
    gated = saturate(round_shift(mul_shift(h, branch), gate_shift), watch, "gated")
    return matvec(gated, section["recurrence.out"], residual=x)


def rotate(x, phases, config):
    """Rotary embedding of x [heads, T, head_dim] by 32-bit turns phases [T, rotary_dim / 2]."""
    width, half = config.rotary_dim, config.rotary_dim // 2
    first, second = slice(half), slice(half, width)
    if config.rotary_interleaved:
        first, second = slice(0, width, 2), slice(1, width, 2)
    s, c = TABLES.sin(phases), TABLES.sin(phases + (1 << 30))
    u, v = x[..., first], x[..., second]
    y = x.copy()
    y[..., first] = round_shift(u * c - v * s, 15)
    y[..., second] = round_shift(u * s + v * c, 15)
    return y


def softmax(s, seen, mantissa, shift):
    """Probabilities [T, keys], 15 fraction bits, of the scores that are `seen`."""
    top = np.where(seen, s, -(1 << 31)).max(-1, keepdims=True)
    w = TABLES.exp2_neg(scaled(np.where(seen, top - s, 0), mantissa, shift), 16) >> 9
    w = np.where(seen, w, 0)
    total = int32(w.sum(-1, keepdims=True))
    k = np.zeros_like(total)
    for bits in range(16, 31):
        k += (total >> bits) > 0
    return round_shift(w * ((1 << 30) // (total >> k)), 15 + k)


def attention(config, section, x, n, state, phases, watch):
    """The A layer; adds to the residual stream x. phases [T, rotary_dim / 2]."""
    top, mantissa, shift = section["attention.params"]
    steps = len(n)

    def heads(y, count):
        return y.reshape(steps, count, config.head_dim).swapaxes(0, 1)

    def clamp(y, name):
        watch(name, y, int(np.count_nonzero(np.abs(y) > top)))
        return np.clip(y, -top, top)

    q = heads(matvec(n, section["attention.q"], watch, "q"), config.n_heads)
    k = heads(matvec(n, section["attention.k"], watch, "k"), config.n_kv_heads)
    v = heads(matvec(n, section["attention.v"], watch, "v"), config.n_kv_heads)
    q, k = clamp(rotate(q, phases, config), "q"), clamp(rotate(k, phases, config), "k")
    before = state[0].shape[1]
    k, v = np.concatenate([state[0], k], 1), np.concatenate([state[1], v], 1)
    distance = np.arange(before, before + steps)[:, None] - np.arange(before + steps)[None, :]
    seen = (distance >= 0) & (distance < config.window)
    group = config.n_heads // config.n_kv_heads
    y = np.empty((steps, config.n_heads, config.head_dim), np.int64)
    for h in range(config.n_heads):
        s = int32((q[h].astype(float) @ k[h // group].T.astype(float)).astype(np.int64))
        p = softmax(s, seen, mantissa, shift)
        watch("attention", p, 0)
        mixed = int32((p.astype(float) @ v[h // group].astype(float)).astype(np.int64))
        y[:, h] = saturate(round_shift(mixed, 15), watch, "v")
    keep = max(0, k.shape[1] - (config.window - 1))
    state[0], state[1] = k[:, keep:], v[:, keep:]
    return matvec(y.reshape(steps, -1), section["attention.o"], residual=x)


def gated_mlp(n, gate, up, activation, act_shift, hidden_shift, watch, prefix=""):
    """act(gate n) * up n, 16 bits."""
    g = activate(matvec(n, gate, watch, prefix + "gate"), activation, act_shift)
    return saturate(round_shift(g * matvec(n, up, watch, prefix + "up"), hidden_shift), watch, prefix + "hidden")


def experts(packed, layer, section, x, n, activation, watch):
    """Top-1 mixture; adds to the residual stream x."""
    act_shift, hidden_shift, mantissa, shift, out_shift = section["moe.params"]
    z = matvec(n, section["moe.router"])
    best = z.argmax(-1)
    watch("expert", best, 0)
    w = TABLES.exp2_neg(scaled(z.max(-1, keepdims=True) - z, mantissa, shift), 16) >> 9
    p = np.minimum((1 << 30) // (w.sum(-1) + 1 >> 1), 65535)
    x = x.copy()
    for e in np.unique(best):
        rows = np.flatnonzero(best == e)
        m = packed.sections["XPRT", layer, int(e)]
        hidden = gated_mlp(n[rows], m["gate"], m["up"], activation, act_shift, hidden_shift, watch)
        y = matvec(hidden, m["down"])
        x[rows] = limit(x[rows] + round_shift(mul_shift(y, p[rows, None]), out_shift))
    return x


def head(packed, x, watch=None):
    """Logits [T, vocab_size] of the residual stream x."""
    section = packed.sections["HEAD", 0, 0]
    tied = packed.config.tie_embeddings
    matrix = packed.sections["EMBD", 0, 0]["weight"] if tied else section["weight"]
    logits = round_shift(product(rmsnorm(x, section["norm"], section["norm.params"], watch), matrix), matrix.shift)
    if packed.config.logit_softcap:
        _, _, into, into_shift, back, back_shift = section["params"]
        at = np.minimum(scaled(np.abs(logits), into, into_shift), 131071)
        a, b = TABLES.tanh[at >> 8], TABLES.tanh[(at >> 8) + 1]
        capped = round_shift(mul_shift((a << 8) + (b - a) * (at & 255), back), back_shift)
        logits = np.where(logits >= 0, capped, -capped)
    return logits


def embed(packed, tokens):
    """Residual stream [T, d_model] of the tokens."""
    section = packed.sections["EMBD", 0, 0]
    mantissa, shift = section["params"]
    m = section["weight"]
    scale = np.repeat(m.scales[tokens], GROUP, axis=1)[:, : m.w.shape[1]]
    return limit(round_shift(mul_shift(m.w[tokens] * scale << 8, mantissa), shift))


def forward(packed, tokens, state=None, watch=None, last_only=False):
    """Integer logits [T, vocab_size] (times `packed.scale`: nats) of every token of one text.

    state: a `State` to go on from (it is moved on). watch: called as watch(name, layer, values, clipped) with every
    16-bit intermediate before it is saturated; also "expert", the choices [T] of a layer, and "attention", each head's
    probabilities in turn [T, keys], the keys those of the last tokens, 15 fraction bits.
    last_only: the head for the last token alone, [1, vocab_size].
    """
    config = packed.config
    state = state or State(config)
    tokens = np.asarray(tokens, dtype=np.int64)
    tell = watch or (lambda name, layer, values, clipped: None)
    x = embed(packed, tokens)
    activation = "gelu" if config.activation == "gelu" else "sigmoid"
    phases = None
    for i, letter in enumerate(config.recipe):
        section = packed.sections["LAYR", i, 0]

        def note(name, values, clipped, layer=i):
            tell(name, layer, values, clipped)

        n = rmsnorm(x, section["temporal_norm"], section["temporal_norm.params"], note)
        if letter == "S":
            x = recurrence(section, x, n, state.layers[i], state.position == 0, note)
        else:
            if phases is None:
                steps = section["attention.rotary"].values
                phases = state.phases + np.arange(len(tokens))[:, None] * steps
                phases = (phases + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
                state.phases = ((phases[-1] + steps) + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
            x = attention(config, section, x, n, state.layers[i], phases, note)
        n = rmsnorm(x, section["ff_norm"], section["ff_norm.params"], note)
        # both halves read the same n, so the order of the two additions does not matter
        if config.d_ff:
            act_shift, hidden_shift = section["mlp.params"]
            gate, up = section["mlp.gate"], section["mlp.up"]
            hidden = gated_mlp(n, gate, up, activation, act_shift, hidden_shift, note, "dense_")
            x = matvec(hidden, section["mlp.down"], residual=x)
        if config.n_experts:
            x = experts(packed, i, section, x, n, activation, note)
    state.position += len(tokens)
    return head(packed, x[-1:] if last_only else x, lambda name, *rest: tell(name, config.n_layers, *rest))
