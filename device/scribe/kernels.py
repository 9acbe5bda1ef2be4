"""The arithmetic of a token, in the fastest form this board can run and gets right.

Every kernel of plain_kernels.py is here under its name, with the same arguments and the same results to the bit;
`name` says which family they come from. Families are modules that hold some of the kernels, each with its NAME. At
import every kernel is compared with its plain twin on random vectors, and one that differs is not used: emitters for
new processors have had bugs, and a wrong story is worse than a slow one.
"""

import gc
import sys

from . import plain_kernels as _plain
from .plain_kernels import (  # noqa: F401
    ADD, BIAS, BITS, BLOCKS, COLS, EXP2, GELU, GROUP, GROUPS, MODE, OUT, PADDED, RAW, ROWS, RSQRT, SATURATE, SCALES,
    SHIFT, SIGMOID, SINE, STATE_LIMIT, TANH, WEIGHTS,
)


def _families():
    """The families for this board's processor: it is asked, for none may meet an instruction that it lacks."""
    processor = getattr(sys.implementation, "_mpy", 0) >> 10 & 15  # that of its firmware, numbered as in .mpy files
    families = ("viper_kernels",)
    if sys.platform == "linux":  # whose addresses are not a microcontroller's
        return families
    if processor == 4:  # ARMv6-M: Cortex-M0, M0+
        families += ("m0_kernels",)
    elif processor == 11:
        families += ("rv32_kernels",)
    elif 5 <= processor <= 8:  # Thumb-2: Cortex-M3 and up
        families += ("thumb_kernels",)
        try:
            from machine import mem32

            part = mem32[0xE000ED00] >> 4 & 0xFFF
            # The DSP extension is in every M4 and M7; others say: the field SIMD of register ID_ISAR3.
            if part in (0xC24, 0xC27) or mem32[0xE000ED6C] >> 4 & 15 >= 3:
                families += ("dsp_kernels",)
        except (ImportError, AttributeError):
            pass
    return families


#: Modules beside this one, the fastest last: each takes over the kernels it has.
FAMILIES = _families()
SEEDS = 4  # cases a kernel at import: random, extreme, small and mixed numbers

name = "plain"


class _Set:
    """A kernel of each name, as attributes, and the family each is from."""

    def __init__(self):
        self.family = {}


def _twins():
    from . import plain_kernels

    return plain_kernels


def _forget(module):
    """Let a module go from memory; the next import loads it again."""
    full = module.__name__
    sys.modules.pop(full, None)
    package, _, short = full.rpartition(".") if hasattr(full, "rpartition") else ("", "", full)
    try:
        delattr(sys.modules[package], short)
    except (KeyError, AttributeError, NameError):
        pass


def _same(kernels, kernel, cases, t, seeds):
    """Whether a kernel of `kernels` equals its plain twin on random and extreme inputs."""
    twins, case = _twins(), cases.CASES[kernel]
    for seed in range(1, seeds + 1):
        try:
            if case(twins, cases.Random(seed), t) != case(kernels, cases.Random(seed), t):
                return False
        except MemoryError:
            raise
        except Exception:
            return False
    return True


def _choose():
    from . import kernel_cases as cases

    t = cases.made_up_tables()
    chosen = _Set()
    why = []
    modules: list = []  # the fastest first
    for family in FAMILIES:
        try:
            modules.insert(0, __import__(__name__[: -len("kernels")] + family, None, None, ("NAME",)))
        except (ImportError, SyntaxError, ValueError, TypeError, NotImplementedError) as error:
            why.append("%s: %s" % (family, error))  # no such emitter in this firmware, or another processor's
    for kernel in cases.NAMES:
        setattr(chosen, kernel, getattr(_plain, kernel))
        chosen.family[kernel] = "plain"
        for module in modules:
            if not hasattr(module, kernel):
                continue
            if _same(module, kernel, cases, t, SEEDS):
                setattr(chosen, kernel, getattr(module, kernel))
                chosen.family[kernel] = module.NAME
                break
            print("kernels: %s's %s is wrong on this board, so it is not used" % (module.NAME, kernel))
    _forget(cases)
    return chosen, why


def _publish(chosen, why):
    space = globals()
    used = []
    for kernel, family in chosen.family.items():
        space[kernel] = getattr(chosen, kernel)
        if family not in used:
            used.append(family)
    space["_chosen"] = chosen
    space["name"] = "+".join(sorted(used))
    if used == ["plain"]:
        print("kernels: none faster than plain Python (%s), so stories will be slow" % ("; ".join(why) or "all wrong"))
    if "plain" not in used:
        _forget(_plain)
        del space["_plain"]
    gc.collect()


def differing(kernels, names, t=None, seeds=SEEDS):
    """Of `names`, the kernels that differ from their plain twins (or fail) on random and extreme inputs."""
    from . import kernel_cases as cases

    if t is None:
        t = cases.made_up_tables()
    wrong = [kernel for kernel in names if not _same(kernels, kernel, cases, t, seeds)]
    _forget(cases)
    return wrong


def check(t=None, seeds=SEEDS):
    """The kernels that differ from their plain twins now: none, or something is badly wrong."""
    wrong = differing(_chosen, list(_chosen.family), t, seeds)
    if "plain" not in name:
        _forget(_twins())
    gc.collect()
    return wrong


TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers only: what _publish puts here
    from .plain_kernels import *  # noqa: F403

    _chosen = _Set()

_publish(*_choose())
