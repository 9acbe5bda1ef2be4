"""Fixed-point arithmetic on NumPy arrays: the primitives of the integer reference, and the tables of the file.

Arrays are int64, but every value must fit 32 signed bits, as on a board: `int32` asserts it at each step. "Point" is
the number of fraction bits: a value v with point f stands for v / 2^f.
"""

import numpy as np

INT32_MAX = (1 << 31) - 1
STATE_LIMIT = (1 << 30) - 1  # the residual stream and the recurrent state are clamped to +-this
INT16_MAX = 32767

#: Where each table lies in the file's table section, in bytes (device/scribe/plain_kernels.py has the same).
OFFSETS = {"exp2": 0, "sigmoid": 1028, "gelu": 2056, "sine": 3084, "rsqrt": 4112, "tanh": 4496}
TABLE_BYTES = 5524


def int32(v):
    """The array itself; raises OverflowError unless every value fits 32 signed bits."""
    v = np.asarray(v, dtype=np.int64)
    if v.size and (v.max() > INT32_MAX or v.min() < -INT32_MAX - 1):
        raise OverflowError("a value leaves 32 bits: the model can't run on a board")
    return v


def saturate(v, watch=None, name=""):
    """Clamp to +-32767. `watch(name, values, clipped)` is told the values before, and how many were clamped."""
    v = int32(v)
    if watch is not None:
        watch(name, v, int(np.count_nonzero(np.abs(v) > INT16_MAX)))
    return np.clip(v, -INT16_MAX, INT16_MAX)


def limit(v):
    """Clamp to +-(2^30 - 1)."""
    return np.clip(int32(v), -STATE_LIMIT, STATE_LIMIT)


def round_shift(v, n):
    """v / 2^n rounded half up; n >= 0 (an integer or an array)."""
    n = np.asarray(n, dtype=np.int64)
    return int32(int32(v) + ((np.int64(1) << n) >> 1)) >> n


def mul_shift(a, b, bits=16):
    """floor(a * b / 2^bits): a 32-bit value times an unsigned 16-bit or signed 16-bit one (boards multiply halves)."""
    b = np.asarray(b, dtype=np.int64)
    assert b.size == 0 or (b.max() < 65536 and b.min() >= -32768)
    return int32(int32(a) * b >> bits)


def scaled(d, mantissa, shift):
    """d * mantissa / 2^(16 + shift) for d >= 0, clamped to 32 << 16 where a left shift would pass it."""
    z = mul_shift(d, mantissa)
    if shift >= 0:
        return z >> min(shift, 31)
    shift = min(-shift, 31)
    return np.where(z >= (32 << 16) >> shift, 32 << 16, np.minimum(z, 32 << 16) << shift)


def mantissa(value, point):
    """(m, shift) with m in [2^14, 2^15) and m / 2^(16 + shift) close to value * 2^point; (0, 0) for 0."""
    if value == 0:
        return 0, 0
    _, exponent = np.frexp(value)
    m = int(round(float(np.ldexp(value, 15 - int(exponent)))))
    exponent = int(exponent)
    if m == 1 << 15:
        m, exponent = 1 << 14, exponent + 1
    return m, -(exponent - 15 + point) - 16


class Tables:
    """The lookup tables, computed once in float64 and from then on only integers."""

    def __init__(self):
        def rounded(values, point, top):
            return np.minimum(np.round(np.asarray(values) * 2.0**point), top).astype(np.int64)

        self.exp2 = rounded(2.0 ** (-np.arange(257) / 256), 24, 1 << 24)
        x = (np.arange(514) - 256) / 16
        self.sigmoid = rounded(1 / (1 + np.exp(-x)), 15, INT16_MAX)
        x = (np.arange(514) - 256) / 32
        gelu = 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        self.gelu = rounded(gelu, 15, INT16_MAX)
        self.sine = rounded(np.sin(2 * np.pi * np.arange(514) / 512), 15, INT16_MAX)
        self.rsqrt = rounded(1 / np.sqrt((np.arange(192) + 64.5) / 256), 14, 65535)
        self.tanh = rounded(np.tanh(np.arange(514) / 64), 16, 65535)

    def to_bytes(self):
        """The table section of a model file: see docs/format.md."""
        out = bytearray(TABLE_BYTES)
        kinds = {"exp2": "<i4", "sigmoid": "<u2", "gelu": "<u2", "sine": "<i2", "rsqrt": "<u2", "tanh": "<u2"}
        for name, at in OFFSETS.items():
            data = getattr(self, name).astype(kinds[name]).tobytes()
            out[at : at + len(data)] = data
        return bytes(out)

    def lookup(self, name, x):
        """Linear interpolation; x has 8 fraction bits and is clamped to the table's 512 steps."""
        table = getattr(self, name)
        x = np.clip(x, 0, 131071)
        a = table[x >> 8]
        return a + ((table[(x >> 8) + 1] - a) * (x & 255) >> 8)

    def exp2_neg(self, z, bits):
        """2^-z, 24 fraction bits, for z >= 0 with `bits` fraction bits."""
        f = z & ((1 << bits) - 1)
        i = f >> (bits - 8)
        a = self.exp2[i]
        a = a + (int32((self.exp2[i + 1] - a) * (f & ((1 << (bits - 8)) - 1))) >> (bits - 8))
        return a >> np.minimum(z >> bits, 31)

    def sin(self, phase):
        """sin of 32-bit turns, 15 fraction bits."""
        x = phase >> 15 & 0x1FFFF
        a = self.sine[x >> 8]
        return a + ((self.sine[(x >> 8) + 1] - a) * (x & 255) >> 8)

    def rsqrt_normalised(self, m):
        """2^15 / sqrt(m / 2^30) for m in [2^28, 2^30): table and one Newton step."""
        y = self.rsqrt[(m >> 22) - 64]
        e = int32((1 << 30) - int32((m >> 15) * int32(y * y >> 13)))
        return np.minimum((y << 1) + (int32(y * (e >> 14)) >> 16), 65535)


def normalise(v):
    """v > 0 as (m, j) with m = min(v, 2^30 - 1) * 4^j in [2^28, 2^30)."""
    v = np.minimum(np.asarray(v, dtype=np.int64), (1 << 30) - 1)
    j = np.zeros_like(v)
    for _ in range(14):
        small = v < 1 << 28
        v = np.where(small, v << 2, v)
        j = j + small
    return v, j


TABLES = Tables()


def tables():
    """Bytes of the table section."""
    return TABLES.to_bytes()
