"""The whole path, as docs/train-your-own.md has it: text, training, packing, a rehearsal, a story and parity."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tools import budget, pack, parity, rehearse
from tools.data import read_documents
from tools.micropython import ROOT

PAGE = ROOT / "docs" / "train-your-own.md"


BEGINNING = "## Beginning with a model that can write"


def commands(part=0):
    """{target: (variables, words of ARGS)} of the make commands before the heading BEGINNING, or (part 1) after it."""
    found = {}
    for line in re.findall(r"^    (make .*)$", PAGE.read_text().split(BEGINNING)[part], re.M):
        _, target, *rest = shlex.split(line)
        variables = dict(word.split("=", 1) for word in rest)
        found[target] = variables, shlex.split(variables.pop("ARGS", ""))
    return found


def test_the_page_has_five_commands():
    found = commands()
    assert list(found) == ["train", "pack", "rehearse", "budget", "deploy"]
    assert {found[target][0]["MODEL"] for target in ("rehearse", "budget", "deploy")} == {"fables"}


def test_the_small_text_is_held_apart():
    train, valid = (read_documents(ROOT / "examples" / name) for name in ("fables.txt", "fables.valid.txt"))
    assert len(train) == 170 and len(valid) == 10 and not set(train) & set(valid)


@pytest.mark.training
@pytest.mark.slow
def test_from_a_text_to_a_story(tmp_path, micropython, plots, capsys):
    """The page's own commands, with a few steps instead of its minutes and another folder."""
    pytest.importorskip("torch")
    places = {"runs/fables": "run", "weights/fables.scribe": "fables.scribe", "weights/fables": "fables"}

    def here(word):
        return str(tmp_path / places[word] if word in places else ROOT / word if word.startswith("examples/") else word)

    def words(target):
        return [here(word) for word in commands()[target][1]]

    train = words("train")
    at = train.index("--minutes")
    assert float(train[at + 1]) <= 2
    train[at : at + 2] = ["--steps", "6", "--batch", "4", "--threads", "1"]
    done = subprocess.run([sys.executable, "-m", "tools.train", *train], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert 0 < json.loads(log[-1])["bits_per_byte"] < 8

    model = tmp_path / "fables.scribe"
    assert pack.main(words("pack")) == 0
    assert model.is_file() and (tmp_path / "fables" / "tokenizer.json").is_file()
    tolerances = json.loads((tmp_path / "fables" / "config.json").read_text())["rehearsal"]

    # so few steps promise little: it may fail, but it must not go wrong
    assert rehearse.main([str(model), *words("rehearse"), "--out", str(tmp_path / "out")]) in (0, 1)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["tolerances"] == tolerances and metrics["documents"] == 10
    assert metrics["integer"]["bits_per_byte"] == pytest.approx(metrics["float"]["bits_per_byte"], abs=0.05)

    capsys.readouterr()
    assert budget.main([str(model), "--board", commands()["budget"][0]["BOARD"]]) == 0
    assert "A token reads" in capsys.readouterr().out
    tell = ["--model", str(model), "--prompt", "The Fox", "--seed", "1", "--tokens", "40"]
    told = subprocess.run([sys.executable, "-m", "tools.story", *tell], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("The Fox"), told.stderr
    assert "flash bytes/token" in told.stdout + told.stderr
    for compared, mismatches in (parity.read_parity(model, 60)[1:], parity.write_parity(model, 12)[1:]):
        assert compared and not mismatches


@pytest.mark.training
@pytest.mark.slow
def test_beginning_with_a_shipped_model(tmp_path):
    """The page's second training command, with a few steps: far better than from nothing, at once."""
    pytest.importorskip("torch")
    words = commands(1)["train"][1]
    words[words.index("--out") + 1] = str(tmp_path / "run")
    at = words.index("--minutes")
    words[at : at + 2] = ["--steps", "3", "--threads", "1"]
    done = subprocess.run([sys.executable, "-m", "tools.train", *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["rounded_bits_per_byte"] < 2.3
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (ROOT / "weights/pocket/tokenizer.json").read_bytes()
