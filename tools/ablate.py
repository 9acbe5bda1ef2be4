"""What each byte buys: train variants of one small model alike, measure them, and write docs/bytes.md.

`python -m tools.ablate --corpus TRAIN.txt --valid VALID.txt` works through RUNS in order, the ones that say most first,
and skips what docs/bytes.json already holds; stop it at any time and start it again. Every run has the same text,
trainer, number of tokens and order of documents; runs with other settings (`--tokens`, another folder for `--runs`)
are compared in tables of their own. `--table` only writes the page and the plot again.
"""

import bisect
import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np

from tools import budget
from tools.config import Config
from tools.errors import Parser, UserError, command
from tools.files import write_text
from tools.micropython import ROOT

DOCS = ROOT / "docs"
MARKS = "<!-- tables of tools/ablate.py -->\n", "<!-- end of the tables -->"
#: The model that the others are variants of. All have one head of keys and values, the cheapest attention there is.
BASE = Config(recipe="SSASSASS", vocab_size=512, d_model=64, d_rnn=64, rnn_heads=4, n_heads=4, n_kv_heads=1,
              head_dim=16, window=256, d_ff=64, n_experts=8, d_expert=64)
DENSE = {"n_experts": 0, "d_expert": 0}
#: What every run in docs/bytes.json has.
KEYS = {"variant", "seed", "settings", "steps", "config", "parameters", "bits_per_byte", "recall"}


@dataclasses.dataclass(frozen=True)
class Variant:
    """`changes` to BASE; `matched`: d_ff is then chosen so that the RAM is BASE's."""

    title: str
    changes: dict
    matched: bool = True

    def config(self):
        config = dataclasses.replace(BASE, **self.changes)
        return match(config, ram(BASE)) if self.matched else config.check()


VARIANTS = {
    "hybrid-experts": Variant("hybrid, 8 experts on flash", {}, False),
    "hybrid": Variant("hybrid, dense", DENSE),
    "all-A": Variant("all attention, dense", {"recipe": "A" * 8, **DENSE}),
    "all-S": Variant("all recurrent, dense", {"recipe": "S" * 8, **DENSE}),
    "all-A-experts": Variant("all attention, 8 experts on flash", {"recipe": "A" * 8}),
    "all-S-experts": Variant("all recurrent, 8 experts on flash", {"recipe": "S" * 8}),
    "experts-1": Variant("hybrid, 1 expert", {"n_experts": 1}, False),
    "experts-4": Variant("hybrid, 4 experts", {"n_experts": 4}, False),
    "experts-16": Variant("hybrid, 16 experts", {"n_experts": 16}, False),
    "window-64": Variant("hybrid, 8 experts, window 64", {"window": 64}, False),
    "window-128": Variant("hybrid, 8 experts, window 128", {"window": 128}, False),
    "all-A-64": Variant("all attention, dense, window 64", {"recipe": "A" * 8, "window": 64, **DENSE}),
}
#: (variant, seed) in the order they are trained.
RUNS = [
    *((name, seed) for seed in (1, 2) for name in ("hybrid-experts", "hybrid", "all-A", "all-S")),
    *((name, 1) for name in ("experts-16", "experts-1", "all-A-experts", "all-S-experts", "window-64", "experts-4",
                             "all-A-64", "window-128")),
    *((name, 2) for name in ("experts-16", "experts-1", "all-A-experts", "all-S-experts", "window-64", "experts-4",
                             "all-A-64", "window-128")),
]
#: Tables of the page: heading, what it says, variants.
TABLES = [
    ("Equal RAM", "d_ff makes up for what layers and rings take. The dense ones are at equal flash bytes a token, 0, "
     "as well.", ("hybrid-experts", "hybrid", "all-A", "all-A-64", "all-S")),
    ("Equal RAM and equal flash bytes a token", "The same recipes, each with eight experts of the same size.",
     ("hybrid-experts", "all-A-experts", "all-S-experts")),
    ("Experts", "Their number changes neither the RAM (but for the router's rows) nor what a token reads, only the "
     "file's size.", ("experts-1", "experts-4", "hybrid-experts", "experts-16")),
    ("Windows", "Only the window changes, and with it the ring buffers.",
     ("window-64", "window-128", "hybrid-experts")),
]
#: Whose recall the plot shows, and whose the tables do.
RECALLED = ("hybrid", "all-A", "all-S")
RECALL = ("hybrid-experts", "hybrid", "all-A", "all-A-64", "all-S")


