"""The dress rehearsal on a tiny model: its figures against plain computation, its verdict, and its report."""

import dataclasses
import html.parser
import json
import re

import models
import numpy as np
import pytest

from tools import budget, checkpoint, floating, integer, rehearsal, rehearsal_page, rehearse, standin
from tools.config import WITH_EXPERTS, WITHOUT_EXPERTS, Config
from tools.engines import open_engine
from tools.errors import UserError
from tools.fileformat import Packed
from tools.logits import texts_of
from tools.micropython import ROOT

TEXT = """Tom had a hat. It was a red hat.
He sat on it. "Oh no," said Tom.
<|endofstory|>
A hen ran. The hen sat in the hot sun, and then Tom ran too.
<|endofstory|>
No one is here, Tom said.
"""


def write_original(folder, weights, config, **tolerances):
    folder.mkdir(exist_ok=True)
    dataclasses.replace(config, rehearsal=tolerances).save(folder / "config.json")
    checkpoint.save_float16(folder, weights)


@pytest.fixture(scope="module", params=["hybrid", "llama"])
def tiny(request, tmp_path_factory):
    """(packed file with its original beside it, text) of a model that needs no training."""
    folder = tmp_path_factory.mktemp(request.param)
    path, _, weights = models.packed(models.ALL[request.param], folder, request.param)
    write_original(path.with_suffix(""), weights, models.ALL[request.param])
    (folder / "text.txt").write_text(TEXT)
    return path, folder / "text.txt"


@pytest.fixture(scope="module")
def reading(tiny):
    path, text = tiny
    engines = {name: open_engine(name, path) for name in ("float", "standin", "integer")}
    return rehearsal.read(engines, texts_of(text, engines["integer"].packed))


def softmax(logits):
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def test_figures_equal_a_computation_by_hand(tiny, reading):
    """Token by token, document by document, straight from the references."""
    path, text = tiny
    packed = Packed.load(path)
    config, weights = checkpoint.load(path.with_suffix(""))
    lost, kl, same, nats, routes = [], [], [], [], []
    texts = texts_of(text, packed)
    for tokens in texts:
        state = integer.State(config)
        truth = softmax(floating.forward(config, weights, tokens))
        rounded = softmax(floating.forward(config, standin.expand(packed), tokens))
        for t, token in enumerate(tokens):
            chosen = []
            board = integer.forward(packed, [token], state,
                                    lambda name, layer, v, n: name == "expert" and chosen.append(int(v[0])))[0]
            board = softmax(board * packed.scale)
            target = tokens[t + 1] if t + 1 < len(tokens) else config.eos_token_id
            nats.append([-np.log(p[target]) for p in (truth[t], rounded[t], board)])
            kl.append([(truth[t] * np.log(truth[t] / p)).sum() for p in (rounded[t], board)])
            same.append([truth[t].argmax() == p.argmax() for p in (rounded[t], board)])
            routes.append(chosen)
    nats, kl, same = map(np.array, (nats, kl, same))
    lost = nats[:, 2] - nats[:, 0]
    found = rehearsal.figures(reading, packed, budget.from_packed(path))
    assert found["tokens"] == len(nats) == sum(map(len, texts)) and found["documents"] == 3
    assert found["bytes"] == len(TEXT.replace("<|endofstory|>\n", "")) - 3  # without the documents' last newlines
    for i, name in enumerate(("float", "standin", "integer")):
        assert found[name]["nats_per_token"] == pytest.approx(nats[:, i].mean(), rel=1e-9)
        assert found[name]["bits_per_byte"] == pytest.approx(nats[:, i].sum() / np.log(2) / found["bytes"], rel=1e-9)
    for i, name in enumerate(("standin", "integer")):
        assert found[name]["kl"]["mean"] == pytest.approx(kl[:, i].mean(), rel=1e-6)
        assert found[name]["kl"]["largest"] == pytest.approx(kl[:, i].max(), rel=1e-6)
        assert found[name]["top1"]["mean"] == same[:, i].mean()
    assert found["integer"]["cross_entropy"] == {
        "mean": pytest.approx(lost.mean(), rel=1e-6), "error": pytest.approx(lost.std() / len(lost) ** 0.5)}
    if config.n_experts:
        counts = np.array([np.bincount(column, minlength=config.n_experts) for column in np.array(routes).T])
        assert found["load"]["tokens"] == counts.tolist()
        assert found["load"]["max_over_mean"] == pytest.approx(counts.max(1) * config.n_experts / len(nats))
        assert found["flash"][0]["bytes_per_token"] == budget.flash_per_token(budget.from_packed(path))
        every = np.count_nonzero(counts)  # with room for all, each is read once
        assert found["flash"][-1]["bytes_per_token"] == every * budget.from_packed(path).expert / len(nats)
    else:
        assert "load" not in found and found["flash"] == []


def test_places_restart_with_each_document(reading):
    starts = np.flatnonzero(reading.position == 0)
    assert len(starts) == 3 and (np.diff(reading.document, prepend=-1)[starts] == 1).all()
    assert (reading.tokens[1:][reading.document[1:] == reading.document[:-1]]
            == reading.targets[:-1][reading.document[1:] == reading.document[:-1]]).all()


