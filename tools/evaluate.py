"""How well a model predicts a text, by any engine: `python -m tools.evaluate MODEL.scribe --text FILE`.

Every document begins afresh. Nats are summed over all of its tokens and the end token; bytes are those of its UTF-8
text, so bits per byte can be compared between vocabularies.
"""

import json
import math
import pathlib
import sys

import numpy as np

from tools.engines import log_softmax, open_engine
from tools.errors import Parser, UserError, command
from tools.logits import add_model_arguments, texts_of
from tools.tokenizer import Tokenizer


def targets_of(config, tokens):
    """What a text's tokens predict: those after the first, and the end token."""
    return np.array([*tokens[1:], config.eos_token_id])


def nats_of(engine, tokens):
    """Nats [T] of each token of a text after its first, the end token included."""
    targets = targets_of(engine.packed.config, tokens)
    result, at = [], 0
    for logits in engine.pieces(tokens):
        p = log_softmax(logits * engine.scale)
        result.append(-p[np.arange(len(p)), targets[at : at + len(p)]])
        at += len(p)
    return np.concatenate(result)


def evaluate(engine, texts, progress=None):
    """{documents, tokens, bytes, nats_per_token, bits_per_byte} of token lists that begin with the beginning token."""
    reader = Tokenizer(engine.packed.tokenizer)
    total, count, size = 0.0, 0, 0
    for i, tokens in enumerate(texts):
        nats = nats_of(engine, tokens)
        total, count = total + float(nats.sum()), count + len(nats)
        size += len(reader.decode(tokens))
        if progress:
            progress(i + 1, len(texts))
    return {"documents": len(texts), "tokens": count, "bytes": size, "nats_per_token": total / count,
            "bits_per_byte": total / math.log(2) / max(size, 1)}


def show(done, of):
    if sys.stderr.isatty():
        print(f"\r{done} of {of} documents", end="" if done < of else "\n", file=sys.stderr, flush=True)


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.evaluate", description=__doc__.splitlines()[0])
    add_model_arguments(parser)
    parser.add_argument("--text", type=pathlib.Path, required=True, help="a text file; lines that are <|endofstory|> "
                        "separate documents")
    parser.add_argument("--documents", type=int, help="only the first so many")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args(argv)
    if args.documents is not None and args.documents < 1:
        raise UserError("--documents must be 1 or more")
    engine = open_engine(args.engine, args.model, args.original)
    texts = texts_of(args.text, engine.packed)[: args.documents]
    figures = {"model": str(args.model), "engine": args.engine, **evaluate(engine, texts, show)}
    if args.json:
        print(json.dumps(figures))
    else:
        print(f"{args.model}, {args.engine}: {figures['documents']} documents, {figures['tokens']:,} tokens, "
              f"{figures['bytes']:,} bytes: {figures['nats_per_token']:.4f} nats per token, "
              f"{figures['bits_per_byte']:.4f} bits per byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
