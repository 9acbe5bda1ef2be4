"""Count what the board's code costs: `make bench`. Prints tables and writes build/bench.json (docs/bench.md).

Only counts that repeat: instructions (QEMU's of each firmware that `make boards` built, valgrind's on this computer),
bytes read and sent, bytes of heap, hit rates. No seconds; where time is compared (training, and deploying against
mpremote), both were measured one after the other, and only their ratio is kept.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np

from tools import budget, counts
from tools.errors import Parser, UserError, command
from tools.estimate import estimates
from tools.fileformat import Packed
from tools.files import write_text
from tools.micropython import PATH, ROOT, micropython, run
from tools.parity import held_out

ON_DEVICE = pathlib.Path(__file__).parent / "on_device"
#: Mounts of littlefs: readsize and progsize.
MOUNTS = {"rp2": (32, 256), "esp32": (32, 32)}
PROMPT_TARGET = "m4"  # prompts are long, and cost much the same share of a written token everywhere
MEGAHERTZ = 150  # at which docs/kernels.md promises how soon Ctrl-C is seen
OUTPUT = ROOT / "build" / "bench.json"
PAGE = ROOT / "docs" / "bench.md"
HEADING = "## Measured"
#: Multiplies a random matrix `rows` times; the slope between two counts is the cost of a row.
MATVEC = """
import sys
from array import array
from scribe import kernels as k
rows, cols, bits, times = (int(a) for a in sys.argv[1:])
groups = (cols + 63) // 64
weights = rows * cols * bits // 8
buf = bytearray(weights + 2 * rows * groups)
for i in range(len(buf)):
    buf[i] = i * 37 & 127
d = array("i", (1, 0, 0, weights, -1, rows, cols, cols, groups, 1, 6, 0, bits, 0))
px, x, y = array("i", bytes(4 * (cols + groups))), array("i", range(cols)), array("i", bytes(4 * rows))
for _ in range(times):
    k.linear(y, x, px, buf, d)
"""
TOKENS = """
import sys
from array import array
from scribe.model import Model, State
m = Model(sys.argv[1])
s = State(m)
for i in range(int(sys.argv[2])):
    m.step(i % 200 + 3, s)
"""


def host_instructions(code, *args):
    """Instructions that MicroPython's unix port takes to run code, by valgrind's callgrind."""
    if not shutil.which("valgrind"):
        raise UserError("valgrind is not installed")
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", micropython(), "-X", "heapsize=32m",
               "-c", code, *map(str, args)]
    done = subprocess.run(command, env={**os.environ, "MICROPYPATH": PATH}, capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not found:
        raise UserError(f"valgrind: {done.stderr.strip().splitlines()[-1]}")
    return int(found[1])


def host_kernels():
    """{"int8": instructions per multiply-accumulate, "int4": ...} of whole matrices on this computer."""
    rows, cols = 96, 192
    result = {}
    for bits in (8, 4):
        few, many = (host_instructions(MATVEC, rows, cols, bits, times) for times in (2, 12))
        result[f"int{bits}"] = {"instructions_per_mac": round((many - few) / (10 * rows * cols), 3)}
    return result


def host_tokens(path):
    """Instructions a token on this computer, at the start of a text."""
    few, many = (host_instructions(TOKENS, path, count) for count in (1, 3))
    return (many - few) // 2


def flash(path, count):
    """Bytes read by opening, by a prompt's token and by a written token, the cache's hit rate by its size, and heap."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens"
        np.asarray(held_out(Packed.load(path), count), dtype="<u2").tofile(tokens)
        return json.loads(run(ON_DEVICE / "bench.py", path, tokens, heapsize="64m", timeout=None).stdout)


def littlefs(path):
    """{mount: {"opening", "writing"}}: what a counting flash under littlefs saw, by its stock mount and, where boards
    are known to have it, below that (docs/layouts.md)."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens"
        np.asarray(held_out(Packed.load(path), 64), dtype="<u2").tofile(tokens)
        result = {}
        for name, mount in MOUNTS.items():
            for known in ("known", "unknown"):
                said = json.loads(run(ON_DEVICE / "flash.py", path, tokens, *mount, known, heapsize="64m",
                                      timeout=None).stdout)
                result[name if known == "known" else f"{name}, stock"] = {
                    part: said[part] for part in ("opening", "writing")}
        return result


def training():
    """The ratio of two ways to train, or None where PyTorch is not installed."""
    done = subprocess.run([sys.executable, "-m", "tools.bench_training"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise UserError(done.stderr.strip().splitlines()[-1].removeprefix("error: "))
    return json.loads(done.stdout)


#: Takes so many bytes off the wire and does nothing with them.
SWALLOW = """
import sys
buf = bytearray({size})
for _ in range({count}):
    sys.stdin.buffer.readinto(buf)
