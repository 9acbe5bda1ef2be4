"""Measure what the layout of a model on littlefs costs: flash reads, bytes and memory per expert.

Real MicroPython, real littlefs (its unix port has both), and a flash made of RAM that counts. Writes docs/layouts.md.
"""

import json
import pathlib
import random
import sys

from tools.errors import Parser, UserError, command
from tools.files import write_text
from tools.micropython import ROOT, run

SCRIPT = ROOT / "tools" / "on_device" / "layouts.py"
REPORT = ROOT / "docs" / "layouts.md"
BLOCK = 4096
LAYERS, PER_LAYER = 8, 8
EXPERTS = LAYERS * PER_LAYER
EXPERT = 30208  # 29.5 KiB
BRAIN = 1536 << 10
FLASH = 8 << 20

#: How littlefs is mounted. Its cache, and that of each open file, is 4 x the larger of readsize and progsize.
MOUNTS = (
    ("defaults", "readsize 32, progsize 32 (a stock esp32 and most others): cache of 128 bytes", 32, 32),
    ("rp2", "readsize 32, progsize 256 (a stock rp2 board): cache of 1024 bytes", 32, 256),
    ("256/256", "readsize 256, progsize 256: cache of 1024 bytes", 256, 256),
    ("32/1024", "readsize 32, progsize 1024 (mounted by hand): cache of a whole block", 32, 1024),
    ("4/256", "readsize 4, progsize 256 (what `scribe` does below a stock mount): cache of 1024 bytes", 4, 256),
)
#: The columns of every table: title, and a row's cell.
COLUMNS = (
    ("layout", lambda r: r["layout"]),
    ("files", lambda r: f"{r['files']}"),
    ("calls", lambda r: f"{r['calls']:.1f}"),
    ("bytes", lambda r: f"{r['bytes']:.0f}"),
    ("overhead", lambda r: f"{100 * (r['bytes'] / EXPERT - 1):+.1f}%"),
    ("blocks", lambda r: f"{r['blocks']:.1f}"),
    ("heap per read", lambda r: f"{r['read_alloc']}"),
    ("heap of open files", lambda r: f"{r['open_ram']}"),
    ("reads of one open()", lambda r: f"{r['open_calls']:.0f}"),
    ("brain: calls, overhead", lambda r: f"{r['brain_calls']}, {100 * (r['brain_bytes'] / BRAIN - 1):+.1f}%"),
)


# The walk that littlefs makes. Block n of a file begins with ctz(n) + 1 pointers, to blocks n - 1, n - 2, n - 4 ...,
# and only the last block is known: to reach block t it jumps down from there. Each jump is one small read, and it is
# made again for every block, in order or not.


def block_index(offset):
    """In which block of a littlefs file a byte lies."""
    index, start = 0, BLOCK
    while offset >= start:
        index += 1
        start += BLOCK - 4 * ((index & -index).bit_length())
    return index


def jumps(last, target):
    """How many pointers littlefs follows from block `last` of a file to block `target`."""
    count = 0
    while last > target:
        reach = (last - target).bit_length() - 1  # the largest power of two that does not overshoot
        last -= 1 << min(reach, (last & -last).bit_length() - 1)
        count += 1
    return count


def jumps_per_expert(brain, expert, experts, tail=0):
    """Mean jumps that reading one whole expert costs, in one file with the experts last and `tail` bytes after them."""
    last = block_index(brain + experts * expert + tail - 1)
    cost = {}
    total = 0
    for e in range(experts):
        start = brain + e * expert
        for block in range(block_index(start), block_index(start + expert - 1) + 1):
            if block not in cost:
                cost[block] = jumps(last, block)
            total += cost[block]
    return total / experts


def best_tail(brain, expert, experts, limit):
    """The tail, a multiple of the block up to `limit` bytes, with the fewest jumps (the shortest of equals)."""

    def cost(tail):
        return round(jumps_per_expert(brain, expert, experts, tail), 1), tail

    return min(range(0, limit + 1, BLOCK), key=cost)


