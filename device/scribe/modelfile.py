"""The packed model file: the only module that touches files, and the only one that knows their byte layout.

A file is a header, a table of sections and the sections, each with a CRC-32; a section is a sequence of records
(docs/format.md). `ModelFile` checks what it reads and says which section is damaged; `Section` walks the records.
"""

import binascii
import json
import os
import struct
from array import array

from . import kernels

try:
    from vfs import VfsLfs2
except ImportError:  # a port without littlefs
    VfsLfs2 = None  # type: ignore[assignment, misc]

EIO = 5
MAGIC = b"\x93SCRIBE\n"
VERSION = 1
HEADER = 32
ENTRY = 20
ALIGNMENT = 64
MAX_SECTIONS = 64 * 257 + 8
MAX_FILE = 1 << 30  # bytes: places in a file stay small integers on a 32-bit board, which need no heap
MAX_CONF = 16384  # bytes of the CONF section
TABLES = 5524, 0x84A99B3E  # bytes and CRC-32 of the TABL section, the same in every file of this version
PARAMS, VECTOR, MATRIX = 1, 2, 3
#: Sizes that a config may have. What they make of a section's length is checked against the file.
SIZES = (
    ("vocab_size", 2, 65536), ("d_model", 1, 8192), ("d_rnn", 0, 8192), ("rnn_heads", 0, 8192), ("conv_width", 1, 16),
    ("n_heads", 0, 1024), ("n_kv_heads", 0, 1024), ("head_dim", 0, 1024), ("window", 0, 16384), ("d_ff", 0, 65536),
    ("n_experts", 0, 256), ("d_expert", 0, 65536), ("bos_token_id", 0, 65535), ("eos_token_id", 0, 65535),
)
TAGS = b"CONF", b"TOKN", b"TABL", b"EMBD", b"LAYR", b"HEAD", b"XPRT"
FLAGS = "rotary_interleaved", "tie_embeddings"


def _u32(buf, at):
    return struct.unpack_from("<I", buf, at)[0]


