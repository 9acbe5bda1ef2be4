"""The arithmetic of a token in plain Python: what every fast kernel is checked against, to the bit.

Integers only. Vectors are `array('i')`; `buf` is a section of the model file (bytes-like), read at byte offsets; `t` is
the file's table section. `p` is an `array('i')` of parameters, its fields named where a kernel reads them. Every value
stays in 32 signed bits: the integer reference on the host asserts it. Runs on MicroPython and on CPython.

A kernel never allocates on the heap in its fast form, so results go to arrays given by the caller.
"""

# Byte offsets inside the table section (docs/format.md).
EXP2 = 0  # int32[257]: 2^(-i/256), 24 fraction bits
SIGMOID = 1028  # uint16[514]: sigmoid((i - 256) / 16), 15 fraction bits
GELU = 2056  # uint16[514]: gelu(v) / v at v = (i - 256) / 32, 15 fraction bits
SINE = 3084  # int16[514]: sin(2 pi i / 512), 15 fraction bits
RSQRT = 4112  # uint16[192]: 1 / sqrt((i + 64.5) / 256), 14 fraction bits
TANH = 4496  # uint16[514]: tanh(i / 64), 16 fraction bits

# Fields of a matrix descriptor. OUT is where in the result the matrix's rows begin.
WEIGHTS, SCALES, BIAS, ROWS, COLS, PADDED, GROUPS, BLOCKS, SHIFT, MODE, BITS, OUT = range(12)
SATURATE, RAW, ADD = range(3)  # what `linear` does with a row's sum: 16-bit store, 32-bit store, add to y
GROUP = 64

STATE_LIMIT = (1 << 30) - 1  # residual stream and recurrent state are clamped here


def u16(buf, at):
    return buf[at] | buf[at + 1] << 8


def i16(buf, at):
    return (u16(buf, at) ^ 0x8000) - 0x8000


def i32(buf, at):
    return ((u16(buf, at) | u16(buf, at + 2) << 16) ^ 0x80000000) - 0x80000000


def saturate(v):
    return 32767 if v > 32767 else -32767 if v < -32767 else v


def limit(v):
    return STATE_LIMIT if v > STATE_LIMIT else -STATE_LIMIT if v < -STATE_LIMIT else v


def round_shift(v, n):
    """v / 2^n, rounded half up; n >= 0."""
    return (v + (1 << n >> 1)) >> n


def lookup(t, at, x):
    """Linear interpolation in a uint16 table; x has 8 fraction bits and is clamped to the table."""
    x = 0 if x < 0 else 131071 if x > 131071 else x
    i = at + (x >> 8) * 2
    a = u16(t, i)
    return a + ((u16(t, i + 2) - a) * (x & 255) >> 8)


def exp2_neg(t, z, bits):
    """2^-z with 24 fraction bits, for z >= 0 with `bits` (>= 8) fraction bits."""
    n = z >> bits
    f = z & ((1 << bits) - 1)
    i = EXP2 + (f >> (bits - 8)) * 4
    a = i32(t, i)
    a += (i32(t, i + 4) - a) * (f & ((1 << (bits - 8)) - 1)) >> (bits - 8)
    return a >> (31 if n > 31 else n)


def scaled(d, mantissa, shift):
    """d * mantissa / 2^(16 + shift), for 0 <= d < 2^31; clamped to 32 << 16 where a left shift would overflow."""
    z = d * mantissa >> 16
    if shift >= 0:
        return z >> (31 if shift > 31 else shift)
    shift = 0 - shift
    top = (32 << 16) >> (31 if shift > 31 else shift)
    return 32 << 16 if z >= top else z << shift


def normalise(v):
    """v > 0 as (m, j): m = v * 4^j in [2^28, 2^30)."""
    if v > (1 << 30) - 1:
        v = (1 << 30) - 1
    j = 0
    while v < 1 << 28:
        v <<= 2
        j += 1
    return v, j


