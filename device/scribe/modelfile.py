"""The packed model file: the only module that touches files, and the only one that knows their byte layout.

A file is a header, a table of sections and the sections, each with a CRC-32; a section is a sequence of records
(docs/format.md). `ModelFile` checks what it reads and says which section is damaged; `Section` walks the records.
"""

import binascii
import json
import struct
from array import array

from . import kernels

MAGIC = b"\x93SCRIBE\n"
VERSION = 1
HEADER = 32
ENTRY = 20
ALIGNMENT = 64
MAX_SECTIONS = 64 * 257 + 8
PARAMS, VECTOR, MATRIX = 1, 2, 3
#: Sizes that a config may have. What they make of a section's length is checked against the file.
SIZES = (
    ("vocab_size", 2, 65536), ("d_model", 1, 8192), ("d_rnn", 0, 8192), ("rnn_heads", 0, 8192), ("conv_width", 1, 16),
    ("n_heads", 0, 1024), ("n_kv_heads", 0, 1024), ("head_dim", 0, 1024), ("window", 0, 16384), ("d_ff", 0, 65536),
    ("n_experts", 0, 256), ("d_expert", 0, 65536), ("bos_token_id", 0, 65535), ("eos_token_id", 0, 65535),
)


def _u32(buf, at):
    return struct.unpack_from("<I", buf, at)[0]