"""


def deploying(path):
    """A whole model copied to an emulated Cortex-M3's littlefs by `deploy`, then by `mpremote fs cp`: bytes sent for
    each byte of the model, and times as multiples of ours; `wire` is sending ours to a program that only reads them."""
    from tools import boards, connection, transfer
    from tools.firmware import images

    data = path.read_bytes()
    image = images.littlefs({"empty": b""}, free=2 * len(data) + (1 << 18))
    with boards.Board("m3", 1 << 20, image, "littlefs") as board:
        board.connect()
        board.disconnect()
        with connection.Connection(board.port) as c:
            copier = transfer.Transfer(c, c.about())

            def measured(action):
                before, start = c.sent, time.monotonic()
                action()
                return c.sent - before, time.monotonic() - start

            ours, seconds = measured(lambda: copier.put("/flash/ours", data))
            theirs, their_seconds = measured(lambda: c.transport.fs_writefile("/flash/theirs", data))
            size = 2065  # a frame
            code = SWALLOW.format(size=size, count=-(-ours // size))

            def swallow():
                c.transport.exec_raw_no_follow(code)
                for _ in range(-(-ours // size)):
                    c.serial.write(b"x" * size)
                c.transport.follow(600)

            _, wire = measured(swallow)
            for name in ("ours", "theirs"):
                if not copier.look(f"/flash/{name}", data)[0]:
                    raise UserError(f"deploying {path}: /flash/{name} on the board is not the model")
    return {"model_bytes": len(data), "bytes": {"deploy": ours, "mpremote": theirs},
            "times": {"mpremote": round(their_seconds / seconds, 2), "wire": round(wire / seconds, 2)}}


def table(title, head, rows):
    """A Markdown table with its title, or "" for one without rows."""
    if not rows:
        return ""
    lines = [f"**{title}**", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)])


def measure(models, tokens):
    """All of build/bench.json."""
    result = {"kernels": {}, "tokens": {}, "flash": {}, "heap": {}, "open": {}, "prompt": {}, "interrupt": {},
              "estimates": {}}
    try:
        result["kernels"]["viper"] = {
            bits: {"instructions_per_mac": {"x86-64": cost["instructions_per_mac"]}}
            for bits, cost in host_kernels().items()}
        for path in models:
            result["tokens"][path.stem] = {"x86-64": {"instructions": host_tokens(path)}}
    except UserError as error:
        print(f"left out: instructions on this computer ({error})")
    for path in models:
        found = flash(path, tokens)
        result["flash"][path.stem] = {
            "opening_bytes": found["opening"],
            "expert_bytes_per_token": found["expert"] * found["layers"] if found["expert"] else 0,
            "bytes_per_token": found["cache"]["0"]["bytes_per_token"], "hit_rate": found["cache"]["0"]["hit_rate"],
            "prompt_bytes_per_token": found["prompt"], "cache": found["cache"], "littlefs": littlefs(path)}
        result["open"][path.stem] = {"bytes": found["opening"], "reads": found["reads"]}
        facts = json.loads(path.with_suffix(".json").read_text()) if path.with_suffix(".json").is_file() else {}
        result["heap"][path.stem] = {"peak": facts.get("heap"), **found["heap"], "ram": facts.get("ram")}
    return result


def merge_boards(result, models):
    """Add the firmwares' counts, where they are built."""
    from tools import boards
    from tools.firmware import TARGETS

    for target in TARGETS:
        for path in models:
            tokens = [int(token) for token in held_out(Packed.load(path), max(counts.PROMPTS))]
            try:
                found = counts.token(target, path, tokens, prompts=counts.PROMPTS if target == PROMPT_TARGET else ())
                _, slopes, name = boards.count(target, path, tokens=tokens[:1])
                if path is models[0]:
                    result["interrupt"][target] = counts.longest(target, path)
                if target == "rv32":
                    # the other processors without assembler kernels are like it
                    plain = counts.token(target, path, tokens, left_out=("scribe/rv32_kernels.py",), prompts=())
                    result["tokens"].setdefault(path.stem, {})["viper"] = plain
            except UserError as error:
                print(f"left out: {path.stem} on {target} ({error})")
                continue
            result["open"][path.stem].setdefault("instructions", {})[target] = found.pop("opening")
            result["open"].setdefault("import", {})[target] = found.pop("importing")
            if found["prompt"]:
                result["prompt"].setdefault(path.stem, {})[target] = found["prompt"]
            del found["prompt"]
            result["tokens"].setdefault(path.stem, {})[target] = found
            if Packed.load(path).config.n_experts:
                found["checks"] = boards.count_checks(target, path)
            family = next((part for part in ("dsp", "thumb", "rv32", "m0") if part in name), "viper")
            for bits, slope in slopes.items():
                kinds = result["kernels"].setdefault(family, {}).setdefault(f"int{bits}", {"instructions_per_mac": {}})
                kinds["instructions_per_mac"][target] = round(slope, 3)
    for path in models:
        costs = {target: cost["instructions"] + cost["draw"]
                 for target, cost in result["tokens"].get(path.stem, {}).items() if "draw" in cost}
        result["estimates"][path.stem] = estimates(budget.from_packed(path), costs,
                                                   result["flash"][path.stem]["expert_bytes_per_token"])


