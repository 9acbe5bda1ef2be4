"""Training text: documents, the pieces they are cut into, and rows of pieces packed into batches.

A document t1..tn is fed as [end] t1..tn and predicts t1..tn [end]. One longer than a row is cut, at the end of a line
where it can be, into pieces that each begin with fresh state.
"""

import pathlib
import zlib

import numpy as np

from tools.bpe import END, token_bytes
from tools.errors import UserError

#: How many pieces wait to be packed: the more, the fuller the rows, and the less random their order.
POOL = 256
#: A piece is cut at a line's end if that leaves it at least this share of a full row.
SHORTEST_CUT = 0.6


def read_documents(path):
    """The documents of a UTF-8 file, without their outer newlines; lines that equal END separate them.

    Raises UserError when the file is missing, not UTF-8, or holds no document.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; text with {END} lines between documents is needed")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 (byte {error.start})") from None
    documents, lines = [], []
    for line in [*text.split("\n"), END]:
        if line == END:
            document = "\n".join(lines).strip("\n")
            if document.strip():
                documents.append(document)
            lines = []
        else:
            lines.append(line)
    if not documents:
        raise UserError(f"{path}: holds no document; put text in it, with {END} lines between documents")
    return documents


class Corpus:
    """A file's documents as one run of ids, [end] t1..tn [end] t1..tn ... [end], and the pieces it is cut into.

    ids: uint16 [tokens]; begin, length: int [pieces]: a piece's inputs are ids[begin : begin + length] and its targets
    those one further on; n_bytes: UTF-8 bytes of the documents, the ends not counted; soft: None, or what a teacher
    expects after each of ids[:-1], see `tools.distil.soft_targets`.
    """

    soft = None

    def __init__(self, documents, tokenizer, longest):
        self.n_bytes = sum(len(document.encode("utf-8")) for document in documents)
        line_end = np.array([token.endswith(b"\n") for token in token_bytes(tokenizer)])
        parts, begin, length = [np.zeros(1, np.uint16)], [], []
        offset = 0
        for first in range(0, len(documents), 1024):  # a block at a time: the library's encodings are large
            for encoding in tokenizer.encode_batch_fast(documents[first:first + 1024]):
                ids = np.array([*encoding.ids, 0], np.uint16)
                parts.append(ids)
                for start, size in cut(line_end[ids], longest):
                    begin.append(offset + start)
                    length.append(size)
                offset += len(ids)
        self.ids = np.concatenate(parts)
        self.begin = np.array(begin)
        self.length = np.array(length)

    @property
    def n_predicted(self):
        """How many tokens the documents predict, their ends included."""
        return len(self.ids) - 1

    def checksum(self):
        return zlib.crc32(self.ids.tobytes())

    def piece_checksum(self):
        return zlib.crc32(self.begin.tobytes())


def cut(line_end, longest):
    """(start, size) of pieces no longer than `longest` that cover len(line_end) predictions, in order.

    line_end: bool, whether the target at that place ends a line, where a cut is best.
    """
    pieces, start = [], 0
    while len(line_end) - start > longest:
        size = longest
        ends = np.flatnonzero(line_end[start + int(longest * SHORTEST_CUT):start + longest])
        if len(ends):
            size = int(longest * SHORTEST_CUT) + int(ends[-1]) + 1
        pieces.append((start, size))
        start += size
    pieces.append((start, len(line_end) - start))
    return pieces


def arrays(rows, seq):
    """tokens, targets (int64) and starts (bool), each [rows, seq], of rows of (corpus, piece) pairs.

    What a row does not fill is [end] tokens that start anew and predict nothing (target -1). Where the corpora have
    soft targets, their ids (int64) and probabilities (float32) follow, each [rows, seq, N].
    """
    tokens = np.zeros((len(rows), seq), np.int64)
    targets = np.full((len(rows), seq), -1, np.int64)
    starts = np.ones((len(rows), seq), bool)
    soft = ()
    if rows[0][0][0].soft is not None:
        shape = len(rows), seq, rows[0][0][0].soft[0].shape[1]
        soft = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
    for row, pieces in enumerate(rows):
        at = 0
        for corpus, piece in pieces:
            begin, size = corpus.begin[piece], corpus.length[piece]
            tokens[row, at:at + size] = corpus.ids[begin:begin + size]
            targets[row, at:at + size] = corpus.ids[begin + 1:begin + size + 1]
            starts[row, at + 1:at + size] = False
            for part, whole in zip(soft, corpus.soft or ()):
                part[row, at:at + size] = whole[begin:begin + size]
            at += size
    return tokens, targets, starts, *soft


class Batches:
    """An endless stream of packed batches, repeatable from its seed and resumable from `state()`.

    Each corpus is gone through in a new random order every time round; the next piece comes from the corpus that is
    furthest below its share of tokens, so the mix holds at every moment. A row takes the piece that has waited
    longest, then the largest that still fits, until none does.
    """

    def __init__(self, corpora, weights, seq, batch, seed):
        self.corpora, self.seq, self.batch, self.seed = corpora, seq, batch, seed
        self.weights = weights
        self.rounds = [0] * len(corpora)
        self.places = [0] * len(corpora)
        self.drawn = [0] * len(corpora)
        self.pool = []
        self.orders = [self._order(which) for which in range(len(corpora))]

    def _order(self, which):
        rng = np.random.default_rng([self.seed, which, self.rounds[which]])
        return rng.permutation(len(self.corpora[which].begin))

    def state(self):
        return {"rounds": list(self.rounds), "places": list(self.places), "drawn": list(self.drawn),
                "pool": [list(item) for item in self.pool]}

    def restore(self, state):
        self.rounds, self.places, self.drawn = list(state["rounds"]), list(state["places"]), list(state["drawn"])
        self.pool = [tuple(item) for item in state["pool"]]
        self.orders = [self._order(which) for which in range(len(self.corpora))]

    def _draw(self):
        which = min((n for n, weight in enumerate(self.weights) if weight),
                    key=lambda n: self.drawn[n] / self.weights[n])
        if self.places[which] == len(self.orders[which]):
            self.places[which] = 0
            self.rounds[which] += 1
            self.orders[which] = self._order(which)
        piece = int(self.orders[which][self.places[which]])
        self.places[which] += 1
        self.drawn[which] += int(self.corpora[which].length[piece])
        return which, piece

    def _row(self):
        while len(self.pool) < POOL:
            self.pool.append(self._draw())
        room, row, at = self.seq, [], 0
        while at is not None:
            which, piece = self.pool.pop(at)
            row.append((self.corpora[which], piece))
            room -= int(self.corpora[which].length[piece])
            sizes = [int(self.corpora[which].length[piece]) for which, piece in self.pool]
            fitting = [n for n, size in enumerate(sizes) if size <= room]
            at = max(fitting, key=sizes.__getitem__, default=None)
        return row

    def next(self):
        """tokens, targets, starts: see `arrays`."""
        return arrays([self._row() for _ in range(self.batch)], self.seq)


def alike_in_length(corpus, tokens_per_batch=4096):
    """All pieces of a corpus, as arrays of those to read together, the longest first: so little is padding."""
    order = np.argsort(-corpus.length, kind="stable")
    at = 0
    while at < len(order):
        rows = max(1, tokens_per_batch // int(corpus.length[order[at]]))
        yield order[at:at + rows]
        at += rows


def validation_batches(corpus):
    """Batches of whole pieces from fresh state; see `arrays`."""
    for pieces in alike_in_length(corpus):
        yield arrays([[(corpus, piece)] for piece in pieces], int(corpus.length[pieces[0]]))