def test_memory_is_the_budgets_and_a_window_bounds_it():
    config = dataclasses.replace(models.HYBRID, window=16)
    found = rehearsal.memory(config)
    ram = {line.part: line.bytes for line in budget.ram_lines(budget.from_config(config, "x"))}
    assert (found["state"], found["rings"]) == (ram["recurrent state"], ram["ring buffers"])
    last = found["by_length"][-1]
    assert last["used"] == last["model"] == found["state"] + found["rings"]
    assert last["no_window"] == found["state"] + last["tokens"] * 2 * 2 * config.n_kv_heads * config.head_dim


def test_worst_tokens_are_the_worst(tiny, reading):
    packed = Packed.load(tiny[0])
    rows = rehearsal.worst(reading, packed, 5)
    assert [row["kl"] for row in rows] == sorted(reading.kl["integer"], reverse=True)[:5]
    row = rows[0]
    at = int(reading.kl["integer"].argmax())
    assert row["position"] == reading.position[at] and row["document"] == reading.document[at]
    document = TEXT.split("<|endofstory|>\n")[row["document"]]
    assert row["before"] + row["read"] in document


def found_with(**values):
    figures = {"cross_entropy": 0.003, "kl": 0.001, "top1": 0.98, "load": [1.2, 1.9], **values}
    return {"integer": {name: {"mean": figures[name], "error": 0.0} for name in ("cross_entropy", "kl", "top1")},
            "load": {"max_over_mean": figures["load"]}}


@pytest.mark.parametrize("worse", [{}, {"cross_entropy": 0.0041}, {"kl": 0.0041}, {"top1": 0.9699},
                                   {"load": [2.1, 1.0]}, {"kl": float("nan")}])
def test_each_tolerance_can_fail(worse):
    rows = rehearsal.checks(found_with(**worse), WITH_EXPERTS)
    assert [row["name"] for row in rows if not row["pass"]] == list(worse)
    assert all(rehearse.describe(row).startswith("pass" if row["pass"] else "FAIL") for row in rows)


# The config

def test_tolerances_stand_in_the_config_and_not_in_the_packed_file(tmp_path):
    config = dataclasses.replace(models.HYBRID, rehearsal={"kl": 0.5})
    config.check().save(tmp_path / "config.json")
    again = Config.load(tmp_path / "config.json")
    assert again.tolerances() == {**WITH_EXPERTS, "kl": 0.5} and again == models.HYBRID
    assert models.HYBRID.tolerances() == WITH_EXPERTS and models.LLAMA.tolerances() == WITHOUT_EXPERTS
    assert "rehearsal" not in models.HYBRID.to_dict() and "rehearsal" not in config.shape()
    path, packed, _ = models.packed(config, tmp_path, "with")
    packed_bytes = Packed(config, packed.info, packed.tokenizer, packed.sections).to_bytes()
    assert packed_bytes == Packed(models.HYBRID, packed.info, packed.tokenizer, packed.sections).to_bytes()


@pytest.mark.parametrize("rehearsal, message", [
    ([], "not an object"), ({"KL": 1}, "tolerances are cross_entropy, kl, top1, load"), ({"kl": -1}, "from 0 to 10"),
    ({"top1": "97%"}, "from 0 to 1"), ({"top1": True}, "from 0 to 1"), ({"kl": float("nan")}, "from 0 to 10")])
def test_wrong_tolerances_are_refused(rehearsal, message):
    with pytest.raises(UserError, match=message):
        Config.from_dict({**models.HYBRID.to_dict(), "rehearsal": rehearsal})
    with pytest.raises(UserError, match="no experts"):
        Config.from_dict({**models.LLAMA.to_dict(), "rehearsal": {"load": 2}})


def test_shipped_models_pack_to_the_bytes_that_ship():
    for path in (ROOT / "weights").glob("*.scribe"):
        assert Packed.load(path).to_bytes() == path.read_bytes()


# The command

