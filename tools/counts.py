"""What the board's code costs in instructions, on each emulated board, part by part: for tools/bench.py."""

import pathlib

from tools.boards import ON_BOARD, PER_MICROSECOND, Board, files
from tools.firmware import HEAP_MAX, images

#: Parts of a token, and the kernels that they are made of.
PARTS = {
    "matrices": ("linear",),
    "norms": ("norm",),
    "gates": ("gated", "gate_state"),
    "recurrence": ("conv", "recur"),
    "attention": ("rotate", "attend", "advance"),
    "experts": ("route", "add_scaled", "damaged"),
    "embedding": ("embed", "softcap"),
    "sampler": ("argmax", "candidates", "top_k", "top_p", "draw"),
}
PROMPTS = (16, 64, 256)


def instructions(microseconds):
    return round(int(microseconds) * PER_MICROSECOND)


def _files(model, left_out=(), *names):
    more = {name: (ON_BOARD / name).read_bytes() for name in names}
    return {name: data for name, data in files(model, **more).items() if name not in left_out}


def token(target, model, tokens, left_out=(), prompts=PROMPTS):
    """Instructions of opening a packed model and of reading a token, by part, on an emulated board.

    tokens: ids of a text with at least 256; left_out: files of the package to leave out. Returns a dict: `kernels`
    (the families in use), `importing`, `opening`, `first` (a text's first token, experts' CRC-32 compared),
    `instructions` (the same token, warm, without the draw), `draw`, `parts` (of the token and the draw; `between`: the
    bytecode between kernels), `longest` (of the token's kernel calls, with its name), `prompt` (a token of prompts).
    """
    name = pathlib.Path(model).name
    with Board(target, HEAP_MAX, images.romfs(_files(model, left_out, "costs.py", "parts.py")), counting=True) as board:
        result = {"importing": instructions(board.run(
            "import time\nstart = time.ticks_us()\nimport scribe\nprint(time.ticks_diff(time.ticks_us(), start))"))}
        result["opening"] = instructions(board.run(
            f"start = time.ticks_us()\ns = scribe.open('/rom/{name}')\nprint(time.ticks_diff(time.ticks_us(), start))"))
        result["kernels"] = board.run("from scribe import kernels\nprint(kernels.name)").strip()
        first, again, draw = map(instructions, board.run(f"import board, costs\ncosts.tokens(s, {tokens[:1]})").split())
        result.update(first=first, instructions=again, draw=draw)
        result["prompt"] = {size: instructions(board.run(
            f"costs.prompt(s, board.ids({_digits(tokens[:size])!r}))")) // size for size in prompts}
    with Board(target, HEAP_MAX, images.romfs(_files(model, left_out, "parts.py")), counting=True) as board:
        board.run(f"import board, parts, scribe\ns = scribe.open('/rom/{name}')")
        said = [line.split() for line in board.run(f"parts.kernels_of_token(s, {tokens[:1]})").splitlines()]
        times = int(board.run("print(parts.TIMES)"))
    cost = {kernel: instructions(us) // times for kernel, _, us in said}
    parts = {part: sum(cost.pop(kernel, 0) for kernel in kernels) for part, kernels in PARTS.items()}
    assert not cost, f"no part of a token: {', '.join(cost)}"
    parts["between"] = again + draw - sum(parts.values())
    result["parts"] = {part: size for part, size in parts.items() if size}
    return result


def _digits(ids):
    """Token ids as `board.ids` reads them."""
    return "".join(f"{token:04x}" for token in ids)


def longest(target, model):
    """{"int8": instructions, "int4": ...} of the longest call that a matrix can be."""
    with Board(target, HEAP_MAX, images.romfs(_files(model, (), "costs.py")), counting=True) as board:
        return {f"int{bits}": instructions(board.run(f"import costs\ncosts.longest({bits})")) for bits in (8, 4)}