def merge_deploying(result, models):
    """Add what deploying the smallest model takes, where the firmware is built."""
    try:
        path = min(models, key=lambda path: path.stat().st_size)
        result["deploying"] = {path.stem: deploying(path)}
    except (UserError, FileNotFoundError) as error:
        print(f"left out: deploying ({error})")


def tables(result):
    """All figures, as Markdown."""
    from tools.firmware import TARGETS

    rows = [(family, bits, machine, cost) for family, kinds in result["kernels"].items() for bits, kind in kinds.items()
            for machine, cost in kind["instructions_per_mac"].items()]
    yield table("Instructions a multiply-accumulate, whole matrices",
                ("kernels", "weights", "machine", "instructions"), rows)
    rows = [(model, machine, f"{cost['instructions']:,}") for model, machines in result["tokens"].items()
            for machine, cost in machines.items()]
    yield table("Instructions a token, at the start of a text", ("model", "machine", "instructions"), rows)
    rows = [(model, machine, check, f"{count:,}") for model, machines in result["tokens"].items()
            for machine, cost in machines.items() for check, count in cost.get("checks", {}).items()]
    yield table("Instructions a token by when experts are checked (docs/reliability.md)",
          ("model", "machine", "check", "instructions"), rows)
    names = [*counts.PARTS, "between"]
    rows = [(model, machine, *(f"{100 * cost['parts'].get(part, 0) / (cost['instructions'] + cost['draw']):.1f}%"
                               for part in names))
            for model, machines in result["tokens"].items() for machine, cost in machines.items() if "parts" in cost]
    yield table("The same and the draw after it, by part", ("model", "machine", *names), rows)
    rows = [(model, f"{cost['bytes']:,}", cost["reads"], *(f"{cost.get('instructions', {}).get(target, 0):,}"
                                                           for target in TARGETS))
            for model, cost in result["open"].items() if model != "import"]
    rows.append(("(import scribe)", "", "", *(f"{result['open'].get('import', {}).get(t, 0):,}" for t in TARGETS)))
    yield table("Opening: bytes, reads; instructions in place from ROMFS", ("model", "bytes", "reads", *TARGETS), rows)
    rows = [(model, target, f"{result['tokens'][model][target]['instructions']:,}", *(f"{n:,}" for n in sizes.values()))
            for model, targets in result["prompt"].items() for target, sizes in targets.items()]
    yield table("Instructions a prompt's token",
                ("model", "machine", "writing", *(f"of {n}" for n in counts.PROMPTS)), rows)
    rows = [(target, f"{max(found.values()):,}", f"{max(found.values()) / MEGAHERTZ / 1000:.1f}")
            for target, found in result["interrupt"].items()]
    yield table(f"The longest that Ctrl-C waits: instructions, and ms at {MEGAHERTZ} MHz and one a cycle",
          ("machine", "instructions", "ms"), rows)
    rows = []
    for model, f in result["flash"].items():
        prompts = ", ".join(f"{size:,.0f} (of {count})" for count, size in f["prompt_bytes_per_token"].items())
        rows.append((model, f"{f['opening_bytes']:,}", f"{f['expert_bytes_per_token']:,}",
                     f"{f['bytes_per_token']:,.0f}", prompts))
    yield table("Bytes read from the file", ("model", "opening", "experts of a token", "writing, a token, no cache",
                                       "reading a prompt, a token"), rows)
    rows = [(model, f"{entry['slots']}", f"{100 * entry['hit_rate']:.0f}%", f"{entry['bytes_per_token']:,.0f}")
            for model, f in result["flash"].items() if f["expert_bytes_per_token"]
            for entry in sorted(f["cache"].values(), key=lambda entry: entry["slots"])]
    yield table("Expert cache", ("model", "experts kept", "hits", "bytes a token"), rows)
    rows = [(model, mount, f"{said['opening']['bytes']:,}", f"{said['writing']['reads_per_expert']:.0f}",
             f"{100 * said['writing']['overhead']:.1f}%") for model, f in result["flash"].items()
            if f["expert_bytes_per_token"] for mount, said in f["littlefs"].items()]
    yield table("On littlefs, 64 tokens without a cache", ("model", "mount", "bytes of opening", "reads an expert",
                                                     "bytes beyond the experts'"), rows)
    rows = [(model, f"{cost['per_token']:,.1f}", f"{cost['per_token_with_text']:,.1f}")
            for model, cost in result["heap"].items()]
    yield table("Heap taken by a token, bytes", ("model", "step and draw", "with the text that `stream` yields"), rows)
    if result.get("training"):
        r = result["training"]
        yield (f"Training {r['recipe']}, {r['rows']} texts of {r['length']} tokens: {r['ratio']} times as many "
               "tokens a second as with a scan that autograd follows.")
    rows = [(model, board, f"{e['processor']}, {e['megahertz']} MHz", e["stands_for_it"], f"{e['instructions']:,}",
             "{} to {}".format(*e["tokens_per_second"]) if e["fits"] else "; ".join(e["why_not"]))
            for model, chips in result["estimates"].items() for board, e in chips.items()]
    yield table("Tokens a second, ESTIMATED (docs/bench.md has what is assumed)", (
        "model", "board", "processor", "counted on", "instructions", "tokens a second, or why it does not fit"), rows)
    rows = [(model, f"{d['model_bytes']:,}", f"{d['bytes']['deploy']:,}", f"{d['bytes']['mpremote']:,}",
             d["times"]["mpremote"], d["times"]["wire"]) for model, d in result.get("deploying", {}).items()]
    yield table("Deploying to an emulated Cortex-M3", (
        "model", "bytes", "on the wire", "mpremote fs cp", "its time / ours", "the wire alone / ours"), rows)


