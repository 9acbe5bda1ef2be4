"""The decoder in torch: gated linear recurrences and sliding-window attention, dense and mixture feed-forward.

Inside, tensors are time-major, [T, B, ...], because the recurrence walks along time. Parameter names are the
contract with every other tool; `tools/config.py` has the sizes they follow.
"""

import math
import pathlib

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from tools.config import Config
from tools.errors import UserError
from tools.scan import causal_conv, early_places, rg_lru

#: Switch Transformer's load-balance weight (Fedus et al. 2021, arXiv 2101.03961, equation 4).
BALANCE_WEIGHT = 0.01
#: Router z-loss weight (Zoph et al. 2022, ST-MoE, arXiv 2202.08906, equation 5).
ROUTER_Z_WEIGHT = 1e-3
#: How many queries attention takes at a time.
QUERY_BLOCK = 128


def gelu(x):
    return F.gelu(x, approximate="tanh")


ACTIVATION = {"gelu": gelu, "silu": F.silu}


class Linear(nn.Linear):
    """nn.Linear drawn from a normal distribution of standard deviation sqrt(gain / inputs), biases 0."""

    def __init__(self, inputs, outputs, bias=False, gain=1.0):
        self.gain = gain
        super().__init__(inputs, outputs, bias=bias)

    def reset_parameters(self):
        nn.init.normal_(self.weight, std=math.sqrt(self.gain / self.in_features))
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _RMSNorm(torch.autograd.Function):
    """By hand, because autograd's chain of small steps takes twice as many passes over memory."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        scale = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        unit = x * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        unit, scale, weight = ctx.saved_tensors
        product = grad * unit
        d_weight = product.flatten(0, -2).sum(0)
        along = torch.mv(product.flatten(0, -2), weight).div_(-len(weight)).view_as(scale)
        dx = (grad * weight).addcmul_(unit, along).mul_(scale)
        return dx, d_weight, None


class RMSNorm(nn.Module):
    """x rsqrt(mean(x^2) + eps) w over the last dimension (Zhang and Sennrich 2019, arXiv 1910.07467)."""

    def __init__(self, size, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return _RMSNorm.apply(x, self.weight, self.eps)


class CausalConv(nn.Module):
    """Depthwise convolution over time. weight: [D, width], its last column multiplies the current token."""

    def __init__(self, size, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, width) * math.sqrt(0.01 / width))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, u, layout):
        """u: [T, B, D] -> the same, in the weight's precision."""
        return causal_conv(u.to(self.weight.dtype), self.weight, self.bias, layout.early)


class BlockDiagonal(nn.Module):
    """y = W u + b with W block-diagonal. weight: [heads, out, in]; u: [..., heads * in]."""

    def __init__(self, size, heads):
        super().__init__()
        width = size // heads
        self.weight = nn.Parameter(torch.randn(heads, width, width) / math.sqrt(width))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, u):
        heads, width, _ = self.weight.shape
        blocks = u.reshape(-1, heads, width).transpose(0, 1)
        y = torch.bmm(blocks, self.weight.transpose(1, 2)).transpose(0, 1).reshape(u.shape)
        return y + self.bias


class Recurrence(nn.Module):
    """Griffin's recurrent block (De et al. 2024, arXiv 2402.19427, figure 2)."""

    def __init__(self, config):
        super().__init__()
        d, size = config.d_model, config.d_rnn
        self.x = Linear(d, size, config.rnn_bias)
        self.y = Linear(d, size, config.rnn_bias)
        self.conv = CausalConv(size, config.conv_width)
        self.gate_a = BlockDiagonal(size, config.rnn_heads)
        self.gate_i = BlockDiagonal(size, config.rnn_heads)
        # exp(-softplus(lam)) starts between 0.9 and 0.999, its square uniform.
        log_decay = 0.5 * torch.log(torch.empty(size).uniform_(0.9 ** 2, 0.999 ** 2))
        self.lam = nn.Parameter(torch.log(torch.expm1(-log_decay)))
        self.out = Linear(size, d, config.rnn_bias, gain=2.0 / config.n_layers)

    def forward(self, n, layout):
        """n: [T, B, d_model] -> the same."""
        u = self.conv(self.x(n), layout)
        h = rg_lru(u, self.gate_i(u), self.gate_a(u), self.lam, layout.starts)
        return self.out(h * gelu(self.y(n)))


