"""How far back a model remembers: a name given N words ago must come again. `python -m tools.recall ORIGINAL`.

Each text is a sentence with a fact, held-out sentences that name nobody, and the beginning of a sentence that only the
fact completes. Every fact is tried with every filler, so what a model would guess without reading is right in exactly
one of as many cases as there are facts. ORIGINAL is what tools.originals reads: a training run, weights/NAME, a
llama2.c .bin ... in float.
"""

import importlib.util
import json
import pathlib
import re
import sys

import numpy as np

from tools import floating, originals
from tools.data import read_documents
from tools.engines import log_softmax
from tools.errors import Parser, UserError, command
from tools.parity import HELD_OUT
from tools.story import between
from tools.tokenizer import Tokenizer

#: Words between the name and the place where it must come again.
DISTANCES = (8, 16, 32, 64, 128, 256)
#: Words of filler in a text with a fact planted in it.
WORDS = 200
#: kind: (the sentence with the fact, what asks for it, facts to choose from).
KINDS = {
    "name": ("Once upon a time there was a little girl named {}.", 'Her mom smiled and said, "Good job,',
             ("Lily", "Mia", "Sara", "Anna", "Lucy", "Emma", "Kate", "Zoe", "Rose", "Daisy", "Jane", "Ella", "Bella",
              "Nina", "Fiona", "Olivia")),
    "colour": ("The big ball was {}.", "The color of the big ball was",
               ("red", "blue", "green", "yellow", "pink", "white", "black", "purple", "orange", "brown")),
}
CHOICES = 8  # facts of a kind that are used, at most
PLACES = {"start": 0.0, "middle": 0.5, "end": 1.0}


def plain_sentences(path):
    """Sentences of a text that name nobody and tell no fact: no speech, one capital, at the beginning, and that of a
    word which the text has without a capital as well."""
    documents = read_documents(path)
    words = set(re.findall(r"(?<![A-Za-z])[a-z]+", "\n".join(documents))) - {name.lower() for name in KINDS["name"][2]}
    colours = "|".join(KINDS["colour"][2])
    found = []
    for document in documents:
        for sentence in re.split(r"(?<=[.!?])\s+", document):
            if (re.fullmatch(r"[A-Z][a-z ,']*[a-z][.!?]", sentence) and len(sentence.split()) > 3
                    and sentence.split()[0].lower().rstrip(",") in words
                    and not re.search(rf"\b(ball|name|named|girl|{colours})\b", sentence)):
                found.append(sentence)
    if len(found) < 20:
        raise UserError(f"{path}: only {len(found)} plain sentences (one capital, no speech); 20 are needed for filler")
    return found


def filler(sentences, words, rng):
    """Sentences with so many words in all: whole ones in random order, the last one's beginning dropped where it is too
    long."""
    chosen, room = [], words
    while room > 0:
        sentence = sentences[rng.integers(len(sentences))].split()
        chosen.append(" ".join(sentence[-room:]).capitalize() if len(sentence) > room else " ".join(sentence))
        room -= len(sentence)
    return chosen


def choices(reader, kind):
    """{fact: first token of it after the question}: facts of a kind that begin with different tokens. Raises UserError
    where the tokenizer leaves fewer than two."""
    _, question, facts = KINDS[kind]
    before, firsts = reader.encode(question), {}
    for fact in facts:
        tokens = reader.encode(f"{question} {fact}")
        if tokens[: len(before)] == before and tokens[len(before)] not in firsts.values() and len(firsts) < CHOICES:
            firsts[fact] = tokens[len(before)]
    if len(firsts) < 2:
        raise UserError(f"the tokenizer begins every {kind} with the same token")
    return firsts


def compose(kind, fact, sentences, place):
    """A text: the fact's sentence at `place` (0 first, 1 last) among filler sentences, and the question."""
    statement, question, _ = KINDS[kind]
    at = round(place * len(sentences))
    return " ".join([*sentences[:at], statement.format(fact), *sentences[at:], question])


