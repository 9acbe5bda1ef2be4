"""The training side, on tiny models: the scan and the layers against plain loops, data, tokenizer, and the trainer."""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

import training_extra

torch = training_extra.need()

import numpy as np  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tools import bpe, data, model, quantise, rounding, scan, train  # noqa: E402
from tools.config import Config  # noqa: E402
from tools.errors import UserError  # noqa: E402

pytestmark = pytest.mark.training

TINY = dict(recipe="SA", vocab_size=40, d_model=16, d_rnn=24, rnn_heads=2, n_heads=4, n_kv_heads=2, head_dim=8,
            window=5, n_experts=4, d_expert=8, d_ff=8)


def doubles(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def starts_of(steps, rows, *places):
    starts = torch.zeros(steps, rows, dtype=torch.bool)
    starts[0] = True
    for place in places:
        starts[place] = True
    return starts


def decoder(seed=0, **sizes):
    torch.manual_seed(seed)
    return model.Decoder(Config(**{**TINY, **sizes}).check()).double().eval()


def document(length, seed=0, vocab=40):
    generator = torch.Generator().manual_seed(seed)
    return torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(1, vocab, (length,), generator=generator)])


# The scan

def test_scan_of_the_worked_example():
    gates = torch.full((4, 1), 0.5)
    inputs = torch.tensor([[6.0], [4.0], [2.0], [8.0]])
    assert scan.linear_scan(gates, inputs).flatten().tolist() == [6.0, 7.0, 5.5, 10.75]
    assert inputs.flatten().tolist() == [6.0, 4.0, 2.0, 8.0]  # the caller's tensor is left alone


def naive_scan(a, x):
    states = [x[0]]
    for t in range(1, len(x)):
        states.append(a[t] * states[-1] + x[t])
    return torch.stack(states)


@pytest.mark.parametrize("steps", [1, 2, 33])
def test_scan_and_its_gradients_equal_a_loop(steps):
    torch.manual_seed(steps)
    a, x, weight = doubles(steps, 3, 4), doubles(steps, 3, 4), torch.randn(steps, 3, 4, dtype=torch.float64)
    fast, slow = scan.linear_scan(a, x), naive_scan(a, x)
    assert torch.allclose(fast, slow, rtol=0, atol=1e-12)
    for got, want in zip(torch.autograd.grad((fast * weight).sum(), (a, x)),
                         torch.autograd.grad((slow * weight).sum(), (a, x), allow_unused=True)):
        assert torch.allclose(got, torch.zeros_like(got) if want is None else want, rtol=0, atol=1e-12)


def naive_rg_lru(u, gate_i, gate_a, lam, starts):
    i, r = torch.sigmoid(gate_i), torch.sigmoid(gate_a)
    a = torch.exp(-8 * F.softplus(lam) * r)
    root = torch.sqrt(1 - a * a)
    begin = starts.unsqueeze(-1)
    return naive_scan(torch.where(begin, 0.0, a), torch.where(begin, 1.0, root) * i * u)


def test_rg_lru_and_its_gradients_equal_the_formula():
    torch.manual_seed(1)
    arguments = [doubles(9, 2, 3), doubles(9, 2, 3), doubles(9, 2, 3), doubles(3)]
    starts = starts_of(9, 2, (4, 1), (7, 0))
    fast, slow = scan.rg_lru(*arguments, starts), naive_rg_lru(*arguments, starts)
    assert torch.allclose(fast, slow, rtol=0, atol=1e-12)
    weight = torch.randn_like(fast)
    for got, want in zip(torch.autograd.grad((fast * weight).sum(), arguments),
                         torch.autograd.grad((slow * weight).sum(), arguments)):
        assert torch.allclose(got, want, rtol=1e-9, atol=1e-11)


def test_rg_lru_gradient_is_bounded_where_the_root_is_infinitely_steep():
    lam = torch.full((2,), -200.0, requires_grad=True)  # softplus 0: a = 1, the root is 0
    u = torch.ones(5, 1, 2, requires_grad=True)
    gates = torch.zeros(5, 1, 2, requires_grad=True)
    h = scan.rg_lru(u, gates, gates, lam, starts_of(5, 1))
    h.sum().backward()
    assert h.flatten().tolist() == [0.5] * 10
    assert all(torch.isfinite(t.grad).all() for t in (lam, u, gates))


@pytest.mark.parametrize("width, steps", [(1, 6), (4, 6), (4, 2)])
def test_convolution_equals_a_loop_and_stays_inside_a_document(width, steps):
    torch.manual_seed(width)
    u, weight, bias = doubles(steps, 2, 3), doubles(3, width), doubles(3)
    layout = model.Layout(starts_of(steps, 2, (1, 1), (steps - 1, 0)), Config(conv_width=width), torch.float64)
    early = scan.early_places(layout.positions, width)
    out = scan.causal_conv(u, weight, bias, early)
    for t in range(steps):
        for row in range(2):
            want = bias.clone()
            for back in range(min(width, int(layout.positions[t, row]) + 1)):
                want = want + weight[:, width - 1 - back] * u[t - back, row]
            assert torch.allclose(out[t, row], want, rtol=0, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *args: scan.causal_conv(*args, early), (u, weight, bias))