def _aligned(at):
    return (at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class ModelFile:
    """An open packed file. Raises ValueError, naming the section, where the file is not what it should be, and OSError
    where it can't be read.

    With a memory-mapped file system (ROMFS) sections are views of the flash itself; elsewhere they are copies.
    `bytes_read` counts what came from the file since it was opened.
    """

    def __init__(self, path):
        self.path = path
        self.bytes_read = 0
        self._file = open(path, "rb")
        try:
            self._map = self._mapped()
            self._read_table()
            self._number_experts()
        except Exception:
            self.close()
            raise

    def close(self):
        self._file.close()

    def _mapped(self):
        try:
            view = memoryview(self._file)
            from uctypes import addressof

            # 32-bit loads need the file's data on a 4-byte boundary; a copy is the way out where it is not
            return view if len(view) and addressof(view) % 4 == 0 else None
        except (TypeError, ImportError, ValueError):
            return None

    def refuse(self, what):
        raise ValueError("%s: %s" % (self.path, what))

    def _get(self, at, size):
        """Bytes of the file: a view where it is mapped, else a new buffer."""
        if self._map is not None:
            return self._map[at : at + size]
        buf = bytearray(size)
        self._fill(at, buf)
        return buf

    def _fill(self, at, buf):
        self._file.seek(at)
        n = self._file.readinto(buf)
        self.bytes_read += n
        if n != len(buf):
            self.refuse("reading stopped early; was the file or its card removed?")

    def _read_table(self):
        size = self._file.seek(0, 2)
        if size < HEADER:
            self.refuse("not a packed Scribe model")
        head = self._get(0, HEADER)
        if bytes(head[:8]) != MAGIC:
            self.refuse("not a packed Scribe model")
        if binascii.crc32(head[: HEADER - 4]) != _u32(head, HEADER - 4):
            self.refuse("the header is damaged; copy the file again")
        version, told, count, crc, alignment = struct.unpack_from("<5I", head, 8)
        if version != VERSION:
            self.refuse("format version %d; this code reads version %d" % (version, VERSION))
        if told != size:
            self.refuse("%d bytes, but the header says %d; the copy is incomplete" % (size, told))
        end = HEADER + count * ENTRY
        if alignment != ALIGNMENT or count > MAX_SECTIONS or end > size:
            self.refuse("the header's sizes are not possible")
        self.identity = crc  # of every section's CRC-32, and so of the model
        self._table = self._get(HEADER, count * ENTRY)
        if binascii.crc32(self._table) != crc:
            self.refuse("the section table is damaged; copy the file again")
        at = _aligned(end)
        for i in range(count):
            offset, length = struct.unpack_from("<II", self._table, i * ENTRY + 8)
            if offset != at or offset + length > size:
                self.refuse("section %s lies where it can't" % self._name(i))
            at = _aligned(offset + length)
        if at != size:
            self.refuse("bytes follow the last section")
        self._count = count

    def _name(self, i):
        """A section as messages call it."""
        tag, layer, expert = struct.unpack_from("<4sHH", self._table, i * ENTRY)
        try:
            name = tag.decode()
        except UnicodeError:
            name = repr(tag)
        return name + {"LAYR": " %d" % layer, "XPRT": " %d.%d" % (layer, expert)}.get(name, "")

    def _find(self, tag, layer=0, expert=0):
        want = struct.pack("<4sHH", tag, layer, expert)
        for i in range(self._count):
            if bytes(self._table[i * ENTRY : i * ENTRY + 8]) == want:
                return i
        self.refuse("section %s is missing" % (tag.decode() + (" %d.%d" % (layer, expert) if tag == b"XPRT" else "")))

    def size(self, tag):
        """Bytes of all sections with this tag."""
        total = 0
        for i in range(self._count):
            if bytes(self._table[i * ENTRY : i * ENTRY + 4]) == tag:
                total += _u32(self._table, i * ENTRY + 12)
        return total

    def load(self, tag, layer=0):
        """A section's bytes, checked: a view of the flash, or a new buffer."""
        i = self._find(tag, layer)
        offset, length, crc = struct.unpack_from("<III", self._table, i * ENTRY + 8)
        buf = self._get(offset, length)
        if binascii.crc32(buf) != crc:
            self.refuse("section %s is damaged; copy the file again" % self._name(i))
        return buf

    def section(self, tag, layer=0):
        """A section to walk through record by record."""
        return Section(self, self.load(tag, layer), tag.decode() + (" %d" % layer if tag == b"LAYR" else ""))

    def description(self):
        """The CONF section: a dict whose "config" holds the sizes (tools/config.py names them), checked."""
        try:
            about = json.loads(bytes(self.load(b"CONF")).decode())
            config = about["config"]
            for name, low, high in SIZES:
                if not low <= config[name] <= high or config[name] != int(config[name]):
                    self.refuse("section CONF: %s is %s; %d to %d is needed" % (name, config[name], low, high))
            recipe = config["recipe"]
            ok = 0 < len(recipe) <= 64 and all(letter in "SA" for letter in recipe)
            ok = ok and config["d_rnn"] % max(1, config["rnn_heads"]) == 0
            ok = ok and config["n_heads"] % max(1, config["n_kv_heads"]) == 0
            ok = ok and 0 <= config["rotary_fraction"] <= 1 and config["activation"] in ("gelu", "silu")
            ok = ok and (config["d_ff"] or (config["n_experts"] and config["d_expert"]))
            ok = ok and max(config["bos_token_id"], config["eos_token_id"]) < config["vocab_size"]
            for name in ("rotary_interleaved", "tie_embeddings", "logit_softcap"):
                config[name]
        except (KeyError, TypeError, UnicodeError):
            ok = False
        if not ok:
            self.refuse("section CONF is not a model's description")
        return about

    # Experts: found by number without searching, read into one buffer, checked when first read.

    def _number_experts(self):
        """Where each expert is: sections of equal length, in order of layer and expert."""
        self._first = self._count
        for i in range(self._count):
            if bytes(self._table[i * ENTRY : i * ENTRY + 4]) == b"XPRT":
                self._first = i
                break
        self.n_experts = self._count - self._first
        self.expert_bytes = _u32(self._table, self._first * ENTRY + 12) if self.n_experts else 0
        self._offsets = array("i", bytes(4 * self.n_experts))
        for i in range(self.n_experts):
            at = (self._first + i) * ENTRY
            if bytes(self._table[at : at + 4]) != b"XPRT" or _u32(self._table, at + 12) != self.expert_bytes:
                self.refuse("section %s: experts must be of one size and last in the file" % self._name(self._first + i))
            self._offsets[i] = _u32(self._table, at + 8)

    def check_order(self, layers, experts):
        """Raise ValueError unless the experts are numbered layer by layer."""
        for i in range(self.n_experts):
            _, layer, expert = struct.unpack_from("<4sHH", self._table, (self._first + i) * ENTRY)
            if (layer, expert) != (i // experts if experts else -1, i % experts if experts else -1):
                self.refuse("section %s is not where it should be" % self._name(self._first + i))
        if self.n_experts != layers * experts:
            self.refuse("%d experts in the file, %d in its config" % (self.n_experts, layers * experts))

    def expert_view(self, number):
        """Expert `number`'s bytes in a memory-mapped file."""
        at = self._offsets[number]
        return self._map[at : at + self.expert_bytes]

    def read_expert(self, number, buf):
        """Fill `buf` with expert `number`'s bytes; allocates nothing."""
        self._fill(self._offsets[number], buf)

    def check_expert(self, number, buf):
        """Raise ValueError unless the bytes have the table's CRC-32; allocates nothing."""
        if kernels.damaged(buf, self.expert_bytes, self._table, (self._first + number) * ENTRY + 16):
            self.refuse("section %s is damaged; copy the file again" % self._name(self._first + number))

    @property
    def mapped(self):
        return self._map is not None


class Section:
    """A section's records, walked in order: each call checks the next record against what the config expects."""

    def __init__(self, file, buf, name):
        self.buf = buf
        self._file = file
        self._name = name
        self._at = 0

    def _fields(self, count):
        at = self._at
        if at + 4 * count > len(self.buf):
            self._file.refuse("section %s ends too early" % self._name)
        self._at = at + 4 * count
        return struct.unpack_from("<%di" % count, self.buf, at)

    def _expect(self, found, wanted):
        if tuple(found) != tuple(wanted):
            self._file.refuse("section %s: a record has other sizes than the config" % self._name)

    def _skip(self, size):
        at = self._at
        self._at += (size + 3) // 4 * 4
        if self._at > len(self.buf):
            self._file.refuse("section %s ends too early" % self._name)
        return at

    def params(self, count):
        """The next record's `count` 32-bit parameters, as an array."""
        self._expect(self._fields(2), (PARAMS, count))
        return array("i", self._fields(count))

    def vector(self, count, bits):
        """Byte offset of the next record's `count` integers."""
        self._expect(self._fields(4)[:3], (VECTOR, count, bits))
        return self._skip(count * bits // 8)

    def matrix(self, rows, cols, bits=8, blocks=1):
        """Descriptor of the next record, as the kernels read it (see plain_kernels)."""
        f = self._fields(10)
        self._expect(f[:5], (MATRIX, rows, cols, blocks, bits))
        shift, mode, biased = f[7:]
        if not 0 <= shift <= 30 or not 0 <= mode <= 2:
            self._file.refuse("section %s: a record has an impossible shift" % self._name)
        padded = (cols + 7) // 8 * 8
        groups = (cols + kernels.GROUP - 1) // kernels.GROUP
        weights = self._skip(rows * padded * bits // 8)
        scales = self._skip(rows * groups * 2)
        bias = self._skip(rows * 4) if biased else -1
        return array("i", (weights, scales, bias, rows, cols, padded, groups, blocks, shift, mode, bits))

    def end(self):
        if self._at != len(self.buf):
            self._file.refuse("section %s is longer than its records" % self._name)


# Small files of our own (bookmarks): whole, with a CRC-32 at the end.


def write_whole(path, parts):
    """Write byte-like parts and their CRC-32 beside `path`, then rename: never half a file under its name."""
    import os

    partial = path + ".partial"
    crc = 0
    try:
        with open(partial, "wb") as f:
            for part in parts:
                f.write(part)
                crc = binascii.crc32(part, crc)
            f.write(struct.pack("<I", crc))
        try:
            os.remove(path)  # FAT does not rename over a file
        except OSError:
            pass
        os.rename(partial, path)
    except OSError:
        try:
            os.remove(partial)
        except OSError:
            pass
        raise OSError("%s: can't be written; is there such a folder, and room?" % path)


def read_whole(path):
    """A file's bytes without their CRC-32. Raises ValueError where it does not match."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError:
        raise OSError("%s: no such file, or it can't be read" % path)
    if len(data) < 4 or binascii.crc32(memoryview(data)[:-4]) != _u32(data, len(data) - 4):
        raise ValueError("%s: the file is damaged" % path)
    return data[:-4]
