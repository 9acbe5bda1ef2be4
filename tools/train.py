"""Train a small story-writing model: `python -m tools.train --corpus TEXT.txt --out runs/NAME`."""

import os

# Threads that spin while they wait starve whatever else runs on a small machine; read when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import argparse
import contextlib
import json
import math
import pathlib
import random
import shutil
import signal
import sys
import time

try:
    import numpy as np
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save
    from tokenizers import Tokenizer
    from tqdm import tqdm
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    print(f"error: training needs {error.name}; install it with: make .venv/.ready-train",
          file=sys.stderr)
    sys.exit(2)

from tools import bpe, data, distil
from tools.config import ACTIVATIONS, Config
from tools.errors import Parser, UserError, command
from tools.distributed import Group
from tools.files import make_folder, write_beside, write_bytes, write_text
from tools.model import Decoder, auxiliary_loss, check_texts, load_model
from tools.rounding import Rounding

CLIP = 1.0
BETAS = (0.9, 0.95)
#: Longest text that validation reads in one go, in tokens; what is longer goes on from fresh state.
VALID_CONTEXT = 1024
#: Characters, all corpora together, that a tokenizer is learnt from at most.
TOKENIZER_TEXT = 20_000_000
#: Share of the loss that a larger model's probabilities have.
DISTIL_WEIGHT = 0.5
#: Sizes by the names of their options.
SIZES = {
    "recipe": "recipe", "vocab": "vocab_size", "d_model": "d_model", "d_rnn": "d_rnn", "rnn_heads": "rnn_heads",
    "conv_width": "conv_width", "n_heads": "n_heads", "n_kv_heads": "n_kv_heads", "head_dim": "head_dim",
    "window": "window", "rotary_base": "rotary_base", "rotary_fraction": "rotary_fraction",
    "rotary_interleaved": "rotary_interleaved", "activation": "activation", "d_ff": "d_ff", "experts": "n_experts",
    "d_expert": "d_expert", "norm_eps": "norm_eps", "tie_embeddings": "tie_embeddings",
    "embedding_scale": "embedding_scale", "logit_softcap": "logit_softcap", "rnn_bias": "rnn_bias",
    "qkv_bias": "qkv_bias", "attention_out_bias": "attention_out_bias", "mlp_bias": "mlp_bias",
}


def parser(saved=None):
    """The command line's. Sizes that it does not name are not in what it returns; the other options have the defaults
    below, or those of the run that is `saved`."""
    p = Parser(prog="python -m tools.train", description=__doc__)
    p.add_argument("--corpus", nargs="+", metavar="FILE", help="text files to train on")
    p.add_argument("--mix", nargs="+", type=float, metavar="WEIGHT",
                   help="share of the tokens from each corpus (default: by size)")
    p.add_argument("--valid", metavar="FILE", help="held-out text to measure on")
    p.add_argument("--out", required=True, metavar="FOLDER", help="where the run is written")
    p.add_argument("--resume", action="store_true",
                   help="go on with the run in --out, with its own options unless given again")
    p.add_argument("--tokenizer", metavar="FILE", help="use this tokenizer.json instead of training one")
    p.add_argument("--init", metavar="FOLDER",
                   help="begin with the weights, sizes and tokenizer of the model in this folder")
    p.add_argument("--distil", metavar="FOLDER", help="learn from a larger model as well: what tools.distil wrote")
    p.add_argument("--distil-weight", type=float, default=DISTIL_WEIGHT, metavar="SHARE",
                   help="of the loss that the larger model's probabilities have (default %(default)s)")
    length = p.add_argument_group("length (exactly one)")
    length.add_argument("--steps", type=int)
    length.add_argument("--minutes", type=float, help="the schedule follows the clock")
    length.add_argument("--tokens", type=float, help="predicted tokens")
    o = p.add_argument_group("optimisation")
    o.add_argument("--batch", type=int, default=16, help="rows per step")
    o.add_argument("--seq", type=int, default=256, help="tokens per row")
    o.add_argument("--lr", type=float, default=3e-3, help="peak learning rate")
    o.add_argument("--final-lr", type=float, default=0.0, help="last learning rate, as a share of the peak")
    o.add_argument("--warmup", type=float, default=0.02, help="share of the run in which the rate rises to its peak")
    o.add_argument("--weight-decay", type=float, default=0.1)
    o.add_argument("--dropout", type=float, default=0.0)
    o.add_argument("--average", type=float, default=0.0, metavar="DECAY",
                   help="keep a moving average of the weights, e.g. 0.999, and save that")
    o.add_argument("--qat", type=float, default=0.2, metavar="SHARE",
                   help="last share of the run that sees the weights as packing will round them (default 0.2)")
    o.add_argument("--seed", type=int, default=1)
    o.add_argument("--device", help="cpu, cuda, cuda:1 ... (default: a GPU when torch sees one)")
    o.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=None,
                   help="multiply matrices in bfloat16 (default: on a GPU that has it)")
    o.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    o.add_argument("--save-every", type=float, default=3.0, metavar="MINUTES")
    o.add_argument("--valid-every", type=float, default=5.0, metavar="MINUTES")
    o.add_argument("--valid-steps", type=int, default=0, metavar="STEPS", help="validate by steps instead of minutes")
    o.add_argument("--valid-limit", type=int, default=150, metavar="DOCUMENTS",
                   help="measure on the first so many until the end, then on all (0: always all)")
    sizes = p.add_argument_group("sizes (a run that is resumed keeps its own, one with --init those of its model)")
    defaults = Config()
    for option, field in SIZES.items():
        default = getattr(defaults, field)
        flag = "--" + option.replace("_", "-")
        kind = {"type": type(default), "choices": ACTIVATIONS if field == "activation" else None}
        if isinstance(default, bool):
            kind = {"action": argparse.BooleanOptionalAction}
        sizes.add_argument(flag, default=argparse.SUPPRESS, help=f"default {default}", **kind)
    if saved:
        # Runs of earlier versions saved sizes as well; those are the config's.
        p.set_defaults(**{name: value for name, value in saved["options"].items() if name not in SIZES})
    return p


