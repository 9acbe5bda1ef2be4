"""The ablation's driver: its variants are comparable, it goes on where it stopped, its page says what was measured."""

import json
import shutil
import subprocess

import pytest

from tools import ablate, recall
from tools.config import Config
from tools.errors import UserError


def test_variants_spend_the_same_ram():
    base = ablate.ram(ablate.BASE)
    for name, variant in ablate.VARIANTS.items():
        config = variant.config()
        if variant.matched:
            assert abs(ablate.ram(config) - base) < 0.011 * base, name
    flash = {name: ablate.facts(v.config())["flash_bytes_per_token"] for name, v in ablate.VARIANTS.items()}
    assert len({flash[name] for name in ablate.TABLES[1][2]}) == len({flash[name] for name in ablate.TABLES[2][2]}) == 1
    assert flash["hybrid"] == flash["all-A"] == flash["all-S"] == 0 < flash["hybrid-experts"]
    experts = [ablate.VARIANTS[name].config() for name in ablate.TABLES[2][2]]
    assert [c.n_experts for c in experts] == [1, 4, 8, 16]
    assert [ablate.VARIANTS[name].config().window for name in ablate.TABLES[3][2]] == [64, 128, 256]


def test_a_variant_that_cannot_fit_is_refused():
    with pytest.raises(UserError, match="more than the 100,000"):
        ablate.match(Config(recipe="A" * 8, n_experts=0, d_ff=8, d_model=64), 100_000)


def test_runs_are_each_variant_twice_the_telling_ones_first():
    assert sorted(ablate.RUNS) == sorted((name, seed) for name in ablate.VARIANTS for seed in (1, 2))
    assert {name for name, _ in ablate.RUNS[:4]} == {"hybrid-experts", "hybrid", "all-A", "all-S"}
    assert {name for *_, names in ablate.TABLES for name in names} == set(ablate.VARIANTS)