class Page(html.parser.HTMLParser):
    """Collects what an accessible, self-contained page must have, and checks that its elements nest."""

    VOID = {"meta", "img", "source", "br", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def run(tiny, tmp_path, *args):
    path, text = tiny
    return rehearse.main([str(path), "--text", str(text), "--out", str(tmp_path / "out"), *args])


def test_end_to_end(tiny, tmp_path, plots, capsys, monkeypatch):
    path, _ = tiny
    config = Packed.load(path).config
    lax = {"cross_entropy": 1.0, "kl": 1.0, "top1": 0.5, **({"load": 3.0} if config.n_experts else {})}
    write_original(path.with_suffix(""), checkpoint.load(path.with_suffix(""))[1], config, **lax)
    assert run(tiny, tmp_path) == 0
    out = capsys.readouterr().out
    assert out.count("\npass  ") == len(lax) and "FAIL" not in out
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["pass"] and metrics["tolerances"] == lax and metrics["documents"] == 3
    text = (tmp_path / "out" / "report.html").read_text()
    page = Page(text)
    assert page.seen.count("h1") == 1 and "html" in page.seen and "main" in page.seen
    images = [a for tag, a in page.attributes if tag in ("img", "source")]
    assert len(images) == 2 * (8 if config.n_experts else 5)
    assert all(a.get("alt") or "srcset" in a for a in images)
    assert not re.findall(r"""(?:src|srcset|href)=["'](?!data:)""", text) and "http" not in page.text
    assert "<script" not in text and "@import" not in text and "prefers-color-scheme" in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["metrics.json", "report.html"]

    # once more with a tolerance that can't hold, and of the page only its verdict: drawing takes seconds
    write_original(path.with_suffix(""), checkpoint.load(path.with_suffix(""))[1], config, **{**lax, "kl": 0.0})
    monkeypatch.setattr(rehearsal_page, "page", lambda *args: rehearsal_page.verdict(args[8]))
    assert run(tiny, tmp_path) == 1
    assert "FAIL  KL" in capsys.readouterr().out
    assert not json.loads((tmp_path / "out" / "metrics.json").read_text())["pass"]
    assert ">fail<" in (tmp_path / "out" / "report.html").read_text()


def test_a_limit_takes_whole_documents(tiny):
    path, text = tiny
    packed = Packed.load(path)
    whole = rehearse.choose([text], packed)
    assert len(rehearse.choose([text, text], packed)) == 6
    assert rehearse.choose([text], packed, 1) == whole[:1]
    assert rehearse.choose([text], packed, len(whole[0]) + 1) == whole[:2]


@pytest.mark.parametrize("args, message", [
    (["nosuch"], "no model 'nosuch'"), (["MODEL", "--text", "nosuch.txt"], "nosuch.txt: no such file"),
    (["MODEL", "--original", "nosuch"], "nosuch"), (["MODEL", "--tokens", "0"], "'0' is not a whole number"),
    ([], "model")])
def test_mistakes_are_one_line(tiny, args, message, capsys, plots):
    assert rehearse.main([str(tiny[0]) if arg == "MODEL" else arg for arg in args]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_without_matplotlib_it_says_what_to_install(tiny, monkeypatch, capsys):
    from tools import rehearsal_plots

    monkeypatch.setattr(rehearsal_plots, "matplotlib", None)
    assert rehearse.main([str(tiny[0])]) == 2
    assert "requirements-plots.txt" in capsys.readouterr().err


def test_the_word_whose_attention_is_shown():
    names = ["", "Once", " there", " was", " Li", "ly", ".", " Tom", " saw", " Tom", " and", " Li", "ly", "."]
    assert rehearsal_page.choose_word(names) == 12  # Lily, in two tokens
    assert rehearsal_page.choose_word(names[:11]) == 9
    assert rehearsal_page.choose_word(names, "Tom") == 9 and rehearsal_page.choose_word(names, "was") == 3
    assert rehearsal_page.choose_word(names, "Max") is None and rehearsal_page.choose_word(names, "Li") is None
    assert rehearsal_page.choose_word(["", "a", "b"]) == 2


def test_attention_shown_adds_up_and_keeps_to_the_window(tiny):
    path, text = tiny
    engine = open_engine("integer", path)
    tokens = texts_of(text, engine.packed)[0]
    config = engine.packed.config
    rows = rehearsal_page.attention_of(engine, tokens, len(tokens) - 1)
    assert [row[:2] for row in rows] == [(i, h) for i, letter in enumerate(config.recipe) if letter == "A"
                                         for h in range(config.n_heads)]
    for *_, weights in rows:
        assert len(weights) == len(tokens) > config.window
        assert weights.sum() == pytest.approx(1, abs=0.01) and not weights[: -config.window].any()


def test_plot_is_the_same_bytes_each_time(reading, plots):
    from tools import rehearsal_plots

    first = rehearsal_plots.svg(rehearsal_plots.by_position(reading))
    assert first == rehearsal_plots.svg(rehearsal_plots.by_position(reading)) and first.lstrip().startswith("<?xml")


def test_requirements_name_one_matplotlib():
    versions = [set(re.findall(r"^matplotlib==(\S+?);? ", (ROOT / name).read_text().replace("\n", " \n"), re.M))
                for name in ("requirements-plots.txt", "requirements-train.txt")]
    assert versions[1] and versions[1] <= versions[0]


def test_make_hands_the_model_on():
    """After whatever ARGS hold, files of --text among them."""
    recipe = re.search(r"^rehearse: \$\(VENV\)/\.ready-plots ##.*\n(.*)", (ROOT / "Makefile").read_text(), re.M)[1]
    assert recipe.endswith('tools.rehearse $(ARGS) -- "$$SCRIBE_MODEL"')
    args = rehearse.parser().parse_args(["--text", "a.txt", "b.txt", "--", "tales"])
    assert (args.model, [path.name for path in args.text]) == ("tales", ["a.txt", "b.txt"])
