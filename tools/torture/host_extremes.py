"""Models at the extremes of the format: every weight at its largest, scales and norms at theirs, parameters anywhere.

tools/bounds.py refuses a model, or no token can make a value of the integer reference leave 32 bits (it raises
OverflowError). That the check is not too lax is what is tried here; that it is not too strict, by the shipped models.
"""

import copy
import tempfile

import numpy as np

from tools import bounds, integer
from tools.errors import UserError
from tools.fileformat import Matrix
from tools.torture import Row, scaled, small_model

MODELS = 1_500
LEVELS = {8: 127, 4: 7}
NAMES = ("hybrid", "llama", "griffin", "untied")
TOKENS = 12


def extreme(packed, rng, signs="random"):
    """A copy of a packed model with every weight, scale, norm and bias as large as the format has them.

    signs: of the weights; "same" adds everything up, "rows" gives each row another one, "random" each weight.
    """
    packed = copy.deepcopy(packed)

    def sign(shape):
        if signs == "same":
            return np.ones(shape, np.int64)
        s = rng.choice([-1, 1], (shape[0], 1) if signs == "rows" else shape)
        return np.broadcast_to(s, shape).copy()

    for (tag, *_), section in packed.sections.items():
        for name, record in section.items():
            if isinstance(record, Matrix):
                record.w = LEVELS[record.bits] * sign(record.w.shape)
                record.scales = np.full_like(record.scales, 32767)
                if record.bias is not None:
                    record.bias = (1 << 29) * sign((len(record.bias), 1))[:, 0]
            elif name.endswith("norm"):
                record.values = 32767 * sign((len(record.values), 1))[:, 0]
            elif name == "recurrence.conv.weight":
                record.values = 16383 * sign((len(record.values), 1))[:, 0]
            elif name == "recurrence.conv.bias":
                record.values = 60_000 * sign((len(record.values), 1))[:, 0]
            elif name == "recurrence.decay":
                record.values = rng.choice([0, 1, (1 << 31) - 1, 1 << 20], len(record.values))
    return packed


def shaken(packed, rng):
    """Change some parameters and shifts to anything near or at what is possible, in place."""
    values = (-32, -31, -22, -21, -17, -1, 0, 1, 7, 14, 15, 16, 17, 20, 29, 30, 31, 1 << 15, (1 << 15) - 1, 1 << 29,
              1 << 30, (1 << 31) - 1)
    sections = list(packed.sections.values())
    for _ in range(int(rng.integers(1, 3))):
        section = sections[rng.integers(len(sections))]
        record = section[rng.choice(list(section))]
        value = int(rng.choice(values))
        if isinstance(record, Matrix):
            record.shift = value if rng.integers(2) else int(rng.integers(31))
            if rng.integers(4) == 0 and record.bias is not None:
                record.bias = np.full_like(record.bias, rng.choice([-(1 << 31), (1 << 31) - 1, 1 << 30]))
        elif isinstance(record, list):
            record[rng.integers(len(record))] = value
        else:
            record.values = np.where(rng.integers(0, 2, len(record.values)), record.values,
                                     rng.choice([-32768, 32767, 0, 1]))


def tokens(packed, rng):
    return rng.integers(0, packed.config.vocab_size, TOKENS)


def run(amount, seed):
    rng = np.random.default_rng([seed, 3])
    with tempfile.TemporaryDirectory() as folder:
        base = [small_model(name, folder)[1] for name in NAMES]
    row, refused = Row("a model at the format's extremes: overflow in 32 bits"), 0
    for i in range(scaled(MODELS, amount)):
        packed = extreme(base[i % len(base)], rng, ("same", "rows", "random")[i // 4 % 3])
        if i >= 12:
            shaken(packed, rng)
        try:
            bounds.check(packed.config, packed.sections)
        except UserError:
            refused += 1
            row.count(i >= 12, "a model of the largest weights alone was refused")
            continue
        try:
            integer.forward(packed, tokens(packed, rng))
        except Exception as error:
            row.count(False, f"case {i}: {error!r}")
        else:
            row.count(True)
    assert refused < row.tried, "every model was refused: nothing was tried"
    yield row
