"""Why nothing overflows: a bound on every 32-bit intermediate of a packed model, for any text whatever.

`check` walks the equations of device/scribe/plain_kernels.py with the file's own integers (weights, scales, biases,
norms, parameters) and the largest inputs that saturation lets through. docs/kernels.md lists the bounds. Packing
refuses a model that fails, and so does the host's reader; a board trusts a file with the right checksums and does not
look.
"""

import functools

import numpy as np

from tools.errors import UserError
from tools.fileformat import ADD, GROUP, PRODUCT_SHIFT, RAW, SATURATE, Matrix, section_name
from tools.fixedpoint import INT16_MAX, INT32_MAX, STATE_LIMIT, TABLES

#: What a board does with the sums of each matrix. No other mode makes sense there: the input of the next kernel has 16
#: bits, or 32, or is the residual stream.
MODES = {"out": ADD, "o": ADD, "down": ADD, "router": RAW, "weight": RAW}
EXPERT_DOWN = RAW  # an expert's output waits for its probability before it is added
#: Shift of a factor into log2 units: below it, `scaled` has no room to the left (fixedpoint.py).
LEAST_SCALE_SHIFT = -21


def check(config, sections):
    """Raise UserError, naming section and record, unless no intermediate of any token can leave 32 signed bits."""
    for key, records in sections.items():
        _Section(config, key, records).check()


class _Section:
    def __init__(self, config, key, records):
        self.config, self.key, self.records = config, key, records

    def need(self, ok, record, what):
        if not ok:
            raise UserError(f"section {section_name(self.key)}: record {record} {what}")

    def shift(self, record, value, low=0, high=30, what="shift"):
        self.need(low <= value <= high, record, f"has a {what} of {value}; {low} to {high} is possible")

    def factor(self, record, mantissa, shift, low=LEAST_SCALE_SHIFT, high=31):
        self.need(0 <= mantissa <= INT16_MAX, record, f"has a mantissa of {mantissa}; 0 to {INT16_MAX} is possible")
        self.shift(record, shift, low, high)

    def check(self):
        for name, record in self.records.items():
            if isinstance(record, Matrix):
                self.matrix(name, record)
            elif name.endswith("norm"):
                self.norm(name, record)
        tag = self.key[0]
        if tag == "EMBD":
            mantissa, shift = self.records["params"]
            self.factor("params", mantissa, shift, 0, 30)  # (-128 * 32767 << 8) * 32767 >> 16 stays below 2^29
        elif tag == "HEAD":
            self.head(self.records["params"])
        elif tag == "LAYR":
            if "recurrence.params" in self.records:
                self.recurrence()
            else:
                self.attention()
            self.feed_forward()

    def matrix(self, name, m):
        """A row's sum, every partial sum of it, its rounding, and what it is added to."""
        mode = EXPERT_DOWN if self.key[0] == "XPRT" and name == "down" else MODES.get(name.rpartition(".")[2], SATURATE)
        self.need(m.mode == mode, name, f"has mode {m.mode}; {mode} is right for it")
        self.need(m.scales.size == 0 or m.scales.max() <= INT16_MAX, name, f"has a scale above {INT16_MAX}")
        self.shift(name, m.shift)
        worst = int(worst_sums(m).max()) + (1 << m.shift >> 1)
        self.need(worst <= INT32_MAX, name, f"could overflow: a sum may reach {worst}, past 32 bits")
        result = worst >> m.shift
        if mode == ADD:
            self.need(result + STATE_LIMIT <= INT32_MAX, name,
                      f"could overflow: {result} on top of the residual stream")
        elif mode == RAW:  # distances between two of them, and half of them plus the residual stream, must fit
            self.need(result <= STATE_LIMIT, name, f"could overflow: a result may reach {result}, past 30 bits")

    def norm(self, name, vector):
        record = name + ".params"
        k, point, shift, eps = self.records[record]
        self.need(self.config.d_model <= 1 << k if 0 <= k <= 20 else False, record,
                  f"has {k} as the logarithm of the width {self.config.d_model}")
        self.need(0 <= eps <= 1 << 30, record, f"has an epsilon of {eps}; 0 to 2^30 is possible")
        self.shift(record, point, 0, 16, "point")
        self.shift(record, shift)
        largest = int(np.abs(vector.values).max(initial=0))
        worst = normed(k, point) * largest + (1 << shift >> 1)
        self.need(worst <= INT32_MAX, name, f"could overflow: a product may reach {worst}, past 32 bits")

    def head(self, params):
        mantissa, shift, into, into_shift, back, back_shift = params
        self.factor("params", mantissa, shift)
        if self.config.logit_softcap:
            self.factor("params", into, into_shift)
            self.factor("params", back, back_shift, 0, 30)

    def recurrence(self):
        name = "recurrence.params"
        activation, conv, state, gate = self.records[name]
        self.activation(name, activation)
        for value in (conv, state, gate):
            self.shift(name, value)
        weights, bias = self.records["recurrence.conv.weight"].values, self.records["recurrence.conv.bias"].values
        sums = np.abs(weights).reshape(len(bias), -1).sum(-1) * INT16_MAX + np.abs(bias) + (1 << conv >> 1)
        self.need(sums.max() <= INT32_MAX, "recurrence.conv", f"could overflow: a sum may reach {sums.max()}")
        decay = self.records["recurrence.decay"].values
        self.need(decay.min() >= 0, "recurrence.decay", f"has {decay.min()}; 0 or more is possible")

    def attention(self):
        name = "attention.params"
        top, mantissa, shift = self.records[name]
        self.need(0 <= top <= INT16_MAX and self.config.head_dim * top * top <= STATE_LIMIT, name,
                  f"clamps at {top}; a product of {self.config.head_dim} elements could overflow")
        self.factor(name, mantissa, shift)

    def feed_forward(self):
        if "mlp.params" in self.records:
            activation, product = self.records["mlp.params"]
            self.activation("mlp.params", activation)
            self.shift("mlp.params", product)
        if "moe.params" in self.records:
            activation, product, mantissa, shift, out = self.records["moe.params"]
            self.activation("moe.params", activation)
            self.shift("moe.params", product)
            self.factor("moe.params", mantissa, shift)
            self.shift("moe.params", out)

    def activation(self, record, shift):
        """32767 << 15, and half a table added, is the most that fits; 31 is the most that 32-bit words shift by."""
        self.shift(record, shift, -31, 15)


