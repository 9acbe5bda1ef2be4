"""Text to token ids and back, on the board, from a tokenizer section used in place (layout: docs/tokenizer.md).

Kind 0 is byte-level BPE, kind 1 the scored BPE of llama2.c. Both share one table of pairs and one merging routine: the
best pair first, the leftmost of equals. Nothing per token is made at load: the section stays where it is.
"""

from array import array

_HEADER = 32
_NONE = 0xFFFF  # the key of a pair that does not merge
_SHORT = 24  # up to here scanning for the best pair beats keeping a heap (measured on the unix port)
_FIRST_MERGE = 257  # kind 0: ids below are the end token and the 256 bytes
_FIRST_PLAIN = 259  # kind 1: ids below are unknown, BOS, EOS and the 256 bytes; text never matches their names
_CHUNK = 128

_OTHER, _LETTER, _DIGIT, _PUNCTUATION, _NEWLINE, _SPACE = range(6)


def _byte_classes():
    classes = bytearray(256)
    for byte in range(256):
        if byte >= 0x80 or 65 <= byte & 0xDF <= 90:
            classes[byte] = _LETTER
        elif 48 <= byte <= 57:
            classes[byte] = _DIGIT
        elif 0x21 <= byte <= 0x7E:
            classes[byte] = _PUNCTUATION
    classes[10] = _NEWLINE
    classes[32] = _SPACE
    return bytes(classes)


_CLASS = _byte_classes()


def open_tokenizer(buf):
    """A Tokenizer over the section that begins at byte 0 of buf (bytes, bytearray or memoryview; kept, not copied).

    Reads it once to check it, in time linear in the vocabulary. Raises ValueError, one line, if it is damaged.
    """
    return Tokenizer(buf)


