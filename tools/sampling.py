"""The sampler's reference: which token the board draws from integer logits (device/scribe/sampler.py)."""

import numpy as np

from tools.fixedpoint import TABLES, scaled


def mixed(seed):
    """A generator's first state, never 0, from a seed (the finaliser of MurmurHash3)."""
    s = (seed & 0xFFFFFFFF) + 0x9E3779B9 & 0xFFFFFFFF
    s = (s ^ s >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    s = (s ^ s >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return s ^ s >> 16 or 1


def xorshift32(s):
    """The generator's next state (Marsaglia 2003)."""
    s ^= s << 13 & 0xFFFFFFFF
    s ^= s >> 17
    return s ^ s << 5 & 0xFFFFFFFF


class Sampler:
    """Draws tokens as a board does. `unit`: mantissa and shift from the HEAD section's parameters."""

    def __init__(self, unit, temperature=0.8, top_k=40, top_p=1.0, seed=0):
        thousandths = int(temperature * 1000 + 0.5)
        self.greedy = thousandths == 0
        self.top_k = top_k
        self.p16 = int(top_p * 10000 + 0.5) * 65536 // 10000
        self.state = mixed(seed)
        if not self.greedy:
            self.mantissa, self.shift = (unit[0] * 1000 << 12) // thousandths, unit[1] + 12
            while self.mantissa >= 1 << 15:
                self.mantissa >>= 1
                self.shift -= 1
            self.greedy = self.shift < -20

    def pick(self, logits):
        """The token drawn from integer logits [vocab_size]."""
        if self.greedy:
            return int(logits.argmax())
        distance = logits.max() - logits
        weights = TABLES.exp2_neg(scaled(distance, self.mantissa, self.shift), 16) >> 10
        # likeliest first, the lowest id first among equals
        order = np.lexsort((np.arange(len(logits)), distance))
        order = order[weights[order] > 0]
        if self.top_k:
            order = order[: self.top_k]
        if self.p16 < 65536:
            need = max(1, int(weights[order].sum()) * self.p16 >> 16)
            before = np.cumsum(weights[order]) - weights[order]
            order = order[before < need]
        kept = np.sort(order)
        self.state = xorshift32(self.state)
        at = int(weights[kept].sum()) * (self.state >> 2) >> 30
        return int(kept[np.searchsorted(np.cumsum(weights[kept]), at, side="right")])