def ram(config):
    """Bytes of a model's own buffers, what `stats()["ram_bytes"]` says on a board."""
    return sum(budget.stats_ram(budget.from_config(config, "ablation")).values())


def match(config, size):
    """The config with the d_ff (a multiple of 4) whose RAM comes closest to `size` bytes. Raises UserError where even
    the least is larger by more than a hundredth."""
    def ram_with(d_ff):
        return ram(dataclasses.replace(config, d_ff=d_ff))

    widths = range(4, 1025, 4)
    above = bisect.bisect(widths, size, key=ram_with)  # RAM grows with d_ff
    closest = min(widths[max(0, above - 1) : above + 1], key=lambda d_ff: abs(ram_with(d_ff) - size))
    best = dataclasses.replace(config, d_ff=closest).check()
    if ram(best) > 1.01 * size:
        raise UserError(f"{config.recipe} with a window of {config.window} takes {ram(best):,} bytes at the least, "
                        f"more than the {size:,} that it is to be compared at")
    return best


def facts(config):
    """Sizes of a config for docs/bytes.json, in bytes and weights."""
    model = budget.from_config(config, "ablation")
    return {"ram_bytes": ram(config), "file_bytes": model.file, "flash_bytes_per_token": budget.flash_per_token(model),
            "parameters": budget.parameters(config), "macs": sum(budget.macs(config).values())}


# ---- training ----

def settings(args):
    """What all runs share; a run is skipped only if it was trained with these."""
    return {"tokens": int(args.tokens), "batch": args.batch, "seq": args.seq, "lr": args.lr, "dropout": args.dropout,
            "corpus": [path.name for path in args.corpus], "valid": args.valid.name}


def train_command(args, name, seed, folder, tokenizer):
    """argv of one training run, resumed where there is one to resume."""
    config = VARIANTS[name].config()
    sizes = [word for field, option in budget.TRAIN_OPTIONS.items() for word in (option, str(getattr(config, field)))]
    command = [sys.executable, "-m", "tools.train", "--out", str(folder), "--tokens", str(int(args.tokens)),
               "--corpus", *map(str, args.corpus), "--valid", str(args.valid), "--tokenizer", str(tokenizer),
               "--batch", str(args.batch), "--seq", str(args.seq), "--lr", str(args.lr), "--dropout", str(args.dropout),
               "--seed", str(seed), "--valid-every", "1000000", *sizes]
    if args.threads:
        command += ["--threads", str(args.threads)]
    return command + (["--resume"] if (folder / "resume").is_dir() else [])


def shared_tokenizer(args):
    """Path of the tokenizer.json that every run uses, learnt from the training text the first time."""
    from tools import bpe
    from tools.data import read_documents

    path = args.runs / "tokenizer.json"
    if not path.is_file():
        args.runs.mkdir(parents=True, exist_ok=True)
        texts = (document for corpus in args.corpus for document in read_documents(corpus)[:5000])
        write_text(path, bpe.train(texts, BASE.vocab_size).to_str(pretty=True))
    return path


def same_settings(args):
    """Note what the runs in --runs share. Raises UserError where they were begun with other settings."""
    path, wanted = args.runs / "settings.json", settings(args)
    args.runs.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        write_text(path, json.dumps(wanted) + "\n")
    elif json.loads(path.read_text()) != wanted:
        raise UserError(f"{path}: the runs there were begun with other settings; give the same, or another --runs")


def trained(folder, tokens):
    """The last line of a finished run's log, or None: not there, or not finished."""
    try:
        entry = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return entry if entry.get("tokens", 0) >= tokens and entry.get("bits_per_byte") is not None else None


