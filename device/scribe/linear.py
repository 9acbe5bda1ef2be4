"""Matrices and RMSNorm: what every layer is made of, as the kernels read it."""

from . import kernels as k
from .buffers import ints

#: Multiply-accumulates in one kernel call at most: Ctrl-C is seen between calls, and not inside one.
CALL = 250000


def linear(*matrices):
    """The calls of `k.linear` that multiply one input by some matrices (descriptors by `Section.matrix`, all of one
    width), so that their results lie one after the other: a tuple of its `d`s. Most often it is one call."""
    calls: list = []
    room = out = 0
    for matrix in matrices:
        for begin, part in _parts(matrix):
            size = part[k.ROWS] * part[k.PADDED]
            part[k.OUT] += out
            if size > room or begin != calls[-1][1]:
                calls.append(ints((0, begin)))
                room = CALL
            calls[-1][0] += 1
            calls[-1].extend(part)
            room -= size
        out += matrix[k.ROWS]
    return tuple(calls)


def _parts(matrix):
    """(first element of the input, descriptor) of the parts of a matrix that are small enough for a call."""
    padded, groups, bits = matrix[k.PADDED], matrix[k.GROUPS], matrix[k.BITS]
    if matrix[k.ROWS] * padded <= CALL:
        return [(0, ints(matrix))]
    parts = []
    per_block = matrix[k.ROWS] // matrix[k.BLOCKS]
    most = max(1, CALL // padded)
    for block in range(matrix[k.BLOCKS]):
        first, end = block * per_block, block * per_block + per_block
        while first < end:
            part = ints(matrix)
            part[k.ROWS] = min(most, end - first)
            part[k.BLOCKS] = 1
            part[k.WEIGHTS] += first * padded * bits // 8
            part[k.SCALES] += 2 * first * groups
            if part[k.BIAS] >= 0:
                part[k.BIAS] += 4 * first
            part[k.OUT] = first
            parts.append((block * matrix[k.COLS], part))
            first += part[k.ROWS]
    return parts


def scratch(calls):
    """Elements of scratch that the calls of `linear` take at most."""
    return max(d[2 + k.BLOCKS] * (d[2 + k.PADDED] + d[2 + k.GROUPS]) for d in calls)


def norm(section, count):
    """The parameters of `k.norm`, RMSNorm of the residual stream to 16 bits, from the next records of a section."""
    two, point, shift, eps = section.params(4)
    return ints((count, two, point, shift, eps, section.vector(count, 16)))