def sizes_given(options):
    """{option: value} of the sizes that the command line named."""
    return {option: asked for option, asked in vars(options).items() if option in SIZES}


def learning_rate(progress, options):
    """Linear warm-up, then a cosine to final_lr (Loshchilov and Hutter 2016, arXiv 1608.03983). progress: 0 to 1."""
    if progress < options.warmup:
        return options.lr * max(progress / options.warmup, 1e-3)
    along = min(1.0, (progress - options.warmup) / max(1e-9, 1 - options.warmup))
    return options.lr * (options.final_lr + (1 - options.final_lr) * 0.5 * (1 + math.cos(math.pi * along)))


def evaluate(model, corpus):
    """Nats per predicted token (ends included) and bits per UTF-8 byte of the corpus, in eval mode, dropless."""
    training = model.training
    model.eval()
    nats, count = 0.0, 0
    device = model.embedding.weight.device
    with torch.inference_mode():
        for batch in data.validation_batches(corpus):
            _, part, n, _ = model.losses(*(torch.from_numpy(array).to(device) for array in batch))
            nats += part.item()
            count += n
    model.train(training)
    return {"nats_per_token": nats / count, "bits_per_byte": nats / math.log(2) / corpus.n_bytes}


def replace_folder(new, old):
    """Put the folder `new` in the place of `old`, so that a whole one is there, under one name or the other."""
    aside = old.with_name(old.name + ".old")
    if old.exists():
        shutil.rmtree(aside, ignore_errors=True)
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)


def first_model(options):
    """The Decoder that --init names. Raises UserError when there is none, or it can't be gone on with."""
    model = load_model(options.init)
    check_texts(model.config, options.init)
    if options.tokenizer and (pathlib.Path(options.init) / "tokenizer.json").is_file():
        raise UserError(f"--tokenizer: the model in {options.init} has its own; leave the option out")
    return model


def check_sizes(options, config, whose):
    """Raise UserError when a size was given on the command line that is not the config's."""
    for option, asked in sizes_given(options).items():
        has = getattr(config, SIZES[option])
        if asked != has:
            name = option.replace("_", "-")
            raise UserError(f"--{name} {asked}: {whose} has {has}, and keeps it; leave the option out")


def tokenizer_sample(texts, weights, limit=TOKENIZER_TEXT):
    """Documents of each corpus in proportion to its weight, about `limit` characters or less in all."""
    total = sum(weights)
    scale = min([limit] + [sum(map(len, documents)) * total / weight
                           for documents, weight in zip(texts, weights) if weight])
    for documents, weight in zip(texts, weights):
        room = scale * weight / total
        # In a random order that is always the same: a file's first documents may all be from one book.
        for document in random.Random(0).sample(documents, len(documents)):
            if room <= 0:
                break
            room -= len(document)
            yield document


