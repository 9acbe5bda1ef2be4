"""MicroPython source that runs kernels with the heap locked: one that allocates a byte raises MemoryError."""

#: `Locked(module)` has its kernels, of 2 to 7 arguments. No tuple of arguments is made while the heap is locked.
LOCKED = """
import micropython

class Locked:
    def __init__(self, kernels):
        self.kernels = kernels

    def __getattr__(self, name):
        kernel = getattr(self.kernels, name)

        def run(a, b, c=None, d=None, e=None, f=None, g=None):
            micropython.heap_lock()
            try:
                if g is not None:
                    return kernel(a, b, c, d, e, f, g)
                if f is not None:
                    return kernel(a, b, c, d, e, f)
                if e is not None:
                    return kernel(a, b, c, d, e)
                if d is not None:
                    return kernel(a, b, c, d)
                if c is not None:
                    return kernel(a, b, c)
                return kernel(a, b)
            finally:
                micropython.heap_unlock()

        return run
"""
