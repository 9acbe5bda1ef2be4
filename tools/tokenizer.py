"""Tokenizer sections: built from a tokenizer.json or a llama2.c tokenizer.bin, checked, and used on the host.

The layout is in docs/tokenizer.md. The Tokenizer here shares no code with device/scribe/tokenizer.py: tests hold one
against the other.
"""

import heapq
import json
import pathlib
import re
import struct
from typing import NamedTuple

import numpy

from tools.errors import UserError

MAGIC = b"TOK1"
HEADER = struct.Struct("<4sBBHIHHIIHHI")
END = "<|endofstory|>"
NONE = 0xFFFF  # in the order of scores: never merged
FIRST_MERGE = 257  # kind 0: the end token, the 256 bytes, then merges by rank
FIRST_PLAIN = 259  # kind 1: unknown, BOS, EOS, the 256 bytes, then what text may match

#: The pattern the trainer must have used, as in tools/bpe.py (which needs a library this module does without).
PATTERN = (" ?[A-Za-z\u0080-\U0010ffff]+(?:'[A-Za-z\u0080-\U0010ffff]+)?| ?[0-9]|\\n+"
           r"| ?[!-/:-@\[-`{-~]+|[\x00-\x20\x7f]")
_PIECE = re.compile(rb" ?[A-Za-z\x80-\xff]+(?:'[A-Za-z\x80-\xff]+)?| ?[0-9]|\n+| ?[!-/:-@\[-`{-~]+|[\x00-\x20\x7f]")
_CHARACTER = re.compile(rb"[\x00-\xff][\x80-\xbf]{0,3}")
_WORD = re.compile(rb" +[^ ]*|[^ ]+")
_CACHED_BYTES = 64
_CACHED_PIECES = 1 << 17


class _Section(NamedTuple):
    kind: int
    pieces: list  # bytes of each token, empty for control tokens
    pairs: list  # (left, right, product), sorted
    order: list  # kind 1: by token, 0 for the best score, NONE for never; empty for kind 0


# ---- building ----

def section_from_json(path):
    """The section (bytes, kind 0) of a Hugging Face tokenizer.json made by tools/bpe.py. UserError: anything else."""
    try:
        document = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON file ({error})") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: not a tokenizer.json: it holds no object")
    try:
        _check_settings(path, document)
        pieces, pairs = _byte_level(path, document["model"])
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a tokenizer.json ({type(error).__name__}: {error})") from None
    return _build(_Section(0, pieces, pairs, []))


def _check_settings(path, document):
    model = document.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or "merges" not in model:
        raise UserError(f"{path}: the model is not BPE; only byte-level BPE runs on the board")
    for name in ("normalizer", "post_processor"):
        value = document.get(name)
        if value is not None and not (name == "post_processor" and value.get("type") == "ByteLevel"):
            raise UserError(f"{path}: it has a {name}, which the board does not do; train one without")
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"):
        if model.get(name):
            raise UserError(f"{path}: the model sets {name}, which the board does not do")
    for token in document.get("added_tokens") or []:
        if token.get("content") != END or token.get("id") != 0:
            raise UserError(f"{path}: added token {token.get('content')!r}: only {END} as id 0 is possible")
    steps = document.get("pre_tokenizer")
    steps = steps.get("pretokenizers") if isinstance(steps, dict) and steps.get("type") == "Sequence" else None
    if not isinstance(steps, list) or [step.get("type") for step in steps] != ["Split", "ByteLevel"]:
        raise UserError(f"{path}: the pre-tokenizer must be a Split followed by ByteLevel, as tools/bpe.py makes them")
    split, level = steps
    pattern = split.get("pattern")
    if not isinstance(pattern, dict) or pattern.get("Regex") != PATTERN:
        raise UserError(f"{path}: the pre-tokenizer's pattern is not the one the board's scanner follows")
    if split.get("behavior") != "Isolated" or split.get("invert"):
        raise UserError(f"{path}: the pre-tokenizer's Split must isolate what matches")
    if level.get("add_prefix_space") or level.get("use_regex", True):
        raise UserError(f"{path}: ByteLevel must add no prefix space and use no pattern of its own")


