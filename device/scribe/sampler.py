"""Drawing the next token: temperature, top-k, top-p and a 32-bit generator with a seed. Integers only.

The same logits, settings and seed draw the same token on every machine.
"""

from . import kernels as k
from .buffers import heap_lock, heap_unlock, ints, zeros

DEFAULTS = {"temperature": 0.8, "top_k": 40, "top_p": 1.0}


def random_seed():
    """A seed from the machine's own noise, 0 to 2^30 - 1."""
    try:
        from os import urandom

        noise = urandom(4)
    except (ImportError, OSError):
        from time import ticks_us

        return ticks_us() & 0x3FFFFFFF  # type: ignore[operator]
    return noise[0] | noise[1] << 8 | noise[2] << 16 | (noise[3] & 0x3F) << 24


def mixed(seed):
    """A generator's first state, never 0, from any whole number: neighbouring seeds start far apart (the finaliser of
    MurmurHash3, Appleby 2011)."""
    s = (seed & 0xFFFFFFFF) + 0x9E3779B9 & 0xFFFFFFFF
    s = (s ^ s >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    s = (s ^ s >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    s = s ^ s >> 16 or 1
    return (s ^ 0x80000000) - 0x80000000


def _number(name, value, low, high):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("%s must be a number, not %r" % (name, value))
    if not low <= value <= high:
        raise ValueError("%s is %s; %s to %s is needed" % (name, value, low, high))
    return value


class Sampler:
    """`logit_params`: mantissa and shift that bring logits to log2 units with 16 fraction bits. `of`: a sampler whose
    scratch to share."""

    def __init__(self, vocab, tables, logit_params, of=None):
        self._tables = tables
        self._unit = logit_params[0], logit_params[1]
        self._ids = of._ids if of else zeros(vocab)
        self._weights = of._weights if of else zeros(vocab)
        self._p = ints((vocab, 0, 0, 0))
        self._rng = zeros(1)

    def size(self):
        """Bytes of RAM in use."""
        return 8 * len(self._weights)

    def set(self, temperature, top_k, top_p, seed):
        """Settings of the next story; the last moment that sees a float. Raises ValueError for one out of range."""
        _number("temperature", temperature, 0, 100)
        _number("top_p", top_p, 0, 1)
        if _number("top_k", top_k, 0, 65536) != int(top_k):
            raise ValueError("top_k must be a whole number, not %r" % (top_k,))
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise ValueError("seed must be a whole number, not %r" % (seed,))
        thousandths = int(temperature * 1000 + 0.5)
        self._greedy = thousandths == 0
        self._k = int(top_k) or len(self._weights)
        self._p16 = int(top_p * 10000 + 0.5) * 65536 // 10000
        self._rng[0] = mixed(seed)
        if not self._greedy:
            # the unit divided by the temperature, as a 15-bit mantissa again
            m, shift = (self._unit[0] * 1000 << 12) // thousandths, self._unit[1] + 12
            while m >= 1 << 15:
                m >>= 1
                shift -= 1
            self._greedy = shift < -20  # so cold that only the best has any weight
            self._p[1], self._p[2] = m, shift

    @property
    def state(self):
        """The generator's state."""
        return self._rng[0]

    @state.setter
    def state(self, value):
        self._rng[0] = value

    def pick(self, logits):
        """The next token. Allocates nothing."""
        heap_lock()
        try:
            return self._pick(logits)
        finally:
            heap_unlock()

    def _pick(self, logits):
        best = k.argmax(logits, len(logits))
        if self._greedy:
            return best
        ids, w = self._ids, self._weights
        self._p[3] = logits[best]
        n = k.candidates(ids, w, logits, self._tables, self._p)
        n = k.top_k(ids, w, logits, n, self._k)
        if self._p16 < 65536:
            n = k.top_p(ids, w, logits, n, self._p16)
        return ids[k.draw(w, n, self._rng)]