def measured(args):
    """Measure all, and write it to build/bench.json."""
    models = args.models or sorted((ROOT / "weights").glob("*.scribe"))
    for path in models:
        Packed.load(path)  # a mistake is said before anything is counted
    result = measure(models, args.tokens)
    merge_boards(result, models)
    try:
        if args.training:
            result["training"] = training()
    except UserError as error:
        print(f"left out: training ({error})")
    merge_deploying(result, models)
    OUTPUT.parent.mkdir(exist_ok=True)
    write_text(OUTPUT, json.dumps(result, indent=2) + "\n")
    print(f"{OUTPUT.relative_to(ROOT)} written")
    return result


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.bench", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="packed models (default: all of weights/)")
    parser.add_argument("--tokens", type=int, default=512, help="of held-out text for reads and hits")
    parser.add_argument("--show", action="store_true", help="show what build/bench.json says; measure nothing")
    parser.add_argument("--page", action="store_true", help="put the tables into docs/bench.md")
    parser.add_argument("--training", action=argparse.BooleanOptionalAction, default=True,
                        help="compare training with a naive scan (minutes; needs PyTorch)")
    args = parser.parse_args(argv)
    if not 256 <= args.tokens <= 1_000_000:
        raise UserError("--tokens must be from 256 to a million")
    if args.show:
        try:
            result = json.loads(OUTPUT.read_text())
        except (OSError, ValueError):
            raise UserError(f"{OUTPUT.relative_to(ROOT)}: not there, or damaged; run: make bench") from None
    else:
        result = measured(args)
    text = "\n\n".join(filter(None, tables(result))) + "\n"
    print("\n" + text)
    if args.page:
        about = PAGE.read_text().partition(HEADING)[0]
        write_text(PAGE, f"{about}{HEADING}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
