"""Tell a story on this computer, with the board's own code in real MicroPython.

The text appears token by token, as on a board, followed by one line of what it cost: speed, flash read per token, RAM.
"""

import argparse
import contextlib
import json
import pathlib
import signal
import sys

from tools.errors import Parser, UserError, command
from tools.micropython import ROOT, MicroPythonError, heap_bytes, run

WEIGHTS = ROOT / "weights"
SCRIPT = ROOT / "tools" / "on_device" / "story.py"
SUFFIX = ".scribe"


def find_model(name):
    """Path of a packed model: a path that exists, or the name of one in weights/. Raises UserError with the names."""
    for path in (pathlib.Path(name), WEIGHTS / f"{name}{SUFFIX}"):
        if path.is_file():
            return path.resolve()
    known = sorted(path.stem for path in WEIGHTS.glob(f"*{SUFFIX}"))
    have = f"weights/ has {', '.join(known)}" if known else "weights/ has no models yet"
    raise UserError(f"no model {name!r}; {have} (a path to a {SUFFIX} file works too)")


def heap_for(path, wanted=None):
    """Heap in bytes: what was asked for, else a board's 8 MB of PSRAM, or more for a larger model."""
    return heap_bytes(wanted) if wanted else max(8 << 20, path.stat().st_size + (4 << 20))


def between(kind, low, high):
    """An argparse type: a number from low to high."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            name = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {name} from {low} to {high}")
        return value

    return parse


def parser():
    p = Parser(prog="python -m tools.story", description=__doc__.splitlines()[0])
    p.add_argument("--model", default="tales", help="name of a model in weights/, or a path (default: %(default)s)")
    p.add_argument("--prompt", default="Once upon a time", help="how the story begins (default: %(default)s)")
    p.add_argument("--seed", type=between(int, 0, 0xFFFFFFFF), help="the same seed writes the same story anywhere")
    p.add_argument("--preset", help="settings by name: llama is temperature 0.6, top-p 0.9, no top-k; those given win")
    p.add_argument("--temperature", type=between(float, 0, 10), help="0 is greedy (default: 0.8)")
    p.add_argument("--top-k", type=between(int, 0, 65536), help="0 is no limit (default: 40)")
    p.add_argument("--top-p", type=between(float, 0, 1), help="1 is no limit (default: 1.0)")
    p.add_argument("--slide", action="store_true", help="go on past the length at which a Llama stops")
    p.add_argument("--tokens", type=between(int, 1, 1000000), default=400, help="at most (default: %(default)s)")
    p.add_argument("--heap", help="MicroPython's heap, such as 300k or 8m (default: enough for the model)")
    return p


@contextlib.contextmanager
def first_interrupt_is_the_childs():
    """Ctrl-C goes to MicroPython too, which ends the story and still gives its figures; a second one ends it all."""

    def wait(number, frame):
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def tell(path, prompt, options, heapsize):
    """Run one story in MicroPython; its output goes straight to stdout."""
    try:
        request = json.dumps({"path": str(path), "prompt": prompt, "options": options}, ensure_ascii=False)
        request.encode()
    except UnicodeEncodeError:
        raise UserError("the prompt is not UTF-8 text") from None
    try:
        with first_interrupt_is_the_childs():
            run(SCRIPT, heapsize=heapsize, env={"SCRIBE_STORY": request}, timeout=None, stream=True)
    except MicroPythonError as error:
        if "KeyboardInterrupt" in str(error):  # before there was a story to end
            raise KeyboardInterrupt from None
        if "ValueError: " in str(error):  # the package's own words are enough
            raise UserError(str(error).split("ValueError: ", 1)[1]) from None
        if "MemoryError" in str(error):
            raise UserError(f"{error}; the heap was {heapsize} bytes, give more with --heap") from None
        raise


@command
def main(argv=None):
    args = parser().parse_args(argv)
    path = find_model(args.model)
    options = {"seed": args.seed, "max_tokens": args.tokens}
    for name, value in (("temperature", 0.8), ("top_k", 40), ("top_p", 1.0)):
        given = getattr(args, name)
        if given is not None or not args.preset:
            options[name] = value if given is None else given
    if args.preset:
        options["preset"] = args.preset
    if args.slide:
        options["slide"] = True
    tell(path, args.prompt, options, heap_for(path, args.heap))
    return 0


if __name__ == "__main__":
    sys.exit(main())
