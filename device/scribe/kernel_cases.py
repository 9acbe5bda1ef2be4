"""Random and extreme inputs for every kernel: what `kernels.check` and the tests compare the fast forms on.

A case is a function of a set of kernels, a generator and the tables that returns what the kernels made of the inputs;
the same seed gives the same inputs, so two sets of kernels agree if they return the same. Inputs keep to what
packing guarantees. The module is loaded for the check and dropped after it.
"""

from array import array

from . import plain_kernels as plain

LIMIT = plain.STATE_LIMIT


class Random:
    """A generator of small state that never leaves small integers."""

    def __init__(self, seed):
        self.s = seed * 257 % 65537 or 1
        self.kind = seed % 4  # uniform, extreme, small, mixed

    def below(self, n):
        """0..n-1, for n <= 2^16."""
        self.s = self.s * 75 % 65537
        return (self.s - 1) * n >> 16 if n < 16384 else (self.s - 1) % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def value(self, low, high):
        """low..high: uniform, at an end or near 0, as the seed says."""
        kind = self.kind if self.kind < 3 else self.below(3)
        if kind == 1:
            v = (low, high, high, low, 0, low + 1, high - 1, 1)[self.below(8)]
        else:
            v = (self.below(65536) << 16 | self.below(65536)) >> 1
            v = low + v % (high - low + 1)
            if kind == 2:
                v >>= self.below(25)
        return low if v < low else high if v > high else v

    def shift(self, usual):
        """A shift: mostly about as many bits as bring a result to its usual size, where it shows most."""
        return usual + self.below(3) if self.below(4) else self.below(26)

    def vector(self, n, low, high):
        v = array("i", bytes(4 * n))
        for i in range(n):
            v[i] = self.value(low, high)
        return v


def made_up_tables():
    """Tables of the right shape and range: what they hold is no matter to the comparison."""
    t = bytearray(plain.TANH + 1028)
    for i in range(257):
        put32(t, plain.EXP2 + 4 * i, (1 << 24) - 32768 * i)
    for i in range(514):
        put16(t, plain.SIGMOID + 2 * i, 63 * i)
        put16(t, plain.GELU + 2 * i, 32319 - 63 * i)
        put16(t, plain.SINE + 2 * i, (127 * (i & 255) ^ 0 - (i >> 8 & 1)))
        put16(t, plain.TANH + 2 * i, 127 * i)
    for i in range(192):
        put16(t, plain.RSQRT + 2 * i, 32640 - 85 * i)
    return t


def wide(r, n, top):
    """n numbers of some size, with the mantissa and shift of `scaled` that bring it to about 2^top."""
    bits = r.between(1, 30)
    v = r.vector(n, 1 - (1 << bits), (1 << bits) - 1)
    shift = bits - top + r.below(4) - 1 if r.below(4) else r.between(-17, 31)
    return v, r.value(1, 65535) | r.below(2) << 15, shift if shift > -17 else -17


def nothing(n, kind="i"):
    return array(kind, bytes(n * (4 if kind == "i" else 2)))


def put32(buf, at, v):
    for i in range(4):
        buf[at + i] = v >> 8 * i & 255


def put16(buf, at, v):
    buf[at] = v & 255
    buf[at + 1] = v >> 8 & 255


