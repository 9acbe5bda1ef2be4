"""Does a 32-bit board equal the integer reference to the bit? A packed model's logits and draws, on emulated boards.

A board reads text and tells stories with the heap locked (`check`), and says the CRC-32 of every token's logits and
each token that it drew.
"""

import binascii
import dataclasses
import functools
import pathlib
import time

import numpy as np

from tools.boards import Board, BoardError, files
from tools.engines import Integer
from tools.errors import UserError
from tools.fileformat import Packed, read_sections
from tools.firmware import HEAP_MAX, TARGETS, images
from tools.sampling import Sampler
from tools.tokenizer import Tokenizer

#: temperature, top_k, top_p, seed; and the opening
STORIES = (((0, 0, 1.0, 0), "Once upon a time"), ((0.8, 40, 1.0, 7), "The fox"))
#: Heaps to try, in KB, a board like each: Pico, Pico 2, ESP32 without and with PSRAM and what lies between.
HEAPS = (192, 256, 320, 400, 512, 640, 800, 1024, 1536, 2048, 3072, HEAP_MAX // 1024)


@dataclasses.dataclass
class Plan:
    """What a board is to do with a packed model: read a text, tell stories of `told` tokens each."""

    path: pathlib.Path
    text: list
    read: list  # the line that each token of the text should give
    told: int

    def stories(self):
        """(settings, prompt ids) of each story."""
        packed = Packed.load(self.path)
        reader = Tokenizer(packed.tokenizer)
        for settings, opening in STORIES if self.told else ():
            yield settings, [packed.config.bos_token_id, *(int(token) for token in reader.encode(opening))]


@dataclasses.dataclass
class Result:
    """What a board said. `different` tells of the first difference, "" for none."""

    target: str
    model: str
    how: str
    heap: int
    read: int = 0
    told: int = 0
    mismatches: int = 0
    different: str = ""
    kernels: str = ""  # the families in use
    used: int = 0  # bytes of heap in use with the model open
    seconds: float = 0  # that the board took, in QEMU

    def __str__(self):
        return (f"{self.target} ({self.kernels}): {self.model} from {self.how}: {self.read} tokens read, "
                f"{self.told} told, {self.mismatches} mismatches{self.different and ': ' + self.different}; "
                f"heap {self.heap // 1024} KB ({self.used // 1024} in use), {self.seconds:.0f} s")


def _line(logits):
    return f"{binascii.crc32(np.asarray(logits, dtype='<i4').tobytes()):08x}"


def plan(path, text=(), told=0):
    """A Plan: the reference reads the text."""
    text = [int(token) for token in text]
    return Plan(pathlib.Path(path), text, [_line(row) for row in Integer(path).logits(text)] if text else [], told)


@functools.lru_cache(64)
def _retold(path, settings, prompt, drawn):
    """The lines that a story should give, by the reference, which goes the same way: a board that leaves it has a line
    there that differs. Going the whole way at once is a hundred times faster than token by token."""
    logits = Integer(path).logits([*prompt, *drawn[:-1]])[len(prompt) - 1 :]
    sampler = Sampler(Packed.load(path).sections["HEAD", 0, 0]["params"][:2], *settings)
    return [f"{_line(row)} {sampler.pick(row)}" for row in logits]


def least(path, kind):
    """Bytes that a model's state and, off ROMFS, its weights take at least: no smaller heap need be tried."""
    size = 40 << 10  # the package itself
    config = Packed.load(path).config
    for letter in config.recipe:
        heads = config.n_kv_heads * config.head_dim * config.window
        size += 4 * (config.d_rnn * config.conv_width if letter == "S" else heads)
    if kind != "romfs":
        parts = read_sections(path.read_bytes()).items()
        size += sum(len(part) for key, part in parts if key[0] not in ("CONF", "XPRT"))
    return size


def check(target, plans, kind="romfs", compiled=False, mpy_cross=None, heaps=HEAPS, cache=0):
    """A Result for each plan: what a board makes of them, one after the other, in the smallest of the heaps (KB) that
    will do. cache: bytes of RAM for experts; 0, so that each is read from the file system or used in place."""
    march = TARGETS[target].march if compiled else None
    image = getattr(images, kind)(files(*(todo.path for todo in plans), march=march, mpy_cross=mpy_cross))
    how = {"romfs": "ROMFS", "littlefs": "littlefs"}[kind] + (", .mpy" if compiled else ", .py")
    enough = [kb for kb in heaps if kb << 10 >= max(least(todo.path, kind) for todo in plans)]
    for kilobytes in enough:
        try:
            with Board(target, kilobytes << 10, image, kind) as board:
                board.run("import board, gc, scribe")
                return [follow(board, todo, how, kind, cache) for todo in plans]
        except BoardError as error:
            if "MemoryError" not in error.traceback or kilobytes == enough[-1]:
                raise
    raise UserError(f"{target}: a heap of {heaps[-1]} KB is too small for these models")


def follow(board, todo, how, kind="romfs", cache=0):
    """A Result: what a board that has imported `board`, `gc` and `scribe` makes of a plan. how: what to call that."""
    result = Result(board.target.name, todo.path.stem, how, board.heap)
    folder = {"romfs": "/rom", "littlefs": "/flash"}[kind]
    board.run(f"s = None; gc.collect(); s = scribe.open('{folder}/{todo.path.name}', cache={cache})")
    mapped = board.run("print(s._model.file.mapped)").strip() == "True"
    if mapped != (kind == "romfs"):
        raise UserError(f"{board.target.name}: the model is {'' if mapped else 'not '}used in place")
    result.kernels = board.run("from scribe import kernels; print(kernels.name)").strip()
    result.used = int(board.run("board.memory()").split()[0])

    def lines(code):
        start = time.monotonic()
        said = board.run(code).split("\n")[:-1]
        result.seconds += time.monotonic() - start
        return said

    if todo.text:
        said = lines(f"board.read(s, {_ids(todo.text)})")
        _compare(board, todo, result, said, todo.read, todo.text)
        result.read = len(said)
    for settings, prompt in todo.stories():
        said = lines(f"board.tell(s, {_ids(prompt)}, {settings}, {todo.told})")
        drawn = [int(line.split()[1]) for line in said]
        wanted = _retold(todo.path, settings, tuple(prompt), tuple(drawn))
        _compare(board, todo, result, said, wanted, [*prompt, *drawn], len(prompt) - 1)
        result.told += len(said)
    return result


def _ids(ids):
    """Code for token ids that is small on a small heap: an array made from a string, not a list from source."""
    return f"board.ids({''.join(f'{token:04x}' for token in ids)!r})"


def _compare(board, todo, result, said, wanted, ids, first=0):
    """Count differing lines, and look closely at the first."""
    wrong = [at for at, pair in enumerate(zip(said, wanted)) if pair[0] != pair[1]]
    result.mismatches += len(wrong) + abs(len(said) - len(wanted))
    if wrong and not result.different:
        text = ids[: first + wrong[0] + 1]
        there = np.array([int(v) for v in board.run(f"board.logits(s, {_ids(text)})").strip("[]\n").split(",")])
        here = Integer(todo.path).logits(text)[-1]
        at = np.flatnonzero(there != here)
        values = ", ".join(f"logit {i} is {there[i]}, not {here[i]}" for i in at[:3])
        result.different = (f"token {len(text) - 1}: {len(at)} logits differ: {values}" if len(at) else
                            f"token {len(text) - 1}: {said[wrong[0]]}, not {wanted[wrong[0]]}")
    elif len(said) != len(wanted) and not result.different:
        result.different = f"{len(said)} lines, not {len(wanted)}"
