"""The dress rehearsal: what packing cost a model, on held-out text: `make rehearse MODEL=NAME`.

The float original, the stand-in and the integer reference read the same documents. report.html (one file, opens
offline) and metrics.json are written; exit status 0 when the tolerances in the original's config.json hold, 1 when
one does not, 2 when there was a mistake.
"""

import hashlib
import json
import pathlib
import sys

from tools import budget, rehearsal, rehearsal_page, rehearsal_plots
from tools.engines import find_original, open_engine
from tools.errors import Parser, command
from tools.evaluate import show
from tools.files import make_folder, write_text
from tools.logits import texts_of
from tools.micropython import ROOT
from tools.parity import HELD_OUT
from tools.story import between, find_model

OUT = ROOT / "build" / "rehearsal"


def choose(paths, packed, limit=None):
    """Token lists of the files' documents, as many whole ones as it takes to have `limit` tokens."""
    texts, count = [], 0
    for path in paths:
        for tokens in texts_of(path, packed):
            if limit and count >= limit:
                return texts
            texts.append(tokens)
            count += len(tokens)
    return texts


def describe(row):
    """A check as one line."""
    error = "" if row["error"] is None else f" (standard error {row['error']:.4f})"
    return (f"{'pass' if row['pass'] else 'FAIL'}  {row['what']}: {row['value']:.4f}{error}, "
            f"at {'most' if row['most'] else 'least'} {row['limit']:g}")


def rehearse(path, original=None, texts=(HELD_OUT,), limit=None, out=None, word=None):
    """Read, judge and write; returns metrics.json's object. Raises UserError."""
    rehearsal_plots.need_matplotlib()
    original = original or find_original(path)
    engines = {name: open_engine(name, path, original) for name in ("float", "standin", "integer")}
    packed, tolerances = engines["integer"].packed, engines["float"].config.tolerances()
    model = budget.from_packed(path)
    chosen = choose(texts, packed, limit)
    reading = rehearsal.read(engines, chosen, show)
    found = rehearsal.figures(reading, packed, model)
    checked = rehearsal.checks(found, tolerances)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    names = ", ".join(pathlib.Path(text).name for text in texts)
    metrics = {"model": path.stem, "sha256": digest, "text": names, **found, "tolerances": tolerances,
               "checks": checked, "pass": all(row["pass"] for row in checked)}
    folder = out or OUT / path.stem
    report = rehearsal_page.page(path.stem, digest, names, packed, model, engines["integer"], reading, found, checked,
                                 word)
    make_folder(folder)
    write_text(folder / "metrics.json", json.dumps(metrics, indent=2) + "\n")
    write_text(folder / "report.html", report)
    return metrics


def parser():
    p = Parser(prog="python -m tools.rehearse", description=__doc__.splitlines()[0])
    p.add_argument("model", help="name of a model in weights/, or a packed file")
    p.add_argument("--original", type=pathlib.Path, help="the float original (default: the folder beside the model)")
    p.add_argument("--text", type=pathlib.Path, nargs="+", metavar="FILE", default=[HELD_OUT],
                   help="held-out text (default: the ten stories that ship with the tests)")
    p.add_argument("--tokens", type=between(int, 1, 10_000_000), help="no further document after so many tokens")
    p.add_argument("--word", help="show attention for this word of the first document (default: a name)")
    p.add_argument("--out", type=pathlib.Path, help="folder to write (default: build/rehearsal/NAME)")
    return p


@command
def main(argv=None):
    args = parser().parse_args(argv)
    path = find_model(args.model)
    metrics = rehearse(path, args.original, args.text, args.tokens, args.out, args.word)
    print(f"{path.stem}: {metrics['documents']} documents, {metrics['tokens']:,} tokens; bits per byte: " + ", ".join(
        f"{name} {metrics[name]['bits_per_byte']:.4f}" for name in ("float", "standin", "integer")))
    for row in metrics["checks"]:
        print(describe(row))
    print(args.out or OUT / path.stem)
    return 0 if metrics["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