def matrix(r, bits, rows, cols, blocks):
    """A matrix section of random numbers and its descriptor."""
    padded = cols + 7 & -8
    groups = (padded + 63) // 64
    biased = r.below(2)
    scales = 4 + 4 * rows
    weights = scales + 2 * rows * groups + 3 & -4
    buf = bytearray(weights + rows * padded * bits // 8)
    for i in range(rows):
        put32(buf, 4 + 4 * i, r.value(0 - (1 << 28), 1 << 28))
    for i in range(rows * groups):
        put16(buf, scales + 2 * i, r.value(0, 32767))
    if bits == 8:
        for i in range(rows * padded):
            buf[weights + i] = 128 + r.value(-127, 127)
    else:
        for i in range(rows * padded // 2):
            buf[weights + i] = r.value(0, 15) | r.value(0, 15) << 4
    shift = r.shift(11)
    return buf, array(
        "i", (weights, scales, 4 if biased else -1, rows, cols, padded, groups, blocks, shift, r.below(3), bits, 0)
    )


def multiplied(k, r, bits):
    """A matrix as it is with its sums as they are, then its halves, or itself twice, in one call."""
    blocks = r.between(1, 3)
    rows = blocks * r.between(1, 2)
    cols = (r.between(1, 12), 44, 48, 68, r.between(65, 140))[r.below(5)]
    buf, d = matrix(r, bits, rows, cols, blocks)
    begin = r.below(2)
    x = r.vector(begin + cols * blocks, -32767, 32767)
    px = nothing(blocks * (d[plain.PADDED] + d[plain.GROUPS]))
    y = r.vector(3 + 2 * rows, 0 - LIMIT, LIMIT)
    raw = nothing(rows)
    usual = d[plain.SHIFT], d[plain.MODE]
    d[plain.SHIFT], d[plain.MODE] = 0, plain.RAW
    k.linear(raw, x, px, buf, array("i", (1, begin)) + d)
    d[plain.SHIFT], d[plain.MODE] = usual
    other = array("i", d)
    other[plain.OUT] = rows + 1 + r.below(3)
    other[plain.MODE] = r.below(3)
    if blocks == 1 and rows > 1:
        d[plain.ROWS] = 1
        other[plain.ROWS] = rows - 1
        other[plain.WEIGHTS] += d[plain.PADDED] * bits // 8
        other[plain.SCALES] += 2 * d[plain.GROUPS]
        if other[plain.BIAS] >= 0:
            other[plain.BIAS] += 4
    k.linear(y, x, px, buf, array("i", (2, begin)) + d + other)
    return x, raw, y


def linear(k, r, t):
    return multiplied(k, r, 8), multiplied(k, r, 4)


def embed(k, r, t):
    n = (r.between(1, 12), 44, r.between(64, 70))[r.below(3)]
    buf, d = matrix(r, 8, 2, n, 1)
    x = nothing(n)
    k.embed(x, buf, d, r.below(2), r.value(0, 65535), r.shift(0))
    return x


def norm(k, r, t):
    n = r.between(1, 40)
    bits = 0
    while 1 << bits < n:
        bits += 1
    x = r.vector(n, 0 - LIMIT, LIMIT)
    if r.kind == 2:
        x = r.vector(n, -8, 8)
    w = bytearray(2 * n + 2)
    for i in range(n):
        put16(w, 2 + 2 * i, r.value(-32767, 32767))
    p = array("i", (n, bits, 12 - (bits + 1) // 2 - r.below(2), r.shift(11), r.value(0, 1 << 29), 2))
    y = nothing(n)
    k.norm(y, x, w, t, p)
    return x, y


def gated(k, r, t):
    n = r.between(1, 20)
    y = r.vector(2 * n, -32767, 32767)
    p = array("i", (n, (plain.SIGMOID, plain.GELU)[r.below(2)], r.between(-15, 14), r.shift(14)))
    k.gated(y, t, p)
    return y


def add_scaled(k, r, t):
    n = r.between(1, 20)
    x = r.vector(n, 0 - LIMIT, LIMIT)
    y = r.vector(n, -32767, 32767) if r.below(2) else r.vector(n, 0 - LIMIT, LIMIT)
    k.add_scaled(x, y, r.value(0, 65535), r.shift(0), n)
    return x, y


def conv(k, r, t):
    n = r.between(1, 9)
    width = r.between(1, 5)
    top = 32767 // width
    buf = bytearray(4 + 4 * n + 2 * n * width)
    for i in range(n):
        put32(buf, 4 + 4 * i, r.value(0 - (1 << 29), 1 << 29))
    for i in range(n * width):
        put16(buf, 4 + 4 * n + 2 * i, r.value(0 - top, top))
    x = r.vector(n, -32767, 32767)
    tail = r.vector(n * (width - 1), -32767, 32767)
    y = nothing(n)
    k.conv(y, x, tail, buf, array("i", (n, width, 4 + 4 * n, 4, r.shift(14))))
    return x, y, tail


def recur(k, r, t):
    n = r.between(1, 9)
    c = bytearray(4 + 4 * n)
    for i in range(n):
        put32(c, 4 + 4 * i, r.value(0, 0x7FFFFFFF) >> r.below(24))
    h = r.vector(n, 0 - LIMIT, LIMIT)
    u = r.vector(n, -32767, 32767)
    gates = r.vector(2 * n, -32767, 32767)
    k.recur(h, u, gates, c, t, array("i", (n, 4, r.shift(0), r.below(5) // 4)))
    return h, u, gates


def gate_state(k, r, t):
    n = r.between(1, 20)
    h = r.vector(n, 0 - LIMIT, LIMIT)
    y = r.vector(2 * n, -32767, 32767)
    k.gate_state(y, h, t, array("i", (n, r.between(-15, 14), r.shift(13))))
    return h, y


def advance(k, r, t):
    n = r.between(1, 8)
    full = 0x7FFFFFFF
    phases = r.vector(n, 0 - full, full)
    steps = r.vector(n, 0 - full, full)
    k.advance(phases, steps, n)
    return phases, steps


def rotate(k, r, t):
    heads, half, rest = r.between(1, 3), r.between(1, 6), r.below(4)
    dim = 2 * half + rest
    full = 0x7FFFFFFF
    phases = r.vector(half, 0 - full, full)
    x = r.vector(heads * dim, -32767, 32767)
    k.rotate(x, phases, t, array("i", (heads, dim, 2 * half, r.below(2), r.value(1, 32767))))
    return x, phases


def cache(r):
    heads, dim, slots = r.between(1, 2), r.between(6, 20), 8 * r.between(1, 3)
    return array("i", (heads, dim, slots - r.below(slots // r.between(1, 4)), r.below(slots), slots))


def scores(k, r, t):
    p = cache(r)
    top = 7300  # 20 * 7300^2 < 2^30
    keys = nothing(p[0] * p[1] * p[4], "H")
    for i in range(len(keys)):
        keys[i] = 32768 + r.value(0 - top, top)
    q = r.vector(2 * p[0] * p[1], 0 - top, top)
    s = nothing(p[4])
    kv = r.below(p[0])
    k.scores(s, q, keys, p, 2 * kv + r.below(2), kv)
    return s, q


def softmax(k, r, t):
    n = r.between(1, 40)
    s, mantissa, shift = wide(r, n + 7 & -8, 19)
    k.softmax(s, t, n, mantissa, shift)
    return s


def mix(k, r, t):
    p = cache(r)
    values = nothing(p[0] * p[1] * p[4], "H")
    for i in range(len(values)):
        values[i] = 32768 + r.value(-32767, 32767)
    s = nothing(p[4])
    if r.below(4) == 0:
        s[r.below(p[2])] = 32768
    else:
        for i in range(p[2]):
            s[i] = r.value(0, 32768 // p[2])
    y = nothing(2 * p[0] * p[1])
    kv = r.below(p[0])
    k.mix(y, s, values, p, 2 * kv + r.below(2), kv)
    return y, s


def attend(k, r, t):
    kv, dim, slots = r.between(1, 2), 8 * r.between(1, 3), 8 * r.between(1, 3)
    if r.below(4) == 0:
        dim -= 2
    heads = kv * r.between(1, 2)
    used = slots - r.below(slots // r.between(1, 4))
    top = 6600  # 24 * 6600^2 < 2^30
    keys = nothing(kv * dim * slots, "H")
    values = nothing(kv * dim * slots, "H")
    for i in range(len(keys)):
        keys[i] = 32768 + r.value(0 - top, top)
        values[i] = 32768 + r.value(-32767, 32767)
    q = r.vector((heads + 2 * kv) * dim, 0 - top, top)
    y = nothing(heads * dim)
    shift = 13 - r.below(12)
    p = array("i", (kv, dim, used, r.below(used), slots, heads, r.value(1, 65535) | r.below(2) << 15, shift))
    k.attend(y, q, keys, values, nothing(slots), t, p)
    return y, q, keys, values


def route(k, r, t):
    n = r.between(1, 9)
    logits, mantissa, shift = wide(r, n, 19)
    out = nothing(1)
    best = k.route(logits, t, n, mantissa, shift, out)
    return best, out, logits


def softcap(k, r, t):
    n = r.between(1, 20)
    y, mantissa, shift = wide(r, n, 17)
    p = array("i", (mantissa, shift, r.value(1, 65535), r.below(20)))
    k.softcap(y, t, n, p)
    return y


def argmax(k, r, t):
    n = r.between(1, 20)
    y = r.vector(n, 0 - LIMIT, LIMIT) if r.below(2) else r.vector(n, -2, 2)
    return k.argmax(y, n), y


def candidates(k, r, t):
    n = r.between(1, 40)
    logits, mantissa, shift = wide(r, n, 19)
    p = array("i", (n, mantissa, shift, max(logits)))
    ids = nothing(n)
    w = nothing(n)
    return k.candidates(ids, w, logits, t, p), ids, w


def chosen(r):
    n = r.between(1, 20)
    logits = r.vector(2 * n, 0 - LIMIT, LIMIT) if r.below(2) else r.vector(2 * n, -3, 3)
    ids = nothing(n)
    for i in range(n):
        ids[i] = 2 * i + r.below(2)
    return ids, r.vector(n, 1, 16384), logits, n


def top_k(k, r, t):
    ids, w, logits, n = chosen(r)
    n = k.top_k(ids, w, logits, n, r.between(1, n + 1))
    return n, ids[:n], w[:n]


def top_p(k, r, t):
    ids, w, logits, n = chosen(r)
    n = k.top_p(ids, w, logits, n, r.value(0, 65535))
    return n, ids[:n], w[:n]


def draw(k, r, t):
    n = r.between(1, 20)
    w = r.vector(n, 0, LIMIT // n)
    full = 0x7FFFFFFF
    rng = array("i", (r.value(0 - full, full) or 1,))
    return k.draw(w, n, rng), rng[0], k.draw(w, n, rng), rng


def damaged(k, r, t):
    n, start = r.between(1, 40), r.below(4)
    buf = bytearray(n + start)
    crc = 0xFFFFFFFF
    for i in range(start, n + start):
        buf[i] = r.value(0, 255)
        crc ^= buf[i]
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    table = bytearray(8)
    put32(table, 4, crc)
    part = memoryview(buf)[start:]
    right = k.damaged(part, n, table, 4)
    table[4 + r.below(4)] ^= 1 << r.below(8)
    return right, k.damaged(part, n, table, 4)


NAMES = (
    "linear embed norm gated add_scaled conv recur gate_state advance rotate scores softmax mix attend route softcap"
    " argmax candidates top_k top_p draw damaged"
).split()
CASES = {name: globals()[name] for name in NAMES}
