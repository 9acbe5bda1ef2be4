"""Does the board's code equal the integer reference to the bit? `make parity`, or `python -m tools.parity MODEL...`.

Each model reads held-out text, longer than its window, and writes stories of its own, greedy and drawn with seeds, in
real MicroPython; every logit and every token drawn is compared. Exit status 1 on any difference. A second line says
what the rounding costs: the stand-in against the float original.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np

from tools.data import read_documents
from tools.engines import Device, Float, Integer, StandIn, compare, find_original, log_softmax
from tools.errors import Parser, UserError, command
from tools.micropython import ROOT, run
from tools.sampling import Sampler
from tools.tokenizer import Tokenizer

STORIES = [
    {"temperature": 0, "top_k": 0, "top_p": 1.0, "seed": 0},
    {"temperature": 0.8, "top_k": 40, "top_p": 1.0, "seed": 7},
    {"temperature": 1.0, "top_k": 0, "top_p": 0.9, "seed": 42},
    {"temperature": 1.3, "top_k": 100, "top_p": 0.95, "seed": -5},
]
PROMPTS = ("Once upon a time", "The fox", "")
HELD_OUT = ROOT / "tests" / "data" / "held_out.txt"
DEVICE_SCRIPT = pathlib.Path(__file__).parent / "on_device" / "stories.py"


def held_out(packed, count):
    """`count` tokens of held-out text in one run, past any window: the texts that ship with the tests."""
    reader = Tokenizer(packed.tokenizer)
    tokens = [token for text in read_documents(HELD_OUT) for token in reader.encode(text)]
    return [packed.config.bos_token_id, *(tokens * (count // len(tokens) + 1))[: count - 1]]


def read_parity(path, count):
    """(tokens, logits compared, mismatches) over held-out text."""
    reference = Integer(path)
    tokens = held_out(reference.packed, count)
    board = Device(path).logits(tokens)
    wanted = reference.logits(tokens)
    return len(tokens), wanted.size, int((board != wanted).sum())


def write_parity(path, max_tokens):
    """(tokens, logits compared, mismatches) over stories: the board draws, the reference draws again."""
    reference = Integer(path)
    packed, reader = reference.packed, Tokenizer(reference.packed.tokenizer)
    bos = packed.config.bos_token_id
    stories = [{**s, "prompt": [bos, *reader.encode(p)], "max_tokens": max_tokens} for s in STORIES for p in PROMPTS]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        request = {"model": str(pathlib.Path(path).resolve()), "out": str(out), "stories": stories}
        (pathlib.Path(folder) / "request.json").write_text(json.dumps(request))
        run(DEVICE_SCRIPT, pathlib.Path(folder) / "request.json", heapsize="256m", timeout=None)
        board = np.fromfile(out, dtype="<i4").reshape(-1, packed.config.vocab_size)
        written = np.fromfile(str(out) + ".tokens", dtype="<u2").astype(int)
    tokens = mismatches = at = row = 0
    for story in stories:
        count, last = written[at : at + 2]
        ids = written[at + 2 : at + 2 + count]
        at += 2 + count
        wanted = reference.logits(ids)
        mismatches += int((board[row : row + count] != wanted).sum())
        row += count
        sampler = Sampler(packed.sections["HEAD", 0, 0]["params"][:2],
                          **{k: story[k] for k in ("temperature", "top_k", "top_p", "seed")})
        first = len(story["prompt"])
        drawn = [sampler.pick(logits) for logits in wanted[first - 1 :]]
        mismatches += sum(a != b for a, b in zip(drawn, [*ids[first:], last]))
        mismatches += list(ids[:first]) != story["prompt"]
        tokens += count
    if row != len(board):
        mismatches += 1
    return tokens, board.size, mismatches


def rounding(path, original, count):
    """Cross-entropy lost, mean KL and top-1 agreement of the stand-in and of the integers against the float model."""
    engines = Float(path, original), StandIn(path), Integer(path)
    tokens = held_out(engines[0].packed, count)
    truth, *others = [engine.logits(tokens) * engine.scale for engine in engines]
    result = []
    for other in others:
        kl, same = compare(truth, other)
        at = np.arange(len(tokens) - 1), tokens[1:]
        lost = (log_softmax(truth)[at] - log_softmax(other)[at]).mean()
        result.append((float(lost), float(kl.mean()), float(same.mean())))
    return result


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.parity", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=pathlib.Path, help="packed models (default: all of weights/)")
    parser.add_argument("--tokens", type=int, default=2048, help="of held-out text (default %(default)s)")
    parser.add_argument("--story", type=int, default=300, help="tokens a story at most (default %(default)s)")
    parser.add_argument("--original", type=pathlib.Path,
                        help="the float original (default: the folder beside the model)")
    args = parser.parse_args(argv)
    if not 2 <= args.tokens <= 1_000_000 or not 1 <= args.story <= 1_000_000:
        raise UserError("--tokens must be from 2, --story from 1, to a million")
    models = args.models or sorted((ROOT / "weights").glob("*.scribe"))
    if not models:
        raise UserError("weights/ holds no packed model; pack one with: python -m tools.pack")
    failed = 0
    for path in models:
        parts = read_parity(path, args.tokens), write_parity(path, args.story)
        tokens, logits, mismatches = (sum(part[i] for part in parts) for i in range(3))
        failed += mismatches > 0
        print(f"{path.stem}: {tokens} tokens ({parts[0][0]} read, {parts[1][0]} told), {logits} logits compared, "
              f"{mismatches} mismatches", flush=True)
        try:
            original = args.original or find_original(path)
        except UserError as error:
            print(f"{path.stem}: no float model to compare with ({error})")
            continue
        for name, (lost, kl, same) in zip(("stand-in", "integers"), rounding(path, original, args.tokens)):
            print(f"{path.stem}: {name} against float: cross-entropy {lost:+.4f} nats a token, KL {kl:.4f} nats, "
                  f"top-1 agreement {100 * same:.1f}%", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