class Losses(torch.nn.Module):
    """`Decoder.losses` as a forward pass, which is all that torch's wrappers see."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *batch):
        return self.model.losses(*batch)


class Run:
    """One training run: its data, model, optimiser, and the folder it lives in."""

    def __init__(self, options, saved, group):
        self.options, self.group = options, group
        self.folder = pathlib.Path(options.out)
        start = first_model(options) if options.init and not saved else None
        self.config = config = start.config if start is not None else Config.from_dict(saved["config"] if saved else {
            SIZES[option]: asked for option, asked in sizes_given(options).items()})
        if saved or start is not None:
            check_sizes(options, config, f"the run in {self.folder}" if saved else f"the model in {options.init}")
        self._read(config, saved)
        torch.manual_seed(options.seed)
        self.model = Decoder(config, options.dropout).to(group.device)
        if start is not None:
            self.model.load_state_dict(start.state_dict())
        self.losses = group.parallel(Losses(self.model))
        self.rounding = Rounding(self.model)
        bf16 = options.bf16
        if bf16 is None:
            bf16 = group.device.type == "cuda" and torch.cuda.is_bf16_supported()
        self.precision = torch.autocast(group.device.type, torch.bfloat16, enabled=bf16)
        decayed, plain = [], []
        for parameter in self.model.parameters():
            (decayed if parameter.ndim >= 2 else plain).append(parameter)
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": options.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=options.lr, betas=BETAS, fused=True)
        self.parameters = decayed + plain
        self.average = [p.detach().clone() for p in self.parameters] if options.average else None
        self.step, self.tokens, self.seconds, self.log = 0, 0, 0.0, []
        self.recent, self.load = [], None  # losses, and tokens per expert, since the last validation
        self.stop = False  # a signal asks to end after the step at hand
        if saved:
            self._restore(saved)
        if not group.first:  # its own rows want their own dropout
            torch.manual_seed(options.seed + 1_000_003 * group.rank + self.step)

    def _say(self, text):
        if self.group.first:
            print(text, file=sys.stderr)

    def _read(self, config, saved):
        options = self.options
        texts = [data.read_documents(path) for path in options.corpus]
        sizes = [sum(map(len, documents)) for documents in texts]
        weights = options.mix or [float(size) for size in sizes]
        valid = data.read_documents(options.valid) if options.valid else None
        path = self.folder / "tokenizer.json" if saved else options.tokenizer
        if options.init and not path:
            path = pathlib.Path(options.init) / "tokenizer.json"
        if path:
            self.tokenizer = bpe.load(path)
            if self.tokenizer.get_vocab_size() != config.vocab_size:
                size = self.tokenizer.get_vocab_size()
                raise UserError(f"{path}: holds {size} tokens, not {config.vocab_size}; " + (
                    "its model is for another one" if saved or options.init else f"give --vocab {size}"))
        else:
            self._say("training the tokenizer")
            text = ""
            if self.group.first:
                text = bpe.train(tokenizer_sample(texts, weights), config.vocab_size).to_str()
            self.tokenizer = Tokenizer.from_str(self.group.text_of_first(text))
        self._say("encoding the text")
        self.corpora = [data.Corpus(documents, self.tokenizer, options.seq) for documents in texts]
        if options.distil:
            distil.check_names(options.corpus)
            for name, corpus in zip(options.corpus, self.corpora):
                ids, p = distil.load(distil.path_of(options.distil, name), corpus, config.vocab_size)
                corpus.soft = ids, p * np.float16(options.distil_weight)
            if len({corpus.soft[0].shape[1] for corpus in self.corpora}) > 1:
                raise UserError(f"{options.distil}: its files differ in --likeliest; write them again")
        self.valid = self.valid_part = None
        if valid:
            self.valid = data.Corpus(valid, self.tokenizer, VALID_CONTEXT)
            limit = options.valid_limit
            short = limit and limit < len(valid)
            self.valid_part = data.Corpus(valid[:limit], self.tokenizer, VALID_CONTEXT) if short else self.valid
        self.batches = data.Batches(self.corpora, weights, options.seq, options.batch, options.seed)
        for name, corpus in zip(options.corpus, self.corpora):
            self._say(f"  {name}: {corpus.n_predicted:,} tokens of {corpus.n_bytes / corpus.n_predicted:.2f} bytes, "
                      f"{len(corpus.begin):,} pieces")

    def _checksums(self):
        return [corpus.checksum() for corpus in self.corpora]

    def _restore(self, saved):
        if saved["checksums"] != self._checksums():
            raise UserError(f"{self.folder}: the corpus files or --seq differ from those the run was saved with")
        folder = pathlib.Path(saved["folder"])
        try:
            tensors = load_file(folder / "state.safetensors")
            for n, p in enumerate(self.parameters):
                p.data.copy_(tensors[f"weight.{n}"])
                if self.average is not None:
                    self.average[n].copy_(tensors[f"average.{n}"])
                self.optimizer.state[p] = {key: tensors[f"{key}.{n}"].clone().to(self.group.device)
                                           for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{n}" in tensors}
            torch.set_rng_state(tensors["rng"])
            if "fraction.0" in tensors:
                self.rounding.fractions = [tensors[f"fraction.{n}"].clone().to(self.group.device)
                                           for n in range(len(self.rounding.matrices))]
        except (OSError, KeyError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{folder}: damaged, or of another model ({error})") from None
        self.batches.restore(saved["data"])
        self.step, self.tokens, self.seconds = saved["step"], saved["tokens"], saved["seconds"]
        path = self.folder / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        self.log = [entry for entry in map(json.loads, lines) if entry["step"] <= self.step]
        self.recent = saved.get("recent", [])
        self.load = torch.tensor(saved["load"]) if saved.get("load") else None

    def progress(self):
        """How much of the run is done, 0 to 1: of its steps, its tokens, or its minutes."""
        options = self.options
        if options.steps:
            return self.step / options.steps
        if options.tokens:
            return self.tokens / options.tokens
        return self.seconds / (60 * options.minutes)

    @property
    def rounds(self):
        """Whether the run has come to the part that sees the weights rounded."""
        return self.progress() >= 1 - self.options.qat

    def train_step(self):
        """One step of AdamW (Loshchilov and Hutter 2017, arXiv 1711.05101).

        Returns nats per token (float) and load, tokens [mixture layers, experts] or None, both of the whole batch.
        Raises UserError, before any weight has changed, when the loss or its gradient is not finite.
        """
        self.model.train()
        group = self.group
        rate = learning_rate(self.progress(), self.options)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        batch = self.batches.next()
        count = max(1, int((batch[1] >= 0).sum()))
        self.optimizer.zero_grad(set_to_none=True)
        with self.rounding(self.step) if self.rounds else contextlib.nullcontext():
            with self.precision:
                part, nats, _, stats = self.losses(*(torch.from_numpy(rows[group.rank::group.size]).to(group.device)
                                                     for rows in batch))
            load = group.total(torch.stack([of_layer for of_layer, _, _ in stats])) if stats else None
            part = part / count
            if stats:
                part = part + auxiliary_loss(stats, load, batch[0].size)
            (part * group.size).backward()  # the gradients are averaged, and the parts of a batch add up
        loss = group.total(nats.detach()).item() / count
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        if not math.isfinite(loss) or not math.isfinite(norm.item()):
            raise UserError(f"step {self.step}: the loss is {loss:.4g} and its gradient {norm.item():.4g}; "
                            f"resume with a lower rate, such as --lr {self.options.lr / 2:.2g}")
        self.optimizer.step()
        self.step += 1
        self.tokens += count
        if self.average is not None:
            # A young average leans on the latest weights, or it would remember the random start.
            decay = min(self.options.average, (1 + self.step) / (10 + self.step))
            torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - decay)
        return loss, load

    def _swap_average(self):
        if self.average is not None:
            for p, average in zip(self.parameters, self.average):
                p.data, average.data = average.data, p.data

    def validate(self, corpus, rounded=False):
        """Measure on `corpus` (may be None), add a line to the log, redraw the curve. Returns the line's dict.

        Training loss and load are means since the last time. rounded: measure with the weights rounded, too.
        """
        entry = {"step": self.step, "tokens": self.tokens, "minutes": round(self.seconds / 60, 2),
                 "train_nats_per_token": sum(self.recent) / len(self.recent) if self.recent else None}
        if corpus is not None and self.group.first:
            self._swap_average()
            entry.update(evaluate(self.model, corpus))
            if rounded:
                with self.rounding():
                    entry.update({f"rounded_{key}": value for key, value in evaluate(self.model, corpus).items()})
            self._swap_average()
        if self.load is not None:
            ratio = self.load.max(1).values / self.load.float().mean(1)
            entry["load_max_over_mean"] = [round(x, 3) for x in ratio.tolist()]
        self.recent, self.load = [], None
        if not self.group.first:
            return entry
        self.log = [line for line in self.log if line["step"] < self.step] + [entry]
        text = "".join(json.dumps(line) + "\n" for line in self.log)
        write_text(self.folder / "log.jsonl", text)
        write_beside(self.folder / "loss.png", lambda path: draw(self.log, path))
        return entry

    def save(self):
        """Write all that going on needs, then the model; each is renamed into place when whole. In this order, so that
        a folder with a model in it can always be resumed."""
        if not self.group.first:
            return
        make_folder(self.folder)
        write_beside(self.folder / "config.json", self.config.save)
        write_beside(self.folder / "tokenizer.json", lambda path: self.tokenizer.save(str(path)))
        new = self.folder / "resume.tmp"
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            self._save_state(new)
            replace_folder(new, self.folder / "resume")
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            raise UserError(f"{self.folder}: the run can't be saved ({error})") from None
        self._swap_average()
        # Once the loss has seen rounded weights, they are the model; the full ones are how training goes on.
        with self.rounding() if self.rounds else contextlib.nullcontext():
            tensors = {name: t.detach().clone().contiguous().cpu() for name, t in self.model.state_dict().items()}
        self._swap_average()
        write_bytes(self.folder / "model.safetensors", save(tensors))

    def _save_state(self, folder):
        """Weights, optimiser and places in the data, from which a run goes on as if it had never stopped."""
        state = {"rng": torch.get_rng_state()}
        for n, fraction in enumerate(self.rounding.fractions or ()):
            state[f"fraction.{n}"] = fraction
        for n, p in enumerate(self.parameters):
            state[f"weight.{n}"] = p.detach()
            if self.average is not None:
                state[f"average.{n}"] = self.average[n]
            for key, value in self.optimizer.state.get(p, {}).items():
                state[f"{key}.{n}"] = value
        (folder / "state.safetensors").write_bytes(save(state))
        passing = ("out", "resume", *SIZES)  # sizes are the config's
        options = {key: value for key, value in vars(self.options).items() if key not in passing}
        (folder / "run.json").write_text(json.dumps({
            "options": options, "config": self.config.to_dict(), "checksums": self._checksums(),
            "data": self.batches.state(), "step": self.step, "tokens": self.tokens, "seconds": self.seconds,
            "recent": self.recent, "load": None if self.load is None else self.load.tolist()}) + "\n")

    def _on_signal(self, number, frame):
        """Finish the step, then save; asked twice, stop at once (a checkpoint on disk is always whole)."""
        if self.stop:
            raise KeyboardInterrupt
        self.stop = True

    def loop(self):
        """Train to the end, validating and saving on the way and at the end. Returns the last validation's dict.

        Raises KeyboardInterrupt after saving, when SIGINT or SIGTERM came.
        """
        handlers = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._steps()
        except UserError:
            self._save_and_tell()
            raise
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self.stop:
            self._save_and_tell()
            raise KeyboardInterrupt
        self.save()
        entry = self.validate(self.valid, rounded=self.options.qat > 0)
        self._say(json.dumps(entry))
        return entry

    def _save_and_tell(self):
        self.save()
        self._say(f"saved at step {self.step}; go on with: python -m tools.train --out {self.folder} --resume")

    def _steps(self):
        """Train until the run is done or a signal has come."""
        options = self.options
        before, began, tokens_before = self.seconds, time.monotonic(), self.tokens
        saved_at = valid_at = self.seconds

        def clock():
            """What all processes agree on: the time, and whether one of them was asked to stop."""
            self.seconds, stop = self.group.largest(before + time.monotonic() - began, float(self.stop))
            self.stop = bool(stop)

        with tqdm(disable=not self.group.first, total=100.0, initial=min(100.0, 100 * self.progress()),
                  mininterval=1.0, dynamic_ncols=True,
                  bar_format="{l_bar}{bar}| {elapsed}<{remaining}{postfix}") as bar:
            while self.progress() < 1 and not self.stop:
                loss, load = self.train_step()
                clock()
                self.recent.append(loss)
                if load is not None:
                    self.load = load if self.load is None else self.load + load
                speed = (self.tokens - tokens_before) / max(1e-9, self.seconds - before)
                last = self.recent[-50:]
                bar.set_postfix_str(f"step {self.step} loss {sum(last) / len(last):.3f} {speed:,.0f} tokens/s",
                                    refresh=False)
                bar.update(min(100.0, 100 * self.progress()) - bar.n)
                if self.progress() >= 1:
                    break
                if (self.step % options.valid_steps == 0 if options.valid_steps
                        else self.seconds - valid_at >= 60 * options.valid_every):
                    entry = self.validate(self.valid_part)
                    if self.group.first:
                        bar.write(json.dumps(entry), file=sys.stderr)
                    valid_at = self.seconds
                if self.seconds - saved_at >= 60 * options.save_every:
                    self.save()
                    saved_at = self.seconds


def draw(log, path):
    """The loss curve of log entries as a PNG at `path`."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), dpi=100)
    for key, label in (("train_nats_per_token", "training (mean since the last)"), ("nats_per_token", "held out")):
        points = [(e["tokens"] / 1e6, e[key]) for e in log if e.get(key) is not None]
        if points:
            axes.plot(*zip(*points), marker=".", label=label)
    axes.set_xlabel("million tokens")
    axes.set_ylabel("nats per token")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, format="png")
    pyplot.close(figure)


