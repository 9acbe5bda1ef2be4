"""Damaged and hostile packed models, read on the host (tools/fileformat.py).

A damaged file must be refused with a message that names the damaged part, unless only padding was hit, which carries
nothing. A hostile one has all its checksums right: it must be refused, or work; nothing larger than a few times the
file may be allocated on the way.
"""

import binascii
import functools
import json
import struct
import tempfile
import tracemalloc

import numpy as np

from tools import integer
from tools.errors import UserError
from tools.fileformat import ALIGNMENT, ENTRY, HEADER, Packed, aligned, section_name
from tools.torture import Row, scaled, shipped, small_model

#: Random damages of the full run, all kinds together.
DAMAGES = 10_000
HOSTILE = 3_000
#: Bytes that reading may take for each byte of the file, and besides.
ROOM, BASE = 40, 4 << 20


def table(data):
    """[(key, offset, length)] of a sound file's sections."""
    count = HEADER.unpack_from(data)[3]
    rows = (ENTRY.unpack_from(data, HEADER.size + i * ENTRY.size) for i in range(count))
    return [((tag.decode(), layer, expert), offset, length) for tag, layer, expert, offset, length, _ in rows]


def seal(data):
    """The bytes with every checksum and the size made right again, so that what they protect is reached."""
    data = bytearray(data)
    count = min(HEADER.unpack_from(data)[3], (len(data) - HEADER.size) // ENTRY.size)
    for i in range(count):
        at = HEADER.size + i * ENTRY.size
        offset, length = struct.unpack_from("<II", data, at + 8)
        struct.pack_into("<I", data, at + 16, binascii.crc32(data[offset : offset + length]))
    fields = list(HEADER.unpack_from(data))
    fields[4] = binascii.crc32(data[HEADER.size : HEADER.size + count * ENTRY.size])
    head = HEADER.pack(*fields)[:-4]
    data[: HEADER.size] = head + struct.pack("<I", binascii.crc32(head))
    return bytes(data)


def rebuilt(data, changed):
    """A sound file whose section `key` holds other bytes, for {key: bytes}; its table and checksums made to fit."""
    parts = [(key, changed.get(key, data[offset : offset + length])) for key, offset, length in table(data)]
    at = aligned(HEADER.size + ENTRY.size * len(parts))
    rows, body = b"", b""
    for (tag, layer, expert), part in parts:
        rows += ENTRY.pack(tag.encode(), layer, expert, at, len(part), 0)
        body += part + bytes(-len(part) % ALIGNMENT)
        at = aligned(at + len(part))
    fields = list(HEADER.unpack_from(data))
    fields[2] = at
    start = HEADER.pack(*fields) + rows
    return seal(start + bytes(-len(start) % ALIGNMENT) + body)


class Model:
    """A sound file, and which part each of its bytes belongs to."""

    def __init__(self, data):
        self.data = data
        self.parts = table(data)
        self.end = HEADER.size + ENTRY.size * len(self.parts)

    @functools.cached_property
    def sound(self):
        return Packed.from_bytes(self.data).to_bytes()

    def hit(self, first, last):
        """What a message may name after bytes first..last-1 changed; nothing if they are padding."""
        names = ["header", "not a packed Scribe model", "format version"] if first < HEADER.size else []
        names += ["table"] if first < self.end and last > HEADER.size else []
        return names + [f"section {section_name(key)} is damaged" for key, offset, length in self.parts
                        if first < offset + length and last > offset]

    def judge(self, row, damaged, names, what):
        """Count one damaged file: refused by one of `names`, or only padding was hit."""
        if damaged == self.data:
            return
        try:
            again = Packed.from_bytes(damaged)
        except UserError as error:
            row.count(any(name in str(error) for name in names) and "\n" not in str(error), f"{what}: said {error}")
        except Exception as error:  # whatever it is, it is a find
            row.count(False, f"{what}: {error!r}")
        else:
            row.count(not names and again.to_bytes() == self.sound, f"{what}: accepted")


def flip(model, rng):
    at = int(rng.integers(len(model.data)))
    bit = int(rng.integers(8))
    data = bytearray(model.data)
    data[at] ^= 1 << bit
    return bytes(data), model.hit(at, at + 1), f"bit {bit} of byte {at}"


def cut(model, rng):
    size = int(rng.integers(len(model.data)))
    return model.data[:size], ["incomplete", "not a packed Scribe model"], f"cut after {size} bytes"


def extend(model, rng):
    more = rng.bytes(int(rng.integers(1, 300)))
    return model.data + more, ["incomplete"], f"{len(more)} bytes more"


def block(fill, model, rng):
    size = int(2 ** rng.uniform(0, 14))
    at = int(rng.integers(len(model.data)))
    size = min(size, len(model.data) - at)
    other = int(rng.integers(len(model.data) - size + 1))
    new = {"zeros": bytes(size), "ones": b"\xff" * size, "copy": model.data[other : other + size]}[fill]
    old = model.data[at : at + size]
    changed = np.flatnonzero(np.frombuffer(old, "u1") != np.frombuffer(new, "u1"))
    names = model.hit(at + int(changed[0]), at + int(changed[-1]) + 1) if len(changed) else []
    return model.data[:at] + new + model.data[at + size :], names, f"{size} bytes of {fill} at {at}"


def swap(model, rng):
    """Two sections' bytes change places, as far as the shorter one goes."""
    one, two = rng.choice(len(model.parts), 2, replace=False)
    (key, a, size), (other, b, length) = model.parts[one], model.parts[two]
    size = min(size, length)
    data = bytearray(model.data)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]
    names = [f"section {section_name(k)} is damaged" for k in (key, other)]
    return bytes(data), names, f"sections {section_name(key)} and {section_name(other)} swapped"