class Tokenizer:
    """An open tokenizer section: vocab_size, bos, eos, longest (bytes of the longest token), size (bytes of it)."""

    def __init__(self, buf):
        self._buf = memoryview(buf)
        self._keys = array("H", bytes(2 * _SHORT))
        self._read_header()
        self._check_offsets()
        self._check_pairs()
        if self.kind == 1:
            self._check_characters()

    # ---- the section ----

    def _u16(self, at):
        buf = self._buf
        return buf[at] | buf[at + 1] << 8

    def _u24(self, at):
        # Every 32-bit number here is below 2 ** 24, so that it stays a small integer on a 32-bit board.
        buf = self._buf
        if buf[at + 3]:
            raise ValueError("tokenizer: a number is out of range")
        return buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16

    def _read_header(self):
        buf = self._buf
        if len(buf) < _HEADER or bytes(buf[:4]) != b"TOK1":
            raise ValueError("tokenizer: not a tokenizer section")
        self.kind = kind = buf[4]
        flags = buf[5]
        if kind > 1 or flags > 3:
            raise ValueError("tokenizer: kind %d, flags %d are unknown" % (kind, flags))
        self.longest = self._u16(6)
        self.vocab_size = size = self._u24(8)
        self.bos = self._u16(12)
        self.eos = self._u16(14)
        self._pairs = pairs = self._u24(16)
        self._blob_bytes = blob = self._u24(20)
        self._characters = self._u16(24)
        self._rows = self._u16(26)
        self.size = self._u24(28)
        if kind == 0:
            good = _FIRST_MERGE <= size < 65536 and self.bos == 0 and self.eos == 0 and pairs == size - _FIRST_MERGE
            good = good and self._characters == 0 and self._rows == 0
        else:
            good = _FIRST_PLAIN <= size <= 65536 and self.bos == 1 and self.eos == 2
            good = good and self._characters <= size and 1 <= self._rows <= 256
        if not good:
            raise ValueError("tokenizer: the header's counts do not fit together")
        self._wide_offsets = flags & 1
        self._wide_first = flags & 2
        at = _HEADER
        self._offsets_at = at
        at = at + (size + 1) * (4 if flags & 1 else 2) + 3 & -4
        self._first_at = at
        at = at + (size + 1) * (4 if flags & 2 else 2) + 3 & -4
        self._pairs_at = at
        at += 4 * pairs
        if kind == 1:
            self._order_at = at
            at = at + 2 * size + 3 & -4
            self._byte_ids_at = at
            at += 512
            self._characters_at = at
            at = at + 2 * self._characters + 3 & -4
            self._row_of_at = at
            at += 256
            self._rows_at = at
            at += 32 * self._rows
        self._blob_at = at
        at = at + blob + 3 & -4
        if at != self.size or at > len(buf):
            raise ValueError("tokenizer: %d bytes where its counts ask for %d" % (len(buf), at))

    def _offset(self, token):
        if self._wide_offsets:
            return self._u24(self._offsets_at + 4 * token)
        return self._u16(self._offsets_at + 2 * token)

    def _length(self, token):
        return self._offset(token + 1) - self._offset(token)

    def _first_pair(self, left):
        if self._wide_first:
            return self._u24(self._first_at + 4 * left)
        return self._u16(self._first_at + 2 * left)

    def _check_offsets(self):
        fixed = self.kind * 2 + 1  # the control tokens, without bytes; the 256 bytes follow them in order
        before = self._offset(0)
        longest = 0
        if before:
            raise ValueError("tokenizer: the first token does not begin at 0")
        for token in range(self.vocab_size):
            after = self._offset(token + 1)
            length = after - before
            if length < 0 or after > self._blob_bytes:
                raise ValueError("tokenizer: the bytes of token %d lie outside" % token)
            if token < fixed:
                good = length == 0
            elif token < fixed + 256:
                good = length == 1 and self._buf[self._blob_at + before] == token - fixed
            else:
                good = True
            if not good:
                raise ValueError("tokenizer: token %d is not the byte or control token it must be" % token)
            if length > longest:
                longest = length
            before = after
        if before != self._blob_bytes or longest != self.longest:
            raise ValueError("tokenizer: the lengths of the tokens do not add up")

    def _check_pairs(self):
        size, kind = self.vocab_size, self.kind
        lowest = _FIRST_PLAIN if kind else 1
        lowest_product = _FIRST_PLAIN if kind else _FIRST_MERGE
        seen = bytearray(0 if kind else (size + 7) >> 3)
        index = self._first_pair(0)
        at = self._pairs_at
        good = index == 0
        for left in range(size):
            end = self._first_pair(left + 1)
            if end < index or end > self._pairs or (end > index and left < lowest):
                good = False
            before = lowest - 1
            while good and index < end:
                right = self._u16(at)
                product = self._u16(at + 2)
                if not before < right < size or not lowest_product <= product < size:
                    good = False
                elif self._length(product) != self._length(left) + self._length(right):
                    good = False
                elif kind == 0:  # a token is made once, from older ones
                    bit = 1 << (product & 7)
                    good = left < product > right and not seen[product >> 3] & bit
                    seen[product >> 3] |= bit
                before = right
                index += 1
                at += 4
            if not good:
                raise ValueError("tokenizer: the pairs of token %d are damaged" % left)
        if index != self._pairs:
            raise ValueError("tokenizer: the pairs do not add up")

    def _check_characters(self):
        buf = self._buf
        good = True
        for byte in range(256):
            token = self._u16(self._byte_ids_at + 2 * byte)
            if token != byte + 3:
                good = good and _FIRST_PLAIN <= token < self.vocab_size and self._length(token) == 1
                good = good and buf[self._blob_at + self._offset(token)] == byte
            if buf[self._row_of_at + byte] >= self._rows:
                good = False
        for index in range(self._characters):
            token = self._u16(self._characters_at + 2 * index)
            good = good and _FIRST_PLAIN <= token < self.vocab_size and 2 <= self._length(token) <= 4
        if not good:
            raise ValueError("tokenizer: the table of characters is damaged")

    # ---- tokens to text ----

    def piece(self, token, previous=-1):
        """The bytes that token adds to the text after token `previous`; b"" for control tokens.

        Raises ValueError when there is no such token. As in llama2.c, a kind-1 token loses one leading space after
        BOS.
        """
        if not 0 <= token < self.vocab_size:
            raise ValueError("token %d: the vocabulary has %d" % (token, self.vocab_size))
        start = self._blob_at + self._offset(token)
        end = self._blob_at + self._offset(token + 1)
        if self.kind == 1 and previous == 1 and token >= _FIRST_PLAIN and start < end and self._buf[start] == 32:
            start += 1
        return bytes(self._buf[start:end])

    # ---- text to tokens ----

    def encode(self, text, out=None):
        """The token ids of text (str or bytes-like, any bytes): an array('H') without BOS or EOS, `out` if given.

        Time grows like n log n at worst, memory by 2 bytes a token. A run of n bytes that nothing cuts (kind 0: one
        piece; kind 1: where some merge could join every two neighbours) takes about 13 n bytes more for a while, 22 n
        from 65535 bytes on (measured on the 64-bit unix port; the arrays are the same on boards).
        """
        if isinstance(text, str):
            text = text.encode()
        if out is None:
            out = array("H")
        sink = _Sink(out)
        if self.kind == 0:
            self._encode_pieces(text, sink)
        elif len(text):
            self._encode_runs(text, sink)
        sink.close()
        return out

    def _encode_pieces(self, text, sink):
        """Cut text by the scanner that stands for the training pattern, and merge each piece by itself."""
        classes = _CLASS
        letter, newline, punctuation, space = _LETTER, _NEWLINE, _PUNCTUATION, _SPACE
        ids = array("H", bytes(2 * _SHORT))
        end = len(text)
        at = 0
        while at < end:
            start = at
            kind = classes[text[at]]
            at += 1
            if kind == space and at < end:
                after = classes[text[at]]
                if after and after < newline:  # a letter, a digit or punctuation takes the space before it
                    kind = after
                    at += 1
            if kind == letter:
                while at < end and classes[text[at]] == letter:
                    at += 1
                if at + 1 < end and text[at] == 39 and classes[text[at + 1]] == letter:
                    at += 2
                    while at < end and classes[text[at]] == letter:
                        at += 1
            elif kind == punctuation or kind == newline:
                while at < end and classes[text[at]] == kind:
                    at += 1
            count = at - start
            if len(ids) < count:
                ids = array("H", bytes(2 * count))
            index = 0
            while start < at:
                ids[index] = text[start] + 1
                index += 1
                start += 1
            sink.add(ids, self._merge(ids, count))

    def _encode_runs(self, text, sink):
        """Merge runs of characters, cut where no token can lie across, so that the result is that of the whole text.

        A merge across the cut would join a left token ending in the byte before it with a right token beginning with
        the byte after it; the rows tell that no pair does. Byte tokens are in no pair: they cut on both sides.
        """
        buf = self._buf
        ids = array("H", bytes(2 * _SHORT))
        ids[0] = self._u16(self._byte_ids_at + 64)  # the dummy space, a character of its own whatever follows
        count = 1
        last = 32
        end = len(text)
        at = 0
        while at < end:
            start = at
            at += 1
            while at < end and at - start < 4 and text[at] & 0xC0 == 0x80:
                at += 1
            first = text[start]
            token = self._u16(self._byte_ids_at + 2 * first) if at - start == 1 else self._character(text, start, at)
            if token < _FIRST_PLAIN:
                sink.add(ids, self._merge(ids, count))
                count = 0
                while start < at:
                    sink.put(text[start] + 3)
                    start += 1
                continue
            if count:
                row = self._rows_at + 32 * buf[self._row_of_at + last]
                if not buf[row + (first >> 3)] >> (first & 7) & 1:
                    sink.add(ids, self._merge(ids, count))
                    count = 0
            if count == len(ids):
                ids = ids + ids
            ids[count] = token
            count += 1
            last = text[at - 1]
        sink.add(ids, self._merge(ids, count))

    def _character(self, text, start, end):
        """The token of a character of 2 to 4 bytes, or 0."""
        buf = self._buf
        low, high = 0, self._characters
        while low < high:
            middle = (low + high) >> 1
            token = self._u16(self._characters_at + 2 * middle)
            at = self._blob_at + self._offset(token)
            stop = self._blob_at + self._offset(token + 1)
            here = start
            while here < end and at < stop and text[here] == buf[at]:
                here += 1
                at += 1
            if here == end and at == stop:
                return token
            if here < end and (at == stop or text[here] > buf[at]):
                low = middle + 1
            else:
                high = middle
        return 0

    def _product(self, left, right):
        """The token that left and right merge into, or 0: right is looked for among those that left merges with."""
        buf = self._buf
        if self._wide_first:
            at = self._first_at + 4 * left
            low = buf[at] | buf[at + 1] << 8 | buf[at + 2] << 16
            high = buf[at + 4] | buf[at + 5] << 8 | buf[at + 6] << 16
        else:
            at = self._first_at + 2 * left
            low = buf[at] | buf[at + 1] << 8
            high = buf[at + 2] | buf[at + 3] << 8
        pairs = self._pairs_at
        while low < high:
            middle = (low + high) >> 1
            at = pairs + 4 * middle
            found = buf[at] | buf[at + 1] << 8
            if found < right:
                low = middle + 1
            elif found > right:
                high = middle
            else:
                return buf[at + 2] | buf[at + 3] << 8
        return 0

    def _key(self, left, right):
        """The smallest is merged first: the product itself (kind 0), the order of its score (kind 1), or _NONE."""
        product = self._product(left, right)
        if not product:
            return _NONE
        if not self.kind:
            return product
        at = self._order_at + 2 * product
        return self._buf[at] | self._buf[at + 1] << 8

    def _merge(self, ids, count):
        """Merge the first count symbols of ids in place, best pair first, leftmost of equals; how many are left."""
        if count < 2:
            return count
        if count > _SHORT:
            return self._merge_long(ids, count)
        key_of, keys, none, kind = self._key, self._keys, _NONE, self.kind
        pairs = count - 1
        index = 0
        left = ids[0]
        while index < pairs:
            right = ids[index + 1]
            keys[index] = key_of(left, right)
            left = right
            index += 1
        while True:
            best = none
            index = 0
            while index < pairs:
                key = keys[index]
                if key < best:
                    best = key
                    at = index
                index += 1
            if best == none:
                return pairs + 1
            ids[at] = left = self._product(ids[at], ids[at + 1]) if kind else best
            pairs -= 1
            index = at + 1
            while index < pairs:
                ids[index] = ids[index + 1]
                keys[index] = keys[index + 1]
                index += 1
            if at < pairs:
                ids[pairs] = ids[pairs + 1]
                keys[at] = key_of(left, ids[at + 1])
            if at:
                keys[at - 1] = key_of(ids[at - 1], left)

    def _merge_long(self, ids, count):
        """The same with linked symbols and a heap. An entry whose pair has changed is found out when it comes up."""
        code, width = ("H", 2) if count < 0xFFFF else ("I", 4)
        after = array(code, bytes(width * count))  # a symbol merged away points at itself
        before = array(code, bytes(width * count))
        for index in range(count):
            after[index] = index + 1
            before[index] = index - 1 if index else count
        heap = _Heap(code, width, count)
        self._fill(heap, ids, after)
        while heap.count:
            key = heap.keys[0]
            at = heap.places[0]
            heap.pop()
            right = after[at]
            if right == at or right == count:
                continue
            if self._key(ids[at], ids[right]) != key:
                continue
            ids[at] = product = self._product(ids[at], ids[right])
            end = after[right]
            after[at] = end
            after[right] = right
            if end < count:
                before[end] = at
            if heap.count + 2 > count:
                # Full of stale entries: write it anew. Each time at least twice as many symbols are gone as the time
                # before, so this happens log2(count) times.
                self._fill(heap, ids, after)
                continue
            if end < count:
                key = self._key(product, ids[end])
                if key < _NONE:
                    heap.push(key, at)
            left = before[at]
            if left < count:
                key = self._key(ids[left], product)
                if key < _NONE:
                    heap.push(key, left)
        at = kept = 0
        while at < count:
            ids[kept] = ids[at]
            kept += 1
            at = after[at]
        return kept

    def _fill(self, heap, ids, after):
        count = len(after)
        heap.count = used = at = 0
        right = after[0]
        while right < count:
            key = self._key(ids[at], ids[right])
            if key < _NONE:
                heap.keys[used] = key
                heap.places[used] = at
                used += 1
            at = right
            right = after[at]
        heap.count = used
        index = used >> 1
        while index:
            index -= 1
            heap.sink(index, heap.keys[index], heap.places[index])