def saved_run(folder):
    """What resume/run.json of a run's folder holds, and where it lies. Raises UserError when there is none."""
    for name in ("resume", "resume.old"):  # .old: interrupted between the two renames
        path = folder / name / "run.json"
        if path.is_file():
            try:
                saved = json.loads(path.read_text())
            except ValueError as error:
                raise UserError(f"{path}: damaged ({error})") from None
            saved["folder"] = str(path.parent)
            return saved
    raise UserError(f"{folder}: holds no run to resume; leave --resume out to start one")


def check(options):
    """Raise UserError for options that can't make a run."""
    def need(ok, message):
        if not ok:
            raise UserError(message)

    need(options.corpus, "--corpus is needed: one or more text files")
    given = [name for name in ("steps", "minutes", "tokens") if getattr(options, name)]
    need(len(given) == 1, "exactly one of --steps, --minutes and --tokens is needed, above 0")
    need(getattr(options, given[0]) > 0, f"--{given[0]} must be above 0")
    if options.mix:
        need(len(options.mix) == len(options.corpus),
             f"--mix has {len(options.mix)} weights for {len(options.corpus)} corpus files")
        need(min(options.mix) >= 0 and sum(options.mix) > 0, "--mix weights must be 0 or more, and not all 0")
    need(options.batch > 0, "--batch must be above 0")
    processes = int(os.environ.get("WORLD_SIZE", 1))
    need(options.batch % processes == 0, f"--batch {options.batch} must be a multiple of the {processes} processes")
    need(0.001 <= options.distil_weight <= 1, "--distil-weight is a share of the loss: 0.001 to 1")
    need(options.distil or options.distil_weight == DISTIL_WEIGHT,
         "--distil-weight is of --distil, which is not there")
    need(options.threads >= 0, "--threads must be 0 (torch's choice) or more")
    need(0 <= options.qat <= 1, "--qat is a share of the run: 0 to 1")
    need(options.seq > 1, "--seq must be above 1")
    need(0 <= options.dropout < 1, "--dropout must be at least 0 and below 1")
    need(0 <= options.average < 1, "--average must be at least 0 and below 1")
    need(0 <= options.warmup < 1, "--warmup is a share of the run: at least 0 and below 1")
    need(options.lr > 0, "--lr must be above 0")


