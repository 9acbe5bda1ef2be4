"""Flash and cards that fail while the device reads a model from them: every read of an opening and of a story."""

import json
import os
import pathlib
import tempfile

from tools import micropython
from tools.torture import Row, shipped, small_model

ON_DEVICE = micropython.ROOT / "tools" / "on_device"
SCRIPT = ON_DEVICE / "faults_flash.py"
#: kind of fault: what must be said, or None where a second try is right and the story goes on
CARD = {"error": "line", "once": None, "short": "line", "gone": "line", "wrong": None, "break": "break"}
DISK = {"error": "line", "once": None, "break": "break", "damage": None}


def failing(path, folder, row, on, what, kind, every, first=1, check="first", blocks=None, cache=0):
    """Try a fault of this kind at each `every`-th read."""
    wanted = {"card": CARD, "littlefs": DISK, "fat": DISK}[on].get(kind)
    (folder / "request.json").write_text(json.dumps({
        "path": str(path), "folder": str(ON_DEVICE), "on": on, "what": what, "kind": kind, "every": every,
        "first": first, "check": check, "blocks": blocks, "cache": cache}))
    done = micropython.run(SCRIPT, folder / "request.json", heapsize="64m", check=False, timeout=None)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    how = f"{path.name} on {on}, {what}, {kind}, check={check}"
    for line in lines:
        if "at" not in line:
            continue
        # A file system may keep part of what an exception interrupted: that such a story stops is good, too.
        said = line["said"] in ((wanted, None, "line") if wanted is None or what == "openings" else (wanted,))
        row.count(line["told"] and line["again"] and line["fresh"] and (said or what == "full"), f"{how}: {line}")
    if done.returncode or not lines or "end" not in lines[-1]:
        row.count(False, f"{how}: {(done.stderr or done.stdout).strip()[-300:]}")


def run(amount, seed):
    every = max(1, round(1 / amount))
    first = 1 + seed % every
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path, _ = small_model("hybrid", folder)
        row = Row("device: a card fails in the middle of a story")
        for kind in CARD:
            failing(path, folder, row, "card", "stories", kind, every, first)
        failing(path, folder, row, "card", "stories", "wrong", every, first, "always")
        for kind in ("error", "short", "once", "break"):  # some experts stay in RAM
            failing(path, folder, row, "card", "stories", kind, every, first, cache=8000)
        if amount >= 0.5:
            failing(shipped()[-1], folder, row, "card", "stories", "error", 3)
        yield row
        row = Row("device: a card fails while a model is opened")
        for kind in ("error", "short", "gone", "break", "wrong"):
            failing(path, folder, row, "card", "openings", kind, every, first)
        yield row
        for on in ("littlefs", "fat"):
            row = Row(f"device: a flash driver raises under {on}")
            for kind in DISK:
                failing(path, folder, row, on, "stories", kind, every, first)
                if amount >= 0.5:
                    failing(path, folder, row, on, "openings", kind, every, first)
            yield row
        row = Row("device: a file system that is full when a bookmark is written")
        for on in ("littlefs", "fat"):
            blocks = os.stat(path).st_size // 4096 + (64 if on == "fat" else 24)
            failing(path, folder, row, on, "full", "full", 1, blocks=blocks)
        yield row