class _Heap:
    """Pairs by key, then by place: the best first, the leftmost of equals. Two flat arrays, never grown."""

    def __init__(self, code, width, capacity):
        self.keys = array("H", bytes(2 * capacity))
        self.places = array(code, bytes(width * capacity))
        self.count = 0

    def push(self, key, place):
        keys, places = self.keys, self.places
        at = self.count
        self.count = at + 1
        while at:
            up = (at - 1) >> 1
            if keys[up] < key or (keys[up] == key and places[up] <= place):
                break
            keys[at] = keys[up]
            places[at] = places[up]
            at = up
        keys[at] = key
        places[at] = place

    def pop(self):
        self.count = count = self.count - 1
        if count:
            self.sink(0, self.keys[count], self.places[count])

    def sink(self, at, key, place):
        """Put (key, place) at index `at` or below, where it belongs."""
        keys, places, count = self.keys, self.places, self.count
        while True:
            down = 2 * at + 1
            if down >= count:
                break
            other = down + 1
            if other < count and (
                    keys[other] < keys[down] or (keys[other] == keys[down] and places[other] < places[down])):
                down = other
            if key < keys[down] or (key == keys[down] and place <= places[down]):
                break
            keys[at] = keys[down]
            places[at] = places[down]
            at = down
        keys[at] = key
        places[at] = place


