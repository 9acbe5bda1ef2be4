"""ROMFS images whose models lie on 64-byte boundaries, so that a board uses them in place, without a copy.

`mpremote romfs build` puts data wherever the record before it ends, and 32-bit loads from there fail or are refused
(device/scribe/modelfile.py copies such a file to RAM). Here a padding record, which MicroPython skips, comes before the
data of every file in the top folder. Partitions begin on a block boundary, so offsets in the image are what counts.
"""

MAGIC = b"\xd2\xcd\x31"
PADDING, DATA, FOLDER, FILE = 1, 2, 4, 5
ALIGNMENT = 64
_WIDE = 5  # bytes of a length that must not change the place of what follows


def _number(value, width=1):
    """A variable-length integer, at least `width` bytes long."""
    out = [value & 0x7F]
    value >>= 7
    while value or len(out) < width:
        out.insert(0, 0x80 | value & 0x7F)
        value >>= 7
    return bytes(out)


def _record(kind, payload, width=1):
    return _number(kind) + _number(len(payload), width) + payload


def _name(name):
    raw = name.encode()
    return _number(len(raw)) + raw


def _aligned_file(name, data, at):
    """A file's record, beginning at offset `at` of the image, with its data on a boundary."""
    fixed = at + 1 + _WIDE + len(_name(name)) + 1 + 1 + 1 + _WIDE  # up to the data, with an empty padding record
    padding = _record(PADDING, bytes(-fixed % ALIGNMENT))
    return _record(FILE, _name(name) + padding + _record(DATA, data, _WIDE), _WIDE)


def _folder(tree):
    out = b""
    for name, value in sorted(tree.items()):
        if isinstance(value, dict):
            out += _record(FOLDER, _name(name) + _folder(value))
        else:
            out += _record(FILE, _name(name) + _record(DATA, value))
    return out


def build(files, multiple=1):
    """The image of a file system from {path: bytes}, its length a multiple of `multiple`."""
    tree = {}
    for path, data in files.items():
        *folders, name = path.strip("/").split("/")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = data
    header = len(MAGIC) + _WIDE
    body = b""
    for name, value in sorted(tree.items()):
        if not isinstance(value, dict):
            body += _aligned_file(name, value, header + len(body))
    body += _folder({name: value for name, value in tree.items() if isinstance(value, dict)})
    image = MAGIC + _number(len(body), _WIDE) + body
    return image + bytes(-len(image) % multiple)
