"""Very long texts on the device: no growth, no drift, no number that runs out."""

import binascii
import json
import pathlib
import tempfile

import numpy as np

from tools import integer, micropython
from tools.errors import UserError
from tools.fileformat import Packed
from tools.fixedpoint import STATE_LIMIT
from tools.torture import Row, scaled, shipped, small_model

ON_DEVICE = micropython.ROOT / "tools" / "on_device"
TOKENS = 200_000
EACH = 120  # tokens compared with the reference from each place
MAIN = """
import gc, json, sys
sys.path.append({folder!r})
import faults_long, scribe
s = scribe.open({path!r}, 0)
gc.collect()
faults_long.run(s, {total}, {places}, {each}, {seed}, {states}, lambda o: print(json.dumps(o)))
"""


def places(total):
    """Where the reference goes along: the beginning, on both sides of 2^16 tokens, and, their counters set there, where
    positions pass 31 and 32 bits; then the end."""
    found = [(total // 100, None), (65_536 - EACH // 2, None), (total * 2 // 3, 2**31 - 40),
             (total * 5 // 6, 2**32 - 40), (total - EACH - 1, None)]
    if total < 70_000:  # a short form: the counter is set there, too
        found[1] = total // 3, 65_536 - 40
    return sorted(found)


def state_of(packed, told):
    """The reference's State from a dump of the board's."""
    config = packed.config
    first, slot, used, *phases = told["place"]
    state = integer.State(config)
    state.position = 0 if first else 1
    if phases:
        state.phases = np.array(phases, np.int64)
    for i, letter in enumerate(config.recipe):
        a, b = (bytes.fromhex(text) for text in told["state"][i])
        if letter == "S":
            state.layers[i] = [np.frombuffer(a, "<i4").astype(np.int64),
                               np.frombuffer(b, "<i4").astype(np.int64).reshape(config.conv_width - 1, config.d_rnn)]
            continue
        heads, dim = config.n_kv_heads, config.head_dim
        keys = np.frombuffer(a, "<u2").astype(np.int64).reshape(heads, -1, dim) - 32768
        values = np.frombuffer(b, "<u2").astype(np.int64).reshape(heads, dim, -1).swapaxes(1, 2) - 32768
        order = [(slot - back) % config.window for back in range(used - 1, 0, -1)]
        state.layers[i] = [keys[:, order], values[:, order]]
    return state


def agree(packed, told):
    """How many of the steps after a place are the reference's, to the bit."""
    tokens = [token for token, _ in told["steps"]]
    logits = integer.forward(packed, tokens, state_of(packed, told)).astype("<i4")
    return sum(binascii.crc32(row.tobytes()) == crc for row, (_, crc) in zip(logits, told["steps"]))


def judge(packed, lines, total):
    """Rows of a run's lines."""
    name = packed.info.get("name") or "?"
    exact = Row(f"device: {name}: steps equal the reference, also past positions 2^16, 2^31 and 2^32")
    figures = Row(f"device: {name}: {total:,} tokens, every 1,000 of them: heap and state as they should be")
    heaps = [line["heap"] for line in lines if "heap" in line]
    for line in lines:
        if "steps" in line:
            same = agree(packed, line)
            exact.tried += len(line["steps"])
            exact.survived += same
            if same < len(line["steps"]):
                exact.found.append(f"after {line['at']} tokens {len(line['steps']) - same} steps differ")
        else:
            living = line["alive"] > 0.5 * packed.config.d_rnn * packed.config.recipe.count("S")
            ok = line["largest"] < STATE_LIMIT and (living or "S" not in packed.config.recipe)
            # the figures of the largest place are garbage by then, but not yet when the next line is made
            figures.count(ok and line["heap"] <= heaps[0] + 512, line)
    if not figures.tried or len(exact.found) == 0 and exact.tried < 5 * EACH:
        figures.count(False, "the run ended early")
    return exact, figures


def said(path, total, seed, states=True):
    """A run's lines on the unix port, as objects."""
    code = MAIN.format(folder=str(ON_DEVICE), path=str(path), total=total, places=places(total), each=EACH, seed=seed,
                       states=states)
    done = micropython.run(code, heapsize="32m", timeout=None)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def on_unix(path, total, seed):
    return judge(Packed.load(path), said(path, total, seed), total)


def on_board(path, total, seed, target="m4"):
    """The same text on 32-bit firmware under QEMU, every expert read from littlefs: all that it says is what the unix
    port says, but for the heap, which must not grow. (2^30 bytes have been read by then.)"""
    from tools.boards import Board, files
    from tools.firmware import images

    row = Row(f"device: {total:,} tokens of {path.stem} on {target} firmware, step by step and every 1,000 tokens")
    image = images.littlefs(files(path, **{"faults_long.py": (ON_DEVICE / "faults_long.py").read_bytes()}))
    with Board(target, 3 << 20, image, "littlefs") as board:
        board.run("import gc, json, faults_long, scribe")
        board.run(f"s = scribe.open('/flash/{path.name}', 0)")
        lines = board.run(f"faults_long.run(s, {total}, {places(total)}, {EACH}, {seed}, False, "
                          "lambda o: print(json.dumps(o)))", silence=None)
    found = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    wanted = said(path, total, seed, False)
    heaps = [line.pop("heap") for line in found if "heap" in line]
    for line in wanted:
        line.pop("heap", None)
    for here, there in zip(wanted, found):
        row.count(here == there, f"{str(there):.200}, not {str(here):.200}")
    row.count(len(found) == len(wanted) and heaps and max(heaps) <= heaps[0] + 512, f"{len(found)} lines; heap {heaps}")
    return row


def run(amount, seed):
    with tempfile.TemporaryDirectory() as folder:
        total = scaled(TOKENS, amount, 3000)
        small, _ = small_model("hybrid", pathlib.Path(folder))
        yield from on_unix(small, total, seed)
        for path in shipped():
            if amount >= 0.5:
                yield from on_unix(path, total, seed)
            elif path.stat().st_size < 1 << 20:  # a short form is told by the smallest
                yield from on_unix(path, 3000, seed)
        if amount >= 0.5:
            try:
                yield on_board(shipped()[-1], scaled(5000, amount, 3000), seed)
            except UserError as error:
                yield Row(f"device: m4 firmware left out ({error})")