class _Sink:
    """Collects ids and hands them to the output 128 at a time: MicroPython's array.append moves the array every 8."""

    def __init__(self, out):
        self._out = out
        self._chunk = array("H", bytes(2 * _CHUNK))
        self._used = 0

    def put(self, token):
        self._chunk[self._used] = token
        self._used += 1
        if self._used == _CHUNK:
            self._out.extend(self._chunk)
            self._used = 0

    def add(self, ids, count):
        chunk, used = self._chunk, self._used
        index = 0
        while index < count:
            chunk[used] = ids[index]
            used += 1
            index += 1
            if used == _CHUNK:
                self._out.extend(chunk)
                used = 0
        self._used = used

    def close(self):
        if self._used:
            self._out.extend(self._chunk[:self._used])


class Utf8Stream:
    """Bytes in, whole characters out: an unfinished character is held back, a broken one becomes U+FFFD.

    Replaces what Python's own decoder replaces (the longest start of a valid sequence counts as one), so that any way
    of cutting the bytes into pieces gives the same text.
    """

    def __init__(self):
        self._held = bytearray()
        self._need = 0  # bytes still missing
        self._low = 0x80  # what the next one may be: tighter after E0, ED, F0, F4 (overlong, surrogates, too large)
        self._high = 0xBF

    def feed(self, piece):
        """The str that piece (bytes-like) completes, possibly empty."""
        out = bytearray()
        for byte in piece:
            if self._need:
                if self._low <= byte <= self._high:
                    self._held.append(byte)
                    self._need -= 1
                    self._low, self._high = 0x80, 0xBF
                    if not self._need:
                        out.extend(self._held)
                    continue
                self._need = 0
                out.extend(b"\xef\xbf\xbd")
            if byte < 0x80:
                out.append(byte)
            elif 0xC2 <= byte <= 0xF4:
                self._held = bytearray((byte,))
                self._need = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
                self._low = 0xA0 if byte == 0xE0 else 0x90 if byte == 0xF0 else 0x80
                self._high = 0x9F if byte == 0xED else 0x8F if byte == 0xF4 else 0xBF
            else:
                out.extend(b"\xef\xbf\xbd")
        return str(out, "utf-8")

    def flush(self):
        """What is held at the end of the text: "" or one U+FFFD."""
        if not self._need:
            return ""
        self._need = 0
        self._low, self._high = 0x80, 0xBF
        return "\ufffd"