def swap_entries(model, rng):
    """Two entries of the table change places, without and with a checksum that allows it."""
    one, two = sorted(rng.choice(len(model.parts), 2, replace=False))
    data = bytearray(model.data)
    a, b = (HEADER.size + int(i) * ENTRY.size for i in (one, two))
    data[a : a + ENTRY.size], data[b : b + ENTRY.size] = data[b : b + ENTRY.size], data[a : a + ENTRY.size]
    data = bytes(data)
    return (seal(data) if rng.integers(2) else data), ["table", "lies where"], f"entries {one} and {two} swapped"


DAMAGE = {"one bit flipped": (flip, 0.5), "cut short": (cut, 0.1), "bytes appended": (extend, 0.04),
          "a block of zeros": (functools.partial(block, "zeros"), 0.1),
          "a block of ones": (functools.partial(block, "ones"), 0.06),
          "a block overwritten by another": (functools.partial(block, "copy"), 0.1),
          "two sections swapped": (swap, 0.06), "two table entries swapped": (swap_entries, 0.04)}


# Hostile files: every checksum is right.

NUMBERS = (0, 1, 2, 7, 63, 65, 255, 32767, 32768, 65535, 65536, (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31,
           (1 << 32) - 65, (1 << 32) - 1)


def hostile_header(model, rng):
    """Other numbers in the header or in the table's offsets and lengths: overlaps, cycles, sizes past the file."""
    data = bytearray(model.data)
    for _ in range(int(rng.integers(1, 4))):
        count = len(model.parts)
        if rng.integers(3) == 0:
            at = 8 + 4 * int(rng.integers(5))
        else:
            at = HEADER.size + ENTRY.size * int(rng.integers(count)) + int(rng.choice([4, 6, 8, 8, 12, 12]))
        value = int(rng.choice([NUMBERS[rng.integers(len(NUMBERS))], len(data), ALIGNMENT,
                                model.parts[rng.integers(count)][1], int(rng.integers(1 << 32))]))
        if at >= HEADER.size and (at - HEADER.size) % ENTRY.size < 8:
            struct.pack_into("<H", data, at, value & 0xFFFF)
        else:
            struct.pack_into("<I", data, at, value)
    try:
        return seal(data)
    except struct.error:
        return bytes(data)


def hostile_config(model, rng):
    """Other values in CONF, of any type and size."""
    _, offset, length = model.parts[0]
    about = json.loads(model.data[offset : offset + length])
    values = (*NUMBERS, -1, 0.5, 1e300, float("nan"), float("inf"), None, True, "", "A" * 65, "S" * 64, "SAX", [], {},
              [[[]]], "gelu", "\u0000", 10**400)
    for _ in range(int(rng.integers(1, 3))):
        target = about["config"] if rng.integers(6) and isinstance(about.get("config"), dict) else about
        name = list(target)[rng.integers(len(target))] if target else "name"
        if rng.integers(10) == 0:
            target.pop(name, None)
        elif rng.integers(20) == 0:
            target["what"] = 1
        else:
            target[name] = values[rng.integers(len(values))]
    text = json.dumps(about).encode()
    if rng.integers(10) == 0:
        text = (b"[" * 100_000, b'{"config": {"d_model": 1' + b"0" * 5000 + b"}}", b"\xff\xfe", b"null", b"",
                b'{"config": "config"}', b'"config"')[rng.integers(7)]
    return rebuilt(model.data, {model.parts[0][0]: text})


def hostile_section(model, rng):
    """Other numbers inside a section: its records' heads, parameters, weights, or the tokenizer's tables."""
    key, offset, length = model.parts[int(rng.integers(1, len(model.parts)))]
    part = bytearray(model.data[offset : offset + length])
    for _ in range(int(2 ** rng.uniform(0, 4))):
        # the heads of records are in the first bytes more often than by chance
        at = int(rng.integers(min(length, 64 if rng.integers(2) else length))) & -4
        if at + 4 <= length:
            value = NUMBERS[rng.integers(len(NUMBERS))] if rng.integers(3) else int(rng.integers(1 << 32))
            struct.pack_into("<I", part, at, value)
    if rng.integers(8) == 0:
        part = part[: rng.integers(length)]
    return rebuilt(model.data, {key: bytes(part)})


def judge_hostile(row, data, what):
    """Count one hostile file: refused in one line, or it runs; nothing large was allocated, nothing overflowed."""
    tracemalloc.start()
    try:
        try:
            packed = Packed.from_bytes(data)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        integer.forward(packed, np.arange(6) % packed.config.vocab_size)
        problem = ""
    except UserError as error:
        problem = "" if "\n" not in str(error) else f"said {error}"
    except Exception as error:  # whatever it is, it is a find
        problem = repr(error)
    if not problem and peak > BASE + ROOM * len(data):
        problem = f"took {peak:,} bytes for a file of {len(data):,}"
    row.count(not problem, f"{what}: {problem}")


def run(amount, seed):
    rng = np.random.default_rng([seed, 1])
    with tempfile.TemporaryDirectory() as folder:
        small = [Model(small_model(name, folder)[0].read_bytes()) for name in ("hybrid", "griffin", "untied")]
    large = [Model(path.read_bytes()) for path in shipped()[:2]]
    for name, (damage, share) in DAMAGE.items():
        row = Row(f"host reads a packed model: {name}")
        for i in range(scaled(DAMAGES * share, amount)):
            model = large[i // 8 % len(large)] if i % 8 == 0 else small[i % len(small)]
            model.judge(row, *damage(model, rng))
        yield row
    for name, change in (("its header and table", hostile_header), ("its config", hostile_config),
                         ("its sections", hostile_section)):
        row = Row(f"host reads a hostile model with right checksums: {name}")
        for i in range(scaled(HOSTILE / 3, amount)):
            judge_hostile(row, change(small[i % len(small)], rng), f"{name}, case {i}")
        yield row
