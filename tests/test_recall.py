"""The recall instrument: readers whose memory is known must score what they remember, and no more."""

import dataclasses
import json
import re

import models
import numpy as np
import pytest

from tools import bpe, checkpoint, recall
from tools.errors import UserError
from tools.parity import HELD_OUT


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The folder of a tiny original that knows nothing; its tokens are bytes, and a space with a letter after it."""
    folder = tmp_path_factory.mktemp("recall")
    space = bpe.byte_characters()[ord(" ")]
    merges = [(space, letter) for letter in "LMSAKEZRDJBNFOrbgypwoacdefhijkl"]
    assert len(merges) == models.HYBRID.vocab_size - bpe.FIRST_MERGE
    bpe.build(merges).save(str(folder / "tokenizer.json"))
    models.HYBRID.save(folder / "config.json")
    checkpoint.save_float16(folder, models.random_weights(models.HYBRID))
    return folder


def remembers(span, monkeypatch):
    """Give every Reader a memory of the last `span` words: it repeats the first token of a fact it finds there, and
    otherwise always says the same one."""

    def after(self, texts):
        result = []
        for tokens in texts:
            words = self.tokenizer.decode(tokens).decode().split()[-span:]
            firsts = {}
            for kind in recall.KINDS:
                firsts |= recall.choices(self.tokenizer, kind)
            known = [firsts[word.strip('.,"')] for word in words if word.strip('.,"') in firsts]
            p = np.full(self.config.vocab_size, -9.0)
            p[known[-1] if known else next(iter(firsts.values()))] = -0.1
            result.append(p)
        return np.array(result)

    monkeypatch.setattr(recall.Reader, "after", after)


def test_a_perfect_memory_recalls_everything(original, monkeypatch):
    remembers(100000, monkeypatch)
    found = recall.measure(original, texts=2, words=40)
    for row in found["names"] + found["facts"]:
        assert row["choice"] == row["first"] == 1 and row["nats"] == pytest.approx(0.1)
        assert row["margin"] == pytest.approx(8.9) and row["texts"] == 2 * row["choices"]
    assert [row["place"] for row in found["names"]] == list(recall.DISTANCES)
    places = [f"{kind}, {place}" for kind in recall.KINDS for place in recall.PLACES]
    assert [row["place"] for row in found["facts"]] == places


def test_a_window_recalls_what_it_reaches_and_the_rest_is_chance(original, monkeypatch):
    asked = len(recall.KINDS["name"][1].split())
    remembers(64 + asked + 1, monkeypatch)  # the 64 words between and the name itself
    found = recall.measure(original, texts=2, distances=(63, 64, 65, 200), words=200)
    reached = {row["place"]: row["choice"] for row in found["names"]}
    chance = 1 / found["names"][0]["choices"]
    assert reached == {63: 1, 64: 1, 65: chance, 200: chance}
    facts = {row["place"]: row["choice"] for row in found["facts"]}
    assert facts["name, end"] == facts["colour, end"] == 1 and facts["name, start"] == facts["name, middle"] == chance


def test_one_who_has_read_nothing_is_right_by_chance(original, monkeypatch):
    remembers(0, monkeypatch)
    monkeypatch.setattr(recall.Reader, "after", lambda self, texts: np.tile(
        recall.log_softmax(np.random.default_rng(0).normal(size=self.config.vocab_size)), (len(texts), 1)))
    for row in recall.measure(original, texts=3)["names"]:
        assert row["choice"] == 1 / row["choices"] and abs(row["margin"]) < 1e-9


def test_fillers_have_their_length_and_tell_nothing():
    sentences = recall.plain_sentences(HELD_OUT)
    assert len(sentences) >= 20 and not re.search(r"\b(Lisa|Lily|Anna|Tom|Mia|Ben|Sam|Max)\b", " ".join(sentences))
    rng = np.random.default_rng(0)
    for words in (1, 5, 64, 300):
        parts = recall.filler(sentences, words, rng)
        assert len(" ".join(parts).split()) == words
        text = recall.compose("name", "Lily", parts, 0)
        assert text.count("Lily") == 1 and text.startswith("Once upon a time there was a little girl named Lily. ")
        assert not re.search(r"[^.!?] [A-Z]", " ".join(parts).replace(" I ", " "))
    text = recall.compose("colour", "red", ["A b c.", "D e f."], 0.5)
    assert text == "A b c. The big ball was red. D e f. The color of the big ball was"


def test_facts_begin_with_different_tokens(original):
    reader = recall.Reader(original).tokenizer
    for kind, (_, question, _) in recall.KINDS.items():
        firsts = recall.choices(reader, kind)
        assert 2 <= len(firsts) <= recall.CHOICES and len(set(firsts.values())) == len(firsts)
        for fact, first in firsts.items():
            assert reader.encode(f"{question} {fact}")[len(reader.encode(question))] == first


@pytest.mark.training
def test_pytorch_and_the_float_reference_read_alike(original):
    fast = recall.Reader(original)
    if fast.torch is None:
        pytest.fail("PyTorch was not taken")
    slow = recall.Reader(original)
    slow.torch = None
    rng = np.random.default_rng(1)
    texts = [[0, *rng.integers(1, 288, n)] for n in (3, 40, 7, 25)]
    np.testing.assert_allclose(fast.after(texts), slow.after(texts), atol=1e-4)
    fast.ROWS = 50  # in several batches
    np.testing.assert_allclose(fast.after(texts), slow.after(texts), atol=1e-4)


def test_command(original, tmp_path, capsys):
    args = [str(original), "--texts", "1", "--distances", "4", "--words", "6"]
    assert recall.main([*args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["place"] for row in found["names"]] == [4] and found["words"] == 6 and len(found["facts"]) == 6
    assert recall.main(args) == 0
    assert "a name, 4 words between: " in capsys.readouterr().out
    (tmp_path / "short.txt").write_text("Too short.\n")
    assert recall.main([*args, "--text", str(tmp_path / "short.txt")]) == 2
    assert "plain sentences" in capsys.readouterr().err
    bare = tmp_path / "bare"
    bare.mkdir()
    dataclasses.replace(models.HYBRID).save(bare / "config.json")
    checkpoint.save_float16(bare, models.random_weights(models.HYBRID))
    with pytest.raises(UserError, match="no tokenizer"):
        recall.Reader(bare)
