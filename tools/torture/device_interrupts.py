"""Ctrl-C at every kernel boundary of a story on the device: the prompt's chunk, the steps, the draws."""

import json
import pathlib
import tempfile

from tools import micropython
from tools.torture import Row, shipped, small_model

SCRIPT = micropython.ROOT / "tools" / "on_device" / "faults_interrupts.py"
TWINS = micropython.ROOT / "device" / "scribe" / "plain_kernels.py"


def interrupted(path, folder, row, every, first=1, cache=0, prompt="Then"):
    """Interrupt a story of this model at each `every`-th kernel call."""
    (folder / "request.json").write_text(json.dumps({
        "path": str(path), "mark": str(folder / "mark"), "twins": str(TWINS), "cache": cache, "every": every,
        "first": first, "prompt": prompt}))
    done = micropython.run(SCRIPT, folder / "request.json", heapsize="16m", check=False, timeout=None)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        if "at" in line:
            good = line["stopped"] and line["same"] and not line["marked"]
            row.count(good, f"{path.name}: {line}")
        elif "beside" in line and not line["beside"]:
            row.count(False, f"{path.name}: the story told beside the interrupted ones changed")
    if done.returncode or not lines or "beside" not in lines[-1]:
        row.count(False, f"{path.name}: {(done.stderr or done.stdout).strip()[-300:]}")


def run(amount, seed):
    every = max(1, round(1 / amount))
    row = Row("device: Ctrl-C at a kernel boundary")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("hybrid", "griffin", "untied", "llama"):
            path, _ = small_model(name, folder)
            interrupted(path, folder, row, every, 1 + seed % every, 700)
        for path in shipped() if amount >= 0.5 else ():
            interrupted(path, folder, row, 5, 1 + seed % 5)
    yield row