def _aligned(at):
    return (at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _matrix(rows, cols, bits=8):
    """Bytes of a matrix record without biases."""
    groups = (cols + kernels.GROUP - 1) // kernels.GROUP
    return 40 + (rows * ((cols + 7) // 8 * 8) * bits // 8 + 3) // 4 * 4 + (2 * rows * groups + 3) // 4 * 4


def _lengths(c):
    """{tag, or tag and layer: (least, most) bytes of such a section} for a config: which matrices have biases (4 bytes
    a row) is known only inside."""
    d, recipe = c["d_model"], c["recipe"]
    norm = 24 + 16 + (2 * d + 3) // 4 * 4
    embedding = _matrix(c["vocab_size"], d)
    head = norm + 32, norm + 32
    if not c["tie_embeddings"]:
        head = head[0] + embedding, head[0] + embedding + 4 * c["vocab_size"]
    result: dict = {"EMBD": (16 + embedding, 16 + embedding + 4 * c["vocab_size"]), "HEAD": head}
    for i in range(len(recipe)):
        rows = d
        size = 2 * norm
        if recipe[i] == "S":
            r = c["d_rnn"]
            size += 24 + 2 * _matrix(r, d) + 16 + (2 * r * c["conv_width"] + 3) // 4 * 4 + 2 * (16 + 4 * r)
            size += 2 * _matrix(r, r // c["rnn_heads"]) + _matrix(d, r)
            rows += 4 * r
        else:
            q, kv = c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
            size += 20 + 16 + 4 * (int(c["head_dim"] * c["rotary_fraction"]) // 2) + _matrix(q, d) + _matrix(d, q)
            size += 2 * _matrix(kv, d)
            rows += q + 2 * kv
        if c["d_ff"]:
            size += 16 + 2 * _matrix(c["d_ff"], d) + _matrix(d, c["d_ff"])
            rows += 2 * c["d_ff"] + d
        if c["n_experts"]:
            size += 28 + _matrix(c["n_experts"], d)
            rows += c["n_experts"]
        result["LAYR", i] = size, size + 4 * rows
    h = c["d_expert"]
    size = 2 * _matrix(h, d, 4) + _matrix(d, h, 4)
    result["XPRT"] = size, size + 4 * (2 * h + d)
    return result


def _flash():
    """The block device under the board's file system. Raises ImportError where none is known."""
    try:
        return __import__("rp2").Flash()
    except (AttributeError, ImportError):
        return __import__("flashbdev").bdev  # in the firmware of esp32 and esp8266


class ModelFile:
    """An open packed file. Raises ValueError, naming the section, where the file is not what it should be, and OSError
    where it can't be read.

    With a memory-mapped file system (ROMFS) sections are views of the flash itself; elsewhere they are copies.
    `bytes_read` counts what came from the file since it was opened.
    """

    def __init__(self, path):
        self.path = path
        self._bytes = self._megabytes = 0
        self._head = b""
        try:
            self._file = open(path, "rb")
        except OSError as error:
            self._unreadable(error.errno)
        try:
            self._map = self._mapped()
            self._read_table()
            self._number_experts()
            if self.n_experts and self._map is None:
                self._go_below()
        except BaseException:
            self.close()
            raise

    @property
    def bytes_read(self):
        return (self._megabytes << 20) + self._bytes

    def close(self):
        """Close the file, for good."""
        file, self._file = self._file, None
        if file:
            try:
                file.close()
            except OSError:
                pass

    def refresh(self):
        """Make sure that the file is still the one that was opened, and can be read: opened again if need be (its card
        was out, or its file system mounted anew). Raises OSError where it is gone, ValueError where another one is in
        its place."""
        if self._file is None:
            self.refuse("the model was closed; open it again with scribe.open")
        if self._map is not None or not self.n_experts:
            return  # nothing will be read
        head = bytearray(HEADER)
        try:
            self._fill(0, head)
        except OSError:
            pass
        if head != self._head:
            self._reopen()
            self._fill(0, head)
        if head != self._head:
            self.refuse("another file is in its place since it was opened; open it with scribe.open")

    def _reopen(self):
        try:
            file = open(self.path, "rb")
        except OSError as error:
            self._unreadable(error.errno)
        self.close()
        self._file = file

    def _mapped(self):
        try:
            view = memoryview(self._file)
            from uctypes import addressof

            # 32-bit loads need the file's data on a 4-byte boundary; a copy is the way out where it is not
            return view if len(view) and addressof(view) % 4 == 0 else None
        except (TypeError, ImportError, ValueError):
            return None

    def _go_below(self):
        """Read through a littlefs of our own on the board's flash, where the file is there too: it reads 4 bytes to
        find a file's next block, a stock one 32, which for an expert adds up to 7% of its bytes (docs/layouts.md)."""
        try:
            fs = VfsLfs2(_flash(), readsize=4, progsize=256)  # type: ignore[abstract]
        except (AttributeError, ImportError, MemoryError, OSError, TypeError, ValueError):
            return  # no such flash, or not littlefs
        path = self.path if self.path[0] == "/" else os.getcwd().rstrip("/") + "/" + self.path
        for name in (path, "/" + path.split("/", 2)[-1]):  # flash mounted as the root, or as a folder of it
            try:
                file = fs.open(name, "rb")
            except (MemoryError, OSError):
                continue
            if file.read(HEADER) == self._head:  # the same CRC-32 of everything: the same file, or as good
                self._file.close()
                self._file = file
                return
            file.close()

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
        """Read into `buf`; allocates nothing, unless it fails."""
        if self._file is None:
            self.refuse("the model was closed; open it again with scribe.open")
        try:
            self._file.seek(at)
            n = self._file.readinto(buf)
        except OSError as error:
            self._unreadable(error.errno)
        if n != len(buf):
            self._unreadable(EIO, "reading stopped early; ")
        # in two numbers, because one would pass a small integer's 30 bits, and then need the heap
        n += self._bytes
        self._megabytes += n >> 20
        self._bytes = n & 0xFFFFF

    def _unreadable(self, code, why=""):
        raise OSError(code, "%s: %sthe file can't be read; was it or its card removed?" % (self.path, why))

    def _read_table(self):
        try:
            size = self._file.seek(0, 2)
        except OSError as error:
            self._unreadable(error.errno)
        if size < HEADER:
            self.refuse("not a packed Scribe model")
        self._head = head = bytes(self._get(0, HEADER))
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
        if alignment != ALIGNMENT or count > MAX_SECTIONS or end > size or size > MAX_FILE:
            self.refuse("the header's sizes are not possible")
        self.identity = crc  # of every section's CRC-32, and so of the model
        self._table = self._get(HEADER, count * ENTRY)
        if binascii.crc32(self._table) != crc:
            self.refuse("the section table is damaged; copy the file again")
        at = _aligned(end)
        for i in range(count):
            tag, _, _, offset, length = struct.unpack_from("<4sHHII", self._table, i * ENTRY)
            if tag not in TAGS:
                self.refuse("section %d is none of this version's" % i)
            if offset != at or offset + length > size:
                self.refuse("section %s lies where it can't" % self._name(i))
            at = _aligned(offset + length)
        if at != size:
            self.refuse("bytes follow the last section")
        self._count = count

    def _name(self, i):
        """A section as messages call it."""
        tag, layer, expert = struct.unpack_from("<4sHH", self._table, i * ENTRY)
        name = tag.decode()
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
        """The CONF section: a dict whose "config" holds the sizes (tools/config.py names them), checked, and the
        sections' lengths with it: nothing large is read for a file whose sections are not its config's."""
        if self.size(b"CONF") > MAX_CONF:
            self.refuse("section CONF is too long")
        raw = self.load(b"CONF")
        ok = False
        try:
            text = bytes(raw).decode()
            if text.count("[") + text.count("{") > MAX_CONF // 256:
                raise ValueError  # deep nesting takes a hundred times its length
            about = json.loads(text)
            config = about["config"]
            wrong = [name for name, low, high in SIZES
                     if type(config[name]) is not int or not low <= config[name] <= high]  # noqa: E721
            if not wrong:
                ok = self._possible(config)
        except (KeyError, TypeError, ValueError, AttributeError):
            wrong = []
        if wrong:
            name, low, high = [size for size in SIZES if size[0] == wrong[0]][0]
            self.refuse("section CONF: %s is %r; %d to %d is needed" % (name, config[name], low, high))
        if not ok:
            self.refuse("section CONF is not a model's description")
        self._check_sections(config)
        return about

    def _possible(self, c):
        """Whether a config of possible sizes makes a model."""
        recipe, experts = c["recipe"], c["n_experts"]
        ok = isinstance(recipe, str) and 0 < len(recipe) <= 64 and all(letter in "SA" for letter in recipe)
        ok = ok and all(isinstance(c[name], bool) for name in FLAGS)
        ok = ok and 0 <= c["rotary_fraction"] <= 1 and 0 <= c["logit_softcap"] < 1000000000000
        ok = ok and c["activation"] in ("gelu", "silu") and c["beyond_context"] in ("slide", "stop")
        ok = ok and type(c["context"]) is int and 0 <= c["context"] < 1 << 20  # noqa: E721
        ok = ok and max(c["bos_token_id"], c["eos_token_id"]) < c["vocab_size"]
        ok = ok and c["n_heads"] * c["head_dim"] <= 16384 and c["n_kv_heads"] <= max(1, c["n_heads"])
        ok = ok and c["d_rnn"] % max(1, c["rnn_heads"]) == 0 and c["n_heads"] % max(1, c["n_kv_heads"]) == 0
        if ok and "S" in recipe:
            ok = c["d_rnn"] > 0 and c["rnn_heads"] > 0
        if ok and "A" in recipe:
            ok = c["n_heads"] > 0 and c["n_kv_heads"] > 0 and c["head_dim"] > 0 and c["window"] > 0
        return ok and (c["d_ff"] > 0 or experts > 0) and (experts == 0 or c["d_expert"] > 0)

    def _check_sections(self, config):
        """Every section that the config asks for, in order, each as long as it must be; experts are for check_order."""
        layers = len(config["recipe"])
        order = [(tag, 0) for tag in TAGS[:4]] + [(b"LAYR", i) for i in range(layers)] + [(b"HEAD", 0)]
        if self._first != len(order):
            self.refuse("%d sections before the experts; the config asks for %d" % (self._first, len(order)))
        wanted = _lengths(config)
        for i in range(self._count):
            tag, layer, expert, _, length, crc = struct.unpack_from("<4sHHIII", self._table, i * ENTRY)
            if i < self._first and (tag, layer, expert) != order[i] + (0,):
                self.refuse("section %s is not where it should be" % self._name(i))
            tag = tag.decode()
            least, most = wanted.get((tag, layer) if tag == "LAYR" else tag, (0, MAX_FILE))
            if not least <= length <= most:
                self.refuse("section %s has another length than its config asks for" % self._name(i))
            if tag == "TABL" and (length, crc) != TABLES:
                self.refuse("section TABL: other tables than this version's; pack the model again")

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
                self.refuse("section %s: experts must be of one size and last in the file" % self._name(
                    self._first + i))
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
        return array("i", (weights, scales, bias, rows, cols, padded, groups, blocks, shift, mode, bits, 0))

    def end(self):
        if self._at != len(self.buf):
            self._file.refuse("section %s is longer than its records" % self._name)


# Small files of our own (bookmarks): whole, with a CRC-32 at the end.


def write_whole(path, parts):
    """Write byte-like parts and their CRC-32 beside `path`, then rename: never half a file under its name."""
    partial = path + ".partial"
    crc = 0
    try:
        with open(partial, "wb") as f:
            for part in parts:
                f.write(part)
                crc = binascii.crc32(part, crc)
            f.write(struct.pack("<I", crc))
        try:
            os.rename(partial, path)
        except OSError:  # FAT does not rename over a file
            os.remove(path)
            os.rename(partial, path)
    except OSError as error:
        try:
            os.remove(partial)
        except OSError:
            pass
        raise OSError(error.errno, "%s: can't be written; is there such a folder, and room?" % path)


def read_whole(path):
    """A file's bytes without their CRC-32. Raises ValueError where it does not match."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except OSError as error:
        raise OSError(error.errno, "%s: no such file, or it can't be read" % path)
    if len(data) < 4 or binascii.crc32(memoryview(data)[:-4]) != _u32(data, len(data) - 4):
        raise ValueError("%s: the file is damaged" % path)
    return data[:-4]
