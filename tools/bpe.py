"""Byte-level BPE: training a tokenizer whose ids follow one fixed rule, and loading it.

Id 0 is `<|endofstory|>`, id 1 + b is the byte b, id 257 + r is the product of the merge of rank r. Encoding text never
gives id 0: the end token is only ever put between documents by the caller.
"""

import json
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.errors import UserError

END = "<|endofstory|>"
FIRST_MERGE = 257

_LETTERS = "[A-Za-z\u0080-\U0010ffff]"
#: Text is cut into these pieces before merging, the first alternative that matches winning; a scanner of bytes that
#: takes every byte from 0x80 up as a letter gives the same pieces. In order: a word with an optional space before it
#: and one optional ending after an apostrophe; one digit; a run of newlines; a run of ASCII punctuation; any other
#: single character (space, tab, control).
PATTERN = "|".join((
    rf" ?{_LETTERS}+(?:'{_LETTERS}+)?",
    r" ?[0-9]",
    r"\n+",
    r" ?[!-/:-@\[-`{-~]+",
    r"[\x00-\x20\x7f]",
))


def byte_characters():
    """The printable stand-in of each byte in byte-level BPE (Radford et al. 2019, GPT-2), by byte value: 256."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in shown}
    hidden = (byte for byte in range(256) if byte not in table)
    table.update({byte: chr(256 + n) for n, byte in enumerate(hidden)})
    return [table[byte] for byte in range(256)]


def build(merges):
    """The Tokenizer of a list of (left, right) merges, in stand-in characters, with ids laid out by the rule."""
    vocab = {END: 0}
    for byte, character in enumerate(byte_characters()):
        vocab[character] = 1 + byte
    for rank, (left, right) in enumerate(merges):
        vocab[left + right] = FIRST_MERGE + rank
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(texts, vocab_size):
    """A Tokenizer of vocab_size ids learnt from an iterable of strings. Raises UserError if there is too little text.

    The learner may reach one string by two merges; only the first is kept, so that id and rank stay in step, and a
    few merges more than needed are learnt to make up for it.
    """
    if vocab_size < FIRST_MERGE:
        raise UserError(f"vocabulary of {vocab_size}: at least {FIRST_MERGE} is needed (the end and the 256 bytes)")
    wanted = vocab_size - FIRST_MERGE
    merges = []
    if wanted:  # the learner wants at least one merge
        learner = build([])
        learner.train_from_iterator(texts, trainers.BpeTrainer(
            vocab_size=256 + wanted + wanted // 8 + 16, show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
        seen = set()
        for left, right in read_merges(learner):
            if left + right not in seen and left + right != END:
                seen.add(left + right)
                merges.append((left, right))
    if len(merges) < wanted:
        most = FIRST_MERGE + len(merges)
        raise UserError(f"too little text for a vocabulary of {vocab_size}; give --vocab {most} or less")
    return build(merges[:wanted])


def load(path):
    """Read a tokenizer.json. Raises UserError when it is missing, unreadable, or cuts text or numbers ids otherwise."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; a tokenizer.json is needed")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a tokenizer.json ({error})") from None
    tokenizer = from_json(path, text)
    # Whatever else it says must be what building one from its merges says.
    if json.loads(tokenizer.to_str()) != json.loads(build(read_merges(tokenizer)).to_str()):
        raise UserError(f"{path}: not of the kind tools/bpe.py trains (its pieces, or its order of ids)")
    return tokenizer


def from_json(path, text):
    """The library's Tokenizer from the text of a tokenizer.json. Raises UserError, which names `path`, for whatever the
    library does not take."""
    outside = _merge_outside(text)
    if outside:
        raise UserError(f"{path}: not a tokenizer.json (its merge {outside!r:.100} makes a token that is not there)")
    try:
        return Tokenizer.from_str(text)
    except BaseException as error:
        # The library raises a bare Exception for every kind of bad file. Where it panics, that is a BaseException.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise UserError(f"{path}: not a tokenizer.json ({error})") from None
        raise


def _merge_outside(text):
    """A merge whose product is not in the vocabulary, or None. The library panics at one longer than all tokens."""
    try:
        model = json.loads(text)["model"]
        if model.get("continuing_subword_prefix"):
            return None
        for merge in model["merges"]:
            if "".join(merge if isinstance(merge, list) else merge.split(" ")) not in model["vocab"]:
                return merge
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # not of this shape: the library says what is wrong
    return None


def read_merges(tokenizer):
    """The (left, right) merges of a Tokenizer in rank order, in stand-in characters; [] if it is not BPE."""
    merges = json.loads(tokenizer.to_str())["model"].get("merges") or []
    return [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in merges]


def token_bytes(tokenizer):
    """The bytes of each id, a list of `bytes`; those of id 0, the end token, are empty."""
    value = {character: byte for byte, character in enumerate(byte_characters())}
    size = tokenizer.get_vocab_size()
    return [b""] + [bytes(value[c] for c in tokenizer.id_to_token(i)) for i in range(1, size)]
