# Runs on an emulated board: what tests/test_boards.py and tools/boards.py ask of a model there. Logits don't travel:
# a line with their CRC-32 does, so that a difference shows at once and the serial line stays quiet.
import binascii
import gc
import micropython
import time
from array import array


def ids(digits):
    """Token ids from text, four hexadecimal digits each."""
    raw = array("H", binascii.unhexlify(digits))
    for i in range(len(raw)):
        raw[i] = raw[i] >> 8 | (raw[i] & 255) << 8
    return raw


def step(s, token, head=True):
    """One token, with the heap locked: a step that allocates raises MemoryError."""
    micropython.heap_lock()
    try:
        s._model.step(token, s._state, head)
    finally:
        micropython.heap_unlock()


def read(s, text):
    """Read a text; a line a token."""
    s._state.reset()
    for token in text:
        step(s, token)
        print("%08x" % binascii.crc32(s._model.logits))


def tell(s, prompt, settings, count):
    """Go on from a prompt, read in chunks, for `count` tokens, whatever they are; a line a draw."""
    s._state.reset()
    s._sampler.set(*settings)
    s._model.read(memoryview(prompt)[:-1], s._state)
    token = prompt[-1]
    for _ in range(count):
        step(s, token)
        micropython.heap_lock()
        token = s._sampler.pick(s._model.logits)
        micropython.heap_unlock()
        print("%08x %d" % (binascii.crc32(s._model.logits), token))


def logits(s, text):
    """All logits after the last token of a text, to see where a difference begins."""
    s._state.reset()
    for token in text:
        step(s, token)
    print(list(s._model.logits))


def memory():
    """Bytes of heap in use, and free."""
    gc.collect()
    print(gc.mem_alloc(), gc.mem_free())


# What things cost, by a clock that QEMU moves on with each instruction


def time_tokens(s, text):
    """Microseconds of each step of a text."""
    s._state.reset()
    for token in text:
        start = time.ticks_us()
        step(s, token)
        print(time.ticks_diff(time.ticks_us(), start))


def time_matrix(bits, cols, rows):
    """Microseconds of a matrix, the packing of its input included."""
    from scribe import kernels

    groups = cols // kernels.GROUP
    weights = rows * groups * 2
    buf = bytearray(weights + rows * cols * bits // 8)
    for i in range(len(buf)):
        buf[i] = i * 97 & 127
    d = array("i", (1, 0, weights, 0, -1, rows, cols, cols, groups, 1, 11, 0, bits, 0))
    x = array("i", range(cols))
    px = array("i", bytes(4 * (cols + groups)))
    y = array("i", bytes(4 * rows))
    start = time.ticks_us()
    kernels.linear(y, x, px, buf, d)
    print(time.ticks_diff(time.ticks_us(), start))
