"""What a larger model expects of a text, for a smaller one to learn: `python -m tools.distil TEACHER --corpus FILE`.

Knowledge distillation (Hinton et al. 2015, arXiv 1503.02531): after every token of the text, the teacher's likeliest
next tokens and their probabilities, the soft targets, are written once, so that training (`tools.train --distil`) can
go through the text many times without the teacher. Teacher and pupil have one tokenizer, and the text is cut as
training with the same --seq cuts it.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # see tools/train.py

import pathlib
import sys

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.numpy import save
    from tqdm import tqdm
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    print(f"error: distillation needs {error.name}; install it with: make .venv/.ready-train", file=sys.stderr)
    sys.exit(2)
import numpy as np

from tools import bpe, data
from tools.distributed import Group
from tools.errors import Parser, UserError, command
from tools.files import make_folder, write_bytes
from tools.model import check_texts, load_model


AGAIN = "write it again with python -m tools.distil"


def soft_targets(model, corpus, count, progress=None):
    """ids (uint16) and probabilities (float16, largest first) of the `count` likeliest tokens after each of a corpus.

    Both [corpus.n_predicted, count]: row n is what the model expects where ids[n + 1] is the truth. The model reads
    every piece from fresh state, as the pupil will. progress: called with the tokens read after each batch.
    """
    ids = np.zeros((corpus.n_predicted, count), np.uint16)
    p = np.zeros((corpus.n_predicted, count), np.float16)
    device = model.embedding.weight.device
    with torch.inference_mode():
        for pieces in data.alike_in_length(corpus):
            tokens, _, starts = data.arrays([[(corpus, piece)] for piece in pieces], int(corpus.length[pieces[0]]))
            logits = model(torch.from_numpy(tokens).to(device), torch.from_numpy(starts).to(device))
            best = torch.softmax(logits, -1).topk(count)
            values, indices = best.values.cpu().numpy(), best.indices.cpu().numpy()
            for row, piece in enumerate(pieces):
                begin, size = corpus.begin[piece], corpus.length[piece]
                ids[begin:begin + size] = indices[row, :size]
                p[begin:begin + size] = values[row, :size]
            if progress:
                progress(int(corpus.length[pieces].sum()))
    return ids, p


def teacher(folder):
    """(Decoder, its tokenizer) of a trained model's folder. Raises UserError where it can't teach."""
    model = load_model(folder)
    check_texts(model.config, folder)
    path = folder / "tokenizer.json"
    tokenizer = bpe.load(path)
    if tokenizer.get_vocab_size() != model.config.vocab_size:
        raise UserError(f"{path}: holds {tokenizer.get_vocab_size()} tokens, the model {model.config.vocab_size}; find "
                        "the one that the model was trained with")
    return model, tokenizer


def path_of(folder, corpus_file):
    """Where the soft targets of a corpus file lie in a folder of them."""
    return pathlib.Path(folder) / (pathlib.Path(corpus_file).name + ".safetensors")


def check_names(files):
    """Raise UserError where two files' soft targets would have one name."""
    names = {}
    for file in files:
        name = pathlib.Path(file).name
        if names.setdefault(name, file) != file:
            raise UserError(f"{names[name]} and {file} have the same name, and so would their soft targets; rename one")


def facts_of(corpus):
    """What tells whether soft targets are a corpus's own, as safetensors keeps it."""
    return {"ids": str(corpus.checksum()), "pieces": str(corpus.piece_checksum())}


def load(path, corpus, vocab_size):
    """(ids, probabilities) of `soft_targets` from a file. Raises UserError where it is missing, damaged, or of another
    text, tokenizer or --seq."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; python -m tools.distil writes it")
    try:
        with safe_open(path, "numpy") as file:
            facts, ids, p = file.metadata(), file.get_tensor("ids"), file.get_tensor("p")
    except (OSError, TypeError, SafetensorError) as error:
        raise UserError(f"{path}: damaged, or no file of soft targets ({error}); {AGAIN}") from None
    if facts != facts_of(corpus):
        raise UserError(f"{path}: of another text, tokenizer or --seq; {AGAIN}")
    if (ids.dtype, p.dtype, ids.ndim) != (np.uint16, np.float16, 2) or ids.shape != p.shape or (
            ids.size == 0 or len(ids) != corpus.n_predicted or ids.max() >= vocab_size or not distributions(p)):
        raise UserError(f"{path}: damaged, or no file of soft targets; {AGAIN}")
    return ids, p


def distributions(p):
    """Whether all rows of p, [places, count], are probabilities: finite, not negative, and no more than 1 in all."""
    return bool(np.all(p >= 0)) and float(p.sum(1, dtype=np.float32).max()) < 1.01


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.distil", description=__doc__.splitlines()[0])
    parser.add_argument("teacher", type=pathlib.Path, help="folder of a trained model, with its tokenizer.json")
    parser.add_argument("--corpus", nargs="+", required=True, metavar="FILE", help="the text files to train on")
    parser.add_argument("--seq", type=int, default=256, help="tokens per row in training (default %(default)s)")
    parser.add_argument("--likeliest", type=int, default=16, metavar="N",
                        help="how many tokens to keep for each place (default %(default)s)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where a file for each text is written")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ... (default: a GPU when torch sees one)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    args = parser.parse_args(argv)
    if not args.out:
        raise UserError("--out is empty; it is a folder for the soft targets")
    if args.threads < 0:
        raise UserError("--threads must be 0 (torch's choice) or more")
    if args.seq < 2:
        raise UserError("--seq must be above 1")
    files = list(dict.fromkeys(args.corpus))
    check_names(files)
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UserError("distillation is one process's work; start it without torchrun")
    device = Group(args.device).device
    model, tokenizer = teacher(args.teacher)
    if not 1 <= args.likeliest <= model.config.vocab_size:
        raise UserError(f"--likeliest must be from 1 to the {model.config.vocab_size} tokens that there are")
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    corpora = [data.Corpus(data.read_documents(name), tokenizer, args.seq) for name in files]
    model.to(device)
    make_folder(pathlib.Path(args.out))
    for name, corpus in zip(files, corpora):
        with tqdm(total=corpus.n_predicted, unit=" tokens", unit_scale=True, mininterval=1.0, desc=name) as bar:
            ids, p = soft_targets(model, corpus, args.likeliest, bar.update)
        if not distributions(p):
            raise UserError(f"{args.teacher}: what it expects of {name} is no probability; its weights are damaged")
        path = path_of(args.out, name)
        write_bytes(path, save({"ids": ids, "p": p}, facts_of(corpus)))
        covered = float(p.sum(1, dtype=np.float32).mean())
        print(f"{path}: {len(ids):,} places, {args.likeliest} tokens each, {100 * covered:.1f}% of the probability")
    return 0


if __name__ == "__main__":
    sys.exit(main())