def train(args, name, seed, folder):
    """Train (or go on with) one run until it is finished. Raises UserError."""
    done = subprocess.run(train_command(args, name, seed, folder, shared_tokenizer(args)), cwd=ROOT)
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        raise UserError(f"{folder}: training ended with status {done.returncode}; start the same command again")
    if trained(folder, args.tokens) is None:
        raise UserError(f"{folder}: training ended without a last measurement on {args.valid}")


def measure(args, name, seed, folder):
    """The entry of docs/bytes.json of a finished run. Raises UserError."""
    from tools import recall

    entry = trained(folder, args.tokens)
    config, load = VARIANTS[name].config(), entry.get("load_max_over_mean")
    return {"variant": name, "seed": seed, "settings": settings(args), "steps": entry["step"],
            "config": config.shape(), **facts(config), "bits_per_byte": entry["bits_per_byte"],
            "rounded_bits_per_byte": entry.get("rounded_bits_per_byte"),
            "load_max_over_mean": max(load) if load else None,
            "recall": recall.measure(folder, args.valid, texts=args.recall_texts)}


# ---- the page ----

def read_results(path):
    """The runs in docs/bytes.json, [] where there is no such file. Raises UserError."""
    try:
        runs = json.loads(path.read_text())["runs"]
        for run in runs:
            if missing := KEYS - set(run):
                raise KeyError(*sorted(missing))
        return runs
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a list of runs ({error}); move it away") from None


def of(runs, name):
    """A variant's runs, by seed."""
    return sorted((run for run in runs if run["variant"] == name), key=lambda run: run["seed"])


def in_kib(size):
    return f"{size / 1024:,.1f}"


def bits(run):
    """Bits per byte of a run: with its weights rounded as in a packed file, where the trainer measured that."""
    rounded = run.get("rounded_bits_per_byte")
    return run["bits_per_byte"] if rounded is None else rounded


def quality_table(runs, names):
    """[header, rows ...] of the variants that have a run."""
    rows = [("variant", "recipe", "window", "d_ff", "RAM, KiB", "flash a token, KiB", "file, KiB", "parameters",
             "bits per byte, by seed", "mean")]
    for name in names:
        found = of(runs, name)
        if found:
            run, values = found[0], [bits(r) for r in found]
            c = run["config"]
            rows.append((VARIANTS[name].title, c["recipe"], c["window"] if "A" in c["recipe"] else "", c["d_ff"],
                         in_kib(run["ram_bytes"]), in_kib(run["flash_bytes_per_token"]), in_kib(run["file_bytes"]),
                         f"{run['parameters']['total']:,}", ", ".join(f"{b:.4f}" for b in values),
                         f"{np.mean(values):.4f}"))
    return rows


def recall_rows(runs, names, kind):
    """[header, rows ...]: share of facts that a variant thinks likelier than the alternatives, mean over seeds."""
    rows = []
    for name in names:
        found = [run["recall"][kind] for run in of(runs, name)]
        if found:
            places = [row["place"] for row in found[0]]
            rows = rows or [("variant", *places)]
            rows.append((VARIANTS[name].title, *(
                f"{100 * np.mean([rows_[i]['choice'] for rows_ in found]):.0f}%" for i in range(len(places)))))
    return rows


def noise(runs):
    """(largest, mean) difference of bits per byte between two seeds of one variant, or None."""
    gaps = [max(values) - min(values) for name in VARIANTS if len(values := [bits(run) for run in of(runs, name)]) > 1]
    return (max(gaps), float(np.mean(gaps))) if gaps else None


def budgets(runs):
    """[(settings, the runs with them)], the longest runs first: only runs with the same settings are compared."""
    by_settings = {}
    for run in runs:
        by_settings.setdefault(json.dumps(run["settings"], sort_keys=True), []).append(run)
    return sorted(((same[0]["settings"], same) for same in by_settings.values()), key=lambda item: -item[0]["tokens"])


def tables(runs):
    """The generated part of docs/bytes.md."""
    if not runs:
        return "No run has been made yet: `python -m tools.ablate --help`.\n"
    parts = ["![bits per byte and recall of the variants](bytes.svg)",
             "Weights are rounded as packing rounds them. RAM: the model's own buffers, as `tools.budget` counts them."]
    for settings, same in budgets(runs):
        parts += section(settings, same)
    return "\n\n".join(parts) + "\n"