def worst_sums(m):
    """Bound [rows] on a row's sum and every partial sum of it, over every 16-bit input; the bias is counted."""
    rows, cols = m.w.shape
    magnitudes = np.abs(m.w)
    dots = np.add.reduceat(magnitudes, range(0, cols, GROUP), axis=1) * INT16_MAX
    sums = ((dots * m.scales >> PRODUCT_SHIFT[m.bits]) + 1).sum(-1)  # the 1: a negative product rounds down
    return sums if m.bias is None else sums + np.abs(m.bias)


@functools.lru_cache(maxsize=None)
def normed(k, point):
    """Bound on RMSNorm's result before its weight, whatever the residual stream: see plain_kernels.norm.

    The kernel's root depends on the upper 15 bits of a normalised 30-bit sum alone, so all 15 * 24,576 cases are tried.
    An element a of a vector with the sum v has a^2 < 2^k (v + 1), since a^2 >> k is one of the sum's terms; the kernel
    takes a sum of 0 as 1, which bounds a further still.
    """
    upper = np.arange(1 << 13, 1 << 15, dtype=np.int64)
    root = TABLES.rsqrt_normalised(upper << 15)
    worst = 0
    for j in range(15):
        most = ((upper + 1) << 15) - 1 >> 2 * j  # the largest sum that this case stands for
        a = np.minimum(np.sqrt((most + 1.0) * 2.0**k), 32768.0).astype(np.int64)
        worst = max(worst, int((a * root >> 30 - j - point).max()))
    return worst + 1  # a negative product rounds down