class Attention(nn.Module):
    """Grouped-query attention over a sliding window that counts the token itself, with rotary positions.

    Ainslie et al. 2023, arXiv 2305.13245; Su et al. 2021, arXiv 2104.09864; scale 1 / sqrt(head_dim).
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        d, size = config.d_model, config.head_dim
        self.q = Linear(d, config.n_heads * size, config.qkv_bias)
        self.k = Linear(d, config.n_kv_heads * size, config.qkv_bias)
        self.v = Linear(d, config.n_kv_heads * size, config.qkv_bias)
        self.o = Linear(config.n_heads * size, d, config.attention_out_bias, gain=2.0 / config.n_layers)

    def rotate(self, x, layout):
        """Rotate the first rotary_dim elements of x, [T, B, heads, head_dim], by the position."""
        size = self.config.rotary_dim
        if not size:
            return x
        cos, sin = layout.rotation
        turned, rest = x[..., :size], x[..., size:]
        if self.config.rotary_interleaved:
            first, second = turned[..., 0::2], turned[..., 1::2]
        else:
            first, second = turned.chunk(2, dim=-1)
        low, high = first * cos - second * sin, second * cos + first * sin
        if self.config.rotary_interleaved:
            turned = torch.stack((low, high), dim=-1).flatten(-2)
        else:
            turned = torch.cat((low, high), dim=-1)
        return torch.cat((turned, rest), dim=-1)

    def forward(self, n, layout):
        """n: [T, B, d_model] -> the same."""
        config = self.config
        steps, batch, _ = n.shape

        def heads(x, count):
            return x.view(steps, batch, count, config.head_dim)

        kv, group = config.n_kv_heads, config.n_heads // config.n_kv_heads
        q = self.rotate(heads(self.q(n), config.n_heads), layout) * config.head_dim ** -0.5
        q = q.view(steps, batch, kv, group, config.head_dim).permute(1, 2, 3, 0, 4)
        k = self.rotate(heads(self.k(n), kv), layout).permute(1, 2, 0, 3)
        v = heads(self.v(n), kv).permute(1, 2, 0, 3)
        parts = []
        # A block of queries at a time sees only the keys its windows reach; the heads that share a key are one matrix.
        for (first, low, end), bias in zip(layout.blocks, layout.biases):
            rows = q[:, :, :, first:end].flatten(2, 3)  # [B, kv, group * queries, head_dim]
            scores = rows @ k[:, :, low:end].mT
            scores = scores.view(batch, kv, group, end - first, end - low) + bias
            p = torch.softmax(scores, dim=-1).view(batch, kv, -1, end - low)
            parts.append((p @ v[:, :, low:end]).view(batch, kv, group, end - first, -1))
        y = torch.cat(parts, dim=3)
        return self.o(y.permute(3, 0, 1, 2, 4).reshape(steps, batch, -1))


class GatedMLP(nn.Module):
    """W_down(act(W_gate n) * W_up n) (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, config):
        super().__init__()
        self.act = ACTIVATION[config.activation]
        self.gate = Linear(config.d_model, config.d_ff, config.mlp_bias)
        self.up = Linear(config.d_model, config.d_ff, config.mlp_bias)
        self.down = Linear(config.d_ff, config.d_model, config.mlp_bias, gain=2.0 / config.n_layers)

    def forward(self, n):
        return self.down(self.act(self.gate(n)) * self.up(n))


class _Permute(torch.autograd.Function):
    """Rows of x in another order. Its gradient is a gather too: autograd would scatter into zeros."""

    @staticmethod
    def forward(ctx, x, order, back):
        ctx.save_for_backward(order, back)
        return x.index_select(0, order)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        order, back = ctx.saved_tensors
        return grad.index_select(0, back), None, None


class Stack(nn.Module):
    """One matrix per expert. weight: [experts, outputs, inputs]."""

    def __init__(self, experts, inputs, outputs, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, outputs, inputs) * math.sqrt(gain / inputs))


