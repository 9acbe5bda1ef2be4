"""The kernels of plain_kernels.py compiled to machine code by MicroPython's viper emitter; the same results to the bit.

How it is written, and why (docs/kernels.md has the measurements):
* A viper integer is a machine word: 32 bits on boards, 64 on the unix port. `ptr32` loads are signed on the first and
  zero-extended on the second, so a loaded word that is compared or shifted right goes through `(v ^ sign) - sign`,
  which changes nothing on 32 bits. `sign` is made at run time: a literal of 2^30 or more would be an object.
* A byte b of two 4-bit weights times two inputs is `b * x0 + (b >> 4) * (x1 - 16 * x0)`: packing does the subtraction,
  so no nibble is masked. A vector is packed for matrices of one width.
* `a * b + acc` is an instruction shorter than `acc += a * b`; loops over weights are unrolled as far as the short
  forms of Thumb's loads reach.
* A 32-bit number times an unsigned 16-bit one, without its low 16 bits, is `(v >> 16) * f + ((v & 65535) * f >> 16 &
  65535)`: right even where the second product wraps.
* The first two parameters live in registers, so what the innermost loop uses most comes first.
* Pointers move along instead of being indexed by a variable, one load or store a statement, `0 - x` for a negative:
  each avoids wrong code in some MicroPython release since 1.24. Functions stay short: in 1.25 a branch across 4 KB is
  encoded wrong, and before 1.26 a loop's condition can't be 2 KB from its body on Xtensa: hence `while True`.
"""

from array import array

import micropython
from micropython import const

NAME = "viper"

_SIGMOID = const(1028)
_GELU = const(2056)
_SINE = const(3084)
_RSQRT = const(4112)
_TANH = const(4496)
_LIMIT = const(0x3FFFFFFF)


# Matrices


@micropython.viper
def _pack(px: ptr32, x: ptr32, d: ptr32):
    x = ptr32(int(x) + (d[1] << 2))
    d = ptr32(int(d) + 8)
    cols = d[4]
    padded = d[5]
    blocks = d[7]
    times = 0  # of an even element, taken off the odd one after it
    if d[10] == 4:
        times = 16
    sums = ptr32(int(px) + (blocks * padded << 2))
    while blocks > 0:
        left = cols
        room = padded
        while room > 0:
            total = 0
            n = 64
            if n > room:
                n = room
            room -= n
            real = n
            if real > left:
                real = left
            left -= real
            n -= real
            while real >= 2:
                v = x[0]
                px[0] = v
                total += v
                b = x[1]
                x = ptr32(int(x) + 8)
                total += b
                b -= v * times
                px[1] = b
                px = ptr32(int(px) + 8)
                real -= 2
            if real > 0:
                v = x[0]
                px[0] = v
                total += v
                x = ptr32(int(x) + 4)
                px = ptr32(int(px) + 4)
                b = 0 - v * times  # rows are padded to eights: an odd element comes with a 0
                px[0] = b
                px = ptr32(int(px) + 4)
                n -= 1
            while n > 0:
                px[0] = 0
                px = ptr32(int(px) + 4)
                n -= 1
            sums[0] = total
            sums = ptr32(int(sums) + 4)
        blocks -= 1


@micropython.viper
def linear(y, x, px, buf, d):
    f = ptr32(d)
    run = _rows8
    if f[12] == 4:
        run = _rows4
    _pack(px, x, d)
    n = f[0]
    m = 0
    while m < n:
        run(0, buf, px, y, d, m)
        m += 1


