"""Weights to integers: symmetric groups of 64 along the input axis, with 15-bit integer scales."""

import numpy as np

from tools.errors import UserError
from tools.fileformat import GROUP, PRODUCT_SHIFT, Matrix, Vector
from tools.fixedpoint import INT16_MAX

LEVELS = {8: 127, 4: 7}
#: Fractions of a group's largest weight tried as its range; int4 gains from clipping an outlier, int8 does not.
SEARCH = {8: (1.0,), 4: tuple(np.linspace(0.7, 1.0, 13))}
#: A row's worst sum stays below this, so that adding it to the residual stream (also below) fits 32 bits.
SUM_LIMIT = 1 << 30


def grouped(w):
    """w [rows, cols] as [rows, groups, 64], the last group padded with zeros."""
    rows, cols = w.shape
    return np.pad(w, ((0, 0), (0, -cols % GROUP))).reshape(rows, -1, GROUP)


def best_scales(w, bits):
    """Real scales [rows, groups] with the least squared error over SEARCH."""
    groups = grouped(w)
    top = np.abs(groups).max(-1)
    best, least = top / LEVELS[bits], np.full(top.shape, np.inf)
    for part in SEARCH[bits]:
        scale = top * part / LEVELS[bits]
        safe = np.where(scale > 0, scale, 1)[..., None]
        error = ((np.clip(np.round(groups / safe), -LEVELS[bits], LEVELS[bits]) * safe - groups) ** 2).sum(-1)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return best


def quantise(weights, bits, blocks=1):
    """A list of Matrix, one for each of `weights` [rows, cols], that share one exponent.

    The exponent gives the largest scale 15 bits, or fewer where a row's sum could pass SUM_LIMIT for some input.
    Raises UserError for weights that are not finite.
    """
    real = [best_scales(np.asarray(w, dtype=float), bits) for w in weights]
    if not all(np.isfinite(s).all() for s in real):
        raise UserError("a weight is not a finite number")
    top = max(s.max() for s in real)
    exponent = 14 - int(np.floor(np.log2(top))) if top > 0 else 0
    exponent = min(exponent, 60)
    while True:
        matrices = [_with_exponent(w, s, bits, blocks, exponent) for w, s in zip(weights, real)]
        if max(worst_sum(m).max() for m in matrices) < SUM_LIMIT // 2:
            return matrices
        exponent -= 1


def _with_exponent(w, real, bits, blocks, exponent):
    w = np.asarray(w, dtype=float)
    scales = np.minimum(np.round(real * 2.0**exponent), 32767).astype(np.int64)
    # the integers are chosen for the rounded scale, so that its rounding costs nothing more
    step = np.where(scales > 0, scales / 2.0**exponent, 1)[..., None]
    q = np.clip(np.round(grouped(w) / step), -LEVELS[bits], LEVELS[bits]) * (scales > 0)[..., None]
    return Matrix(q.reshape(len(w), -1)[:, : w.shape[1]].astype(np.int64), scales, exponent, bits, blocks)


def worst_sum(m):
    """Bound [rows] on |row sum| over every 16-bit input, the bias not counted."""
    dots = np.abs(grouped(m.w)).sum(-1) * INT16_MAX
    return ((dots * m.scales >> PRODUCT_SHIFT[m.bits]) + 1).sum(-1)


def fixed(values, bits, point, name):
    """Vector of round(values * 2^point): within 16 bits, or within 31 of 32, which leaves sums room. Raises UserError,
    naming the tensor `name`, where a value does not fit."""
    v = np.round(np.asarray(values, dtype=float).ravel() * 2.0**point)
    if not np.isfinite(v).all() or (v.size and np.abs(v).max() >= {16: 1 << 15, 32: 1 << 30}[bits]):
        raise UserError(f"{name}: a value of {np.abs(values).max():g} does not fit {bits} bits with {point} fraction "
                        "bits")
    return Vector(v.astype(np.int64), bits, point)


def widest_point(largest, limit, most):
    """The most fraction bits (up to `most`) with which `largest` stays within `limit`; may be negative."""
    if largest <= 0:
        return most
    return min(most, int(np.floor(np.log2(limit / largest))))
