"""Quantisation-aware training: the weights as the packed file will hold them, while a step is computed.

A straight-through estimator (Bengio et al. 2013, arXiv 1308.3432): the loss and its gradient are taken at the rounded
weights, the step is made on the full ones. Groups of 64 along the input axis, the scale that `tools.quantise` would
choose; the rounding of scales themselves to 15 bits, at most 2^-15 of each, is left out.
"""

import contextlib

import torch
from torch.nn import functional as F

from tools.fileformat import GROUP
from tools.quantise import LEVELS, SEARCH

#: Fraction of its largest weight that a group's range is, searched anew every so many steps: it moves slowly, and the
#: search costs as much as a tenth of a step.
SEARCH_EVERY = 25
EXPERT_BITS, BITS = 4, 8


def matrices(model):
    """(parameter, bits) of every weight that the packed file holds as groups; vectors and convolutions are finer."""
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2 and ".conv." not in name:
            expert = ".moe." in name and ".router." not in name
            yield parameter, EXPERT_BITS if expert else BITS


def _grouped(w):
    columns = w.shape[-1]
    return F.pad(w.reshape(-1, columns), (0, -columns % GROUP)).unflatten(1, (-1, GROUP))


def _round(groups, scale, level):
    """groups as multiples of scale, [..., 1], that fit -level to level."""
    safe = torch.where(scale > 0, scale, 1.0)
    return (groups / safe).round_().clamp_(-level, level).mul_(scale)


def best_fraction(w, bits):
    """Fraction of a group's largest weight, from SEARCH, with the least squared error: [rows, groups, 1]."""
    groups = _grouped(w)
    top = groups.abs().amax(-1, keepdim=True)
    best, least = torch.ones_like(top), torch.full_like(top, torch.inf)
    for fraction in SEARCH[bits]:
        rounded = _round(groups, top * (float(fraction) / LEVELS[bits]), LEVELS[bits])
        error = rounded.sub_(groups).square_().sum(-1, keepdim=True)
        best = torch.where(error < least, float(fraction), best)
        least = torch.minimum(error, least)
    return best


def rounded(w, bits, fraction):
    """w, [..., inputs], as its integers stand for it; fraction: see `best_fraction`."""
    groups = _grouped(w)
    scale = groups.abs().amax(-1, keepdim=True).mul_(fraction).div_(LEVELS[bits])
    return _round(groups, scale, LEVELS[bits]).flatten(1)[:, :w.shape[-1]].reshape(w.shape)


class Rounding:
    """Rounds a model's weights for as long as a step is computed."""

    def __init__(self, model):
        self.matrices = list(matrices(model))
        self.fractions = None  # of each matrix, as last searched; part of what a run goes on from

    @contextlib.contextmanager
    def __call__(self, step=None):
        """Within it the model's weights are rounded; afterwards they are the full ones again, their gradients kept.

        step: of training, which decides when the fractions are searched; None: to look on, with those at hand.
        """
        with torch.no_grad():
            if self.fractions is None or step is not None and step % SEARCH_EVERY == 0:
                self.fractions = [best_fraction(p.data, bits) for p, bits in self.matrices]
            full = [p.data for p, _ in self.matrices]
            for (p, bits), fraction in zip(self.matrices, self.fractions):
                p.data = rounded(p.data, bits, fraction)
        try:
            yield
        finally:
            for (p, _), w in zip(self.matrices, full):
                p.data = w