def _byte_characters():
    """The stand-in character of each byte in byte-level BPE (GPT-2's table), by byte value."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + n) for n, byte in enumerate(hidden)}}


def _byte_level(path, model):
    """(pieces, pairs) of a BPE model whose ids follow the rule. UserError names the first that does not."""
    vocab, merges = model.get("vocab"), model["merges"]
    if not isinstance(vocab, dict) or not isinstance(merges, list):
        raise UserError(f"{path}: the model has no vocabulary or no merges")
    if vocab.get(END) != 0:
        raise UserError(f"{path}: id 0 is not {END}")
    characters = _byte_characters()
    for byte, character in characters.items():
        if vocab.get(character) != 1 + byte:
            raise UserError(f"{path}: byte {byte} has id {vocab.get(character)}, not {1 + byte}")
    if len(vocab) != FIRST_MERGE + len(merges):
        raise UserError(f"{path}: {len(vocab)} tokens where {len(merges)} merges make {FIRST_MERGE + len(merges)}")
    if len(vocab) > 65535:
        raise UserError(f"{path}: a vocabulary of {len(vocab)}; at most 65535 ids fit")
    value = {character: byte for byte, character in characters.items()}
    pairs = []
    for rank, merge in enumerate(merges):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        product = FIRST_MERGE + rank
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise UserError(f"{path}: merge {rank} is not a pair")
        left, right = (vocab.get(part, 0) for part in parts)
        if vocab.get("".join(parts)) != product or not 0 < left < product > right > 0:
            raise UserError(f"{path}: merge {rank} ({' + '.join(parts)}) must make id {product} from smaller ids")
        pairs.append((left, right, product))
    pieces = [b""] * len(vocab)
    for text, token in vocab.items():
        if token:
            pieces[token] = bytes(value[character] for character in text)
    return pieces, sorted(pairs)


def section_from_llama2c(path, vocab_size):
    """The section (bytes, kind 1) of a llama2.c tokenizer.bin of vocab_size tokens. UserError: it is not one.

    The file does not say its own size: a wrong vocab_size is found by what is left over or missing.
    """
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    if not FIRST_PLAIN <= vocab_size <= 65536:
        raise UserError(f"{path}: a vocabulary of {vocab_size}; it must be {FIRST_PLAIN} to 65536")
    pieces, scores = [], []
    at = 4
    for token in range(vocab_size):
        if at + 8 > len(data):
            raise UserError(f"{path}: it ends after {token} tokens; the model has {vocab_size}")
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= len(data) - at:
            raise UserError(f"{path}: token {token} is damaged (length {length})")
        pieces.append(data[at:at + length])
        scores.append(score)
        at += length
    if at != len(data):
        raise UserError(f"{path}: {len(data) - at} bytes are left after {vocab_size} tokens; is it of this model?")
    return section_from_scores(path, pieces, scores)


def section_from_scores(path, pieces, scores):
    """The section (bytes, kind 1) of the bytes and scores of every token by id, as a llama2.c tokenizer.bin has them.

    UserError, naming `path`: the ids from 3 are not the byte tokens, or there is no space.
    """
    pieces, vocab_size = list(pieces), len(pieces)
    for byte in range(256):
        if pieces[3 + byte] != b"<0x%02X>" % byte:
            raise UserError(f"{path}: id {3 + byte} is {pieces[3 + byte]!r}, not the byte token <0x{byte:02X}>")
        pieces[3 + byte] = bytes([byte])
    pieces[:3] = [b"", b"", b""]
    ids = _plain_ids(pieces)
    if b" " not in ids:
        raise UserError(f"{path}: no token for the space, which begins every text")
    # llama2.c looks for a score above -1e10: the others (and NaN) never merge.
    merging = {token: scores[token] for token in ids.values() if scores[token] > -1e10}
    rank = {score: n for n, score in enumerate(sorted(set(merging.values()), reverse=True))}
    order = [rank[merging[token]] if token in merging else NONE for token in range(vocab_size)]
    return _build(_Section(1, pieces, _scored_pairs(pieces, order), order))


def _plain_ids(pieces):
    """The id of each string that text may match (kind 1): not control or byte tokens; the lowest of equal ones."""
    ids = {}
    for token in range(FIRST_PLAIN, len(pieces)):
        if pieces[token]:
            ids.setdefault(pieces[token], token)
    return ids


def _scored_pairs(pieces, order):
    """Every (left, right, product) of plain tokens whose concatenation is a plain token that may merge, sorted."""
    ids = _plain_ids(pieces)
    pairs = []
    for piece, product in ids.items():
        if order[product] != NONE:
            for cut in range(1, len(piece)):
                left, right = ids.get(piece[:cut]), ids.get(piece[cut:])
                if left is not None and right is not None:
                    pairs.append((left, right, product))
    return sorted(pairs)


def _build(section):
    """The bytes of a section. UserError: a token or the whole is too large."""
    kind, pieces, pairs, order = section
    size = len(pieces)
    longest = max(map(len, pieces))
    blob = b"".join(pieces)
    if longest > 0xFFFF or len(blob) >= 1 << 23 or len(pairs) >= 1 << 21:
        raise UserError(f"the vocabulary is too large: {len(blob)} bytes, longest token {longest}, {len(pairs)} pairs")
    offsets = numpy.concatenate(([0], numpy.cumsum([len(piece) for piece in pieces])))
    first = numpy.searchsorted([left for left, _, _ in pairs], numpy.arange(size + 1))
    wide_offsets, wide_first = len(blob) > 0xFFFF, len(pairs) > 0xFFFF
    arrays = [
        offsets.astype("<u4" if wide_offsets else "<u2").tobytes(),
        first.astype("<u4" if wide_first else "<u2").tobytes(),
        numpy.array([pair[1:] for pair in pairs], "<u2").tobytes(),
    ]
    characters, rows = [], []
    if kind == 1:
        ids = _plain_ids(pieces)
        byte_ids = [ids.get(bytes([byte]), byte + 3) for byte in range(256)]
        characters = [ids[piece] for piece in sorted(ids) if len(piece) > 1 and _CHARACTER.fullmatch(piece)]
        row_of, rows = _join_rows(pieces, pairs)
        arrays += [numpy.array(part, "<u2").tobytes() for part in (order, byte_ids, characters)]
        arrays += [bytes(row_of), b"".join(rows)]
    arrays.append(blob)
    body = b"".join(part + bytes(-len(part) % 4) for part in arrays)
    bos, eos = (1, 2) if kind else (0, 0)
    return HEADER.pack(MAGIC, kind, wide_offsets | wide_first << 1, longest, size, bos, eos, len(pairs), len(blob),
                       len(characters), len(rows), HEADER.size + len(body)) + body


def _join_rows(pieces, pairs):
    """(row of each byte, distinct rows): bit y of the row of x says that some pair joins a byte x to a byte y."""
    joined = numpy.zeros((256, 256), bool)
    for left, right, _ in pairs:
        joined[pieces[left][-1], pieces[right][0]] = True
    packed = [row.tobytes() for row in numpy.packbits(joined, axis=1, bitorder="little")]
    rows = list(dict.fromkeys(packed))
    return [rows.index(row) for row in packed], rows


# ---- reading ----

def _parse(data):
    """The _Section in bytes that begin with one. UserError: its counts or offsets do not fit."""
    def bad(why):
        return UserError(f"tokenizer section: {why}")

    data = bytes(data)
    if len(data) < HEADER.size or data[:4] != MAGIC:
        raise bad("it does not begin with TOK1")
    _, kind, flags, _, size, _, _, n_pairs, n_blob, n_characters, n_rows, total = HEADER.unpack_from(data)
    if kind > 1 or not FIRST_MERGE <= size <= 65536:
        raise bad(f"kind {kind} with {size} tokens is unknown")
    at = HEADER.size

    def take(count, dtype):
        nonlocal at
        width = numpy.dtype(dtype).itemsize
        if at + count * width > len(data):
            raise bad("it is cut short")
        array = numpy.frombuffer(data, dtype, count, at).astype(int)
        at += count * width + -(count * width) % 4
        return array

    offsets = take(size + 1, "<u4" if flags & 1 else "<u2")
    first = take(size + 1, "<u4" if flags & 2 else "<u2")
    tails = take(2 * n_pairs, "<u2").reshape(n_pairs, 2)
    order = []
    if kind == 1:
        order = take(size, "<u2").tolist()
        for count, dtype in ((256, "<u2"), (n_characters, "<u2"), (256, "u1"), (32 * n_rows, "u1")):
            take(count, dtype)
    start = at
    take(n_blob, "u1")
    if at != total or at > len(data):
        raise bad(f"{len(data)} bytes where its counts ask for {at}")
    if offsets[0] or offsets[-1] != n_blob or (numpy.diff(offsets) < 0).any():
        raise bad("the offsets of the tokens are damaged")
    if first[0] or first[-1] != n_pairs or (numpy.diff(first) < 0).any() or (n_pairs and tails.max() >= size):
        raise bad("the pairs are damaged")
    pieces = [data[start + a:start + b] for a, b in zip(offsets.tolist(), offsets[1:].tolist())]
    lefts = numpy.repeat(numpy.arange(size), numpy.diff(first)).tolist()
    pairs = [(left, right, product) for left, (right, product) in zip(lefts, tails.tolist())]
    return _Section(kind, pieces, pairs, order), total


def section_check(data):
    """How many tokens a section (bytes-like) has, checked: its tables follow from its tokens. Raises UserError."""
    return len(_checked(data).pieces)


def _checked(data):
    section, total = _parse(data)
    kind, pieces, pairs, order = section
    fixed = 2 * kind + 1
    if pieces[:fixed + 256] != [b""] * fixed + [bytes([byte]) for byte in range(256)]:
        raise UserError("tokenizer section: the control tokens and the 256 bytes are not where they must be")
    if kind == 0:
        products = {product: (left, right) for left, right, product in pairs}
        made = list(range(FIRST_MERGE, len(pieces)))
        if len(pieces) > 65535 or len(pairs) != len(products) or sorted(products) != made:
            raise UserError("tokenizer section: not one merge for each token after the bytes")
        for product, (left, right) in products.items():
            if not 0 < left < product > right > 0 or pieces[left] + pieces[right] != pieces[product]:
                raise UserError(f"tokenizer section: token {product} is not what its merge makes")
    else:
        section = section._replace(pairs=_scored_pairs(pieces, order))
    if _build(section) != bytes(data)[:total]:
        raise UserError("tokenizer section: its tables are not those of its tokens")
    return section


# ---- using ----

class Tokenizer:
    """The tokenizer of a section (bytes-like): vocab_size, bos, eos, kind. Raises UserError if it is damaged."""

    def __init__(self, data):
        self.kind, self._pieces, pairs, self._order = _checked(data)
        self.vocab_size = len(self._pieces)
        self.bos, self.eos = (1, 2) if self.kind else (0, 0)
        self._cache = {}
        if self.kind == 0:
            self._merges = {(left, right): product for left, right, product in pairs}
        else:
            self._ids = _plain_ids(self._pieces)
            # Text may be cut before a space that follows something else if no token holds such a space.
            self._by_words = not any(re.search(rb"[^ ] ", piece) for piece in self._ids)

    def encode(self, text):
        """The ids (list of int) of text, str or bytes, without BOS and EOS; kind 1 with llama2.c's dummy space."""
        if isinstance(text, str):
            try:
                text = text.encode("utf-8", "surrogateescape")  # bytes from the command line come back as they were
            except UnicodeEncodeError:
                text = text.encode("utf-8", "surrogatepass")
        text = bytes(text)
        out = []
        if self.kind == 0:
            for piece in _PIECE.findall(text):
                out += self._cached(piece, piece)
        elif text:
            words = _WORD.findall(text) if self._by_words else [text]
            out += self._merge([self._ids[b" "], *self._characters(words[0])])
            for word in words[1:]:
                out += self._cached(word, word)
        return out

    def _cached(self, key, piece):
        found = self._cache.get(key)
        if found is None:
            found = self._merge([byte + 1 for byte in piece] if self.kind == 0 else self._characters(piece))
            if len(piece) <= _CACHED_BYTES and len(self._cache) < _CACHED_PIECES:
                self._cache[key] = found
        return found

    def _characters(self, text):
        symbols = []
        for character in _CHARACTER.findall(text):
            token = self._ids.get(character)
            symbols += [byte + 3 for byte in character] if token is None else [token]
        return symbols

    def _pair(self, left, right):
        """(key, product) of a pair that merges, the smallest key first, or None."""
        if self.kind == 0:
            product = self._merges.get((left, right))
            return product and (product, product)
        if left < FIRST_PLAIN or right < FIRST_PLAIN:
            return None
        product = self._ids.get(self._pieces[left] + self._pieces[right])
        return None if product is None or self._order[product] == NONE else (self._order[product], product)

    def _merge(self, symbols):
        """Merge the best pair, the leftmost of equals, until none is left. Entries are checked when popped."""
        count = len(symbols)
        after, before = list(range(1, count + 1)), list(range(-1, count - 1))
        heap = []
        for at in range(count - 1):
            pair = self._pair(symbols[at], symbols[at + 1])
            if pair:
                heap.append((pair[0], at, symbols[at], symbols[at + 1], pair[1]))
        heapq.heapify(heap)
        while heap:
            _, at, left, right, product = heapq.heappop(heap)
            other = after[at]
            if other >= count or symbols[at] != left or symbols[other] != right:
                continue
            symbols[at], symbols[other] = product, None
            after[at] = end = after[other]
            if end < count:
                before[end] = at
            for here, there in ((at, end), (before[at], at)):
                if 0 <= here and there < count:
                    pair = self._pair(symbols[here], symbols[there])
                    if pair:
                        heapq.heappush(heap, (pair[0], here, symbols[here], symbols[there], pair[1]))
        return [symbol for symbol in symbols if symbol is not None]

    def piece(self, token, previous=-1):
        """The bytes that token adds after token `previous`, b"" for control tokens. UserError: no such token."""
        if not 0 <= token < self.vocab_size:
            raise UserError(f"token {token}: the vocabulary has {self.vocab_size}")
        piece = self._pieces[token]
        strip = self.kind == 1 and previous == self.bos and token >= FIRST_PLAIN and piece.startswith(b" ")
        return piece[1:] if strip else piece

    def decode(self, tokens):
        """The bytes of tokens (list of int), as they follow BOS, whether or not BOS is in the list."""
        out, previous = [], self.bos
        for token in tokens:
            out.append(self.piece(token, previous))
            previous = token
        return b"".join(out)