def section(settings, runs):
    """What the page says of the runs with the same settings, as paragraphs."""
    parts = [f"### {settings['tokens']:,} tokens in {np.mean([run['steps'] for run in runs]):,.0f} steps",
             f"{len(runs)} runs on {', '.join(settings['corpus'])}, rows of {settings['seq']}, {settings['batch']} a "
             f"step, rate {settings['lr']:g}; measured on {settings['valid']}."]
    gap = noise(runs)
    parts.append(f"Two seeds of one variant differ by {gap[0]:.4f} bits per byte at most, {gap[1]:.4f} on average: a "
                 "smaller difference between variants says nothing." if gap else
                 "Each variant has one seed here: how much is noise is not known.")
    for heading, text, names in TABLES:
        rows = quality_table(runs, names)
        if len(rows) > 2:  # the header, and more than one variant to compare
            parts += [f"#### {heading}", text, budget.markdown(rows)]
    for heading, kind, text in (
            ("Recall: a name given N words ago", "names", "Share of texts in which the name that was given is likelier "
             "than each of the other {others} names, by words between."),
            ("Recall: a fact at the start, in the middle, at the end of {words} words", "facts",
             "The same, of a name and of a colour planted there and asked for at the end.")):
        rows = recall_rows(runs, RECALL, kind)
        if len(rows) > 1:
            recall = runs[0]["recall"]
            choices, texts = recall[kind][0]["choices"], recall[kind][0]["texts"]
            values = {"others": choices - 1, "words": recall["words"]}
            text += (f" Chance is {100 / choices:.0f}%; a share of one seed's {texts} texts has a standard error of "
                     f"up to {50 / texts ** 0.5:.0f} points.")
            parts += ["#### " + heading.format(**values), text.format(**values), budget.markdown(rows)]
    return parts


def page(text, runs):
    """docs/bytes.md with its tables made anew; what stands around them stays. Raises UserError."""
    before, start, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not start or not end:
        raise UserError(f"docs/bytes.md: the lines {MARKS[0].strip()} and {MARKS[1]} must be there")
    return f"{before}{start}\n{tables(runs)}\n{end}{after}"


def draw(runs):
    """The plot, as SVG text: bits per byte of every run, and recall after the longest training that compared it."""
    from tools import rehearsal_plots as plots

    names = [name for name in VARIANTS if of(runs, name)]
    longest = max(budgets(runs), key=lambda item: sum(bool(of(item[1], name)) for name in RECALLED))

    def figure(colours):
        drawing, (left, right) = plots.subplots(0.26 * len(names) + 2, 2)
        for (settings, same), marker, colour in zip(
                budgets(runs), itertools.cycle("osD^v"), itertools.cycle(("integer", "float", "standin"))):
            label = f"{settings['tokens']:,} tokens"
            for row, name in enumerate(names):
                values = [bits(run) for run in of(same, name)]
                if values:
                    left.plot(values, [row] * len(values), marker + "-", color=colours[colour], label=label)
                    label = None
        left.set(yticks=range(len(names)), xlabel="bits per byte, a dot a seed")
        left.set_yticklabels([VARIANTS[name].title for name in names], fontsize=8)
        left.invert_yaxis()
        left.legend(fontsize=8, loc="lower center")
        left.grid()
        for name, colour, dash in zip(RECALLED, ("integer", "standin", "float"), ("-", "--", ":")):
            found = [run["recall"]["names"] for run in of(longest[1], name)]
            if found:
                right.plot([row["place"] for row in found[0]],
                           [100 * np.mean([rows[i]["choice"] for rows in found]) for i in range(len(found[0]))], dash,
                           color=colours[colour], marker="o", label=VARIANTS[name].title)
                chance = 100 / found[0][0]["choices"]
        if right.lines:
            right.axhline(chance, color=colours["float"], linewidth=0.8, label="chance")
            right.set_xscale("log", base=2)
            right.legend(fontsize=8)
        right.set(xlabel=f"words since the name; {longest[0]['tokens']:,} tokens",
                  ylabel="name recalled, %", ylim=(0, 102))
        right.grid()
        return drawing

    return plots.svg(figure)


