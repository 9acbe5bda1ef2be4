"""Every model that ships: its card is true, it fits its heap, and the board's code equals the reference on it."""

import hashlib
import json

import numpy as np
import pytest

from tools import parity
from tools.card import story_stats
from tools.engines import Device, Integer, find_original
from tools.fileformat import Packed
from tools.micropython import ROOT

MODELS = sorted((ROOT / "weights").glob("*.scribe"))


def test_there_is_a_model_to_tell_stories():
    assert "tales" in [path.stem for path in MODELS]


@pytest.fixture(params=MODELS, ids=lambda path: path.stem)
def model(request):
    return request.param


@pytest.fixture
def facts(model):
    return json.loads(model.with_suffix(".json").read_text())


def test_card_names_this_very_file(model, facts):
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    card = model.with_suffix(".md").read_text()
    assert facts["sha256"] == digest and digest in card
    assert facts["bytes"] == model.stat().st_size < 8_000_000
    assert "icence" in card and "python -m tools." in card


def test_original_is_beside_it_and_small(model):
    folder = find_original(model)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 24_000_000


def test_it_writes_in_the_heap_its_card_promises(model, facts, micropython):
    stats = story_stats(model, facts["heap"])
    assert stats and stats["ram_bytes"] == facts["ram_bytes"] < facts["heap"]
    assert stats["flash_bytes_per_token"] == facts["flash_bytes_per_token"]


def test_board_equals_reference_past_the_window(model, micropython):
    """A short form of `make parity`."""
    reference = Integer(model)
    tokens = parity.held_out(reference.packed, reference.packed.config.window + 60)
    assert (Device(model).logits(tokens) == reference.logits(tokens)).all()


def test_stories_told_equal_the_reference(model, micropython):
    _, compared, mismatches = parity.write_parity(model, 24)
    assert compared and not mismatches


def test_parity_notices_a_difference(model, micropython, monkeypatch):
    """The check can fail: one logit changed by one is a mismatch."""
    real = Integer.pieces

    def pieces(self, tokens):
        for part in real(self, tokens):
            part[0, 0] += 1
            yield part

    monkeypatch.setattr(Integer, "pieces", pieces)
    assert parity.read_parity(model, 8)[2] == 1


def test_activations_do_not_saturate(model):
    """On held-out text that the binary points were not chosen from."""
    from tools import integer
    from tools.pack import headroom_report

    packed = Packed.load(model)
    tokens = parity.held_out(packed, 600)
    report = headroom_report(packed, [np.array(tokens)])
    clipped = sum(row[0] for row in report)
    assert clipped <= 0.000001 * len(tokens) * packed.config.n_layers * packed.config.d_model, report[:3]
    assert integer.forward(packed, tokens[:5]).shape == (5, packed.config.vocab_size)
