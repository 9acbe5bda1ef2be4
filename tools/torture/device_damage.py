"""Damaged and hostile model files, opened by the board's code in MicroPython.

Damage is what flash, cards and copies do: it leaves the checksums wrong. A hostile file has them right.
"""

import json
import pathlib
import random
import tempfile

from tools import fileformat as ff
from tools.errors import UserError
from tools import micropython
from tools.torture import Row, scaled, shipped, small_model

SCRIPT = pathlib.Path(__file__).parent.parent / "on_device" / "faults_files.py"
BATCH = 25  # files on disk at a time
SMALL_HEAP = "230k"  # holds the package, and not the weights of the model that hostile headers are made of
#: What a size might be said to be.
ABSURD = (0, 1, -1, 3, 255, 65535, 65536, 2**30, 2**31, 2**32, 2**40, 10**30, 0.5, 1e308, True, None, "", "x", [],
          {}, [[1]])


class File:
    """A packed file taken apart: bytes, and sections as (name, offset, length)."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.data = self.path.read_bytes()
        self.count = ff.HEADER.unpack_from(self.data)[3]
        self.end = ff.HEADER.size + self.count * ff.ENTRY.size
        self.sections = []
        for i in range(self.count):
            tag, layer, expert, offset, length, _ = ff.ENTRY.unpack_from(self.data, ff.HEADER.size + i * ff.ENTRY.size)
            self.sections.append((ff.section_name((tag.decode(), layer, expert)), offset, length))

    def touched(self, data):
        """What of this file a damaged copy has changed: names of sections, or None where that is told otherwise (its
        header, table or length)."""
        if len(data) != len(self.data) or data[: self.end] != self.data[: self.end]:
            return None
        return [name for name, at, size in self.sections if data[at : at + size] != self.data[at : at + size]]


def refixed(data, file):
    """The file with its checksums made right, for the sections that `file` has."""
    data = bytearray(data)
    count = min(ff.HEADER.unpack_from(data)[3], file.count)
    for i in range(count):
        at = ff.HEADER.size + i * ff.ENTRY.size
        tag, layer, expert, offset, length, _ = ff.ENTRY.unpack_from(data, at)
        data[at : at + ff.ENTRY.size] = ff.ENTRY.pack(tag, layer, expert, offset, length,
                                                      ff.binascii.crc32(data[offset : offset + length]))
    return headed(data)


def headed(data, **changed):
    """The file with the checksums of its table and header made right, and fields of the header changed."""
    data = bytearray(data)
    names = ("magic", "version", "size", "count", "crc", "alignment", "head_crc")
    fields = dict(zip(names, ff.HEADER.unpack_from(data)))
    fields["crc"] = ff.binascii.crc32(data[ff.HEADER.size : ff.HEADER.size + fields["count"] * ff.ENTRY.size])
    fields.update(changed)
    head = ff.HEADER.pack(*fields.values())[:-4]
    data[: ff.HEADER.size] = head + ff.binascii.crc32(head).to_bytes(4, "little")
    return bytes(data)


# Damage


def flip(file, rng):
    data = bytearray(file.data)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(file, rng):
    return file.data[: rng.choice((rng.randrange(len(file.data)), rng.randrange(file.end), len(file.data) - 1))]


def swap(file, rng):
    """Two sections change places: their bytes, or their names in the table."""
    data = bytearray(file.data)
    a, b = rng.sample(range(file.count), 2)
    if rng.randrange(2):
        a, b = (ff.HEADER.size + i * ff.ENTRY.size for i in (a, b))
        data[a : a + 8], data[b : b + 8] = data[b : b + 8], data[a : a + 8]
        return bytes(data)
    (_, at, size), (_, other, length) = file.sections[a], file.sections[b]
    size = min(size, length)
    data[at : at + size], data[other : other + size] = data[other : other + size], data[at : at + size]
    return bytes(data)


def blank(file, rng):
    """A block of flash reads as zeros, or as erased."""
    data = bytearray(file.data)
    size = rng.choice((256, 512, 4096))
    at = rng.randrange(len(data)) // size * size
    data[at : at + size] = bytes((rng.choice((0, 255)),)) * len(data[at : at + size])
    return bytes(data)


DAMAGES = {"bit flips": flip, "truncation": cut, "swapped sections": swap, "blank block": blank}


def tried(folder, files, heapsize="64m", **request):
    """What became of each (name, bytes): a dict, or the string "crash" or "hang"."""
    paths = []
    for i, data in enumerate(files):
        paths.append(folder / f"{i}.scribe")
        paths[-1].write_bytes(data)
    results = []
    while len(results) < len(files):
        asked = {"paths": [str(path) for path in paths[len(results):]], **request}
        (folder / "request.json").write_text(json.dumps(asked))
        try:
            done = micropython.run(SCRIPT, folder / "request.json", heapsize=heapsize, check=False,
                                   timeout=60 + 60 * len(files))
            said, ended = done.stdout, "crash" if done.returncode else "silence"
        except UserError as error:
            said, ended = getattr(error, "output", ""), "hang"
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        results += lines
        if len(lines) < len(asked["paths"]):
            results.append({"end": ended})
    for path in paths:
        path.unlink()
    return results[: len(files)]


def judge(file, data, result):
    """What is wrong with how a damaged file was met, or ""."""
    if "end" in result:
        return result["end"]
    touched = file.touched(data)
    said = [result["refused"], *result["experts"]]
    said = [text for text in said if text]
    if data == file.data or touched == []:
        return "" if not said and result["same"] else f"refused or other without damage: {said}"
    if touched is None:
        return "" if result["refused"] else "accepted"
    named = [name for name in touched if any(f"section {name} " in text for text in said)]
    if not named:
        return f"{touched} damaged, said: {said or 'nothing'}"
    if not result["refused"] and not result["same"] and not result["stopped"]:
        return f"{touched} damaged, another story"
    return ""


def damage(model, count, rng, folder, rows):
    file = File(model)
    todo = []
    for i in range(count):
        kind = sorted(DAMAGES)[i % len(DAMAGES)]
        todo.append((kind, DAMAGES[kind](file, rng)))
    whole, = tried(folder, [file.data])
    for at in range(0, count, BATCH):
        batch = todo[at : at + BATCH]
        for (kind, data), result in zip(batch, tried(folder, [data for _, data in batch], story=whole["story"])):
            wrong = judge(file, data, result)
            rows[kind].count(not wrong, f"{file.path.name}: {wrong}")


# Hostile files


def hostile_header(file, rng):
    """(what, bytes) with right checksums and something impossible in the header, the table or the config."""
    data = bytearray(file.data)
    kind = rng.randrange(8)
    entry = ff.HEADER.size + rng.randrange(file.count) * ff.ENTRY.size
    fields = list(ff.ENTRY.unpack_from(data, entry))
    if kind == 0:
        field = rng.choice(("version", "size", "count", "alignment"))
        value = rng.choice((0, 2, 3, 255, 65535, 2**24, 2**30, 2**31, 2**32 - 1))
        return f"header's {field} {value}", headed(data, **{field: value})
    if kind in (1, 2):  # huge, overlapping, out of order, back to the header: a cycle
        which = rng.choice((3, 4))
        fields[which] = rng.choice((0, 32, 64, fields[3], fields[4], fields[which] + 64, len(data) - 64, len(data),
                                    2**30, 2**31, 2**32 - 64, 2**32 - 1))
    elif kind == 3:
        fields[0] = rng.choice((b"CONF", b"TOKN", b"TABL", b"EMBD", b"LAYR", b"HEAD", b"XPRT", b"NONE",
                                b"\xff\xfe\0\0"))
    elif kind == 4:
        fields[rng.choice((1, 2))] = rng.choice((0, 1, 7, 63, 64, 255, 65535))
    else:
        return hostile_config(file, rng)
    data[entry : entry + ff.ENTRY.size] = ff.ENTRY.pack(*fields)
    return f"table entry {fields}", headed(data)


def hostile_config(file, rng):
    _, at, size = file.sections[0]
    about = json.loads(file.data[at : at + size])
    what = rng.choice((*about["config"], *about["config"], "", "config"))
    if what in about["config"]:
        value = rng.choice((*ABSURD, rng.randrange(1 << rng.randrange(1, 40)), "SA" * rng.randrange(60)))
        about["config"][what] = value
        text = json.dumps(about)
    elif what:
        about["config"] = value = rng.choice(ABSURD)
        text = json.dumps(about)
    else:
        text = value = rng.choice(("{", "[" * 5000, "null", "1e999", "\xff", '{"config":' * 200, '{"a":1}', ""))
    text = text.encode("latin-1")
    return f"config's {what} {value!r:.40}", refixed(replaced(file, 0, text), file)


def replaced(file, index, text):
    """The file with another section `index`, all others moved behind it."""
    parts = [(file.data[offset : offset + length] if i != index else text)
             for i, (_, offset, length) in enumerate(file.sections)]
    table, body, at = b"", b"", ff.aligned(file.end)
    for i, part in enumerate(parts):
        fields = list(ff.ENTRY.unpack_from(file.data, ff.HEADER.size + i * ff.ENTRY.size))
        fields[3:5] = at, len(part)
        table += ff.ENTRY.pack(*fields)
        body += ff.pad(part, ff.ALIGNMENT)
        at = ff.aligned(at + len(part))
    data = ff.pad(file.data[: ff.HEADER.size] + table, ff.ALIGNMENT) + body
    return headed(data, size=len(data))


def headers(count, rng, folder):
    """Refused in a heap that could not hold the model's weights; or a config that is possible, which fails there for
    want of memory, and in a large heap opens."""
    row = Row("device: hostile header, table or config")
    file = File(shipped()[0])
    whole, = tried(folder, [file.data], SMALL_HEAP)
    if "needs" not in (whole.get("refused") or ""):
        row.count(False, f"the heap of {SMALL_HEAP} is large enough for {file.path.name}: {whole}")
        return row
    todo = [hostile_header(file, rng) for _ in range(count)]
    for at in range(0, count, BATCH):
        batch = todo[at : at + BATCH]
        for (what, data), result in zip(batch, tried(folder, [data for _, data in batch], SMALL_HEAP)):
            said = result.get("refused") or ""
            wrong = ""
            if result.get("kind") == "MemoryError" and "needs" in said:
                again, = tried(folder, [data])
                if "end" in again or again["refused"]:
                    wrong = f"allocated first, then {again}"
            elif result.get("kind") != "ValueError" or ".scribe: " not in said or "\n" in said:
                wrong = str(result)
            row.count(not wrong, f"{what}: {wrong}")
    return row


def records(count, rng, folder):
    """Numbers changed inside sections, checksums right: refused, or whatever story it makes, without a crash."""
    row = Row("device: hostile numbers in sections")
    files = [File(small_model(name, folder)[0]) for name in ("hybrid", "griffin", "untied", "llama")]
    todo = []
    for _ in range(count):
        file = rng.choice(files)
        data = bytearray(file.data)
        _, at, size = rng.choice(file.sections[1:])
        for _ in range(rng.choice((1, 1, 4, 50))):
            place = at + rng.choice((rng.randrange(min(size, 160)), rng.randrange(size))) // 4 * 4
            value = rng.choice((0, 1, -1, 31, 32, 255, 1 << 15, 2**31 - 1, -(2**31), rng.randrange(-(2**31), 2**31)))
            data[place : place + 4] = value.to_bytes(4, "little", signed=True)
        todo.append((file.path.stem, refixed(data[: len(file.data)], file)))
    for at in range(0, count, BATCH):
        batch = todo[at : at + BATCH]
        for (what, data), result in zip(batch, tried(folder, [data for _, data in batch])):
            good = "end" not in result and (not result["refused"] or result["kind"] == "ValueError")
            row.count(good, f"{what}: {result}")
    return row


def run(amount, seed):
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        rows = {kind: Row(f"device: {kind}") for kind in sorted(DAMAGES)}
        for name in ("hybrid", "griffin", "untied"):
            damage(small_model(name, folder)[0], scaled(120, amount, 4), rng, folder, rows)
        for path in shipped() if amount >= 0.5 else ():
            damage(path, scaled(40, amount, 4), rng, folder, rows)
        yield from rows.values()
        yield headers(scaled(1000, amount, 20), rng, folder)
        yield records(scaled(1000, amount, 20), rng, folder)


