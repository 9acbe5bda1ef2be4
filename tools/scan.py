"""The linear recurrence h[t] = a[t] h[t-1] + x[t] over time, and the RG-LRU built on it, with hand-written gradients.

Time is the first dimension everywhere, so one step touches one contiguous slice. The loop is sequential and in place:
it adds no rounding of its own, takes a = 0 (a reset) without special cases, and costs as little as a loop in C because
each step works on the whole batch.
"""

import torch
from torch.nn import functional as F

#: Griffin's constant c in log a = -c softplus(lam) r (De et al. 2024, arXiv 2402.19427, equation 4).
DECAY = 8.0
#: The derivative of sqrt(s) is kept below this (as in google-deepmind/recurrentgemma): it is infinite at s = 0.
MAX_ROOT_DERIVATIVE = 1000.0


def _scan_(a, h):
    """Turn h, which holds x, into the states, in place; a, h: [T, ...]."""
    previous = None
    for a_t, h_t in zip(a.unbind(0), h.unbind(0)):
        if previous is not None:
            h_t.addcmul_(a_t, previous)
        previous = h_t
    return h


def _reverse_scan_(a, g):
    """Turn g, the gradient of every state, into the gradient of every x: g[t] += a[t+1] g[t+1], in place."""
    gates, steps = a.unbind(0), g.unbind(0)
    for t in range(len(steps) - 2, -1, -1):
        steps[t].addcmul_(gates[t + 1], steps[t + 1])
    return g


class _LinearScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, x):
        h = _scan_(a, x.clone(memory_format=torch.contiguous_format))
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        a, h = ctx.saved_tensors
        dx = _reverse_scan_(a, grad.clone(memory_format=torch.contiguous_format))
        da = torch.zeros_like(a)
        torch.mul(dx[1:], h[:-1], out=da[1:])
        return da, dx


def linear_scan(a, x):
    """h[t] = a[t] h[t-1] + x[t] with h[-1] = 0.

    a, x: [T, ...] of the same shape and dtype. Returns h of that shape. Backward: dx[t] = g[t] + a[t+1] dx[t+1],
    da[t] = dx[t] h[t-1].
    """
    return _LinearScan.apply(a, x)


class _RGLRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, gate_i, gate_a, lam, starts):
        i = torch.sigmoid(gate_i)
        r = torch.sigmoid(gate_a)
        log_a = r * (-DECAY * F.softplus(lam))
        log_a.masked_fill_(starts.unsqueeze(-1), float("-inf"))  # so a = 0 and the normaliser is 1
        a = torch.exp(log_a)
        square = log_a.mul_(2).expm1_().neg_()  # 1 - a^2, accurate when a is near 1
        root = square.sqrt_()
        h = _scan_(a, (root * i).mul_(u))
        ctx.save_for_backward(u, i, r, lam, a, root, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        u, i, r, lam, a, root, h = ctx.saved_tensors
        dx = _reverse_scan_(a, grad.clone(memory_format=torch.contiguous_format))  # of root * i * u
        d_log_a = torch.zeros_like(a)
        torch.mul(dx[1:], h[:-1], out=d_log_a[1:])  # da
        # d root = dx i u; d(1 - a^2) = d root / (2 root), bounded; d log a = a da - 2 a^2 d(1 - a^2).
        d_i = dx * u
        slope = (d_i * i).mul_(a).div_(root.clamp_min(0.5 / MAX_ROOT_DERIVATIVE))
        d_log_a.sub_(slope).mul_(a)
        d_u = dx.mul_(root).mul_(i)
        d_gate_i = d_i.mul_(root).mul_(i).mul_(1 - i)
        d_r = d_log_a.mul_(r)
        scale = -DECAY * F.softplus(lam)
        d_lam = d_r.flatten(0, -2).sum(0) * (-DECAY * torch.sigmoid(lam))
        d_gate_a = d_r.mul_(1 - r).mul_(scale)
        return d_u, d_gate_i, d_gate_a, d_lam, None


def rg_lru(u, gate_i, gate_a, lam, starts):
    """The real-gated linear recurrent unit (De et al. 2024, arXiv 2402.19427, equations 1 to 4).

    i = sigmoid(gate_i), r = sigmoid(gate_a), log a = -8 softplus(lam) r, h = a h + sqrt(1 - a^2) (i u).

    u, gate_i, gate_a: [T, B, D]; lam: [D]; starts: bool [T, B], true where a document begins: there a = 0 and the
    normaliser is 1, so h = i u. Returns the states h, [T, B, D].
    """
    return _RGLRU.apply(u, gate_i, gate_a, lam, starts)


class _CausalConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u, weight, bias, early):
        out = torch.addcmul(bias, u, weight[:, -1])
        for back, (time, row) in enumerate(early, start=1):
            tap = weight[:, -1 - back]
            out[back:].addcmul_(u[:-back], tap)
            # Few places lie this close to a document's start: taking those back is cheaper than a mask over all.
            out[time, row] -= u[time - back, row] * tap
        ctx.save_for_backward(u, weight)
        ctx.early = early
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        u, weight = ctx.saved_tensors
        du = grad * weight[:, -1]
        d_weight = torch.zeros_like(weight)
        d_weight[:, -1] = (grad * u).sum((0, 1))
        for back, (time, row) in enumerate(ctx.early, start=1):
            tap = weight[:, -1 - back]
            du[:-back].addcmul_(grad[back:], tap)
            near = grad[time, row]
            du[time - back, row] -= near * tap  # no two of these pairs fall on one place
            d_weight[:, -1 - back] = (grad[back:] * u[:-back]).sum((0, 1)) - (near * u[time - back, row]).sum(0)
        return du, d_weight, grad.sum((0, 1)), None


def early_places(positions, width):
    """For each tap 1 .. width - 1 tokens back, the (time, row) places it reaches before the document's start from.

    positions: [T, B], tokens since the document's start. Only places at time >= the tap's distance are listed (the
    others reach before the batch).
    """
    places = []
    for back in range(1, min(width, len(positions))):
        time, row = torch.nonzero(positions[back:] < back, as_tuple=True)
        places.append((time + back, row))
    return places


def causal_conv(u, weight, bias, early):
    """Depthwise convolution over time: out[t] = bias + sum_s weight[:, width - 1 - s] u[t - s].

    u: [T, B, D]; weight: [D, width]; bias: [D]; early: `early_places` of the batch, so that nothing before a
    document's start is seen. Returns [T, B, D].
    """
    return _CausalConv.apply(u, weight, bias, early)
