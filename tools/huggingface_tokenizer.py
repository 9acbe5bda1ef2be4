"""A Hugging Face tokenizer.json of the SentencePiece kind (BPE with byte fallback, as Llama 2's) as a kind-1 section.

The file lists merges in order; kind 1 gives each token a score and merges any two neighbours that make one, the best
score first and the leftmost of equals (docs/tokenizer.md). The two are the same if the merges are exactly the pairs of
tokens that make a token, grouped by what they make. What is left then is several merges that make the same token:
where they compete for the same characters, both ways of encoding are compared, and a difference is refused.
"""

import json

from tools import bpe
from tools.errors import UserError
from tools.tokenizer import FIRST_PLAIN, Tokenizer, section_from_scores

SPACE = "\u2581"
NEVER = -1e11  # a score that llama2.c never merges
OTHER = "give a llama2.c tokenizer with --tokenizer"
NORMALIZER = [{"type": "Prepend", "prepend": SPACE},
              {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]


def section_from_huggingface(path, document):
    """The section (bytes, kind 1) of a parsed tokenizer.json. UserError names what a board would do differently."""
    try:
        special = {token["content"]: token["id"] for token in document.get("added_tokens") or []}
        vocab, merges = _checked(path, document, special)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path}: not a tokenizer.json ({type(error).__name__}: {error})") from None
    names = sorted(vocab, key=vocab.get)
    rank = _ranks(path, names, special, merges)
    pieces = [b"" if name in special else name.replace(SPACE, " ").encode() for name in names]
    section = section_from_scores(path, pieces, [-rank[name] if name in rank else NEVER for name in names])
    _compare(path, document, section, [name for name in names[FIRST_PLAIN:] if name not in special], merges)
    return section


def _checked(path, document, special):
    """(vocab, merges as pairs) of a document whose other settings are those of kind 1."""
    model = document["model"]
    if model.get("type", "BPE") != "BPE":
        raise UserError(f"{path}: the model is {model['type']}, not BPE")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
        if model.get(name):
            raise UserError(f"{path}: the model sets {name}, which the board does not do")
    normalizer = document.get("normalizer") or {}
    if normalizer.get("type") != "Sequence" or normalizer.get("normalizers") != NORMALIZER:
        raise UserError(f"{path}: its normalizer does not put a space before every text and {SPACE} for spaces, as the "
                        "board does")
    if document.get("pre_tokenizer"):
        raise UserError(f"{path}: its pre-tokenizer is {document['pre_tokenizer'].get('type')}; the board has none")
    vocab = dict(model["vocab"])
    _check_template(path, document.get("post_processor"), vocab)
    for token in document.get("added_tokens") or []:
        if not token.get("special"):
            raise UserError(f"{path}: added token {token['content']!r} is cut out of texts; the board does not do that")
    for name, token in special.items():
        if vocab.setdefault(name, token) != token:
            raise UserError(f"{path}: added token {name!r} has two ids")
    if not all(isinstance(i, int) for i in vocab.values()) or sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"{path}: the ids of its {len(vocab)} tokens are not 0 to {len(vocab) - 1}")
    if len(vocab) > 65536:
        raise UserError(f"{path}: a vocabulary of {len(vocab)}; at most 65536 ids fit")
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    for pair in pairs:
        if len(pair) != 2 or not all(part in vocab for part in (*pair, "".join(pair))):
            raise UserError(f"{path}: merge {pair!r} is not one of two tokens to a third")
    return vocab, pairs


def _check_template(path, post, vocab):
    """The board begins every text with BOS, id 1, and ends none: so must the file, or leave it to the caller."""
    if post is None:
        return
    single = post.get("single") if post.get("type") == "TemplateProcessing" else None
    kinds = [next(iter(part)) for part in single or []]
    if kinds not in (["Sequence"], ["SpecialToken", "Sequence"]):
        raise UserError(f"{path}: its post_processor does more than to begin a text with one token")
    if len(kinds) == 2 and vocab.get(single[0]["SpecialToken"]["id"]) != 1:
        raise UserError(f"{path}: texts begin with {single[0]['SpecialToken']['id']!r}, which is not id 1")


def _ranks(path, names, special, merges):
    """{token: its place among what merges make, the first made first}. UserError: merges are not what scores do."""
    for token in range(3):
        if names[token] not in special:
            raise UserError(f"{path}: id {token} is {names[token]!r}, not a special token, as ids 0 to 2 must be")
    plain = set(names[FIRST_PLAIN:]) - set(special)
    rank, last = {}, None
    for left, right in merges:
        product = left + right
        if not {left, right, product} <= plain or " " in product:
            raise UserError(f"{path}: merge {left!r} + {right!r} is of special or byte tokens, or of spaces")
        if product != last and product in rank:
            raise UserError(f"{path}: merge {left!r} + {right!r} comes apart from the others that make {product!r}: "
                            f"its order is not one of scores; {OTHER}")
        rank.setdefault(product, len(rank))
        last = product
    listed = set(merges)
    for product in rank:
        for cut in range(1, len(product)):
            pair = product[:cut], product[cut:]
            if pair not in listed and set(pair) <= plain:
                raise UserError(f"{path}: {pair[0]!r} + {pair[1]!r} would make {product!r} by its score, but is not "
                                f"among the merges; {OTHER}")
    return rank


def _competing(merges):
    """Texts in which two merges that make one token want the same characters, or its repetition decides."""
    makers = {}
    for left, right in merges:
        makers.setdefault(left + right, []).append((left, right))
    for product, pairs in makers.items():
        if len(pairs) < 2:
            continue
        for left, right in pairs:
            for other in pairs:
                if other[0] == right and other != (left, right):
                    for times in range(1, 4):
                        yield left + right * times + other[1]
                        yield (left + right) * times + other[1]
            for text in (product + left, right + product):
                if text in makers:
                    yield product * 2
                    yield product * 3
        if len(set(product)) == 1:
            for length in range(2, 3 * len(product) + 2):
                yield product[0] * length


def _compare(path, document, section, plain, merges):
    """Encode every token's own text and what `_competing` gives with the library and with the section."""
    theirs = bpe.from_json(path, json.dumps(document))
    ours = Tokenizer(section)
    around = "", "a", "a" + SPACE
    texts = dict.fromkeys([*plain, *(before + text + after for text in dict.fromkeys(_competing(merges))
                                     for before in around for after in around)])
    for text in texts:
        text = text.replace(SPACE, " ")
        if theirs.encode(text, add_special_tokens=False).ids != ours.encode(text):
            raise UserError(f"{path}: {text!r} has other tokens when the leftmost of equal merges comes first, as on "
                            f"the board; {OTHER}")
