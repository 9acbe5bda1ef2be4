"""Logits of given tokens or of a text, by any engine: `python -m tools.logits MODEL.scribe --tokens 5,17,3 -o OUT.npz`.

The file holds `logits` [tokens, vocabulary], `scale` (logits times scale are nats), `tokens` and `starts` (the index of
each text's first token: a text of --text FILE begins afresh, with the model's beginning token).
"""

import pathlib
import sys

import numpy as np

from tools.data import read_documents
from tools.engines import NAMES, open_engine
from tools.errors import Parser, UserError, command
from tools.files import write_beside
from tools.tokenizer import Tokenizer


def parse_tokens(text, vocab_size):
    """Token ids of "5,17,3"."""
    try:
        tokens = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"--tokens {text!r}: whole numbers with commas between are needed") from None
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise UserError(f"--tokens: {token} is not in the vocabulary (0 to {vocab_size - 1})")
    return tokens


def texts_of(path, packed):
    """Token lists of a text file's documents, each with the beginning token first."""
    tokenizer = Tokenizer(packed.tokenizer)
    return [[packed.config.bos_token_id, *tokenizer.encode(text)] for text in read_documents(path)]


def add_model_arguments(parser):
    """The arguments that name a model and an engine."""
    parser.add_argument("model", type=pathlib.Path, help="a packed model, NAME.scribe")
    parser.add_argument("--engine", choices=NAMES, default="integer", help="default: %(default)s")
    parser.add_argument("--original", type=pathlib.Path, help="what `float` runs: a folder with config.json and "
                        "model.safetensors (default: the folder NAME beside NAME.scribe)")


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.logits", description=__doc__.splitlines()[0])
    add_model_arguments(parser)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--tokens", help="token ids, 5,17,3: one text, exactly these")
    what.add_argument("--text", type=pathlib.Path, help="a text file; lines that are <|endofstory|> separate texts")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True, help="file to write, .npz")
    args = parser.parse_args(argv)
    engine = open_engine(args.engine, args.model, args.original)
    if args.tokens is not None:
        texts = [parse_tokens(args.tokens, engine.packed.config.vocab_size)]
    else:
        texts = texts_of(args.text, engine.packed)
    logits = np.concatenate([engine.logits(tokens) for tokens in texts])
    starts = np.cumsum([0] + [len(tokens) for tokens in texts[:-1]])

    def write(path):
        with path.open("wb") as file:  # savez would add .npz to a name
            np.savez(file, logits=logits, scale=engine.scale, tokens=np.concatenate(texts), starts=starts)

    write_beside(args.output, write)
    print(f"{args.output}: {logits.shape[0]} tokens x {logits.shape[1]}, engine {args.engine}, "
          f"{engine.scale:g} nats a unit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