def trace(tokens, seed):
    """The experts that `tokens` tokens ask for, in order, if routers draw evenly: nothing for a cache to gain."""
    draw = random.Random(seed)
    return [layer * PER_LAYER + draw.randrange(PER_LAYER) for _ in range(tokens) for layer in range(LAYERS)]


def measure(readsize, progsize, requests, tails=(), aligns=(), shifts=(), pieces=()):
    """Rows (dicts), one per layout, from MicroPython. `requests` is a trace."""
    request = {"mount": {"readsize": readsize, "progsize": progsize, "lookahead": 32}, "brain_bytes": BRAIN,
               "expert_bytes": EXPERT, "experts": EXPERTS, "per_layer": PER_LAYER, "flash_bytes": FLASH,
               "trace": requests, "tails": tails, "aligns": aligns, "shifts": shifts, "pieces": pieces}
    done = run(SCRIPT, heapsize="64m", env={"SCRIBE_LAYOUTS": json.dumps(request)}, timeout=900)
    return [json.loads(line) for line in done.stdout.splitlines()]


def markdown(titles, rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (titles, ["---"] * len(titles), *rows))


def columns_of(rows):
    return markdown([title for title, _ in COLUMNS], [[cell(row) for _, cell in COLUMNS] for row in rows])


def tail_table():
    """What a model's length costs, by the walk above (the measured rows agree with it: see tests/test_layouts.py)."""
    rows = []
    for brain in (300, 700, 1024, 1536, 1560, 2048):
        tail = best_tail(brain << 10, EXPERT, EXPERTS, 32 << 10)
        rows.append((f"{brain} KiB", f"{jumps_per_expert(brain << 10, EXPERT, EXPERTS):.1f}", f"{tail >> 10} KiB",
                     f"{jumps_per_expert(brain << 10, EXPERT, EXPERTS, tail):.1f}"))
    return markdown(("brain", "jumps per expert", "best tail up to 32 KiB", "jumps with it"), rows)