@micropython.viper
def _rows8(acc: int, w: ptr8, px: ptr32, y: ptr32, d: ptr32, m: int):
    d = ptr32(int(d) + 8 + m * 48)
    one = 1
    sign = one << 31
    wide = 0  # bits of a machine word past the 32nd
    if sign << 1 != 0:
        wide = 32
    groups = d[6]
    padded = d[5]
    blocks = d[7]
    bias = (d[2] ^ sign) - sign
    biased = 0
    if bias >= 0:
        biased = 1
    bias += int(w)
    scale = ptr16(int(w) + d[1])
    rows = d[3]
    per_block = rows // blocks
    left = per_block
    vector = int(px)
    sums = int(px) + (blocks * padded << 2)
    mode = d[9]
    shift = d[8]
    half = one << shift >> 1
    w = ptr8(int(w) + d[0])
    y = ptr32(int(y) + (d[11] << 2))
    while True:
        if rows == 0:
            break
        v = half
        if biased:
            total = ptr32(bias)
            v += (total[0] ^ sign) - sign
            bias += 4
        x = ptr32(vector)
        total = ptr32(sums)
        room = padded
        while room > 0:
            n = 64
            if n > room:
                n = room
            room -= n
            acc = 0 - (total[0] << 7)
            total = ptr32(int(total) + 4)
            end = int(w) + (n & 96)
            while int(w) != end:
                acc = w[0] * x[0] + acc
                acc = w[1] * x[1] + acc
                acc = w[2] * x[2] + acc
                acc = w[3] * x[3] + acc
                acc = w[4] * x[4] + acc
                acc = w[5] * x[5] + acc
                acc = w[6] * x[6] + acc
                acc = w[7] * x[7] + acc
                acc = w[8] * x[8] + acc
                acc = w[9] * x[9] + acc
                acc = w[10] * x[10] + acc
                acc = w[11] * x[11] + acc
                acc = w[12] * x[12] + acc
                acc = w[13] * x[13] + acc
                acc = w[14] * x[14] + acc
                acc = w[15] * x[15] + acc
                acc = w[16] * x[16] + acc
                acc = w[17] * x[17] + acc
                acc = w[18] * x[18] + acc
                acc = w[19] * x[19] + acc
                acc = w[20] * x[20] + acc
                acc = w[21] * x[21] + acc
                acc = w[22] * x[22] + acc
                acc = w[23] * x[23] + acc
                acc = w[24] * x[24] + acc
                acc = w[25] * x[25] + acc
                acc = w[26] * x[26] + acc
                acc = w[27] * x[27] + acc
                acc = w[28] * x[28] + acc
                acc = w[29] * x[29] + acc
                acc = w[30] * x[30] + acc
                acc = w[31] * x[31] + acc
                w = ptr8(int(w) + 32)
                x = ptr32(int(x) + 128)
            end += n & 31
            while int(w) != end:
                acc = w[0] * x[0] + acc
                acc = w[1] * x[1] + acc
                acc = w[2] * x[2] + acc
                acc = w[3] * x[3] + acc
                acc = w[4] * x[4] + acc
                acc = w[5] * x[5] + acc
                acc = w[6] * x[6] + acc
                acc = w[7] * x[7] + acc
                w = ptr8(int(w) + 8)
                x = ptr32(int(x) + 32)
            acc = acc << wide >> wide
            n = scale[0]
            scale = ptr16(int(scale) + 2)
            v += (acc >> 16) * n + ((acc & 0xFFFF) * n >> 16)
        v >>= shift
        n = 32767
        if mode != 1:
            if mode == 2:
                v += (y[0] ^ sign) - sign
                n = _LIMIT
            if v > n:
                v = n
            n = 0 - n
            if v < n:
                v = n
        y[0] = v
        y = ptr32(int(y) + 4)
        rows -= 1
        left -= 1
        if left == 0:
            left = per_block
            vector += padded << 2
            sums += groups << 2


@micropython.viper
def _rows4(acc: int, w: ptr8, px: ptr32, y: ptr32, d: ptr32, m: int):
    d = ptr32(int(d) + 8 + m * 48)
    one = 1
    sign = one << 31
    wide = 0  # bits of a machine word past the 32nd
    if sign << 1 != 0:
        wide = 32
    groups = d[6]
    padded = d[5]
    blocks = d[7]
    bias = (d[2] ^ sign) - sign
    biased = 0
    if bias >= 0:
        biased = 1
    bias += int(w)
    scale = ptr16(int(w) + d[1])
    rows = d[3]
    per_block = rows // blocks
    left = per_block
    vector = int(px)
    sums = int(px) + (blocks * padded << 2)
    mode = d[9]
    shift = d[8]
    half = one << shift >> 1
    w = ptr8(int(w) + d[0])
    y = ptr32(int(y) + (d[11] << 2))
    while True:
        if rows == 0:
            break
        v = half
        if biased:
            total = ptr32(bias)
            v += (total[0] ^ sign) - sign
            bias += 4
        x = ptr32(vector)
        total = ptr32(sums)
        room = padded
        while room > 0:
            n = 64
            if n > room:
                n = room
            room -= n
            acc = 0 - (total[0] << 3)
            total = ptr32(int(total) + 4)
            end = int(w) + ((n & 96) >> 1)
            while int(w) != end:
                acc = w[0] * x[0] + acc
                acc = (w[0] >> 4) * x[1] + acc
                acc = w[1] * x[2] + acc
                acc = (w[1] >> 4) * x[3] + acc
                acc = w[2] * x[4] + acc
                acc = (w[2] >> 4) * x[5] + acc
                acc = w[3] * x[6] + acc
                acc = (w[3] >> 4) * x[7] + acc
                acc = w[4] * x[8] + acc
                acc = (w[4] >> 4) * x[9] + acc
                acc = w[5] * x[10] + acc
                acc = (w[5] >> 4) * x[11] + acc
                acc = w[6] * x[12] + acc
                acc = (w[6] >> 4) * x[13] + acc
                acc = w[7] * x[14] + acc
                acc = (w[7] >> 4) * x[15] + acc
                acc = w[8] * x[16] + acc
                acc = (w[8] >> 4) * x[17] + acc
                acc = w[9] * x[18] + acc
                acc = (w[9] >> 4) * x[19] + acc
                acc = w[10] * x[20] + acc
                acc = (w[10] >> 4) * x[21] + acc
                acc = w[11] * x[22] + acc
                acc = (w[11] >> 4) * x[23] + acc
                acc = w[12] * x[24] + acc
                acc = (w[12] >> 4) * x[25] + acc
                acc = w[13] * x[26] + acc
                acc = (w[13] >> 4) * x[27] + acc
                acc = w[14] * x[28] + acc
                acc = (w[14] >> 4) * x[29] + acc
                acc = w[15] * x[30] + acc
                acc = (w[15] >> 4) * x[31] + acc
                w = ptr8(int(w) + 16)
                x = ptr32(int(x) + 128)
            end += (n & 31) >> 1
            while int(w) != end:
                acc = w[0] * x[0] + acc
                acc = (w[0] >> 4) * x[1] + acc
                acc = w[1] * x[2] + acc
                acc = (w[1] >> 4) * x[3] + acc
                acc = w[2] * x[4] + acc
                acc = (w[2] >> 4) * x[5] + acc
                acc = w[3] * x[6] + acc
                acc = (w[3] >> 4) * x[7] + acc
                w = ptr8(int(w) + 4)
                x = ptr32(int(x) + 32)
            acc = acc << wide >> wide
            n = scale[0]
            scale = ptr16(int(scale) + 2)
            v += (acc >> 12) * n + ((acc & 0xFFF) * n >> 12)
        v >>= shift
        n = 32767
        if mode != 1:
            if mode == 2:
                v += (y[0] ^ sign) - sign
                n = _LIMIT
            if v > n:
                v = n
            n = 0 - n
            if v < n:
                v = n
        y[0] = v
        y = ptr32(int(y) + 4)
        rows -= 1
        left -= 1
        if left == 0:
            left = per_block
            vector += padded << 2
            sums += groups << 2