def rsqrt(t, m):
    """2^15 / sqrt(m / 2^30) for m in [2^28, 2^30): a table and one Newton step; at most 65535."""
    y = u16(t, RSQRT + ((m >> 22) - 64) * 2)
    e = (1 << 30) - (m >> 15) * (y * y >> 13)
    r = (y << 1) + (y * (e >> 14) >> 16)
    return 65535 if r > 65535 else r


# Matrices


def linear(y, x, px, buf, d):
    """y = W x [+ b], for several matrices that read the same input.

    d: how many, the first element of x that they read, then a descriptor of each; what they have in common is COLS,
    PADDED, GROUPS, BLOCKS and BITS. Weights are stored as w + 128 (int8) or w + 8 (int4, two to a byte, the lower
    nibble first). A group's dot product times its 15-bit scale loses its low 16 bits (int4: 12); the groups' products
    are added with the bias. Row r reads block r // (rows / blocks) of the input (block-diagonal matrices).
    px is scratch of BLOCKS * (PADDED + GROUPS) elements: fast forms lay the input out in it as they need it.
    """
    for m in range(d[0]):
        f = d[2 + 12 * m : 14 + 12 * m]
        cols, padded, groups, bits = f[COLS], f[PADDED], f[GROUPS], f[BITS]
        per_block = f[ROWS] // f[BLOCKS]
        for r in range(f[ROWS]):
            first = d[1] + r // per_block * cols
            w = f[WEIGHTS] + r * padded * bits // 8
            v = i32(buf, f[BIAS] + 4 * r) if f[BIAS] >= 0 else 0
            for g in range(groups):
                acc = 0
                columns = range(g * GROUP, min(g * GROUP + GROUP, cols))
                if bits == 8:
                    for i in columns:
                        acc += (buf[w + i] - 128) * x[first + i]
                else:
                    for i in columns:
                        acc += ((buf[w + (i >> 1)] >> 4 * (i & 1) & 15) - 8) * x[first + i]
                v += acc * u16(buf, f[SCALES] + 2 * (r * groups + g)) >> (16 if bits == 8 else 12)
            finish(y, f[OUT] + r, v, f[SHIFT], f[MODE])


def finish(y, at, v, shift, mode):
    """Store a row's sum as its matrix's MODE says."""
    v = round_shift(v, shift)
    if mode == SATURATE:
        y[at] = saturate(v)
    elif mode == RAW:
        y[at] = v
    else:
        y[at] = limit(y[at] + v)