class Reader:
    """A model that says what comes after a text: log probabilities [texts, vocabulary] of `after(texts)`, token lists.

    PyTorch where it is installed and the model is a training run's folder, else the float reference.
    """

    ROWS = 16384  # tokens at once

    def __init__(self, path):
        self.config, self.weights, section = originals.load(path)
        if section is None:
            raise UserError(f"{path}: has no tokenizer; tokenizer.json or tokenizer.bin is needed beside it")
        self.tokenizer = Tokenizer(section)
        self.torch = None
        if originals.kind(path) == "folder" and importlib.util.find_spec("torch"):
            import torch

            from tools.model import load_model

            self.torch, self.model = torch, load_model(path)

    def after(self, texts):
        if self.torch is None:
            return log_softmax(np.stack([floating.forward(self.config, self.weights, tokens)[-1] for tokens in texts]))
        result = np.empty((len(texts), self.config.vocab_size))
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        while order:
            longest = len(texts[order[-1]])
            rows, order = order[-max(1, self.ROWS // longest) :], order[: -max(1, self.ROWS // longest)]
            tokens = self.torch.zeros(len(rows), longest, dtype=self.torch.long)
            for row, i in enumerate(rows):
                tokens[row, : len(texts[i])] = self.torch.tensor(texts[i])  # what follows changes nothing before it
            starts = self.torch.zeros_like(tokens, dtype=self.torch.bool)
            starts[:, 0] = True
            with self.torch.inference_mode():
                logits = self.model(tokens, starts).double().numpy()
            for row, i in enumerate(rows):
                result[i] = log_softmax(logits[row, len(texts[i]) - 1])
        return result


def score(reader, questions, firsts):
    """How well facts are recalled. questions: [(fact, text)]; firsts: {fact: its first token}.

    {"texts", "choices", "first": share in which the fact's first token is the likeliest of the vocabulary, "choice":
    the likeliest of the facts', "nats": mean of minus its log probability, "margin": mean log probability above the
    other facts' mean}.
    """
    bos = reader.config.bos_token_id
    p = reader.after([[bos, *reader.tokenizer.encode(text)] for _, text in questions])
    ids = np.array(list(firsts.values()))
    right = np.array([firsts[fact] for fact, _ in questions])
    own = p[np.arange(len(p)), right]
    among = p[:, ids]
    others = (among.sum(1) - own) / (len(ids) - 1)
    return {"texts": len(questions), "choices": len(ids), "first": float((p.argmax(1) == right).mean()),
            "choice": float((ids[among.argmax(1)] == right).mean()), "nats": float(-own.mean()),
            "margin": float((own - others).mean())}


def measure(path, text=HELD_OUT, texts=10, distances=DISTANCES, words=WORDS, seed=1):
    """Recall of an original: {"names": rows by distance, "facts": rows by kind and place, "words"}; each row `score`'s
    with "place", words between or "name, start" and so on. `texts`: fillers for each fact. Raises UserError."""
    reader, sentences = Reader(path), plain_sentences(text)
    rng = np.random.default_rng(seed)
    result = {"names": [], "facts": [], "words": words}
    firsts = choices(reader.tokenizer, "name")
    for distance in distances:
        fillers = [filler(sentences, distance, rng) for _ in range(texts)]
        questions = [(fact, compose("name", fact, part, 0)) for part in fillers for fact in firsts]
        result["names"].append({"place": distance, **score(reader, questions, firsts)})
    fillers = [filler(sentences, words, rng) for _ in range(texts)]
    for kind in KINDS:
        firsts = choices(reader.tokenizer, kind)
        for name, place in PLACES.items():
            questions = [(fact, compose(kind, fact, part, place)) for part in fillers for fact in firsts]
            result["facts"].append({"place": f"{kind}, {name}", **score(reader, questions, firsts)})
    return result


@command
def main(argv=None):
    p = Parser(prog="python -m tools.recall", description=__doc__.splitlines()[0])
    p.add_argument("original", type=pathlib.Path, help="a training run, weights/NAME, or another float original")
    p.add_argument("--text", type=pathlib.Path, default=HELD_OUT, help="held-out text to take filler from (default: "
                   "the stories that ship with the tests)")
    p.add_argument("--texts", type=between(int, 1, 1000), default=10,
                   help="fillers for each fact (default %(default)s)")
    p.add_argument("--distances", type=between(int, 1, 100000), nargs="+", default=DISTANCES, metavar="WORDS",
                   help="words between a name and its return (default: " + " ".join(map(str, DISTANCES)) + ")")
    p.add_argument("--words", type=between(int, 1, 100000), default=WORDS, help="of the texts with a fact planted in "
                   "them (default %(default)s)")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    args = p.parse_args(argv)
    found = measure(args.original, args.text, args.texts, args.distances, args.words)
    if args.json:
        print(json.dumps({"original": str(args.original), **found}))
        return 0
    for row in found["names"]:
        print(f"a name, {row['place']} words between: {100 * row['choice']:.0f}% right of {row['choices']} "
              f"(chance {100 / row['choices']:.0f}%), {100 * row['first']:.0f}% likeliest of all tokens, "
              f"{row['nats']:.2f} nats")
    for row in found["facts"]:
        print(f"{row['place']} of {found['words']} words: {100 * row['choice']:.0f}% right of "
              f"{row['choices']}, {100 * row['first']:.0f}% likeliest of all tokens, {row['nats']:.2f} nats")
    return 0


if __name__ == "__main__":
    sys.exit(main())
