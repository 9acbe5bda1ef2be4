"""Scribe: a small language model that writes stories on a MicroPython board.

    import scribe
    s = scribe.open("tales.scribe")
    s.tell("Once upon a time")

or `scribe.chat()`, which asks for openings.
"""

import gc
import os
import sys

# What compiling leaves behind is collected along the way: else the code that stays is spread over half a megabyte, and
# a large model finds no room in one piece on either side of it.
_threshold = gc.threshold() if hasattr(gc, "threshold") else None
if _threshold is not None:
    gc.threshold(32768)
try:
    from .library import CHECKS
    from .story import Scribe
finally:
    if _threshold is not None:
        gc.threshold(_threshold)

__version__ = "0.1.0"

#: Where `open` looks for a model, in this order.
PLACES = (".", "/", "/flash", "/sd", "/rom", "/remote")


def open(path=None, cache=None, check="first"):
    """A `Scribe` for a packed model; with no name, for the first *.scribe in the usual places.

    cache: bytes of RAM in which experts may stay once read; None for most of what the heap has left, 0 for none.
    check: when an expert's bytes are compared with their CRC-32: "always", whenever it is read from flash; "first", the
    first time, and later only where they seem to be others; "never". The rest of the file is always checked here
    (docs/reliability.md has the costs).

    Raises OSError where there is none, ValueError where the file is damaged or not ours, MemoryError that says how
    much is needed and how much there is.
    """
    if path is not None and not isinstance(path, str):
        raise ValueError("a model's name must be a string, not %r" % (path,))
    if cache is not None and (not isinstance(cache, int) or cache < 0):
        raise ValueError("cache must be a number of bytes, 0 or more, or None; not %r" % (cache,))
    if not isinstance(check, str) or check not in CHECKS:
        raise ValueError("check must be one of %s; not %r" % (", ".join(CHECKS), check,))
    path = find(path)
    gc.collect()
    try:
        return Scribe(path, cache=cache, check=check)
    except MemoryError:
        pass
    gc.collect()  # what was built so far is garbage now
    free = gc.mem_free()
    try:
        need = needed(path)
    except MemoryError:
        need = free
    raise MemoryError("%s needs about %d bytes of heap; %d are free%s" % (
        path, need, free, ", but in pieces that are too small: open it before other things" if need < free else ""))


def chat(model=None, raw=None):
    """Ask for openings and write their stories, until Ctrl-D. `model`: a Scribe, or what `open` takes; `raw`: whether
    the terminal neither edits nor echoes lines (None: as this port usually has it)."""
    space = globals()
    this = space["chat"]
    try:
        from .chat import run  # puts the module in this function's place
    finally:
        space["chat"] = this
    run(model, raw)


def find(path=None):
    """Path of a packed model: a file's name with or without `.scribe`, or None for the first one found."""
    if path is None:
        for place in PLACES:
            for name in models(place):
                return _join(place, name)
        raise OSError("no *.scribe in %s; copy a model to the board, or give its path" % ", ".join(PLACES))
    for place in ("",) if "/" in path else ("",) + PLACES:
        for name in (path, path + ".scribe"):
            where = _join(place, name) if place else name
            if _is_file(where):
                return where
    raise OSError("%s: no such model; models here: %s" % (path, ", ".join(
        _join(place, name) for place in PLACES for name in models(place)) or "none"))


def models(place):
    """Names of the packed models in a folder, sorted."""
    try:
        return sorted(name for name in os.listdir(place) if name.endswith(".scribe"))
    except OSError:
        return []


def needed(path):
    """Bytes of heap that opening a model takes, about: its sections in RAM, its state and buffers."""
    from .modelfile import ModelFile

    file = ModelFile(path)
    config = file.description()["config"]
    file.close()
    total = file.expert_bytes + sum(file.size(tag) for tag in (b"EMBD", b"LAYR", b"HEAD", b"TOKN", b"TABL"))
    for letter in config["recipe"]:
        if letter == "S":
            total += 4 * config["d_rnn"] * config["conv_width"]
        else:
            total += 4 * config["n_kv_heads"] * config["head_dim"] * (config["window"] + 7)
    wide = max(config["d_model"], config["d_rnn"], config["d_ff"], config["n_heads"] * config["head_dim"])
    # the objects around the numbers (measured), of words that are twice as wide on a computer
    objects = (5000 + 3000 * len(config["recipe"])) * (2 if sys.maxsize >> 31 else 1)
    return total + 12 * config["vocab_size"] + 40 * wide + 4 * config["window"] + objects


def _join(place, name):
    return place.rstrip("/") + "/" + name if place != "." else name


def _is_file(path):
    try:
        return os.stat(path)[0] & 0x4000 == 0
    except OSError:
        return False
