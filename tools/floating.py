"""The float reference: the model's equations in float64 NumPy, and nothing else.

One text at a time, whole or in pieces (a `State` carries what a piece leaves behind). The trainer's PyTorch module, the
stand-in and the integer reference are all compared with this file.

Papers: Griffin (De et al. 2024, arXiv 2402.19427), rotary positions (Su et al. 2021), multi-query attention (Shazeer
2019), Switch Transformers (Fedus et al. 2021), RMSNorm (Zhang and Sennrich 2019).
"""

import numpy as np


class State:
    """What a text's earlier tokens leave behind: per S layer h [d_rnn] and the convolution's last inputs
    [conv_width - 1, d_rnn]; per A layer the last window - 1 keys and values [n_kv_heads, T, head_dim]."""

    def __init__(self, config):
        self.position = 0
        self.layers = []
        for letter in config.recipe:
            if letter == "S":
                self.layers.append([np.zeros(config.d_rnn), np.zeros((config.conv_width - 1, config.d_rnn))])
            else:
                empty = np.zeros((config.n_kv_heads, 0, config.head_dim))
                self.layers.append([empty, empty])


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def gelu(x):
    """The tanh form (Hendrycks and Gimpel 2016)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x * sigmoid(x)


ACTIVATIONS = {"gelu": gelu, "silu": silu}


def rmsnorm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def linear(x, w, name):
    """x [..., in] @ weight.T [out, in] + bias, where there is one."""
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def block_diagonal(x, w, name):
    """x [T, D] through `blocks` matrices [D / blocks, D / blocks] (out, in) of its own slice each."""
    weight = w[name + ".weight"]
    blocks, width, _ = weight.shape
    y = np.einsum("tbi,boi->tbo", x.reshape(len(x), blocks, width), weight)
    return y.reshape(x.shape) + w[name + ".bias"]


def recurrence(config, w, name, n, state, first, watch):
    """The S layer: n [T, d_model] -> [T, d_model]. `first`: row 0 is a text's first token."""
    u = watch("u", linear(n, w, name + ".x"))
    branch = watch("branch", linear(n, w, name + ".y"))
    tail = np.concatenate([state[1], u])
    taps = w[name + ".conv.weight"]  # the last column weighs the token itself
    width = taps.shape[1]
    u = watch("conv", sum(tail[s : s + len(n)] * taps[:, s] for s in range(width)) + w[name + ".conv.bias"])
    r = sigmoid(watch("gates", block_diagonal(u, w, name + ".gate_a")))
    i = sigmoid(watch("gates", block_diagonal(u, w, name + ".gate_i")))
    log_a = -8 * np.logaddexp(0, w[name + ".lam"]) * r
    a, root = np.exp(log_a), np.sqrt(-np.expm1(2 * log_a))
    if first:
        a[0], root[0] = 0, 1
    h = np.empty_like(u)
    last = state[0]
    for t in range(len(n)):
        last = a[t] * last + root[t] * i[t] * u[t]
        h[t] = last
    state[0], state[1] = last, tail[len(tail) - (width - 1) :]
    return linear(watch("gated", watch("state", h) * gelu(branch)), w, name + ".out")