class Mixture(nn.Module):
    """Top-1 mixture of gated MLPs, dropless: y = p_e Expert_e(n), p = softmax(W_r n), e = argmax p.

    Fedus et al. 2021, arXiv 2101.03961; no capacity limit, so no token is ever dropped. Tokens are sorted by expert
    and each expert multiplies its own run of rows.
    """

    def __init__(self, config):
        super().__init__()
        d, size, experts = config.d_model, config.d_expert, config.n_experts
        self.act = ACTIVATION[config.activation]
        self.router = Linear(d, experts)
        self.gate = Stack(experts, d, size)
        self.up = Stack(experts, d, size)
        self.down = Stack(experts, size, d, gain=2.0 / config.n_layers)

    def forward(self, n, stats=None):
        """n: [..., d_model] -> the same. Appends what `auxiliary_loss` needs to the list `stats`."""
        rows = n.reshape(-1, n.shape[-1])
        logits = self.router(rows).float()
        p = torch.softmax(logits, dim=-1)
        best, expert = p.max(dim=-1)
        order = expert.argsort(stable=True)
        load = torch.bincount(expert, minlength=len(self.gate.weight))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        runs = _Permute.apply(rows, order, back).split(load.tolist())
        parts = []
        for run, gate, up, down in zip(runs, self.gate.weight, self.up.weight, self.down.weight):
            parts.append(F.linear(self.act(F.linear(run, gate)) * F.linear(run, up), down))
        y = _Permute.apply(torch.cat(parts), back, order) * best.to(n.dtype).unsqueeze(-1)
        if stats is not None:
            stats.append((load, p.sum(0), logits.logsumexp(-1).square().sum()))
        return y.view(n.shape)


def auxiliary_loss(stats, load, tokens):
    """The weighted balance and z losses summed over the mixture layers.

    stats: (tokens per expert, sum of router probabilities per expert, sum of z losses) of each layer over the tokens
    here; load, [layers, experts], and tokens: those of the whole batch, which other processes may hold parts of: the
    parts' losses then add up to the batch's.
    """
    balance, z = 0.0, 0.0
    for of_layer, (_, p_sum, z_sum) in zip(load, stats):
        balance = balance + len(of_layer) * (of_layer.to(p_sum.dtype) * p_sum).sum() / tokens**2
        z = z + z_sum / tokens
    return BALANCE_WEIGHT * balance + ROUTER_Z_WEIGHT * z


class Layer(nn.Module):
    """x += temporal(norm(x)); x += ff(norm(x)), where ff is the dense MLP, the mixture, or their sum."""

    def __init__(self, config, kind, dropout):
        super().__init__()
        self.dropout = dropout
        self.temporal_norm = RMSNorm(config.d_model, config.norm_eps)
        if kind == "S":
            self.recurrence = Recurrence(config)
            self.attention = None
        else:
            self.recurrence = None
            self.attention = Attention(config)
        self.ff_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = GatedMLP(config) if config.d_ff else None
        self.moe = Mixture(config) if config.n_experts else None

    def _drop(self, x):
        return F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(self, x, layout, stats):
        temporal = self.recurrence if self.recurrence is not None else self.attention
        x = x + self._drop(temporal(self.temporal_norm(x), layout))
        n = self.ff_norm(x)
        if self.mlp is None:
            y = self.moe(n, stats)
        elif self.moe is None:
            y = self.mlp(n)
        else:
            y = self.mlp(n) + self.moe(n, stats)
        return x + self._drop(y)


class Layout:
    """Where documents lie in a batch, in the forms the layers need; made once a step, time-major.

    starts: bool [T, B]; positions: [T, B], tokens since the document's start; early: places near a start, for the
    convolution; rotation: (cos, sin), each [T, B, 1, rotary_dim / 2]; blocks: (first query, first key, end) of each
    block of queries, and biases: 0 where its queries may look and -inf elsewhere, [B, 1, 1, queries, keys].
    Time 0 always starts anew.
    """

    def __init__(self, starts, config, dtype):
        steps = len(starts)
        self.starts = starts.clone()
        self.starts[0] = True
        time = torch.arange(steps, device=starts.device).unsqueeze(1)
        begin = torch.where(self.starts, time, 0).cummax(0).values
        self.positions = time - begin
        if "S" in config.recipe:
            self.early = early_places(self.positions, config.conv_width)
        if "A" in config.recipe:
            size = config.rotary_dim
            # Angles in double precision: a float32 position times frequency loses digits far into a text.
            exponent = torch.arange(0, size, 2, dtype=torch.float64, device=starts.device) / max(size, 1)
            angle = self.positions.double()[..., None, None] / config.rotary_base ** exponent
            self.rotation = angle.cos().to(dtype), angle.sin().to(dtype)
            self.blocks, self.biases = [], []
            for first in range(0, steps, QUERY_BLOCK):
                end = min(first + QUERY_BLOCK, steps)
                low = max(0, first - config.window + 1)
                ahead = time[first:end] - time.T[:, low:end]  # query minus key
                seen = (ahead >= 0) & (ahead < config.window)
                # A key is in the query's document exactly when it is not before that document's first token.
                seen = seen & (time.T[:, low:end] >= begin.T[:, first:end].unsqueeze(-1))  # [B, queries, keys]
                bias = torch.zeros(seen.shape, dtype=dtype, device=starts.device).masked_fill_(~seen, float("-inf"))
                self.blocks.append((first, low, end))
                self.biases.append(bias[:, None, None])


