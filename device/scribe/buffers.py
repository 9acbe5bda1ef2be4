"""Arrays of 32-bit integers, and the scratch vectors of a token: all allocated at start-up.

A token is computed with the heap locked. That nothing is allocated then is one gain; the other is speed: MicroPython
takes a function's frame from the heap where it is larger than 11 words, searching past every block of the model for
room (measured: 60% of a token's instructions), and from the C stack where the heap is locked.
"""

from array import array

from . import kernels

try:
    from micropython import heap_lock, heap_unlock
except ImportError:
    heap_lock = None  # type: ignore[assignment]

if heap_lock is None or "plain" in kernels.name:  # the plain twins make numbers that need the heap

    def heap_lock():  # type: ignore[misc]
        """Nothing to lock."""

    heap_unlock = heap_lock


def ints(values):
    return array("i", values)


def zeros(count):
    """`count` zeros; built from one template, not from a list."""
    return array("i", bytes(4 * count))


class Work:
    """Scratch shared by every layer; what one layer leaves here, the next overwrites.

    n: normalised input [d_model]; xs, ns: residual streams and normalised inputs of a chunk of tokens read together,
    one view a token; px: scratch of the matrix kernels; a, b: a layer's vectors, a the wider; scores: attention's
    [window].
    """

    def __init__(self, tables, d_model, scratch, wide, other, slots, chunk):
        self.tables = tables
        self.n = zeros(d_model)
        self._chunk = memoryview(zeros(2 * chunk * d_model))
        self.xs = [self._chunk[i * d_model : i * d_model + d_model] for i in range(chunk)]
        self.ns = [self._chunk[i * d_model : i * d_model + d_model] for i in range(chunk, 2 * chunk)]
        self.best = zeros(chunk)
        self.probability = zeros(chunk)
        self.px = zeros(scratch)
        self.a = zeros(wide)
        self.b = zeros(other)
        self.scores = zeros(slots)
        self.out = zeros(1)

    def size(self):
        arrays = (self.n, self._chunk, self.px, self.a, self.b, self.scores)
        return sum(4 * len(a) for a in arrays)