def rotate(x, positions, config):
    """Rotary embedding of x [heads, T, head_dim] at positions [T]."""
    width = config.rotary_dim
    if not width:
        return x
    half = width // 2
    angle = positions[:, None] * config.rotary_base ** (-np.arange(half) * 2 / width)
    cos, sin = np.cos(angle), np.sin(angle)
    first, second = slice(half), slice(half, width)
    if config.rotary_interleaved:
        first, second = slice(0, width, 2), slice(1, width, 2)
    y = x.copy()
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def attention(config, w, name, n, state, position, watch):
    """The A layer: grouped-query attention to the last `window` tokens, the token itself included."""
    steps = len(n)
    positions = np.arange(position, position + steps)

    def heads(y, count):
        return y.reshape(steps, count, config.head_dim).swapaxes(0, 1)

    q = watch("q", rotate(heads(watch("q", linear(n, w, name + ".q")), config.n_heads), positions, config))
    k = watch("k", rotate(heads(watch("k", linear(n, w, name + ".k")), config.n_kv_heads), positions, config))
    v = watch("v", heads(linear(n, w, name + ".v"), config.n_kv_heads))
    k, v = np.concatenate([state[0], k], 1), np.concatenate([state[1], v], 1)
    key_positions = np.arange(position + steps - k.shape[1], position + steps)
    distance = positions[:, None] - key_positions[None, :]
    seen = (distance >= 0) & (distance < config.window)
    group = config.n_heads // config.n_kv_heads
    y = np.empty((steps, config.n_heads, config.head_dim))
    for h in range(config.n_heads):
        s = np.where(seen, q[h] @ k[h // group].T / np.sqrt(config.head_dim), -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        y[:, h] = p @ v[h // group]
    keep = max(0, k.shape[1] - (config.window - 1))
    state[0], state[1] = k[:, keep:], v[:, keep:]
    return linear(y.reshape(steps, -1), w, name + ".o")


def gated_mlp(n, gate, up, down, activation, watch):
    """down(act(gate n) * up n), each a function of one array."""
    return down(watch("hidden", ACTIVATIONS[activation](watch("gate", gate(n))) * watch("up", up(n))))


def experts(config, w, name, n, watch):
    """Top-1 mixture: the best expert only, its output times its router probability."""
    z = linear(n, w, name + ".router")
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    best = z.argmax(-1)
    watch("expert", best)
    y = np.zeros_like(n)
    for e in np.unique(best):
        rows = np.flatnonzero(best == e)
        part = [lambda x, m=w[f"{name}.{m}.weight"][e]: x @ m.T for m in ("gate", "up", "down")]
        y[rows] = p[rows, e, None] * gated_mlp(n[rows], *part, config.activation, watch)
    return y


def forward(config, w, tokens, state=None, watch=None):
    """Logits [T, vocab_size] in nats of every token of one text.

    w: the checkpoint's tensors by name, float64. state: a `State` to go on from (it is moved on). watch: called as
    watch(name, layer, values) with every intermediate that a board keeps in 16 bits.
    """
    state = state or State(config)
    tell = watch or (lambda name, layer, values: None)
    x = w["embedding.weight"][np.asarray(tokens)] * config.embedding_scale
    for i, letter in enumerate(config.recipe):

        def note(name, values, layer=i):
            tell(name, layer, values)
            return values

        name = f"layers.{i}"
        n = note("norm", rmsnorm(x, w[name + ".temporal_norm.weight"], config.norm_eps))
        if letter == "S":
            x = x + recurrence(config, w, name + ".recurrence", n, state.layers[i], state.position == 0, note)
        else:
            x = x + attention(config, w, name + ".attention", n, state.layers[i], state.position, note)
        note("residual", x)
        n = note("norm", rmsnorm(x, w[name + ".ff_norm.weight"], config.norm_eps))
        y = 0
        if config.d_ff:
            parts = [lambda x, m=m: linear(x, w, f"{name}.mlp.{m}") for m in ("gate", "up", "down")]
            y = gated_mlp(n, *parts, config.activation, lambda a, v: note("dense_" + a, v))
        if config.n_experts:
            y = y + experts(config, w, name + ".moe", n, note)
        x = note("residual", x + y)
    state.position += len(tokens)
    n = rmsnorm(x, w["final_norm.weight"], config.norm_eps)
    tell("norm", config.n_layers, n)
    logits = n @ w["embedding.weight" if config.tie_embeddings else "head.weight"].T
    if config.logit_softcap:
        logits = config.logit_softcap * np.tanh(logits / config.logit_softcap)
    return logits