# The layers

def test_rms_norm_of_the_worked_example_and_its_gradient():
    norm = model.RMSNorm(2, 1e-6)
    assert norm(torch.tensor([[0.1, 0.2]])).tolist()[0] == pytest.approx([0.6324429, 1.2648858], abs=2e-7)
    assert torch.autograd.gradcheck(lambda x, w: model._RMSNorm.apply(x, w, 1e-6), (doubles(3, 2, 5), doubles(5)))


@pytest.mark.parametrize("interleaved", [False, True])
def test_attention_equals_a_loop_over_queries_and_keys(interleaved, monkeypatch):
    monkeypatch.setattr(model, "QUERY_BLOCK", 4)
    config = Config(**{**TINY, "rotary_interleaved": interleaved, "qkv_bias": True})
    torch.manual_seed(3)
    attention = model.Attention(config).double()
    starts = starts_of(14, 2, (6, 1))
    layout = model.Layout(starts, config, torch.float64)
    n = torch.randn(14, 2, 16, dtype=torch.float64)
    got = attention(n, layout)
    q, k, v = (getattr(attention, name)(n).view(14, 2, -1, 8) for name in "qkv")
    half = config.rotary_dim // 2

    def turn(x, position):
        x = x.clone()
        for j in range(half):
            angle = position * config.rotary_base ** (-j / half)
            one, two = (2 * j, 2 * j + 1) if interleaved else (j, j + half)
            x[one], x[two] = (x[one] * math.cos(angle) - x[two] * math.sin(angle),
                              x[two] * math.cos(angle) + x[one] * math.sin(angle))
        return x

    with torch.no_grad():
        for row in range(2):
            for t in range(14):
                begin = 6 if row == 1 and t >= 6 else 0
                keys = range(max(begin, t - config.window + 1), t + 1)
                heads = []
                for head in range(4):
                    query = turn(q[t, row, head], t - begin)
                    scores = torch.stack([query @ turn(k[s, row, head // 2], s - begin) for s in keys]) / math.sqrt(8)
                    heads.append(torch.softmax(scores, 0) @ torch.stack([v[s, row, head // 2] for s in keys]))
                assert torch.allclose(got[t, row], attention.o(torch.cat(heads)), rtol=0, atol=1e-12)


def test_mixture_equals_a_loop_over_tokens():
    config = Config(**{**TINY, "activation": "silu"})
    torch.manual_seed(4)
    mixture = model.Mixture(config).double()
    n = doubles(7, 3, 16)
    stats = []
    got = mixture(n, stats)
    rows, want, counts = n.reshape(-1, 16), [], [0] * 4
    for row in rows:
        p = torch.softmax(mixture.router.weight @ row, 0)
        e = int(p.argmax())
        counts[e] += 1
        hidden = F.silu(mixture.gate.weight[e] @ row) * (mixture.up.weight[e] @ row)
        want.append(p[e] * (mixture.down.weight[e] @ hidden))
    want = torch.stack(want).view_as(got)
    assert torch.allclose(got, want, rtol=0, atol=1e-6)  # the router is float32
    ((load, _, _),) = stats
    assert load.tolist() == counts and sum(counts) == 21
    auxiliary = model.auxiliary_loss(stats, load[None], 21)
    logits = rows @ mixture.router.weight.T
    share, p = torch.tensor(counts) / 21, torch.softmax(logits, -1).mean(0)
    aux = 0.01 * 4 * (share * p).sum() + 1e-3 * logits.logsumexp(-1).square().mean()
    assert auxiliary.item() == pytest.approx(aux.item(), rel=1e-5)
    for a, b in zip(torch.autograd.grad(got.square().sum(), (n, mixture.router.weight)),
                    torch.autograd.grad(want.square().sum(), (n, mixture.router.weight))):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_mixture_when_one_expert_takes_every_token():
    torch.manual_seed(5)
    mixture = model.Mixture(Config(**TINY))
    mixture.router.weight.data.zero_()
    mixture.router.weight.data[2] = 1.0
    stats = []
    n = torch.ones(4, 1, 16, requires_grad=True)
    mixture(n, stats).sum().backward()
    assert stats[0][0].tolist() == [0, 0, 4, 0]
    assert torch.isfinite(n.grad).all() and mixture.gate.weight.grad[0].abs().sum() == 0


# The whole model

@pytest.mark.parametrize("recipe", ["S", "A", "SAS"])
def test_documents_packed_together_equal_documents_alone(recipe):
    net = decoder(recipe=recipe)
    first, second, third = document(9, 1), document(1, 2), document(14, 3)
    packed = net(torch.cat([first, second, third])[None])[0]
    alone = torch.cat([net(one[None])[0] for one in (first, second, third)])
    assert torch.allclose(packed, alone, rtol=0, atol=1e-6)


def test_a_piece_from_the_middle_starts_anew_where_starts_says():
    net = decoder()
    first, rest = document(8, 1), document(8, 2)[1:]  # the second does not begin with the end token
    tokens = torch.cat([first, rest])[None]
    starts = torch.zeros_like(tokens, dtype=torch.bool)
    starts[0, 0] = starts[0, len(first)] = True
    assert torch.allclose(net(tokens, starts)[0, len(first):], net(rest[None])[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("recipe", ["S", "A", "SA"])
def test_no_token_sees_a_later_one(recipe):
    net = decoder(recipe=recipe)
    tokens = document(12)[None]
    changed = tokens.clone()
    changed[0, 8] = tokens[0, 8] % 39 + 1
    before, after = net(tokens)[0], net(changed)[0]
    assert torch.allclose(before[:8], after[:8], rtol=0, atol=1e-12)
    assert not torch.allclose(before[8:], after[8:])


def test_the_window_counts_the_token_itself():
    net = decoder(recipe="A", window=5)
    tokens = document(12)[None]
    changed = tokens.clone()
    changed[0, 3] = tokens[0, 3] % 39 + 1
    same = ((net(tokens)[0] - net(changed)[0]).abs() < 1e-12).all(-1).tolist()
    assert same == [not 3 <= t < 3 + 5 for t in range(13)]


def test_tensor_names_and_shapes_are_the_contract():
    net = decoder(tie_embeddings=False, rnn_bias=True, qkv_bias=True, attention_out_bias=True, mlp_bias=True)
    got = {name: tuple(t.shape) for name, t in net.state_dict().items()}
    want = {"embedding.weight": (40, 16), "head.weight": (40, 16), "final_norm.weight": (16,)}
    for layer in ("layers.0.", "layers.1."):
        want.update({
            layer + "temporal_norm.weight": (16,), layer + "ff_norm.weight": (16,),
            layer + "mlp.gate.weight": (8, 16), layer + "mlp.gate.bias": (8,), layer + "mlp.up.weight": (8, 16),
            layer + "mlp.up.bias": (8,), layer + "mlp.down.weight": (16, 8), layer + "mlp.down.bias": (16,),
            layer + "moe.router.weight": (4, 16), layer + "moe.gate.weight": (4, 8, 16),
            layer + "moe.up.weight": (4, 8, 16), layer + "moe.down.weight": (4, 16, 8)})
    s, a = "layers.0.recurrence.", "layers.1.attention."
    want.update({
        s + "x.weight": (24, 16), s + "x.bias": (24,), s + "y.weight": (24, 16), s + "y.bias": (24,),
        s + "conv.weight": (24, 4), s + "conv.bias": (24,), s + "gate_a.weight": (2, 12, 12), s + "gate_a.bias": (24,),
        s + "gate_i.weight": (2, 12, 12), s + "gate_i.bias": (24,), s + "lam": (24,), s + "out.weight": (16, 24),
        s + "out.bias": (16,), a + "q.weight": (32, 16), a + "q.bias": (32,), a + "k.weight": (16, 16),
        a + "k.bias": (16,), a + "v.weight": (16, 16), a + "v.bias": (16,), a + "o.weight": (16, 32),
        a + "o.bias": (16,)})
    assert got == want
    assert "head.weight" not in decoder(tie_embeddings=True).state_dict()


def test_embedding_scale_and_soft_cap():
    tokens = document(6)[None]
    plain, capped = decoder(), decoder(logit_softcap=3.0)
    assert torch.allclose(capped(tokens), 3.0 * torch.tanh(plain(tokens) / 3.0), rtol=0, atol=1e-9)
    assert not torch.allclose(decoder(embedding_scale=4.0)(tokens), plain(tokens))


# The tokenizer

TEXT = ["Once upon a time, there was a little cat. The cat's hat wasn't big.\n\n\"Hi!\" said the cat, 12 times.\n"
        "The sun was on the sea and the cat sat on the sand with the other cats."] * 3


def pieces(tokenizer, text):
    """What the pre-tokenizer cuts text into, as text."""
    value = {c: byte for byte, c in enumerate(bpe.byte_characters())}
    return [bytes(value[c] for c in piece).decode() for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("text, want", [
    ("He said it", ["He", " said", " it"]),
    ("don't dogs' 'tis a'b'c", ["don't", " dogs", "'", " '", "tis", " a'b", "'", "c"]),
    ("12 a1b 3", ["1", "2", " a", "1", "b", " 3"]),
    ("a\n\n\nb \n c", ["a", "\n\n\n", "b", " ", "\n", " c"]),
    ("well, \"no!\" ...", ["well", ",", " \"", "no", "!\"", " ..."]),
    ("a  b\t\tc\r\n", ["a", " ", " b", "\t", "\t", "c", "\r", "\n"]),
    (" \u2019caf\u00e9\u2014it\u2019s \U0001f600!", [" \u2019caf\u00e9\u2014it\u2019s", " \U0001f600", "!"]),
    ("\u00a0\u0085x\x7f\x00 ", ["\u00a0\u0085x", "\x7f", "\x00", " "]),
    ("!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", ["!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"]),
    ("<|endofstory|>", ["<|", "endofstory", "|>"]),
    ("", []),
])
def test_pieces(text, want):
    assert pieces(bpe.build([]), text) == want


def byte_scanner(text):
    """The same pieces, found by looking at bytes alone, as a device does."""
    def kind(byte):
        if byte >= 0x80 or chr(byte).isascii() and chr(byte).isalpha():
            return "L"
        return "D" if 48 <= byte <= 57 else "P" if 0x21 <= byte <= 0x7E else "N" if byte == 10 else "O"

    b, out, at = text.encode(), [], 0
    kinds = [kind(byte) for byte in b] + ["O"] * 2
    while at < len(b):
        end = first = at + (b[at] == 32)
        if kinds[first] in "LP" and first < len(b):
            while kinds[end] == kinds[first]:
                end += 1
            if kinds[first] == "L" and b[end:end + 1] == b"'" and kinds[end + 1] == "L":
                end += 1
                while kinds[end] == "L":
                    end += 1
        elif kinds[first] == "D" and first < len(b):
            end += 1
        elif kinds[at] == "N":
            while kinds[end] == "N":
                end += 1
        else:
            end = at + 1
        out.append(b[at:end])
        at = end
    return out


def test_a_byte_scanner_gives_the_same_pieces():
    rng = np.random.default_rng(0)
    alphabet = list("aZ'09 \n\n\t!-~@`\x7f\x00\r\u00e9\u2019\U0001f600\u0085\u00a0\u2028") + ["  ", "'s", " '"]
    tokenizer = bpe.build([])
    for _ in range(300):
        text = "".join(rng.choice(alphabet, 30))
        assert [piece.encode() for piece in pieces(tokenizer, text)] == byte_scanner(text)


def test_ids_are_laid_out_by_the_rule(tmp_path):
    tokenizer = bpe.train(TEXT, 300)
    values = bpe.token_bytes(tokenizer)
    assert len(values) == tokenizer.get_vocab_size() == 300
    assert tokenizer.id_to_token(0) == "<|endofstory|>" and values[0] == b""
    assert values[1:257] == [bytes([b]) for b in range(256)]
    merges = bpe.read_merges(tokenizer)
    assert [tokenizer.token_to_id(left + right) for left, right in merges] == list(range(257, 300))
    assert len(set(values)) == 300
    for text in [*TEXT, "Zo\u00eb \U0001f600\x00\t", "a <|endofstory|> b", "<|endofstory|>"]:
        ids = tokenizer.encode(text).ids
        assert 0 not in ids
        assert b"".join(values[i] for i in ids) == text.encode() and tokenizer.decode(ids) == text
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert bpe.load(tmp_path / "tokenizer.json").encode(TEXT[0]).ids == tokenizer.encode(TEXT[0]).ids


def test_a_vocabulary_of_bytes_alone():
    assert bpe.train(TEXT, 257).encode("Az").ids == [1 + 65, 1 + 122]


def test_tokenizers_that_can_not_be():
    with pytest.raises(UserError, match="at least 257"):
        bpe.train(TEXT, 256)
    with pytest.raises(UserError, match="too little text"):
        bpe.train(["ab ab"], 1000)


# Data

def write_corpus(path, documents):
    path.write_text("\n<|endofstory|>\n".join(documents) + "\n")
    return str(path)


def test_documents_are_cut_only_at_lines_that_are_the_end_token(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n<|endofstory|>\n\n<|endofstory|>\nthe <|endofstory|> inside\n <|endofstory|>\nlast")
    assert data.read_documents(path) == ["one\ntwo", "the <|endofstory|> inside\n <|endofstory|>\nlast"]


def test_cut_prefers_the_end_of_a_line_and_covers_everything():
    line_end = np.zeros(25, bool)
    line_end[[3, 7, 8]] = True
    assert data.cut(line_end, 10) == [(0, 9), (9, 10), (19, 6)]
    assert data.cut(line_end[:10], 10) == [(0, 10)]


def test_a_document_predicts_its_tokens_and_its_end():
    tokenizer = bpe.build([])
    corpus = data.Corpus(["ab", "c" * 9], tokenizer, longest=4)
    a, b, c = (1 + ord(x) for x in "abc")
    assert corpus.ids.tolist() == [0, a, b, 0] + [c] * 9 + [0]
    assert (corpus.n_predicted, corpus.n_bytes) == (13, 11)
    assert list(zip(corpus.begin.tolist(), corpus.length.tolist())) == [(0, 3), (3, 4), (7, 4), (11, 2)]
    tokens, targets, starts = data.arrays([[(corpus, 0), (corpus, 2)], [(corpus, 3)]], 8)
    assert tokens.tolist() == [[0, a, b, c, c, c, c, 0], [c, c] + [0] * 6]
    assert targets.tolist() == [[a, b, 0, c, c, c, c, -1], [c, 0] + [-1] * 6]
    assert starts.astype(int).tolist() == [[1, 0, 0, 1, 0, 0, 0, 1], [1, 0, 1, 1, 1, 1, 1, 1]]


def some_batches(seed=1):
    tokenizer = bpe.build([])
    corpora = [data.Corpus(["a" * n for n in range(1, 60)], tokenizer, 32),
               data.Corpus(["b" * n for n in range(5, 90)], tokenizer, 32)]
    return data.Batches(corpora, [3.0, 1.0], 32, 4, seed)


def test_batches_hold_the_mix_and_go_on_exactly():
    batches = some_batches()
    count = {"a": 0, "b": 0, "room": 0}
    for _ in range(200):
        _, targets, _ = batches.next()
        for name in "ab":
            count[name] += int((targets == 1 + ord(name)).sum())
        count["room"] += int((targets == -1).sum())
    assert count["a"] / count["b"] == pytest.approx(3, rel=0.1)
    assert count["room"] < 0.05 * 200 * 4 * 32
    again = some_batches()
    again.restore(json.loads(json.dumps(batches.state())))
    for _ in range(20):
        assert all(np.array_equal(x, y) for x, y in zip(batches.next(), again.next()))
    assert not np.array_equal(some_batches(1).next()[0], some_batches(2).next()[0])


def test_every_piece_comes_round():
    batches = some_batches()
    for _ in range(400):
        batches.next()
    assert min(batches.rounds) >= 1
    pool = [tuple(item) for item in batches.pool]
    assert len(set(pool)) > 50  # none waits there for ever while others pass through again and again


def test_evaluation_covers_every_prediction_once(tmp_path):
    tokenizer = bpe.build([])
    corpus = data.Corpus(["hello", "a", "the cat\n" * 8], tokenizer, 20)
    torch.manual_seed(0)
    net = model.Decoder(Config(**{**TINY, "vocab_size": 257})).double().train()
    got = train.evaluate(net, corpus)
    assert net.training
    net.eval()
    nats = 0.0
    with torch.no_grad():
        for begin, size in zip(corpus.begin, corpus.length):
            ids = torch.from_numpy(corpus.ids[begin:begin + size + 1].astype(np.int64))
            starts = torch.zeros(1, size, dtype=torch.bool)
            nats += F.cross_entropy(net(ids[None, :-1], starts)[0], ids[1:], reduction="sum").item()
    assert sum(corpus.length) == corpus.n_predicted == 5 + 1 + 64 + 3
    assert got["nats_per_token"] == pytest.approx(nats / 73, rel=1e-6)
    assert got["bits_per_byte"] == pytest.approx(nats / math.log(2) / 70, rel=1e-6)


# The trainer

SIZES = ("--recipe SA --vocab 280 --d-model 16 --d-rnn 16 --rnn-heads 2 --n-heads 2 --head-dim 8 --window 16 "
         "--experts 2 --d-expert 8 --d-ff 8 --seq 32 --batch 4 --threads 1").split()


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    words = "the cat sat on a mat and the dog ran to the sun".split()
    stories = [" ".join(rng.choice(words, 5 + n % 20)) + "." for n in range(120)]
    return ["--corpus", write_corpus(tmp_path / "a.txt", stories[:100]), "--valid",
            write_corpus(tmp_path / "v.txt", stories[100:])]


def log_of(folder):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "minutes"} for line in lines]


def test_twenty_steps_lower_the_loss_and_write_the_files(tmp_path, corpus):
    out = tmp_path / "runs" / "one"
    assert train.main([*corpus, *SIZES, "--out", str(out), "--steps", "20", "--valid-steps", "5"]) == 0
    log = log_of(out)
    assert [line["step"] for line in log] == [5, 10, 15, 20]
    losses = [line["nats_per_token"] for line in log]
    assert losses == sorted(losses, reverse=True) and losses[-1] < math.log(280) - 0.3
    assert log[-1]["train_nats_per_token"] < log[0]["train_nats_per_token"]
    assert all(1 <= ratio <= 2 for line in log for ratio in line["load_max_over_mean"])
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "config.json", "tokenizer.json", "resume",
                                                     "log.jsonl", "loss.png"}
    assert {path.name for path in (out / "resume").iterdir()} == {"state.safetensors", "run.json"}
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    net = model.load_model(out)
    valid = data.Corpus(data.read_documents(corpus[-1]), bpe.load(out / "tokenizer.json"), 1024)
    assert train.evaluate(net, valid)["nats_per_token"] == pytest.approx(log[-1]["rounded_nats_per_token"], abs=1e-6)
    assert all(t.dtype == torch.float32 for t in net.state_dict().values())


def test_the_same_seed_gives_the_same_run_and_another_does_not(tmp_path, corpus):
    logs = []
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        train.main([*corpus, *SIZES, "--out", str(tmp_path / name), "--steps", "4", "--seed", seed])
        logs.append(log_of(tmp_path / name))
    assert logs[0] == logs[1] != logs[2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path, corpus, monkeypatch, capsys, number):
    options = [*corpus, *SIZES, "--steps", "16", "--valid-steps", "4", "--dropout", "0.1", "--average", "0.9"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train.main([*options, "--out", str(whole)]) == 0
    step = train.Run.train_step

    def interrupted(self):
        if self.step == 5:
            os.kill(os.getpid(), number)
        return step(self)

    monkeypatch.setattr(train.Run, "train_step", interrupted)
    assert train.main([*options, "--out", str(parts)]) == 130
    assert f"saved at step 6; go on with: python -m tools.train --out {parts} --resume" in capsys.readouterr().err
    monkeypatch.undo()
    assert train.main(["--out", str(parts), "--resume"]) == 0
    assert log_of(whole) == log_of(parts)
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


def test_interrupted_while_weights_are_rounded_equals_uninterrupted(tmp_path, corpus, monkeypatch):
    """Scales are searched every few steps: neither the interruption nor a checkpoint in between may move that."""
    monkeypatch.setattr(rounding, "SEARCH_EVERY", 7)
    options = [*corpus, *SIZES, "--steps", "20", "--qat", "0.8", "--lr", "0.02"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train.main([*options, "--out", str(whole)]) == 0
    step = train.Run.train_step

    def interrupted(self):
        if self.step == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self)

    monkeypatch.setattr(train.Run, "train_step", interrupted)
    assert train.main([*options, "--out", str(parts), "--save-every", "0"]) == 130
    monkeypatch.setattr(train.Run, "train_step", step)
    assert train.main(["--out", str(parts), "--resume"]) == 0
    assert (whole / "model.safetensors").read_bytes() == (parts / "model.safetensors").read_bytes()


def test_a_run_that_begins_with_another_model(tmp_path, corpus, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    assert train.main([*corpus, *SIZES, "--out", str(first), "--steps", "30", "--qat", "0"]) == 0
    reached = log_of(first)[-1]["nats_per_token"]
    begun = [*corpus, "--seq", "32", "--batch", "4", "--threads", "1", "--init", str(first)]
    assert train.main([*begun, "--out", str(second), "--steps", "4", "--valid-steps", "1", "--lr", "1e-4"]) == 0
    assert log_of(second)[0]["nats_per_token"] == pytest.approx(reached, abs=0.02)
    for name in ("config.json", "tokenizer.json"):
        assert (second / name).read_bytes() == (first / name).read_bytes()
    shutil.rmtree(first)  # what it began with is not needed any more
    assert train.main(["--out", str(second), "--resume", "--steps", "6"]) == 0
    capsys.readouterr()
    assert train.main([*begun, "--out", str(tmp_path / "third"), "--steps", "2"]) == 2
    assert "config.json: no such file" in capsys.readouterr().err
    begun[-1] = str(second)
    assert train.main([*begun, "--d-model", "24", "--out", str(tmp_path / "third"), "--steps", "2"]) == 2
    assert "--d-model 24: the model in" in capsys.readouterr().err
    assert train.main([*begun, "--d-model", "128", "--out", str(tmp_path / "third"), "--steps", "2"]) == 2
    assert "--d-model 128: the model in" in capsys.readouterr().err  # the default of a new model, but asked for
    assert train.main([*begun, "--tokenizer", str(second / "tokenizer.json"), "--out", str(tmp_path / "third"),
                       "--steps", "2"]) == 2
    assert "--tokenizer: the model in" in capsys.readouterr().err
    assert train.main(["--out", str(second), "--resume", "--d-model", "24", "--steps", "8"]) == 2
    assert "--d-model 24: the run in" in capsys.readouterr().err
    assert train.main(["--out", str(second), "--resume", "--init", "elsewhere", "--steps", "8"]) == 2
    assert "goes on with its own" in capsys.readouterr().err
    assert train.main(["--out", str(second), "--resume", "--tokenizer", "elsewhere.json", "--steps", "8"]) == 2
    assert "--tokenizer elsewhere.json: the run in" in capsys.readouterr().err
    path = second / "resume" / "run.json"
    saved = json.loads(path.read_text())
    saved["options"]["d_model"] = 128  # earlier versions saved the defaults of sizes that --init had set
    path.write_text(json.dumps(saved))
    assert train.main(["--out", str(second), "--resume", "--steps", "8"]) == 0
    assert not (tmp_path / "third").exists()


def test_a_run_interrupted_between_two_renames_can_be_resumed(tmp_path, corpus):
    out = tmp_path / "run"
    train.main([*corpus, *SIZES, "--out", str(out), "--steps", "3"])
    (out / "resume").rename(out / "resume.old")
    assert train.main(["--out", str(out), "--resume", "--steps", "5"]) == 0
    assert log_of(out)[-1]["step"] == 5
    assert (out / "resume" / "run.json").is_file() and not (out / "resume.old").exists()


def test_a_schedule_by_the_clock_and_one_by_tokens_end(tmp_path, corpus):
    train.main([*corpus, *SIZES, "--out", str(tmp_path / "clock"), "--minutes", "0.01"])
    assert log_of(tmp_path / "clock")[-1]["step"] >= 1
    train.main([*corpus, *SIZES, "--out", str(tmp_path / "tokens"), "--tokens", "500"])
    assert 500 <= log_of(tmp_path / "tokens")[-1]["tokens"] < 500 + 4 * 32


@pytest.mark.parametrize("shape, bits", [((3, 150), 8), ((4, 5, 64), 4), ((2, 6, 70), 4), ((7, 20), 8)])
def test_rounding_is_that_of_packing(shape, bits):
    torch.manual_seed(shape[0])
    w = torch.randn(shape)
    w[0] = 0
    got = rounding.rounded(w, bits, rounding.best_fraction(w, bits)).double().numpy()
    parts = list(w.numpy()) if len(shape) == 3 else [w.numpy()]
    want = np.stack([m.expanded() for m in quantise.quantise(parts, bits)]).reshape(shape)
    # Where a weight lies between two integers, the rounding of a scale to 15 bits decides; else they are the same.
    assert np.isclose(got, want, rtol=2e-4, atol=1e-6).mean() > 0.99 and not got[0].any()


def test_rounded_weights_are_what_the_loss_sees_and_full_ones_what_the_step_moves():
    torch.manual_seed(1)
    net = model.Decoder(Config(**TINY))
    full = {name: p.detach().clone() for name, p in net.named_parameters()}
    bits = {name: dict((id(p), b) for p, b in rounding.matrices(net)).get(id(q)) for name, q in net.named_parameters()}
    assert {name for name, b in bits.items() if b == 4} == {
        f"layers.{layer}.moe.{part}.weight" for layer in (0, 1) for part in ("gate", "up", "down")}
    assert {name for name, b in bits.items() if b is None} == {
        name for name in bits if name.endswith((".bias", "norm.weight", "lam", "conv.weight"))}
    ids = document(30)[None]
    batch = ids[:, :-1], ids[:, 1:], ids[:, :-1] == 0
    rounds = rounding.Rounding(net)
    with rounds():
        seen = {name: p.detach().clone() for name, p in net.named_parameters()}
        net.losses(*batch)[0].backward()
    for name, p in net.named_parameters():
        assert torch.equal(p, full[name])
        assert (bits[name] is None) == torch.equal(seen[name], full[name])
    got = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    net.load_state_dict(seen)
    net.losses(*batch)[0].backward()
    for name, p in net.named_parameters():  # straight through: the gradient at the rounded weights, unchanged
        assert torch.allclose(got[name], p.grad, rtol=1e-4, atol=1e-5)


def test_the_last_part_of_a_run_is_rounded(tmp_path, corpus, monkeypatch):
    steps = []
    losses = model.Decoder.losses

    def watched(self, *batch):
        if self.training:
            w = self.layers[0].moe.up.weight[0]
            steps.append(torch.equal(w, rounding.rounded(w, 4, 1.0)))
        return losses(self, *batch)

    monkeypatch.setattr(model.Decoder, "losses", watched)
    monkeypatch.setitem(rounding.SEARCH, 4, (1.0,))  # rounding twice is then rounding once
    train.main([*corpus, *SIZES, "--out", str(tmp_path / "run"), "--steps", "20", "--qat", "0.3"])
    assert steps == [False] * 14 + [True] * 6
    log = log_of(tmp_path / "run")[-1]
    net = model.load_model(tmp_path / "run")
    valid = data.Corpus(data.read_documents(corpus[-1]), bpe.load(tmp_path / "run" / "tokenizer.json"), 1024)
    got = train.evaluate(net, valid)["nats_per_token"]  # what the loss saw is the model; what it came from goes on
    assert got == pytest.approx(log["rounded_nats_per_token"], abs=1e-6) and got != log["nats_per_token"]
    w = net.layers[0].moe.up.weight
    assert torch.equal(w, rounding.rounded(w, 4, 1.0))
    full = load_file(tmp_path / "run" / "resume" / "state.safetensors")
    assert not any(t.shape == w.shape and torch.equal(t, w) for t in full.values())


def torchrun(processes, *args):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone",
                           f"--nproc_per_node={processes}", "-m", "tools.train", *args], env=environment,
                          capture_output=True, text=True, timeout=600, cwd=pathlib.Path(train.__file__).parents[1])


def test_two_processes_train_as_one_does_and_go_on(tmp_path, corpus):
    """50 steps at the same global batch: the same losses within 1e-3, and the same load over the whole batch."""
    length = [*corpus, *SIZES, "--lr", "0.01", "--valid-steps", "10"]
    train.main([*length, "--out", str(tmp_path / "one"), "--steps", "50"])
    done = torchrun(2, *length, "--out", str(tmp_path / "two"), "--steps", "30")
    assert done.returncode == 0, done.stderr
    done = torchrun(2, "--out", str(tmp_path / "two"), "--resume", "--steps", "50")
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stderr and done.stderr.count("encoding the text") == 1
    # The first 30 steps had a shorter schedule; one process with the same two is what they equal.
    train.main([*length, "--out", str(tmp_path / "same"), "--steps", "30"])
    train.main(["--out", str(tmp_path / "same"), "--resume", "--steps", "50"])
    one, two = log_of(tmp_path / "same"), log_of(tmp_path / "two")
    assert [line["step"] for line in two] == [line["step"] for line in one] and two[-1]["step"] == 50
    for a, b in zip(one, two):
        assert b["tokens"] == a["tokens"]
        for key in ("nats_per_token", "train_nats_per_token"):
            assert b[key] == pytest.approx(a[key], abs=1e-3)
        assert b["load_max_over_mean"] == pytest.approx(a["load_max_over_mean"], abs=0.1)


def test_processes_that_do_not_divide_the_batch(tmp_path, corpus):
    done = torchrun(3, *corpus, *SIZES, "--out", str(tmp_path / "x"), "--steps", "5")
    assert done.returncode and "--batch 4 must be a multiple of the 3 processes" in done.stderr


def test_bfloat16_stays_near_float32(tmp_path, corpus):
    ends = []
    for option in ("--no-bf16", "--bf16"):
        train.main([*corpus, *SIZES, "--out", str(tmp_path / option), "--steps", "20", option])
        ends.append(log_of(tmp_path / option)[-1]["nats_per_token"])
        assert all(t.dtype == torch.float32 for t in model.load_model(tmp_path / option).state_dict().values())
    assert ends[0] != ends[1] and ends[1] == pytest.approx(ends[0], abs=0.05)


def test_learning_rate_rises_and_falls():
    options = train.parser().parse_args("--out x --lr 2 --warmup 0.1 --final-lr 0.1".split())
    rates = [train.learning_rate(progress, options) for progress in (0.0, 0.05, 0.1, 0.55, 1.0, 1.5)]
    assert rates[0] < 0.01
    assert rates[1:] == pytest.approx([1.0, 2.0, 1.1, 0.2, 0.2])


def test_a_loss_that_is_not_finite_is_told_and_spoils_no_weight(tmp_path, corpus, monkeypatch, capsys):
    out = tmp_path / "run"
    losses = model.Decoder.losses

    def spoilt(self, *batch):
        loss, *rest = losses(self, *batch)
        return (loss * float("nan") if self.training else loss), *rest

    monkeypatch.setattr(model.Decoder, "losses", spoilt)
    assert train.main([*corpus, *SIZES, "--out", str(out), "--steps", "9"]) == 2
    error = capsys.readouterr().err
    assert "resume with a lower rate" in error and "saved at step 0" in error
    assert all(torch.isfinite(t).all() for t in model.load_model(out).state_dict().values())
    monkeypatch.undo()
    assert train.main(["--out", str(out), "--resume", "--lr", "0.001"]) == 0


def test_mistakes_get_one_line(tmp_path, corpus, capsys):
    def error(*options, out="new"):
        capsys.readouterr()
        assert train.main([*options, "--out", str(tmp_path / out)]) == 2
        last = capsys.readouterr().err.strip().splitlines()[-1]
        assert last.startswith("error: ")
        return last

    (tmp_path / "empty.txt").write_text("\n<|endofstory|>\n\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "bad.json").write_text("{")
    steps = [*SIZES, "--steps", "2"]
    assert "--corpus is needed" in error("--steps", "2")
    assert "missing.txt: no such file" in error("--corpus", str(tmp_path / "missing.txt"), *steps)
    assert "holds no document" in error("--corpus", str(tmp_path / "empty.txt"), *steps)
    assert "not UTF-8 (byte 3)" in error("--corpus", str(tmp_path / "latin.txt"), *steps)
    assert "letter 'X'" in error(*corpus, *steps, "--recipe", "SXA")
    assert "exactly one of" in error(*corpus, *SIZES)
    assert "exactly one of" in error(*corpus, *steps, "--minutes", "2")
    assert "--mix has 2 weights for 1" in error(*corpus, *steps, "--mix", "1", "2")
    assert "at least 257" in error(*corpus, *steps, "--vocab", "100")
    assert "too little text" in error(*corpus, *steps, "--vocab", "5000")
    assert "no such file" in error(*corpus, *steps, "--tokenizer", str(tmp_path / "none.json"))
    assert "not a tokenizer.json" in error(*corpus, *steps, "--tokenizer", str(tmp_path / "bad.json"))
    assert "holds no run" in error("--resume")
    bpe.build([]).save(str(tmp_path / "bytes.json"))
    assert "give --vocab 257" in error(*corpus, *steps, "--tokenizer", str(tmp_path / "bytes.json"))
    assert not (tmp_path / "new").exists()
    assert train.main([*corpus, *steps, "--out", str(tmp_path / "run")]) == 0
    assert "already holds a run" in error(*corpus, *steps, out="run")
    with open(corpus[1], "a") as file:
        file.write("<|endofstory|>\nmore\n")
    assert "differ from those" in error("--resume", "--steps", "4", out="run")
    state = tmp_path / "run" / "resume" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    write_corpus(pathlib.Path(corpus[1]), data.read_documents(corpus[1])[:-1])
    assert "damaged" in error("--resume", "--steps", "4", out="run")


def test_load_model_tells_what_is_wrong(tmp_path):
    with pytest.raises(UserError, match="config.json: no such file"):
        model.load_model(tmp_path)
    Config(**TINY).save(tmp_path / "config.json")
    with pytest.raises(UserError, match="model.safetensors: no such file"):
        model.load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"12345678")
    with pytest.raises(UserError, match="does not fit"):
        model.load_model(tmp_path)


def test_the_shared_corpus_reads(shared, leave_out):
    if shared is None:
        leave_out("the shared corpus", "a folder shared/ beside this one")
    assert len(data.read_documents(shared / "corpus" / "picturebooks.valid.txt")) == 20