def report(tables, args):
    """The page: the tables, and what follows from them."""
    by = {(name, row["layout"]): row for name, _, rows in tables for row in rows}
    last = {name: by[name, "one file, experts last"] for name, *_ in tables}
    tail = {name: by[name, f"experts last, {args.tail} bytes longer"] for name, *_ in tables}
    kept, opened = by["rp2", "one each, kept open"], by["rp2", "one each, opened each time"]

    def figures(title, layout):
        r = by["rp2", layout]
        return title, f"{r['calls']:.0f}", f"{100 * (r['bytes'] / EXPERT - 1):+.1f}%", r["open_ram"], r["read_alloc"]

    choice = markdown(("layout", "calls per expert", "bytes over its own", "heap of open files", "heap per read"), [
        figures("one file, experts last", "one file, experts last"),
        figures("the same, with the best tail (below)", f"experts last, {args.tail} bytes longer"),
        *(figures(name, name) for name in (
            "one file, experts first", "brain + one library", "brain + one per layer", "one each, kept open",
            "one each, opened each time"))])
    sections = "\n\n".join(f"### {name}\n\nMounted with {what}.\n\n{columns_of(rows)}"
                           for name, what, rows in tables)
    return f"""# How to lay a model out on littlefs

Measured by `make layouts` ({args.tokens} tokens x {LAYERS} layers, seed {args.seed}), which rewrites this page:
littlefs 2 in MicroPython's unix port, on a flash made of RAM that counts what is read from it.
{EXPERTS} experts of {EXPERT} bytes, a brain of {BRAIN >> 10} KiB, blocks of {BLOCK} bytes.
The counts do not depend on the machine; heap sizes are those of a 64-bit build (on a board an open file takes a little
less beyond its cache). No times are given: what a call costs is the board's driver's.

## What to do

**One file, the brain first and the experts last, kept open.** On a stock rp2 mount:

{choice}

* More files save only jumps of 32 bytes. One per layer costs eight handles and nine files to copy. One per expert, kept
  open, takes the RAM of {kept['open_ram'] / EXPERT:.1f} cached experts and {kept['files']} files to copy.
  A file opened for each read allocates ({opened['read_alloc']} bytes), which the token step must not, and reads the
  directory each time.
* Experts last, because littlefs knows only a file's last block and walks back from it, again for every block read.
* A readinto of a whole expert allocates nothing, and costs the same as smaller ones in order. Where in a block an
  expert starts makes no difference; aligning to {BLOCK} changes the file's length, and so the walk, like any other
  change of length (below). Align experts for reading in place (ROMFS), not for littlefs.
* The mount decides most, so `scribe` brings its own: where it knows the board's flash (`rp2.Flash`, `flashbdev` of
  esp32), it opens the file once more through a littlefs with readsize 4, which no one else sees, and an expert costs
  {100 * (last['4/256']['bytes'] / EXPERT - 1):.1f}% beyond its bytes
  ({100 * (tail['4/256']['bytes'] / EXPERT - 1):.1f}% with the best tail) in as many calls as on rp2.
  `device/scribe/modelfile.py` compares the header, which holds a CRC-32 of everything, before it trusts what it found.
  On an SD card, or where flash holds FAT, the file is read as it is mounted.
* With a stock mount: littlefs caches 4 x the larger of readsize and progsize, and data moves in caches. An expert
  takes {last['defaults']['calls']:.0f} calls with the defaults, {last['rp2']['calls']:.0f} on rp2,
  {last['32/1024']['calls']:.0f} with progsize 1024 (and 4 KB for each of littlefs's two caches and each open file).
  A larger readsize is the wrong knob, for every jump then reads that much:
  {last['256/256']['bytes']:.0f} bytes an expert at 256. Whether calls are dear enough to mount by hand, as
  `vfs.VfsLfs2(device, progsize=1024)`, is for a measurement on the board to say.

## The length of the file

Each jump goes down by the largest power of two that divides the block's number, so a file whose last block has a round
number is cheaper to walk. A few unused blocks at the end can save a quarter of the jumps, or more
({EXPERTS} experts of {EXPERT} bytes; calculated, and the measured rows agree):

{tail_table()}

No one file of this length can do with less than about 4.4 jumps a block (half of the bits of a distance of some 470
blocks), 3.6% at 32 bytes each, so that 3% is out of reach of a stock mount, whatever the layout: to it come the last
cache of each expert, half used ({100 * 512 / EXPERT:.1f}% at 1024 bytes), and the pointers at the head of each block
(0.2%).

`best_tail` in `tools/layouts.py` finds the length. Worth having where it is free, and no more: a jump is one read of 32
bytes.

## The figures

* **calls**, **bytes**: reads of the flash per expert, directory and skip list included. **overhead**: bytes beyond the
  expert's own. **blocks**: distinct blocks touched per expert ({EXPERT / BLOCK:.1f} would hold it).
* **heap per read**: what one read leaves on the heap; a 0 was checked under `micropython.heap_lock()`.
* **heap of open files**: all handles that the layout keeps open. **reads of one open()**: mean over files with experts.
* **brain**: loading it whole, once, into one buffer.

{sections}
"""


@command
def main(argv=None):
    p = Parser(prog="python -m tools.layouts", description=__doc__.splitlines()[0])
    p.add_argument("--tokens", type=int, default=200, help="tokens in the routing trace (default: %(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the routing trace (default: %(default)s)")
    p.add_argument("--out", type=pathlib.Path, default=REPORT, help="where the report goes (default: docs/layouts.md)")
    args = p.parse_args(argv)
    if not 1 <= args.tokens <= 1_000_000:
        raise UserError("--tokens must be from 1 to a million")
    args.tail = best_tail(BRAIN, EXPERT, EXPERTS, 32 << 10)
    tables = []
    for name, what, readsize, progsize in MOUNTS:
        variants = {"tails": [args.tail]}
        if name in ("defaults", "rp2"):
            variants.update(aligns=[64, 256, BLOCK], shifts=[1, 32, 128, 1000, 2048],
                            pieces=[256, 1024, BLOCK, 2 * BLOCK])
        rows = measure(readsize, progsize, trace(args.tokens, args.seed), **variants)
        print(f"{name}: {what}\n{columns_of(rows)}\n", flush=True)
        tables.append((name, what, rows))
    write_text(args.out, report(tables, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