class Decoder(nn.Module):
    """The whole model. `dropout` is the chance that an element of a layer's output is dropped in training."""

    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model ** -0.5)
        self.layers = nn.ModuleList(Layer(config, kind, dropout) for kind in config.recipe)
        self.final_norm = RMSNorm(config.d_model, config.norm_eps)
        self.head = None if config.tie_embeddings else Linear(config.d_model, config.vocab_size)

    def _logits(self, tokens, starts, stats):
        """tokens, starts: [T, B] -> logits [T, B, V]."""
        x = self.embedding(tokens)
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        layout = Layout(starts, self.config, x.dtype)
        for layer in self.layers:
            x = layer(x, layout, stats)
        weight = self.embedding.weight if self.head is None else self.head.weight
        logits = F.linear(self.final_norm(x), weight)
        cap = self.config.logit_softcap
        return cap * torch.tanh(logits / cap) if cap else logits

    def forward(self, tokens, starts=None):
        """Logits [B, T, V] of the token after each of `tokens`, [B, T].

        starts: bool [B, T], true where a document begins (state, positions and attention start anew); by default
        where the token is bos_token_id. The first column always starts anew.
        """
        if starts is None:
            starts = tokens == self.config.bos_token_id
        return self._logits(tokens.T, starts.T, None).transpose(0, 1)

    def losses(self, tokens, targets, starts, soft_ids=None, soft_p=None):
        """The summed loss, the cross-entropy in it (nats), how many tokens both are over, and the mixtures' statistics.

        tokens, targets, starts: [B, T]; a target of -1 is not predicted. The statistics are a list, one item a mixture
        layer: see `auxiliary_loss`. The loss is the cross-entropy, unless there are soft targets, [B, T, N]: then it
        is the cross-entropy with a distribution, soft_p for the tokens soft_ids and what is left of 1 for the target.
        """
        stats = []
        logits = self._logits(tokens.T, starts.T, stats)
        targets = targets.T.reshape(-1)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # bfloat16 under autocast
        log_q = F.log_softmax(logits.view(len(targets), -1), dim=-1)
        nats = F.nll_loss(log_q, targets, ignore_index=-1, reduction="none")
        loss = nats
        if soft_ids is not None:
            ids, p = (x.transpose(0, 1).reshape(len(targets), -1) for x in (soft_ids, soft_p))
            loss = nats * (1 - p.sum(-1)) - (p * log_q.gather(-1, ids)).sum(-1)
        return loss.sum(), nats.sum(), int((targets >= 0).sum()), stats


def load_model(folder):
    """The Decoder of a run's folder (config.json, model.safetensors), in eval mode.

    Raises UserError when a file is missing or the tensors do not fit the sizes.
    """
    folder = pathlib.Path(folder)
    config = Config.load(folder / "config.json")
    path = folder / "model.safetensors"
    if not path.is_file():
        raise UserError(f"{path}: no such file; a trained model's folder holds it")
    model = Decoder(config)
    try:
        model.load_state_dict(load_file(path))
    except (RuntimeError, SafetensorError) as error:
        raise UserError(f"{path}: does not fit its config.json: {str(error).splitlines()[-1].strip()}") from None
    for name, weight in model.state_dict().items():
        if not torch.isfinite(weight).all():
            raise UserError(f"{path}: {name} holds numbers that are not finite; train it again at a lower rate")
    return model.eval()


def check_texts(config, folder):
    """Raise UserError unless the model's texts begin and end with token 0, as `tools.data` has them."""
    if (config.bos_token_id, config.eos_token_id) != (0, 0):
        raise UserError(f"{folder}: its texts begin with token {config.bos_token_id} and end with "
                        f"{config.eos_token_id}; training here has 0 for both")
