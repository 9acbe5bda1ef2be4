"""Heaps from far too small to ample, and heaps in pieces: it works, or it says what is missing; nothing is lost."""

import json
import pathlib
import re
import tempfile

from tools import micropython
from tools.torture import Row, scaled, shipped, small_model

STEPS = 40
OPEN = """
import gc, json, sys
result = {{"opened": False, "said": None, "why": None}}
try:
    import scribe
    s = scribe.open({path!r})
    result["opened"] = True
    result["text"] = s.write("The", max_tokens=5, seed=1)
except MemoryError as error:
    result["said"] = str(error)
    result["imported"] = "scribe" in sys.modules
    s = None
gc.collect()
result["free"] = gc.mem_free()
try:
    exec("a = [i * i for i in range(20)]; b = sum(a)")
    result["repl"] = b == 2470
    if not result["opened"] and result["imported"]:
        t = scribe.open({small!r}, 0)  # what does fit can still be used
        result["other"] = len(t.write("The", max_tokens=2, seed=1)) > 0
except MemoryError as error:
    result["why"] = str(error)
print(json.dumps(result))
"""
PIECES = """
import gc, json, scribe
keep = [bytearray(40 + i % 200) for i in range(3000)]
for i in range(0, len(keep), 2):
    keep[i] = None  # leaves a hole of each of these sizes
free, failed = [], 0
for i in range({times}):
    try:
        s = scribe.open({path!r})
        s.write("A", max_tokens=3, seed=i)
        t = s.fork()
        t.write("A", max_tokens=3, seed=i)
        s.close()
    except MemoryError:
        failed += 1
    s = t = None
    gc.collect()
    free.append(gc.mem_free())
print(json.dumps([failed, free]))
"""
#: Heaps, in KB, that a model of this many KB of buffers is tried in: from what the package alone takes.
LEAST = 96


def heaps(path, count):
    """`count` heap sizes in bytes, growing evenly in proportion, up to ample for this model."""
    most = 3 * path.stat().st_size + (1 << 20)
    return [round(LEAST * 1024 * (most / (LEAST * 1024)) ** (i / (count - 1))) // 1024 * 1024 for i in range(count)]


def little(path, small, count):
    row = Row(f"device: too little memory for {path.stem}")
    worked = False
    for heap in heaps(path, count):
        done = micropython.run(OPEN.format(path=str(path), small=str(small)), heapsize=heap, check=False, timeout=None)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        result = json.loads(lines[0]) if lines else {"end": (done.stderr or done.stdout)[-200:]}
        if result.get("text") and result["repl"]:
            worked = True
            row.count(True)
            continue
        said = result.get("said") or ""
        figures = re.search(r"needs about (\d+) bytes of heap; (\d+) are free(, but in pieces)?", said)
        # what is too small for the package itself can't be told by it
        told = (figures and (int(figures[1]) >= int(figures[2]) or figures[3])) or (
            not result.get("imported", True) and "memory allocation failed" in said) or (
            not lines and "MemoryError" in result["end"])
        row.count(told and not worked and (result.get("repl") or not lines), f"heap of {heap}: {result}")
    row.count(worked, "no heap was enough")
    return row


def pieces(path, heap, times):
    row = Row(f"device: {path.stem} opened, used and closed in a heap full of holes")
    done = micropython.run(PIECES.format(path=str(path), times=times), heapsize=heap, timeout=None)
    failed, free = json.loads(done.stdout)
    for n, left in enumerate(free):
        row.count(left >= free[2] - 1024 and not failed, f"round {n}: {left} free, not {free[2]}; {failed} failed")
    return row


def run(amount, seed):
    with tempfile.TemporaryDirectory() as folder:
        small, _ = small_model("hybrid", pathlib.Path(folder))
        for path in shipped():
            yield little(path, small, scaled(STEPS, amount, 5))
        yield pieces(small, "2m", scaled(50, amount, 6))
        if amount >= 0.5:
            yield pieces(shipped()[0], "4m", scaled(50, amount, 6))
