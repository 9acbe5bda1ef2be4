"""The float originals of models, whatever wrote them: one call gives the config, the weights and the tokenizer.

A folder that training (or `--original`) wrote, a Hugging Face folder, or a llama2.c .bin file. No pickle is ever read.
"""

import json
import pathlib

from tools import checkpoint, huggingface, llama2c
from tools.errors import UserError
from tools.huggingface_tokenizer import section_from_huggingface
from tools.tokenizer import section_from_json, section_from_llama2c


def kind(path):
    """"folder" (ours), "huggingface" or "llama2c". Raises UserError: it is none of them."""
    path = pathlib.Path(path)
    if path.is_file():
        return "llama2c"
    if not path.is_dir():
        raise UserError(f"{path}: no such file or folder")
    config = path / "config.json"
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{config}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{config}: not JSON ({error})") from None
    return "huggingface" if isinstance(values, dict) and "recipe" not in values else "folder"


def load_model(path, slide=False):
    """(Config, {name: float64 tensor}). `slide`: a Llama is to go on past its length. Raises UserError."""
    reader = {"folder": checkpoint.load, "huggingface": lambda p: huggingface.read(p, slide),
              "llama2c": lambda p: llama2c.read(p, slide)}[kind(path)]
    return reader(path)


def load_tokenizer(path, vocab_size, tokenizer=None):
    """The tokenizer section (bytes) of an original, or None where it has none.

    `tokenizer`: a llama2.c tokenizer.bin or a tokenizer.json to take instead of its own. A folder's own is
    tokenizer.json or tokenizer.bin. Raises UserError for one that can't be represented exactly.
    """
    if tokenizer is not None:
        return _section(pathlib.Path(tokenizer), vocab_size)
    for name in ("tokenizer.json", "tokenizer.bin"):
        own = pathlib.Path(path) / name
        if own.is_file():
            return _section(own, vocab_size)
    return None


def _section(path, vocab_size):
    if path.suffix != ".json":
        return section_from_llama2c(path, vocab_size)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        fallback = document["model"].get("byte_fallback")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        fallback = False  # section_from_json says what is wrong with it
    return section_from_huggingface(path, document) if fallback else section_from_json(path)


def load(path):
    """(Config, {name: float64 tensor}, tokenizer section as bytes or None). Raises UserError."""
    config, weights = load_model(path)
    return config, weights, load_tokenizer(path, config.vocab_size)