def embed(x, buf, d, token, mantissa, shift):
    """Row `token` of the int8 embedding, times `mantissa`, to the residual stream's binary point."""
    padded, groups = d[PADDED], d[GROUPS]
    w = d[WEIGHTS] + token * padded
    for i in range(d[COLS]):
        v = (buf[w + i] - 128) * u16(buf, d[SCALES] + 2 * (token * groups + i // GROUP))
        x[i] = limit(round_shift((v << 8) * mantissa >> 16, shift))


# Vectors


def norm(y, x, buf, t, p):
    """RMSNorm (Zhang and Sennrich 2019) of the residual stream to 16 bits.

    p: count, log2 of count rounded up (k), fraction bits of the unweighted result, shift of the product with the
    weight, epsilon * count in squared units, byte offset of the int16 weights (which hold sqrt(count / 2^k)).
    """
    n, k, point, shift, eps, w = p[0], p[1], p[2], p[3], p[4], p[5]
    big = 0
    for i in range(n):
        a = x[i] if x[i] >= 0 else 0 - x[i]
        if a > big:
            big = a
    s = 0
    while big >> s >= 1 << 15:
        s += 1
    v = eps >> (31 if 2 * s + k > 31 else 2 * s + k)
    for i in range(n):
        a = x[i] >> s
        v += a * a >> k
    m, j = normalise(v if v > 0 else 1)
    r = rsqrt(t, m)
    for i in range(n):
        a = (x[i] >> s) * r >> (30 - j - point)
        y[i] = saturate(round_shift(a * i16(buf, w + 2 * i), shift))


def activation(v, t, table, shift):
    """v * gate(v): GELU (tanh form) or SiLU, by its table. `shift` brings v to the table's steps (left if positive)."""
    x = v << shift if shift >= 0 else v >> (0 - shift)
    return round_shift(v * lookup(t, table, x + 65536), 15)


def gated(y, t, p):
    """A gated MLP's middle: the first n of y become activation(y[i]) * y[n + i] / 2^shift, saturated to 16 bits.

    p: n, the activation's table, its shift, the product's shift.
    """
    for i in range(p[0]):
        y[i] = saturate(round_shift(activation(y[i], t, p[1], p[2]) * y[p[0] + i], p[3]))


def add_scaled(x, y, factor, shift, n):
    """x += y * factor / 2^(16 + shift): an expert's output, weighed by its router probability (16 fraction bits)."""
    for i in range(n):
        x[i] = limit(x[i] + round_shift(y[i] * factor >> 16, shift))


# Recurrence


def conv(y, x, tail, buf, p):
    """Causal depthwise convolution; `tail` (width - 1 rows of n) holds the inputs before, oldest first, and moves on.

    p: n, width, byte offset of the int16 weights (n rows of width, the newest input's last), of the int32 biases,
    shift.
    """
    n, width, w, b, shift = p[0], p[1], p[2], p[3], p[4]
    for i in range(n):
        v = i32(buf, b + 4 * i)
        for s in range(width - 1):
            v += i16(buf, w + 2 * (i * width + s)) * tail[s * n + i]
        v += i16(buf, w + 2 * (i * width + width - 1)) * x[i]
        for s in range(width - 2):
            tail[s * n + i] = tail[s * n + n + i]
        if width > 1:
            tail[(width - 2) * n + i] = x[i]
        y[i] = saturate(round_shift(v, shift))


def recur(h, u, gates, buf, t, p):
    """One step of the RG-LRU (De et al. 2024): h = a h + sqrt(1 - a^2) (i u).

    `gates` holds n recurrence gates, then n input gates, before the sigmoid, with 11 fraction bits. It is 1 - a that
    is kept (q, 16 bits), since a is near 1. p: n, byte offset of int32 8 softplus(Lambda) / ln 2 with 20 fraction
    bits, shift of (normaliser * i u) to the state's binary point, 1 at a text's first token (a = 0, normaliser 1).
    """
    n, c, shift, first = p[0], p[1], p[2], p[3]
    for j in range(n):
        r = lookup(t, SIGMOID, (gates[j] << 1) + 65536)
        i = lookup(t, SIGMOID, (gates[n + j] << 1) + 65536)
        iu = round_shift(i * u[j], 15)
        if first:
            h[j] = limit(round_shift(iu << 15, shift))
            continue
        a = exp2_neg(t, i32(buf, c + 4 * j) * (r << 1) >> 16, 20)
        q = (1 << 24) - a + 128 >> 8
        if q > 65535:
            q = 65535
        v = q * ((131072 - q) >> 1) >> 1  # (1 - a)(1 + a), 30 fraction bits
        if v > 0:
            m, k = normalise(v)
            v = ((m >> 15) * rsqrt(t, m) >> 15) >> k  # its root, 15 fraction bits
            if v > 32767:
                v = 32767
        h[j] = limit(h[j] - (h[j] * q + 32768 >> 16) + round_shift(v * iu, shift))


def gate_state(y, h, t, p):
    """The first n of y become h[i] * gelu(y[n + i]) / 2^(16 + shift), saturated to 16 bits.

    p: n, the activation's shift, the product's shift.
    """
    for i in range(p[0]):
        y[i] = saturate(round_shift(h[i] * activation(y[p[0] + i], t, GELU, p[1]) >> 16, p[2]))


# Attention


def advance(phases, steps, n):
    """Rotary phases of the next position: 32-bit turns that wrap, so positions never run out."""
    for i in range(n):
        phases[i] = ((phases[i] + steps[i] & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def sine(t, phase):
    """sin of a 32-bit turn, 15 fraction bits."""
    x = phase >> 15 & 0x1FFFF
    i = SINE + (x >> 8) * 2
    a = i16(t, i)
    return a + ((i16(t, i + 2) - a) * (x & 255) >> 8)


def rotate(x, phases, t, p):
    """Rotary position embedding (Su et al. 2021) of every head in place, then a clamp that keeps q . k in 31 bits.

    p: heads, head_dim, rotated elements a head, 1 if pairs are (2i, 2i + 1) instead of (i, i + half), clamp.
    """
    heads, dim, rotated, interleaved, top = p[0], p[1], p[2], p[3], p[4]
    half = rotated >> 1
    for h in range(heads):
        for i in range(half):
            a = h * dim + (2 * i if interleaved else i)
            b = a + (1 if interleaved else half)
            s = sine(t, phases[i])
            c = sine(t, phases[i] + 0x40000000)
            u, v = x[a], x[b]
            x[a] = round_shift(u * c - v * s, 15)
            x[b] = round_shift(u * s + v * c, 15)
        for i in range(h * dim, h * dim + dim):
            x[i] = top if x[i] > top else 0 - top if x[i] < 0 - top else x[i]


def remember(keys, values, q, p):
    """Write this token's keys and values, which follow the queries in q, into slot p[3] of the ring buffers, as uint16
    (v + 32768). keys: [kv head][slot][element]; values: [kv head][element][slot], so that both are read in a row."""
    heads, dim, slot, slots = p[0], p[1], p[3], p[4]
    k = p[5] * dim
    v = k + heads * dim
    for h in range(heads):
        for i in range(dim):
            keys[(h * slots + slot) * dim + i] = q[k + h * dim + i] + 32768
            values[(h * dim + i) * slots + slot] = q[v + h * dim + i] + 32768


def scores(s, q, keys, p, head, kv):
    """s[slot] = q . k for one query head and every slot in use (p as in `attend`)."""
    dim, used, slots = p[1], p[2], p[4]
    for slot in range(used):
        acc = 0
        for i in range(dim):
            acc += q[head * dim + i] * (keys[(kv * slots + slot) * dim + i] - 32768)
        s[slot] = acc


def softmax(s, t, n, mantissa, shift):
    """Softmax of n scores in place, to 15 fraction bits. (max - s) * mantissa / 2^(16 + shift) is in log2 units with
    16 fraction bits. s is zero from n up to the next multiple of 8."""
    top = s[0]
    for i in range(n):
        if s[i] > top:
            top = s[i]
    total = 0
    for i in range(n):
        w = exp2_neg(t, scaled(top - s[i], mantissa, shift), 16) >> 9
        s[i] = w
        total += w
    k = 0
    while total >> k >= 1 << 16:
        k += 1
    r = (1 << 30) // (total >> k)
    for i in range(n):
        s[i] = round_shift(s[i] * r, 15 + k)
    for i in range(n, (n + 7) & -8):
        s[i] = 0


def mix(y, s, values, p, head, kv):
    """y = sum of probability * value over the slots in use, for one query head (p as in `attend`)."""
    dim, used, slots = p[1], p[2], p[4]
    for i in range(dim):
        acc = 0
        for slot in range(used):
            acc += s[slot] * (values[(kv * dim + i) * slots + slot] - 32768)
        y[head * dim + i] = saturate(round_shift(acc, 15))


def attend(y, q, keys, values, s, t, p):
    """Attention of every query head in q over the slots in use, once this token is in its slot: q holds the queries,
    then the token's keys and values. s is scratch, one head's scores.

    p: kv heads, head_dim, slots in use, this token's slot, slots (the window rounded up to a multiple of 8), query
    heads, mantissa and shift of the softmax.
    """
    remember(keys, values, q, p)
    group = p[5] // p[0]
    for h in range(p[5]):
        scores(s, q, keys, p, h, h // group)
        softmax(s, t, p[2], p[6], p[7])
        mix(y, s, values, p, h, h // group)


# Router and sampler


def route(logits, t, n, mantissa, shift, out):
    """The best expert of n (the lowest on ties); out[0] becomes its softmax probability with 16 fraction bits."""
    best = 0
    for i in range(n):
        if logits[i] > logits[best]:
            best = i
    total = 0
    for i in range(n):
        total += exp2_neg(t, scaled(logits[best] - logits[i], mantissa, shift), 16) >> 9
    r = (1 << 30) // ((total + 1) >> 1)
    out[0] = 65535 if r > 65535 else r
    return best


def softcap(y, t, n, p):
    """y = c tanh(y / c). p: mantissa and shift that bring |y| to the table's steps (8 fraction bits), mantissa and
    shift of the way back from 24 fraction bits."""
    for i in range(n):
        v = y[i]
        x = scaled(v if v >= 0 else 0 - v, p[0], p[1])
        x = 131071 if x > 131071 else x
        at = TANH + (x >> 8) * 2
        a = u16(t, at)
        a = (a << 8) + (u16(t, at + 2) - a) * (x & 255)
        a = round_shift(a * p[2] >> 16, p[3])
        y[i] = a if v >= 0 else 0 - a


def argmax(y, n):
    """Index of the largest of n values, the lowest on ties."""
    best = 0
    for i in range(n):
        if y[i] > y[best]:
            best = i
    return best


def candidates(ids, w, logits, t, p):
    """Tokens whose weight, 2^-((max - logit) scaled) with 14 fraction bits, is not 0: ids ascending, weights beside.

    p: vocabulary, mantissa, shift, largest logit. Returns how many.
    """
    n = 0
    for i in range(p[0]):
        v = exp2_neg(t, scaled(p[3] - logits[i], p[1], p[2]), 16) >> 10
        if v > 0:
            ids[n] = i
            w[n] = v
            n += 1
    return n


def top_k(ids, w, logits, n, k):
    """Keep the k largest logits of the candidates (on ties the lowest ids), in the order of ids. Returns how many."""
    if n <= k:
        return n
    return _keep(ids, w, logits, n, k, 0)


def top_p(ids, w, logits, n, p16):
    """Keep the smallest set of most likely candidates whose weights reach p16 / 65536 of the total (Holtzman et al.
    2020), at least one. Returns how many."""
    total = 0
    for i in range(n):
        total += w[i]
    need = total * p16 >> 16
    return _keep(ids, w, logits, n, need if need > 1 else 1, 1)


def _keep(ids, w, logits, n, need, by_weight):
    """Keep the largest logits until their count, or weight, reaches `need`."""
    top = logits[ids[0]]
    for i in range(n):
        v = logits[ids[i]]
        if v > top:
            top = v
    # The smallest distance from the top within which `need` is reached, found bit by bit from above.
    d = 0
    bit = 1 << 30
    while bit:
        mass = 0
        reach = d + (bit - 1)
        for i in range(n):
            if top - logits[ids[i]] <= reach:
                mass += w[i] if by_weight else 1
        if mass < need:
            d += bit
        bit >>= 1
    edge = top - d
    mass = 0
    for i in range(n):
        if logits[ids[i]] > edge:
            mass += w[i] if by_weight else 1
    kept = 0
    for i in range(n):
        v = logits[ids[i]]
        if v > edge or (v == edge and mass < need):
            if v == edge:
                mass += w[i] if by_weight else 1
            ids[kept] = ids[i]
            w[kept] = w[i]
            kept += 1
    return kept


def draw(w, n, rng):
    """Index drawn with the given weights (their total below 2^30); moves the xorshift32 generator in rng[0] on
    (Marsaglia 2003)."""
    r = rng[0] & 0xFFFFFFFF
    r ^= r << 13 & 0xFFFFFFFF
    r ^= r >> 17
    r ^= r << 5 & 0xFFFFFFFF
    rng[0] = (r ^ 0x80000000) - 0x80000000
    total = 0
    for i in range(n):
        total += w[i]
    at = total * (r >> 2) >> 30
    for i in range(n):
        at -= w[i]
        if at < 0:
            return i
    return n - 1


# Files


def damaged(buf, n, table, at):
    """1 unless the CRC-32 of the first n bytes is the uint32 at table[at:], else 0. (binascii.crc32 makes an object of
    a number past 30 bits; a token step may not.)"""
    crc = 0xFFFFFFFF
    for i in range(n):
        crc ^= buf[i]
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return 0 if crc == u16(table, at) | u16(table, at + 2) << 16 else 1
