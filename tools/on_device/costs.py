# Runs on an emulated board whose clock is instructions: what a model costs there, for tools/counts.py. Each function
# prints microseconds of that clock; the least of some tries, as the emulator's clock now and then runs ahead.
import gc
import time
from array import array

from scribe.library import CHECKS

TRIES = 3


def least(action):
    best = 1 << 29
    for _ in range(TRIES):
        gc.collect()
        start = time.ticks_us()
        action()
        best = min(best, time.ticks_diff(time.ticks_us(), start))
    print(best)


def tokens(s, text):
    """A text's first token as it is first read, every expert's CRC-32 compared; then its last token, warm, and the draw
    after it."""
    model, state, sampler = s._model, s._state, s._sampler
    sampler.set(0.8, 40, 1.0, 1)
    state.reset()
    start = time.ticks_us()
    model.step(text[0], state)
    print(time.ticks_diff(time.ticks_us(), start))
    best = 1 << 29
    for _ in range(TRIES):
        state.reset()
        for token in text[:-1]:
            model.step(token, state)
        gc.collect()
        start = time.ticks_us()
        model.step(text[-1], state)
        best = min(best, time.ticks_diff(time.ticks_us(), start))
    print(best)
    least(lambda: sampler.pick(model.logits))


def prompt(s, text):
    """Reading a prompt, experts as if checked before."""
    s._model.library._check = CHECKS.index("never")
    s._state.reset()
    start = time.ticks_us()
    s._model.read(text, s._state)
    print(time.ticks_diff(time.ticks_us(), start))


def longest(bits):
    """The matrix of `linear.CALL` weights with the most instructions: its rows as narrow as a group."""
    from scribe import kernels
    from scribe.linear import CALL

    cols = kernels.GROUP
    rows = CALL // cols
    weights = rows * 2
    buf = bytearray(weights + rows * cols * bits // 8)
    d = array("i", (1, 0, weights, 0, -1, rows, cols, cols, 1, 1, 11, 0, bits, 0))
    x, px, y = array("i", bytes(4 * cols)), array("i", bytes(4 * (cols + 1))), array("i", bytes(4 * rows))
    least(lambda: kernels.linear(y, x, px, buf, d))
