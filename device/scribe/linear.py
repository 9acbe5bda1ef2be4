"""A matrix of the model file, and RMSNorm: what every layer is made of."""

from . import kernels as k
from .buffers import ints

#: Multiply-accumulates in one kernel call at most: Ctrl-C is seen between calls, and not inside one.
CALL = 250000


class Linear:
    """y = W x [+ b], in integers: a matrix by its descriptor (`Section.matrix`).

    `pack` lays the input out once for all matrices that read it; `run` multiplies, given the section that holds the
    matrix.
    """

    def __init__(self, descriptor):
        self.d = descriptor
        self.rows = descriptor[k.ROWS]
        self._matvec = k.matvec4 if descriptor[k.BITS] == 4 else k.matvec8
        self._step = max(1, CALL // self.d[k.PADDED])
        self._whole = self.rows <= self._step

    def packed(self):
        """Elements that a packed input takes."""
        return self.d[k.BLOCKS] * (self.d[k.PADDED] + self.d[k.GROUPS])

    def pack(self, px, x):
        k.pack(px, x, self.d)

    def run(self, y, px, buf):
        if self._whole:
            self._matvec(y, px, buf, self.d, 0, self.rows)
            return
        first = 0
        while first < self.rows:
            last = min(first + self._step, self.rows)
            self._matvec(y, px, buf, self.d, first, last)
            first = last


class Norm:
    """RMSNorm of the residual stream to 16 bits."""

    def __init__(self, section, count):
        two, point, shift, eps = section.params(4)
        self._buf = section.buf
        self._p = ints((count, two, point, shift, eps, section.vector(count, 16)))

    def run(self, y, x, tables):
        k.norm(y, x, self._buf, tables, self._p)