@micropython.viper
def embed(x: ptr32, buf: ptr8, d: ptr32, token: int, mantissa: int, shift: int):
    one = 1
    half = one << shift >> 1
    low = 0 - _LIMIT
    w = ptr8(int(buf) + d[0] + token * d[5])
    scale = ptr16(int(buf) + d[1] + (token * d[6] << 1))
    room = d[4]
    while room > 0:
        n = 64
        if n > room:
            n = room
        room -= n
        end = int(w) + n
        s = scale[0] << 8
        scale = ptr16(int(scale) + 2)
        while int(w) != end:
            v = (w[0] - 128) * s
            w = ptr8(int(w) + 1)
            v = (v >> 16) * mantissa + ((v & 0xFFFF) * mantissa >> 16 & 0xFFFF)
            v = (v + half) >> shift
            if v > _LIMIT:
                v = _LIMIT
            if v < low:
                v = low
            x[0] = v
            x = ptr32(int(x) + 4)


# Vectors


@micropython.viper
def norm(y: ptr32, x: ptr32, buf: ptr8, t: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    n = p[0]
    k = p[1]
    shift = p[3]
    first = x
    end = int(x) + (n << 2)
    big = 0
    while int(x) != end:
        v = (x[0] ^ sign) - sign
        if v < 0:
            v = 0 - v
        big |= v
        x = ptr32(int(x) + 4)
    s = 0
    while big >> s >= 32768:
        s += 1
    m = s + s + k
    if m > 31:
        m = 31
    m = p[4] >> m
    x = first
    while int(x) != end:
        v = ((x[0] ^ sign) - sign) >> s
        m += v * v >> k
        x = ptr32(int(x) + 4)
    if m < 1:
        m = 1
    if m > _LIMIT:
        m = _LIMIT
    k = 30 - ((p[2] ^ sign) - sign)
    while m < 0x10000000:
        m <<= 2
        k -= 1
    w = ptr16(int(t) + _RSQRT + (((m >> 22) - 64) << 1))
    v = w[0]
    m = (one << 30) - (m >> 15) * (v * v >> 13)
    m = (v << 1) + (v * (m >> 14) >> 16)
    if m > 65535:
        m = 65535
    half = one << shift >> 1
    w = ptr16(int(buf) + p[5])
    x = first
    while int(x) != end:
        v = (((x[0] ^ sign) - sign) >> s) * m >> k
        x = ptr32(int(x) + 4)
        v = (v * ((w[0] ^ 0x8000) - 0x8000) + half) >> shift
        w = ptr16(int(w) + 2)
        if v > 32767:
            v = 32767
        if v < -32767:
            v = -32767
        y[0] = v
        y = ptr32(int(y) + 4)


@micropython.viper
def gated(y: ptr32, t: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    n = p[0]
    base = int(t) + p[1]
    left = (p[2] ^ sign) - sign
    right = 0
    if left < 0:
        right = 0 - left
        left = 0
    shift = p[3]
    half = one << shift >> 1
    u = ptr32(int(y) + (n << 2))
    while n > 0:
        v = (y[0] ^ sign) - sign
        x = (v << left >> right) + 65536
        if x < 0:
            x = 0
        if x > 131071:
            x = 131071
        at = ptr16(base + (x >> 8 << 1))
        a = at[0]
        b = at[1]
        a += (b - a) * (x & 255) >> 8
        v = (v * a + 16384) >> 15
        v *= (u[0] ^ sign) - sign
        u = ptr32(int(u) + 4)
        v = (v + half) >> shift
        if v > 32767:
            v = 32767
        if v < -32767:
            v = -32767
        y[0] = v
        y = ptr32(int(y) + 4)
        n -= 1


@micropython.viper
def add_scaled(x: ptr32, y: ptr32, factor: int, shift: int, n: int):
    one = 1
    sign = one << 31
    half = one << shift >> 1
    low = 0 - _LIMIT
    while n > 0:
        v = (y[0] ^ sign) - sign
        y = ptr32(int(y) + 4)
        v = (v >> 16) * factor + ((v & 0xFFFF) * factor >> 16 & 0xFFFF)
        v = ((v + half) >> shift) + ((x[0] ^ sign) - sign)
        if v > _LIMIT:
            v = _LIMIT
        if v < low:
            v = low
        x[0] = v
        x = ptr32(int(x) + 4)
        n -= 1


# Recurrence


@micropython.viper
def conv(y: ptr32, x: ptr32, tail: ptr32, buf: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    mask = (sign << 1) - 1
    n = p[0]
    before = p[1] - 1
    w = ptr16(int(buf) + p[2])
    bias = ptr32(int(buf) + p[3])
    shift = p[4]
    half = one << shift >> 1
    step = n << 2
    while n > 0:
        v = bias[0]
        bias = ptr32(int(bias) + 4)
        at = tail
        old = tail
        s = before
        while s > 0:
            a = at[0]
            old[0] = a
            old = at
            at = ptr32(int(at) + step)
            v += ((w[0] ^ 0x8000) - 0x8000) * a
            w = ptr16(int(w) + 2)
            s -= 1
        a = x[0]
        x = ptr32(int(x) + 4)
        if before > 0:
            old[0] = a
        v += ((w[0] ^ 0x8000) - 0x8000) * a
        w = ptr16(int(w) + 2)
        v = ((v & mask) ^ sign) - sign
        v = (v + half) >> shift
        if v > 32767:
            v = 32767
        if v < -32767:
            v = -32767
        y[0] = v
        y = ptr32(int(y) + 4)
        tail = ptr32(int(tail) + 4)
        n -= 1


@micropython.viper
def recur(h: ptr32, u: ptr32, gates: ptr32, buf: ptr8, t: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    c = ptr32(int(buf) + p[1])
    shift = p[2]
    half = one << shift >> 1
    low = 0 - _LIMIT
    n = p[0]
    step = n << 2
    while n > 0:
        # The input, times its gate.
        at = ptr32(int(gates) + step)
        a = (((at[0] ^ sign) - sign) << 1) + 65536
        if a < 0:
            a = 0
        if a > 131071:
            a = 131071
        e = ptr16(int(t) + _SIGMOID + (a >> 8 << 1))
        v = e[0]
        b = e[1]
        v += (b - v) * (a & 255) >> 8
        v = (v * ((u[0] ^ sign) - sign) + 16384) >> 15
        u = ptr32(int(u) + 4)
        if p[3] != 0:
            v = ((v << 15) + half) >> shift
        else:
            # The recurrence gate, and the decay 2^-a it gives.
            a = (((gates[0] ^ sign) - sign) << 1) + 65536
            if a < 0:
                a = 0
            if a > 131071:
                a = 131071
            e = ptr16(int(t) + _SIGMOID + (a >> 8 << 1))
            q = e[0]
            b = e[1]
            q += (b - q) * (a & 255) >> 8
            q <<= 1
            a = c[0]
            a = (a >> 16) * q + ((a & 0xFFFF) * q >> 16 & 0xFFFF)
            at = ptr32(int(t) + (a >> 12 << 2 & 1020))
            q = at[0]
            b = at[1]
            q += (b - q) * (a & 4095) >> 12
            a >>= 20
            if a > 31:
                a = 31
            q = (0x1000080 - (q >> a)) >> 8
            if q > 65535:
                q = 65535
            # The normaliser.
            b = q * ((131072 - q) >> 1) >> 1
            if b > 0:
                a = 15
                while b < 0x10000000:
                    b <<= 2
                    a += 1
                e = ptr16(int(t) + _RSQRT + (((b >> 22) - 64) << 1))
                m = e[0]
                s = (one << 30) - (b >> 15) * (m * m >> 13)
                m = (m << 1) + (m * (s >> 14) >> 16)
                if m > 65535:
                    m = 65535
                b = (b >> 15) * m >> a
                if b > 32767:
                    b = 32767
            a = (h[0] ^ sign) - sign
            v = ((v * b + half) >> shift) + a
            v -= (a >> 16) * q + (((a & 0xFFFF) * q + 32768) >> 16 & 0xFFFF)
        if v > _LIMIT:
            v = _LIMIT
        if v < low:
            v = low
        h[0] = v
        h = ptr32(int(h) + 4)
        gates = ptr32(int(gates) + 4)
        c = ptr32(int(c) + 4)
        n -= 1


@micropython.viper
def gate_state(y: ptr32, h: ptr32, t: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    n = p[0]
    base = int(t) + _GELU
    left = (p[1] ^ sign) - sign
    right = 0
    if left < 0:
        right = 0 - left
        left = 0
    shift = p[2]
    half = one << shift >> 1
    g = ptr32(int(y) + (n << 2))
    while n > 0:
        f = (g[0] ^ sign) - sign
        g = ptr32(int(g) + 4)
        x = (f << left >> right) + 65536
        if x < 0:
            x = 0
        if x > 131071:
            x = 131071
        at = ptr16(base + (x >> 8 << 1))
        a = at[0]
        b = at[1]
        a += (b - a) * (x & 255) >> 8
        f = (f * a + 16384) >> 15
        v = (h[0] ^ sign) - sign
        h = ptr32(int(h) + 4)
        v = (v >> 16) * f + ((v & 0xFFFF) * f >> 16)
        v = (v + half) >> shift
        if v > 32767:
            v = 32767
        if v < -32767:
            v = -32767
        y[0] = v
        y = ptr32(int(y) + 4)
        n -= 1


# Attention


@micropython.viper
def advance(phases: ptr32, steps: ptr32, n: int):
    while n > 0:
        v = phases[0]
        v += steps[0]
        phases[0] = v
        phases = ptr32(int(phases) + 4)
        steps = ptr32(int(steps) + 4)
        n -= 1


@micropython.viper
def rotate(x: ptr32, phases: ptr32, t: ptr8, p: ptr32):
    one = 1
    sign = one << 31
    heads = p[0]
    half = p[2] >> 1
    skip = half << 2  # from a pair's first element to its second, in bytes
    step = 4
    if p[3] != 0:
        skip = 4
        step = 8
    row = p[1] << 2
    whole = x
    end = int(x) + heads * row
    first = int(x)
    while half > 0:
        v = phases[0]
        phases = ptr32(int(phases) + 4)
        u = v >> 15 & 0x1FFFF
        e = ptr16(int(t) + _SINE + (u >> 8 << 1))
        s = (e[0] ^ 0x8000) - 0x8000
        b = (e[1] ^ 0x8000) - 0x8000
        s += (b - s) * (u & 255) >> 8
        u = (v >> 15) + 32768 & 0x1FFFF
        e = ptr16(int(t) + _SINE + (u >> 8 << 1))
        c = (e[0] ^ 0x8000) - 0x8000
        b = (e[1] ^ 0x8000) - 0x8000
        c += (b - c) * (u & 255) >> 8
        x = ptr32(first)
        n = heads
        while n > 0:
            at = ptr32(int(x) + skip)
            u = (x[0] ^ sign) - sign
            v = (at[0] ^ sign) - sign
            b = (u * c - v * s + 16384) >> 15
            x[0] = b
            b = (u * s + v * c + 16384) >> 15
            at[0] = b
            x = ptr32(int(x) + row)
            n -= 1
        first += step
        half -= 1
    x = whole
    c = p[4]
    s = 0 - c
    while int(x) != end:
        v = (x[0] ^ sign) - sign
        if v > c:
            x[0] = c
        if v < s:
            x[0] = s
        x = ptr32(int(x) + 4)


@micropython.viper
def _remember(keys: ptr16, values: ptr16, k: ptr32, p: ptr32):
    heads = p[0]
    slots = p[4]
    dim = p[1]
    row = dim << 1
    k = ptr32(int(k) + (p[5] * dim << 2))
    v = ptr32(int(k) + (heads * dim << 2))
    keys = ptr16(int(keys) + p[3] * row)
    values = ptr16(int(values) + (p[3] << 1))
    skip = (slots - 1) * row
    slots <<= 1
    while heads > 0:
        n = dim
        while n > 0:
            a = k[0] + 32768
            keys[0] = a
            keys = ptr16(int(keys) + 2)
            k = ptr32(int(k) + 4)
            a = v[0] + 32768
            values[0] = a
            values = ptr16(int(values) + slots)
            v = ptr32(int(v) + 4)
            n -= 1
        keys = ptr16(int(keys) + skip)
        heads -= 1


@micropython.viper
def scores(s, q, keys, p, head, kv):
    _scores(0, keys, q, s, p, head, kv)


@micropython.viper
def _scores(acc: int, k: ptr16, q: ptr32, s: ptr32, p: ptr32, head: int, kv: int):
    dim = p[1]
    used = p[2]
    k = ptr16(int(k) + (kv * p[4] * dim << 1))
    first = int(q) + (head * dim << 2)
    x = ptr32(first)
    bias = 0
    n = dim
    while n > 0:
        bias += x[0]
        x = ptr32(int(x) + 4)
        n -= 1
    bias = 0 - (bias << 15)
    eights = dim >> 3 << 4
    row = dim << 1
    while used > 0:
        acc = bias
        x = ptr32(first)
        rest = int(k) + eights
        end = int(k) + row
        while int(k) != rest:
            acc = k[0] * x[0] + acc
            acc = k[1] * x[1] + acc
            acc = k[2] * x[2] + acc
            acc = k[3] * x[3] + acc
            acc = k[4] * x[4] + acc
            acc = k[5] * x[5] + acc
            acc = k[6] * x[6] + acc
            acc = k[7] * x[7] + acc
            k = ptr16(int(k) + 16)
            x = ptr32(int(x) + 32)
        while int(k) != end:
            acc = k[0] * x[0] + acc
            k = ptr16(int(k) + 2)
            x = ptr32(int(x) + 4)
        s[0] = acc
        s = ptr32(int(s) + 4)
        used -= 1


@micropython.viper
def softmax(s: ptr32, t: ptr8, n: int, mantissa: int, shift: int):
    one = 1
    sign = one << 31
    first = s
    end = int(s) + (n << 2)
    top = (s[0] ^ sign) - sign
    while int(s) != end:
        v = (s[0] ^ sign) - sign
        if v > top:
            top = v
        s = ptr32(int(s) + 4)
    left = 0
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = one << 20 >> left  # from here on a weight is 0
    if cut == 0:
        cut = 1
    s = first
    total = 0
    while int(s) != end:
        v = top - ((s[0] ^ sign) - sign)
        z = ((v >> 16) * mantissa + ((v & 0xFFFF) * mantissa >> 16 & 0xFFFF)) >> shift
        v = 0
        if z < cut:
            z <<= left
            e = ptr32(int(t) + (z >> 8 << 2 & 1020))
            v = e[0]
            b = e[1]
            v += (b - v) * (z & 255) >> 8
            v = v >> (z >> 16) >> 9
            total += v
        s[0] = v
        s = ptr32(int(s) + 4)
    shift = 15
    left = total
    while left >= 65536:
        left >>= 1
        shift += 1
    top = (one << 30) // left
    cut = one << shift >> 1
    s = first
    while int(s) != end:
        v = (s[0] * top + cut) >> shift
        s[0] = v
        s = ptr32(int(s) + 4)
    end = int(first) + (((n + 7) & -8) << 2)
    while int(s) != end:
        s[0] = 0
        s = ptr32(int(s) + 4)


@micropython.viper
def mix(y, s, values, p, head, kv):
    _mix(0, values, s, y, p, head, kv)


@micropython.viper
def _mix(acc: int, v: ptr16, s: ptr32, y: ptr32, p: ptr32, head: int, kv: int):
    one = 1
    sign = one << 31
    mask = (sign << 1) - 1
    dim = p[1]
    row = p[4] << 1
    used = (p[2] + 7) >> 3 << 4  # bytes of a row in use; the weights past the last slot are 0
    first = int(v) + kv * dim * row
    y = ptr32(int(y) + (head * dim << 2))
    x = s
    bias = 0
    n = p[2]
    while n > 0:
        bias += x[0]
        x = ptr32(int(x) + 4)
        n -= 1
    bias = 16384 - (bias << 15)
    while dim > 0:
        acc = bias
        x = s
        v = ptr16(first)
        end = first + used
        while int(v) != end:
            acc = v[0] * x[0] + acc
            acc = v[1] * x[1] + acc
            acc = v[2] * x[2] + acc
            acc = v[3] * x[3] + acc
            acc = v[4] * x[4] + acc
            acc = v[5] * x[5] + acc
            acc = v[6] * x[6] + acc
            acc = v[7] * x[7] + acc
            v = ptr16(int(v) + 16)
            x = ptr32(int(x) + 32)
        acc = ((acc & mask) ^ sign) - sign
        acc >>= 15
        if acc > 32767:
            acc = 32767
        if acc < -32767:
            acc = -32767
        y[0] = acc
        y = ptr32(int(y) + 4)
        first += row
        dim -= 1


@micropython.viper
def attend(y, q, keys, values, s, t, p):
    _remember(keys, values, q, p)
    a = ptr32(p)
    one = 1
    sign = one << 31
    shift = (a[7] ^ sign) - sign
    n = a[5]
    group = n // a[0]
    h = 0
    while h < n:
        kv = h // group
        _scores(0, keys, q, s, p, h, kv)
        softmax(s, t, a[2], a[6], shift)
        _mix(0, values, s, y, p, h, kv)
        h += 1


# Router and sampler


@micropython.viper
def route(logits: ptr32, t: ptr8, n: int, mantissa: int, shift: int, out: ptr32) -> int:
    one = 1
    sign = one << 31
    x = logits
    top = (x[0] ^ sign) - sign
    best = 0
    i = 0
    while i < n:
        v = (x[0] ^ sign) - sign
        if v > top:
            top = v
            best = i
        x = ptr32(int(x) + 4)
        i += 1
    left = 0
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = one << 20 >> left
    if cut == 0:
        cut = 1
    total = 1
    x = logits
    while n > 0:
        v = top - ((x[0] ^ sign) - sign)
        x = ptr32(int(x) + 4)
        z = ((v >> 16) * mantissa + ((v & 0xFFFF) * mantissa >> 16 & 0xFFFF)) >> shift
        if z < cut:
            z <<= left
            e = ptr32(int(t) + (z >> 8 << 2 & 1020))
            v = e[0]
            b = e[1]
            v += (b - v) * (z & 255) >> 8
            total += v >> (z >> 16) >> 9
        n -= 1
    v = (one << 30) // (total >> 1)
    if v > 65535:
        v = 65535
    out[0] = v
    return best


@micropython.viper
def softcap(y: ptr32, t: ptr8, n: int, p: ptr32):
    one = 1
    sign = one << 31
    mantissa = p[0]
    shift = (p[1] ^ sign) - sign
    factor = p[2]
    back = p[3]
    half = one << back >> 1
    left = 0
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = one << 17 >> left
    if cut == 0:
        cut = 1
    while n > 0:
        v = (y[0] ^ sign) - sign
        a = v
        if a < 0:
            a = 0 - a
        z = ((a >> 16) * mantissa + ((a & 0xFFFF) * mantissa >> 16 & 0xFFFF)) >> shift
        if z < cut:
            z <<= left
        else:
            z = 131071
        e = ptr16(int(t) + _TANH + (z >> 8 << 1))
        a = e[0]
        b = e[1]
        a = (a << 8) + (b - a) * (z & 255)
        a = (a >> 16) * factor + ((a & 0xFFFF) * factor >> 16 & 0xFFFF)
        a = (a + half) >> back
        if v < 0:
            a = 0 - a
        y[0] = a
        y = ptr32(int(y) + 4)
        n -= 1


@micropython.viper
def argmax(y: ptr32, n: int) -> int:
    one = 1
    sign = one << 31
    top = (y[0] ^ sign) - sign
    best = 0
    i = 0
    while i < n:
        v = (y[0] ^ sign) - sign
        if v > top:
            top = v
            best = i
        y = ptr32(int(y) + 4)
        i += 1
    return best


@micropython.viper
def candidates(ids: ptr32, w: ptr32, logits: ptr32, t: ptr8, p: ptr32) -> int:
    one = 1
    sign = one << 31
    end = p[0]
    mantissa = p[1]
    shift = (p[2] ^ sign) - sign
    top = (p[3] ^ sign) - sign
    left = 0
    if shift < 0:
        left = 0 - shift
        shift = 0
    if shift > 31:
        shift = 31
    cut = 15 << 16 >> left  # from here on a weight is 0, or nearly
    # The least logit that is not past it, bit by bit.
    n = one << 30
    far = 0
    while n > 0:
        far += n
        z = ((far >> 16) * mantissa + ((far & 0xFFFF) * mantissa >> 16 & 0xFFFF)) >> shift
        if z > cut:
            far -= n
        n >>= 1
    i = 0
    while i < end:
        v = top - ((logits[0] ^ sign) - sign)
        logits = ptr32(int(logits) + 4)
        if v <= far:
            z = ((v >> 16) * mantissa + ((v & 0xFFFF) * mantissa >> 16 & 0xFFFF)) >> shift << left
            e = ptr32(int(t) + (z >> 8 << 2 & 1020))
            v = e[0]
            b = e[1]
            v += (b - v) * (z & 255) >> 8
            v = v >> (z >> 16) >> 10
            if v > 0:
                ids[0] = i
                ids = ptr32(int(ids) + 4)
                w[0] = v
                w = ptr32(int(w) + 4)
                n += 1
        i += 1
    return n


@micropython.viper
def top_k(ids, w, logits, n: int, k: int) -> int:
    if n <= k:
        return n
    return int(_keep(ids, w, logits, n, k, 0))


@micropython.viper
def top_p(ids, w, logits, n: int, p16: int) -> int:
    x = ptr32(w)
    total = 0
    i = n
    while i > 0:
        total += x[0]
        x = ptr32(int(x) + 4)
        i -= 1
    total = (total >> 16) * p16 + ((total & 0xFFFF) * p16 >> 16 & 0xFFFF)
    if total < 1:
        total = 1
    return int(_keep(ids, w, logits, n, total, 1))


_BUCKETS = array("i", bytes(256))


@micropython.viper
def _keep(ids: ptr32, w: ptr32, logits: ptr32, n: int, need: int, by_weight: int) -> int:
    one = 1
    sign = one << 31
    buckets = ptr32(_BUCKETS)
    end = int(ids) + (n << 2)
    first = ids
    weights = w
    x = ptr32(int(logits) + (ids[0] << 2))
    edge = (x[0] ^ sign) - sign  # becomes the largest logit
    low = edge
    while int(ids) != end:
        x = ptr32(int(logits) + (ids[0] << 2))
        v = (x[0] ^ sign) - sign
        if v > edge:
            edge = v
        if v < low:
            low = v
        ids = ptr32(int(ids) + 4)
    # The smallest distance from it within which `need` is reached, six bits at a time from above: the mass at each
    # value of the six bits is summed, among the candidates whose higher bits are those found so far.
    low = edge - low
    shift = 0
    while low >> shift > 63:
        shift += 6
    weight = 1
    while shift >= 0:
        i = 64
        x = buckets
        while i > 0:
            x[0] = 0
            x = ptr32(int(x) + 4)
            i -= 1
        ids = first
        w = weights
        while int(ids) != end:
            x = ptr32(int(logits) + (ids[0] << 2))
            ids = ptr32(int(ids) + 4)
            v = edge - ((x[0] ^ sign) - sign)
            if by_weight:
                weight = w[0]
                w = ptr32(int(w) + 4)
            if v >= 0:
                v >>= shift
                if v < 64:
                    x = ptr32(int(buckets) + (v << 2))
                    v = x[0] + weight
                    x[0] = v
        x = buckets
        while need > x[0]:
            need -= x[0]
            edge -= one << shift
            x = ptr32(int(x) + 4)
        shift -= 6
    # What is above the edge stays; of what is on it, as much as is still needed.
    kept = 0
    ids = first
    w = weights
    while int(ids) != end:
        i = ids[0]
        ids = ptr32(int(ids) + 4)
        x = ptr32(int(logits) + (i << 2))
        v = (x[0] ^ sign) - sign
        low = w[0]
        w = ptr32(int(w) + 4)
        keep = 0
        if v > edge:
            keep = 1
        if v == edge:
            if need > 0:
                keep = 1
                if by_weight:
                    weight = low
                need -= weight
        if keep:
            first[0] = i
            first = ptr32(int(first) + 4)
            weights[0] = low
            weights = ptr32(int(weights) + 4)
            kept += 1
    return kept


@micropython.viper
def draw(w: ptr32, n: int, rng: ptr32) -> int:
    one = 1
    sign = one << 31
    mask = (sign << 1) - 1
    r = rng[0]
    r ^= r << 13 & mask
    r ^= r >> 17 & 0x7FFF
    r ^= r << 5 & mask
    rng[0] = r
    x = w
    total = 0
    i = n
    while i > 0:
        total += x[0]
        x = ptr32(int(x) + 4)
        i -= 1
    # total * (r >> 2) >> 30, both in halves of 15 bits.
    a = r >> 17 & 0x7FFF
    b = r >> 2 & 0x7FFF
    high = total >> 15
    total &= 0x7FFF
    at = high * a + ((high * b + total * a + (total * b >> 15)) >> 15)
    while i < n:
        at -= w[0]
        if at < 0:
            return i
        w = ptr32(int(w) + 4)
        i += 1
    return n - 1


# Files


@micropython.viper
def _fill(crcs: ptr32):
    mask = 0x3FFFFFFF
    mask = mask << 1 | 1
    polynomial = 0xEDB8
    polynomial = polynomial << 16 | 0x8320
    i = 0
    while i < 256:
        v = i
        n = 8
        while n > 0:
            odd = v & 1
            v = v >> 1 & mask
            if odd:
                v ^= polynomial
            n -= 1
        crcs[0] = v
        crcs = ptr32(int(crcs) + 4)
        i += 1


_CRCS = array("I", bytes(1024))  # what each byte does to a CRC-32
_fill(_CRCS)  # type: ignore[arg-type]


@micropython.viper
def damaged(buf, n, table, at) -> int:
    return int(_damaged(0, _CRCS, buf, n, table, at))  # type: ignore[arg-type]


@micropython.viper
def _damaged(crc: uint, crcs: ptr32, buf: ptr32, n: int, table: ptr8, at: int) -> int:
    ones = 0xFFFF
    crc = uint(ones << 16 | 0xFFFF)
    while n > 0:
        if int(buf) & 3 == 0:
            while n >= 8:
                crc = uint(buf[0]) ^ crc
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(buf[1]) ^ crc
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
                buf = ptr32(int(buf) + 8)
                n -= 8
        if n > 0:
            byte = ptr8(int(buf))
            crc = uint(byte[0]) ^ crc
            crc = uint(crcs[int(crc) & 255]) ^ (crc >> 8)
            buf = ptr32(int(buf) + 1)
            n -= 1
    want = ptr16(int(table) + at)
    low = want[0] ^ 0xFFFF
    if int(crc) & 0xFFFF != low:
        return 1
    low = want[1] ^ 0xFFFF
    if int(crc >> 16) & 0xFFFF != low:
        return 1
    return 0
