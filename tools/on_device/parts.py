# Runs on an emulated board whose clock is instructions: what the kernels of a token cost, one by one, for
# tools/bench.py. The calls of a token are noted first; then each is made again on its own, with the heap locked, as a
# token makes it. Import this before `scribe` opens a model: it puts itself between the model and its kernels.
import micropython
import time

from scribe import feedforward, kernels, model, sampler

TIMES = 8  # that a call is made again; the clock has steps of 15.6 instructions
calls = None  # (kernel, arguments) of the token being noted


def _nothing():
    pass


def _noting(name, kernel):
    def noting(*args):
        if calls is not None:
            calls.append((name, kernel, args))
        return kernel(*args)

    return noting


for _module in (feedforward, model, sampler):
    _module.heap_lock = _module.heap_unlock = _nothing  # noting needs the heap
for _name in kernels._chosen.family:
    setattr(kernels, _name, _noting(_name, getattr(kernels, _name)))


def _again(kernel, args):
    """Clock before and after TIMES calls, arguments spelt out as a token does."""
    if len(args) == 2:
        a, b = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b)
    elif len(args) == 3:
        a, b, c = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b, c)
    elif len(args) == 4:
        a, b, c, d = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b, c, d)
    elif len(args) == 5:
        a, b, c, d, e = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b, c, d, e)
    elif len(args) == 6:
        a, b, c, d, e, f = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b, c, d, e, f)
    else:
        a, b, c, d, e, f, g = args
        start = time.ticks_us()
        for _ in range(TIMES):
            kernel(a, b, c, d, e, f, g)
    return time.ticks_diff(time.ticks_us(), start)


def kernels_of_token(s, text):
    """A line a kernel for the last token of a text and the draw after it: name, calls, microseconds of all of them
    times TIMES."""
    global calls
    s._sampler.set(0.8, 40, 1.0, 1)
    for _ in range(1):  # the first time each expert's CRC-32 is compared
        s._state.reset()
        for token in text:
            s._model.step(token, s._state)
    s._state.reset()
    for token in text[:-1]:
        s._model.step(token, s._state)
    calls = noted = []
    s._model.step(text[-1], s._state)
    s._sampler.pick(s._model.logits)
    calls = None
    found = {}
    for name, kernel, args in noted:
        micropython.heap_lock()
        spent = _again(kernel, args)
        micropython.heap_unlock()
        count, total = found.get(name, (0, 0))
        found[name] = count + 1, total + spent
    for name, (count, total) in sorted(found.items()):
        print(name, count, total)