def show(runs, docs):
    """Write docs/bytes.md's tables and docs/bytes.svg."""
    path = docs / "bytes.md"
    if not path.is_file():
        raise UserError(f"{path}: no such file; it holds the text around the tables")
    text = page(path.read_text(encoding="utf-8"), runs)
    if runs:
        write_text(docs / "bytes.svg", draw(runs))
    write_text(path, text)


def parser():
    p = Parser(prog="python -m tools.ablate", description=__doc__.splitlines()[0])
    p.add_argument("--corpus", type=pathlib.Path, nargs="+", metavar="FILE", help="text to train on")
    p.add_argument("--valid", type=pathlib.Path, metavar="FILE", help="held-out text to measure on")
    p.add_argument("--runs", type=pathlib.Path, default=ROOT / "runs" / "ablation", help="folder of the training runs")
    p.add_argument("--only", nargs="+", choices=VARIANTS, metavar="VARIANT", help="only these: " + ", ".join(VARIANTS))
    p.add_argument("--seeds", type=int, nargs="+", help="only runs of these seeds")
    p.add_argument("--tokens", type=float, default=1_000_000, help="predicted tokens of a run (default %(default)s)")
    p.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--recall-texts", type=int, default=10, metavar="N", help="for each name (default %(default)s)")
    p.add_argument("--docs", type=pathlib.Path, default=DOCS, help="folder of bytes.json, bytes.md and bytes.svg")
    p.add_argument("--again", action="store_true", help="train nothing; measure what is finished once more")
    p.add_argument("--list", action="store_true", help="print the runs with their sizes, and stop")
    p.add_argument("--table", action="store_true", help="write the page and the plot from bytes.json, and stop")
    return p


def listing():
    """The variants with their sizes, as text."""
    rows = [("variant", "recipe", "window", "d_ff", "RAM", "flash/token", "file", "weights", "MACs/token")]
    for name, variant in VARIANTS.items():
        config = variant.config()
        f = facts(config)
        rows.append((name, config.recipe, str(config.window), str(config.d_ff), budget.kib(f["ram_bytes"]),
                     budget.kib(f["flash_bytes_per_token"]), budget.kib(f["file_bytes"]),
                     f"{f['parameters']['total']:,}", f"{f['macs']:,}"))
    return budget.table(rows, range(2, 9))


@command
def main(argv=None):
    args = parser().parse_args(argv)
    if args.list:
        print(listing())
        return 0
    results = args.docs / "bytes.json"
    runs = read_results(results)
    if args.table:
        show(runs, args.docs)
        return 0
    if not args.corpus or not args.valid:
        raise UserError("--corpus and --valid are needed: text to train on, and other text to measure on")
    for path in [*args.corpus, args.valid]:
        if not path.is_file():
            raise UserError(f"{path}: no such file")
    if args.tokens < 1:
        raise UserError("--tokens must be 1 or more")
    wanted = [(name, seed) for name, seed in RUNS if (not args.only or name in args.only)
              and (not args.seeds or seed in args.seeds)]
    same_settings(args)
    for number, (name, seed) in enumerate(wanted, 1):
        folder = args.runs / f"{name}-{seed}"
        before = [r for r in runs if (r["variant"], r["seed"], r["settings"]) == (name, seed, settings(args))]
        finished = trained(folder, args.tokens) is not None
        if (not finished if args.again else before):
            continue
        print(f"{number} of {len(wanted)}: {name}, seed {seed}", flush=True)
        if not finished:
            train(args, name, seed, folder)
        runs = [run for run in runs if run not in before] + [measure(args, name, seed, folder)]
        write_text(results, json.dumps({"runs": runs}, indent=1) + "\n")
        show(runs, args.docs)
        print(f"{name}, seed {seed}: {bits(runs[-1]):.4f} bits per byte", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
