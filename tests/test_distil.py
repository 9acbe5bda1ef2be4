"""Distillation, on tiny models: soft targets against the teacher read piece by piece, the loss against its formula."""

import shutil

import pytest

import training_extra

torch = training_extra.need()

import numpy as np  # noqa: E402
from safetensors.numpy import save_file as arrays_to_file  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tools import bpe, data, distil, model, train  # noqa: E402
from tools.config import Config  # noqa: E402
from tools.errors import UserError  # noqa: E402

pytestmark = pytest.mark.training

TINY = Config(recipe="SA", vocab_size=257, d_model=16, d_rnn=16, rnn_heads=2, n_heads=2, n_kv_heads=1, head_dim=8,
              window=8, n_experts=2, d_expert=8, d_ff=8)
SIZES = ("--recipe SA --vocab 257 --d-model 16 --d-rnn 16 --rnn-heads 2 --n-heads 2 --head-dim 8 --window 8 "
         "--experts 2 --d-expert 8 --d-ff 8 --seq 20 --batch 4 --threads 1").split()
STORIES = ["the cat sat on the mat and then it ran away", "a dog", "the sun\n" * 6, "one two three four five"] * 5


@pytest.fixture
def folder(tmp_path):
    """Holds a.txt, and teacher/, a model that is sure of what it says."""
    (tmp_path / "a.txt").write_text("\n<|endofstory|>\n".join(STORIES))
    torch.manual_seed(3)
    net = model.Decoder(TINY)
    with torch.no_grad():
        net.final_norm.weight.fill_(4.0)
    (tmp_path / "teacher").mkdir()
    TINY.save(tmp_path / "teacher" / "config.json")
    bpe.build([]).save(str(tmp_path / "teacher" / "tokenizer.json"))
    save_file(net.state_dict(), tmp_path / "teacher" / "model.safetensors")
    return tmp_path


def corpus_of(folder, seq=20):
    return data.Corpus(data.read_documents(folder / "a.txt"), bpe.build([]), seq)


def distilled(folder, *options):
    return distil.main([str(folder / "teacher"), "--corpus", str(folder / "a.txt"), "--seq", "20", "--threads", "1",
                        "--out", str(folder / "soft"), *options])


def test_soft_targets_are_the_teachers_likeliest_tokens_after_each_place(folder):
    net, corpus = model.load_model(folder / "teacher"), corpus_of(folder)
    read = []
    ids, p = distil.soft_targets(net, corpus, 3, read.append)
    assert ids.shape == p.shape == (corpus.n_predicted, 3) and sum(read) == corpus.n_predicted
    with torch.no_grad():
        for begin, size in zip(corpus.begin, corpus.length):
            starts = torch.zeros(1, size, dtype=torch.bool)
            want = torch.softmax(net(torch.from_numpy(corpus.ids[begin:begin + size].astype(int))[None], starts)[0], -1)
            got = torch.from_numpy(p[begin:begin + size].astype(np.float32))
            assert torch.allclose(got, want.topk(3).values, atol=1e-3)
            assert torch.allclose(want.gather(1, torch.from_numpy(ids[begin:begin + size].astype(int))), got, atol=1e-3)


def test_rows_hold_the_soft_targets_of_their_tokens():
    corpus = data.Corpus(["ab", "c" * 9], bpe.build([]), longest=4)
    n = corpus.n_predicted
    corpus.soft = np.arange(2 * n).reshape(n, 2), np.full((n, 2), 0.25)
    _, targets, _, ids, p = data.arrays([[(corpus, 0), (corpus, 2)], [(corpus, 3)]], 8)
    assert ids[:, :, 0].tolist() == [[0, 2, 4, 14, 16, 18, 20, 0], [22, 24, 0, 0, 0, 0, 0, 0]]
    assert np.array_equal(p.sum(2), np.where(targets >= 0, 0.5, 0.0))


def test_the_loss_is_the_cross_entropy_with_the_mixed_distribution():
    torch.manual_seed(1)
    net = model.Decoder(TINY).double()
    tokens, targets = torch.randint(0, 257, (2, 2, 6))
    targets[1, 4:] = -1
    starts = torch.zeros(2, 6, dtype=torch.bool)
    ids = torch.stack([torch.randperm(257)[:5] for _ in range(12)]).view(2, 6, 5)
    p = torch.rand(2, 6, 5, dtype=torch.float64) / 5
    p[1, 4:] = 0
    loss, nats, count, _ = net.losses(tokens, targets, starts, ids, p)
    log_q = torch.log_softmax(net(tokens, starts), -1)
    want = torch.zeros_like(log_q).scatter(-1, ids, p)
    real = targets >= 0
    want += (1 - p.sum(-1, keepdim=True)) * F.one_hot(targets.clamp(min=0), 257)
    assert torch.allclose(want.sum(-1)[real], torch.ones(10, dtype=torch.float64)) and count == 10
    assert loss.item() == pytest.approx(-(want * log_q)[real].sum().item(), rel=1e-9)
    plain, same, _, _ = net.losses(tokens, targets, starts)
    assert plain.item() == same.item() == pytest.approx(nats.item(), rel=1e-12)


