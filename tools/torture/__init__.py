"""Faults on purpose, counted: `make torture` runs everything at full length, the tests run a small share of it.

A topic is a module of this package with

    def run(amount, seed):
        \"\"\"Yield a `Row` for each kind of fault.\"\"\"

`amount` is the share of the full number of faults, 1.0 for `make torture`, about 0.02 in the tests (`scaled` makes a
count of it); `seed` is a whole number from which every random choice is drawn. A topic finds its own models: the
shipped ones in weights/, or small random ones (`small_model`). It needs no network and leaves nothing behind.
"""

import dataclasses
import importlib
import pathlib
import pkgutil
import sys

from tools.micropython import ROOT

FINDS = 5  # of a row, told in full


@dataclasses.dataclass
class Row:
    """One kind of fault: how many were tried, how many were survived as promised, and what went wrong in the others."""

    name: str
    tried: int = 0
    survived: int = 0
    found: list = dataclasses.field(default_factory=list)

    def count(self, survived, what=""):
        """Count one fault; `what` tells it, if it was not survived."""
        self.tried += 1
        if survived:
            self.survived += 1
        elif len(self.found) < FINDS:
            self.found.append(str(what))

    def __str__(self):
        return f"| {self.name} | {self.tried:,} | {self.survived:,} | {self.tried - self.survived:,} |"


HEAD = "| fault | tried | survived | found |\n|---|---:|---:|---:|"


def topics():
    """Names of the topics, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def rows(topic, amount=1.0, seed=0):
    """Yield a topic's Rows."""
    yield from importlib.import_module(f"tools.torture.{topic}").run(amount, seed)


def scaled(full, amount, least=1):
    """How many of `full` faults a share of them is, at least `least`."""
    return max(least, round(full * amount))


def shipped():
    """Paths of the shipped models, the smallest first."""
    return sorted((ROOT / "weights").glob("*.scribe"), key=lambda path: path.stat().st_size)


def small_model(name, folder, seed=0):
    """(path, Packed) of one of the tests' random models: hybrid, llama, griffin or untied."""
    tests = str(ROOT / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    import models

    path, packed, _ = models.packed(models.ALL[name], pathlib.Path(folder), name, seed)
    return path, packed