@command
def main(argv=None):
    options = parser().parse_args(argv)
    folder = pathlib.Path(options.out)
    saved = None
    if options.resume:
        saved = saved_run(folder)
        options = parser(saved).parse_args(argv)
        for name in ("init", "tokenizer"):
            asked = getattr(options, name)
            if asked != saved["options"].get(name):
                raise UserError(f"--{name} {asked}: the run in {folder} was begun, and goes on with its own; leave the "
                                "option out, or choose another folder")
        # Giving one length drops the run's own.
        lengths = ("steps", "minutes", "tokens")
        new = [name for name in lengths if getattr(options, name) != saved["options"][name]]
        for name in lengths if new else ():
            if name not in new:
                setattr(options, name, None)
    elif any((folder / name).exists() for name in ("resume", "resume.old", "model.safetensors")):
        raise UserError(f"{folder}: already holds a run; add --resume to go on with it, or choose another folder")
    check(options)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; --out is a folder")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    group = Group(options.device)
    try:
        run = Run(options, saved, group)
        total = sum(p.numel() for p in run.parameters)
        run._say(f"{total:,} parameters, {torch.get_num_threads()} threads on {group.device}"
                 + (f", {group.size} processes" if group.size > 1 else ""))
        folder.mkdir(parents=True, exist_ok=True)
        run.loop()
    finally:
        group.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