def test_a_pupil_comes_closer_to_its_teacher(folder):
    """The teacher knows nothing of the text: only the soft targets can lead to it."""
    assert distilled(folder, "--likeliest", "200") == 0
    net, corpus = model.load_model(folder / "teacher"), corpus_of(folder)
    common = ["--corpus", str(folder / "a.txt"), *SIZES, "--tokenizer", str(folder / "teacher" / "tokenizer.json"),
              "--steps", "60", "--qat", "0", "--lr", "0.01"]
    from_text = distance(net, pupil(folder / "alone", common), corpus)
    from_teacher = distance(net, pupil(folder / "taught", [*common, "--distil", str(folder / "soft"),
                                                           "--distil-weight", "1"]), corpus)
    assert from_teacher < 0.7 * from_text


def pupil(out, options):
    assert train.main([*options, "--out", str(out)]) == 0
    return model.load_model(out)


def distance(teacher, student, corpus):
    """KL divergence in nats a token."""
    total = 0.0
    with torch.no_grad():
        for tokens, targets, starts in data.validation_batches(corpus):
            tokens, starts = torch.from_numpy(tokens), torch.from_numpy(starts)
            p, q = (torch.log_softmax(net(tokens, starts), -1) for net in (teacher, student))
            total += ((p.exp() * (p - q)).sum(-1) * torch.from_numpy(targets >= 0)).sum().item()
    return total / corpus.n_predicted


def test_a_taught_run_goes_on_as_if_it_had_never_stopped(folder):
    assert distilled(folder) == 0
    whole = ["--corpus", str(folder / "a.txt"), *SIZES, "--tokenizer", str(folder / "teacher" / "tokenizer.json"),
             "--distil", str(folder / "soft"), "--lr", "0.01"]
    assert train.main([*whole, "--steps", "6", "--warmup", "0", "--final-lr", "1", "--out", str(folder / "whole")]) == 0
    assert train.main([*whole, "--steps", "3", "--warmup", "0", "--final-lr", "1", "--qat", "0",
                       "--out", str(folder / "parts")]) == 0
    assert train.main(["--resume", "--steps", "6", "--qat", "0.2", "--out", str(folder / "parts")]) == 0
    one, other = ((folder / out / "model.safetensors").read_bytes() for out in ("whole", "parts"))
    assert one == other


def test_mistakes_get_one_line(folder, capsys):
    def error(status):
        assert status == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    def trained(*options):
        capsys.readouterr()
        return train.main(["--corpus", str(folder / "a.txt"), *SIZES, "--init", str(folder / "teacher"), "--steps", "2",
                           "--out", str(folder / "run"), "--distil", str(folder / "soft"), *options])

    assert "no such file; python -m tools.distil writes it" in error(trained())
    assert "from 1 to the 257 tokens" in error(distilled(folder, "--likeliest", "0"))
    assert "--seq must be above 1" in error(distilled(folder, "--seq", "1"))
    assert "nosuch.txt: no such file" in error(distilled(folder, "--corpus", "nosuch.txt"))
    assert "have the same name" in error(distilled(folder, "--corpus", "x/a.txt", "y/a.txt"))
    assert not (folder / "soft").exists()
    assert distilled(folder) == 0
    assert "--distil-weight is a share" in error(trained("--distil-weight", "0"))
    assert "of another text, tokenizer or --seq" in error(trained("--seq", "24"))
    assert trained() == 0
    alone = ["--corpus", str(folder / "a.txt"), *SIZES, "--steps", "2", "--out", str(folder / "new")]
    assert "--distil-weight is of --distil" in error(train.main([*alone, "--distil-weight", "1"]))
    bpe.build([("t", "h")]).save(str(folder / "teacher" / "tokenizer.json"))
    assert "holds 258 tokens, the model 257" in error(distilled(folder))
    shutil.rmtree(folder / "teacher")
    assert "config.json: no such file" in error(distilled(folder))


def test_a_file_that_holds_no_soft_targets_is_refused(folder):
    assert distilled(folder) == 0
    path, corpus = folder / "soft" / "a.txt.safetensors", corpus_of(folder)
    ids, p = distil.load(path, corpus, 257)
    nan = np.where(np.arange(p.size).reshape(p.shape) == 5, np.float16("nan"), p)
    for bad in ({"ids": ids}, {"ids": ids.astype(np.float32), "p": p}, {"ids": ids, "p": p.astype(np.float32)},
                {"ids": ids, "p": p * np.float16(5)}, {"ids": ids, "p": -p}, {"ids": ids, "p": nan},
                {"ids": ids[:, 0].copy(), "p": p[:, 0].copy()}, {"ids": ids[:, :0].copy(), "p": p[:, :0].copy()},
                {"ids": ids[:-1].copy(), "p": p[:-1].copy()}, {"ids": ids + np.uint16(257), "p": p}):
        arrays_to_file(bad, path, distil.facts_of(corpus))
        with pytest.raises(UserError, match="no file of soft targets"):
            distil.load(path, corpus, 257)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(UserError, match="no file of soft targets"):
        distil.load(path, corpus, 257)


def test_a_teacher_or_first_model_with_weights_that_are_no_numbers(folder, capsys):
    path = folder / "teacher" / "model.safetensors"
    tensors = load_file(path)
    tensors["final_norm.weight"][3] = float("nan")
    save_file(tensors, path)
    assert distilled(folder) == 2 and not (folder / "soft").exists()
    assert train.main(["--corpus", str(folder / "a.txt"), *SIZES, "--init", str(folder / "teacher"), "--steps", "2",
                       "--out", str(folder / "run")]) == 2 and not (folder / "run").exists()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 2 and all("final_norm.weight holds numbers that are not finite" in line for line in lines)
