"""The measurements of `make bench`: what they count is what they say, and the page has every key."""

import json
import re

import models
import numpy as np
import pytest

from tools import bench, budget, estimate
from tools.micropython import ROOT

MODEL = ROOT / "weights" / "tales.scribe"


def test_reads_hits_and_heap_of_a_small_model(micropython, tmp_path):
    """A token leaves nothing on the heap; opening reads each section once; experts are read one a layer."""
    path, packed, _ = models.packed(models.HYBRID, tmp_path, "small")
    tokens = tmp_path / "tokens"
    np.random.default_rng(3).integers(0, packed.config.vocab_size, 300).astype("<u2").tofile(tokens)
    found = json.loads(micropython(bench.ON_DEVICE / "bench.py", path, tokens, heapsize="8m").stdout)
    assert found["heap"]["per_token"] == 0 < found["heap"]["per_token_with_text"] < 1000
    assert found["cache"]["0"]["bytes_per_token"] == found["expert"] * packed.config.n_layers
    assert found["cache"]["8"]["hit_rate"] > 0.8 and found["cache"]["0"]["hit_rate"] == 0
    assert found["prompt"]["256"] < found["prompt"]["16"] <= found["cache"]["0"]["bytes_per_token"]
    assert found["opening"] < path.stat().st_size
    # header and table; CONF, TOKN, TABL, EMBD, HEAD; of each layer its section and an expert
    assert found["reads"] == 2 + 5 + 2 * packed.config.n_layers


def test_an_estimate_is_its_formula():
    chip = estimate.Chip("any", 100, "m4", (1.0, 2.0), 1_000_000)
    assert chip.seconds(10_000_000, 0) == (0.1, 0.2)
    assert chip.seconds(10_000_000, 500_000) == pytest.approx((0.6, 0.7))


def test_estimates_by_board():
    model = budget.from_packed(MODEL)
    found = estimate.estimates(model, {"m4": 4_000_000, "viper": 20_000_000}, 8 * 29688)
    assert not found["pyboard"]["fits"] and found["pyboard"]["why_not"] and "tokens_per_second" not in found["pyboard"]
    assert "pico" not in found  # nothing counted stands for it
    low, high = found["esp32-s3-8mb"]["tokens_per_second"]
    assert found["esp32-s3-8mb"]["fits"] and 0 < low < high < 160e6 / 20_000_000
    assert set(estimate.CHIPS) == set(budget.BOARDS)


def test_the_page_has_every_key():
    text = (ROOT / "docs" / "bench.md").read_text()
    code = (ROOT / "tools" / "bench.py").read_text()
    keys = re.findall(r'"(\w+)": \{\}', re.search(r"result = \{(.*?)\}\n\s*try", code, re.S)[0])
    assert len(keys) >= 8
    for key in [*keys, "training"]:
        assert f"`{key}" in text
    assert bench.HEADING in text


def test_show_without_a_measurement_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "OUTPUT", ROOT / "build" / "no-such.json")
    assert bench.main(["--show"]) != 0
    assert "no-such.json" in capsys.readouterr().err


@pytest.mark.training
def test_the_naive_scan_is_the_same_recurrence():
    import torch

    from tools import bench_training, scan

    torch.manual_seed(2)
    u, a, i = (torch.randn(12, 2, 5, dtype=torch.float64) for _ in range(3))
    lam = torch.randn(5, dtype=torch.float64)
    starts = torch.zeros(12, 2, dtype=torch.bool)
    starts[0] = starts[7, 1] = True
    same = bench_training.naive_rg_lru(u, i, a, lam, starts), scan.rg_lru(u, i, a, lam, starts)
    assert torch.allclose(*same, rtol=0, atol=1e-9)
