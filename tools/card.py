"""Measure a shipped model for its card: `python -m tools.card weights/NAME.scribe --text HELD_OUT.txt`.

Writes weights/NAME.json, the measured facts, and prints them as the table that weights/NAME.md shows. `heap` is the
smallest heap of MicroPython's 64-bit unix port in which the model opens and writes a story, with 48 KB to spare; a
board's 32-bit objects take less.
"""

import hashlib
import json
import pathlib
import sys

from tools.engines import find_original, open_engine
from tools.errors import Parser, UserError, command
from tools.evaluate import evaluate, show
from tools.files import write_text
from tools.fileformat import Matrix
from tools.logits import texts_of
from tools.micropython import MicroPythonError, run

HEAP_STEP = 16 << 10
HEAP_SPARE = 48 << 10  # above the smallest: another folder's name, or the next release, must not make it fail
STORY = """
import json, sys, scribe
s = scribe.open(sys.argv[1])
s.write("Once upon a time", seed=1, max_tokens=40)
print(json.dumps(s.stats()))
"""


def story_stats(path, heap):
    """`stats()` of a short story told in a heap of so many bytes, or None where it is too small."""
    try:
        return json.loads(run(STORY, path, heapsize=heap).stdout)
    except MicroPythonError as error:
        if "MemoryError" in error.traceback:
            return None
        raise


def smallest_heap(path):
    """The smallest heap, in steps of 16 KiB, in which a model opens and writes, and HEAP_SPARE."""
    low, high = 4, (path.stat().st_size + (8 << 20)) // HEAP_STEP
    while low < high:
        middle = (low + high) // 2
        if story_stats(path, middle * HEAP_STEP):
            high = middle
        else:
            low = middle + 1
    return high * HEAP_STEP + HEAP_SPARE


def parameters(packed):
    """(all weights, those that one token uses)."""
    total = active = 0
    for (tag, _, expert), records in packed.sections.items():
        size = sum(r.w.size for r in records.values() if isinstance(r, Matrix))
        total += size
        active += size if tag != "XPRT" or expert == 0 else 0
    return total, active


def measure(path, text, documents=None):
    """The facts of weights/NAME.json."""
    engines = {name: open_engine(name, path) for name in ("float", "standin", "integer")}
    packed = engines["integer"].packed
    total, active = parameters(packed)
    heap = smallest_heap(path)
    stats = story_stats(path, heap)
    facts = {
        "model": path.stem, "recipe": packed.config.recipe, "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "parameters": total, "active_parameters": active,
        "heap": heap, "ram_bytes": stats["ram_bytes"], "ram": stats["ram"],
        "flash_bytes_per_token": stats["flash_bytes_per_token"],
    }
    if text:
        texts = texts_of(text, packed)[:documents]
        facts["quality"] = {"text": text.name}
        for name, engine in engines.items():
            figures = evaluate(engine, texts, show)
            facts["quality"].update({key: figures[key] for key in ("documents", "tokens", "bytes")})
            facts["quality"][name] = {key: round(figures[key], 5) for key in ("nats_per_token", "bits_per_byte")}
    return facts


def table(facts):
    """The facts as a Markdown table."""
    rows = [("recipe", facts["recipe"]),
            ("parameters", f"{facts['parameters']:,}, {facts['active_parameters']:,} of them used by a token"),
            ("file", f"{facts['bytes']:,} bytes, SHA-256 `{facts['sha256']}`"),
            ("heap", f"{facts['heap']:,} bytes on the 64-bit unix port, of which " + ", ".join(
                f"{part} {size:,}" for part, size in facts["ram"].items())),
            ("flash read", f"{facts['flash_bytes_per_token']:,} bytes a token")]
    if "quality" in facts:
        q = facts["quality"]
        for name in ("float", "standin", "integer"):
            figures = f"{q[name]['bits_per_byte']:.4f} ({q[name]['nats_per_token']:.4f} nats per token)"
            rows.append((f"{name}, bits per byte", figures))
        rows.append(("measured on", f"{q['text']}: {q['documents']} documents, {q['tokens']:,} tokens, "
                     f"{q['bytes']:,} bytes"))
    return "\n".join(["| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.card", description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="a packed model with its original beside it")
    parser.add_argument("--text", type=pathlib.Path, help="held-out text to measure on")
    parser.add_argument("--documents", type=int, help="only its first so many documents")
    args = parser.parse_args(argv)
    if not args.model.is_file():
        raise UserError(f"{args.model}: no such file")
    if args.documents is not None and args.documents < 1:
        raise UserError("--documents must be 1 or more")
    find_original(args.model)
    facts = measure(args.model, args.text, args.documents)
    target = args.model.with_suffix(".json")
    write_text(target, json.dumps(facts, indent=2) + "\n")
    print(table(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