class Trainer:
    """Stands in for the training subprocess: writes the log that a finished run has."""

    def __init__(self, monkeypatch):
        self.commands, self.status = [], 0
        monkeypatch.setattr(subprocess, "run", self)
        monkeypatch.setattr(recall, "measure", lambda folder, text, texts: RECALL)

    def __call__(self, command, cwd):
        self.commands.append(command)
        folder = ablate.pathlib.Path(command[command.index("--out") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        if self.status == 0:
            steps = 240 // int(command[command.index("--batch") + 1]) + len(self.commands)
            entry = {"step": steps, "tokens": 999, "bits_per_byte": 9,
                     "rounded_bits_per_byte": 1 + len(self.commands) / 10, "load_max_over_mean": [1.2, 1.5]}
            (folder / "log.jsonl").write_text(json.dumps(entry) + "\n")
        else:
            (folder / "resume").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, self.status)


def row(place, choice):
    return {"place": place, "choice": choice, "choices": 8, "texts": 80, "first": 0.1, "nats": 3.0, "margin": 1.0}


RECALL = {"words": 200, "names": [row(8, 0.9), row(16, 0.5)], "facts": [row("name, start", 0.3), row("name, end", 0.8)]}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("Once there was a cat that sat on the mat and ate a rat.\n" * 40)
    (tmp_path / "bytes.md").write_text(f"Before.\n\n{''.join(ablate.MARKS)}\n\nAfter.\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "tokenizer.json").write_text("{}")
    return tmp_path


def run(folder, *args):
    text = str(folder / "a.txt")
    return ablate.main(["--corpus", text, "--valid", text, "--runs", str(folder / "runs"), "--docs", str(folder),
                        "--tokens", "900", *args])


def test_it_goes_on_where_it_stopped(folder, monkeypatch, capsys, plots):
    trainer = Trainer(monkeypatch)
    assert run(folder, "--only", "hybrid", "all-S", "--threads", "1") == 0
    assert [c[c.index("--recipe") + 1] for c in trainer.commands] == ["SSASSASS", "SSSSSSSS"] * 2
    assert [c[c.index("--seed") + 1] for c in trainer.commands] == ["1", "1", "2", "2"]
    first = trainer.commands[0]
    config = ablate.VARIANTS["hybrid"].config()
    assert first[first.index("--d-ff") + 1] == str(config.d_ff) and first[first.index("--experts") + 1] == "0"
    assert "--resume" not in first and first[first.index("--threads") + 1] == "1"
    assert run(folder, "--only", "hybrid", "all-S") == 0 and len(trainer.commands) == 4
    text = (folder / "bytes.md").read_text()
    assert text.startswith("Before.\n") and text.endswith("After.\n")
    assert "| hybrid, dense | SSASSASS | 256 |" in text and "1.1000, 1.3000 | 1.2000 |" in text
    assert "differ by 0.2000 bits per byte at most, 0.2000 on average" in text
    assert "| all recurrent, dense | 90% | 50% |" in text
    assert "<svg" in (folder / "bytes.svg").read_text()
    assert run(folder, "--only", "hybrid", "all-S", "all-A", "--again") == 0 and len(trainer.commands) == 4
    assert sorted(r["variant"] for r in json.loads((folder / "bytes.json").read_text())["runs"]) == ["all-S"] * 2 + [
        "hybrid"] * 2
    assert run(folder, "--table") == 0 and (folder / "bytes.md").read_text() == text
    assert run(folder, "--only", "all-A", "--lr", "1e-3") == 2
    assert "other settings" in capsys.readouterr().err
    runs = json.loads((folder / "bytes.json").read_text())["runs"]
    assert len(runs) == len(trainer.commands) == 4
    assert runs[0]["bits_per_byte"] == 9 and runs[0]["load_max_over_mean"] == 1.5
    assert runs[0]["ram_bytes"] == ablate.ram(config)
    assert not list(folder.glob("*.partial")) and not list(folder.glob("*.tmp"))


def test_runs_with_other_settings_have_tables_of_their_own(folder, monkeypatch, plots):
    trainer = Trainer(monkeypatch)
    assert run(folder, "--only", "hybrid", "all-S", "--seeds", "1") == 0
    (folder / "longer").mkdir()
    shutil.copy(folder / "runs" / "tokenizer.json", folder / "longer")
    longer = ["--only", "hybrid", "all-S", "--runs", str(folder / "longer"), "--tokens", "950", "--batch", "1"]
    assert run(folder, *longer) == 0 and run(folder, *longer) == 0
    assert len(trainer.commands) == 6
    text = (folder / "bytes.md").read_text()
    long, short = text.split("### 950 tokens in 244 steps")[1].split("### 900 tokens in 32 steps")
    assert "1.1000 | 1.1000 |" in short and "how much is noise is not known" in short
    assert "1.3000, 1.5000 | 1.4000 |" in long and "0.2000 on average" in long and "1.1000" not in long


def test_an_interrupted_run_is_resumed(folder, monkeypatch, capsys, plots):
    trainer = Trainer(monkeypatch)
    trainer.status = 130
    assert run(folder, "--only", "hybrid", "--seeds", "1") == 130
    assert not (folder / "bytes.json").exists()
    trainer.status = 2
    assert run(folder, "--only", "hybrid", "--seeds", "1") == 2
    assert "training ended with status 2" in capsys.readouterr().err
    trainer.status = 0
    assert run(folder, "--only", "hybrid", "--seeds", "1") == 0
    assert ["--resume" in command for command in trainer.commands] == [False, True, True]


def test_a_page_without_its_marks_is_left_alone(folder, capsys):
    (folder / "bytes.md").write_text("Only prose.\n")
    assert run(folder, "--table") == 2
    assert "must be there" in capsys.readouterr().err and (folder / "bytes.md").read_text() == "Only prose.\n"


def test_the_pages_tables_are_those_of_its_results(tmp_path):
    """docs/bytes.md was written from docs/bytes.json."""
    text = (ablate.DOCS / "bytes.md").read_text()
    assert ablate.page(text, ablate.read_results(ablate.DOCS / "bytes.json")) == text


def test_list_and_mistakes(capsys, folder):
    assert ablate.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(ablate.VARIANTS)
    assert ablate.main([]) == 2 and "--corpus and --valid" in capsys.readouterr().err
    assert ablate.main(["--corpus", "nosuch.txt", "--valid", str(folder / "a.txt")]) == 2
    assert "nosuch.txt: no such file" in capsys.readouterr().err


@pytest.mark.training
@pytest.mark.slow
def test_a_real_run(folder, monkeypatch, plots):
    """A tiny variant, trained by the trainer itself, from text to a row of the table."""
    pytest.importorskip("torch")
    small = Config(recipe="SA", vocab_size=330, d_model=16, d_rnn=16, rnn_heads=2, n_heads=2, head_dim=8, window=16,
                   d_ff=8, n_experts=2, d_expert=8)
    words = "the cat sat on a mat and then it ran off to find the small red hen who had been out in the rain".split()
    text = "\n<|endofstory|>\n".join(
        ". ".join(" ".join(words[(i * j) % 17:]).capitalize() for j in range(1, 4)) + "." for i in range(1, 60))
    # so that names begin with tokens of their own
    named = 'She said, "Lily, Mia, see the red and the blue hen."\n' * 600
    (folder / "a.txt").write_text(f"{text}\n<|endofstory|>\n{named}")
    (folder / "runs" / "tokenizer.json").unlink()
    monkeypatch.setattr(ablate, "BASE", small)
    monkeypatch.setattr(ablate, "VARIANTS", {"hybrid": ablate.Variant("hybrid", {}, False)})
    monkeypatch.setattr(ablate, "RUNS", [("hybrid", 1)])
    monkeypatch.setattr(ablate, "TABLES", [("One", "Text.", ("hybrid",))])
    assert run(folder, "--tokens", "600", "--batch", "2", "--seq", "64", "--recall-texts", "1", "--threads", "1") == 0
    entry = json.loads((folder / "bytes.json").read_text())["runs"][0]
    assert 0 < entry["bits_per_byte"] < 10 and 0 <= entry["recall"]["names"][0]["choice"] <= 1
    assert entry["config"] == small.shape()
