# Runs in a board's raw REPL: the board's half of tools/transfer.py. Names begin with `scribe_`, because the REPL's
# globals are shared with whoever types next. Answers are single lines of ASCII.
import binascii
import hashlib
import os
import sys

try:
    from deflate import RAW, DeflateIO
    from io import BytesIO
except ImportError:
    DeflateIO = None

SCRIBE_HEAD = 17  # a letter, then hexadecimal: 4 digits of length on the wire, 4 of length, 8 of CRC-32
SCRIBE_SYNC = 65536  # what a pulled cable can cost


def scribe_unpacked(kind, data, size, crc):
    """A frame's bytes, or None where it is damaged."""
    try:
        data = data.replace(b"\x1b\x01", b"\x03").replace(b"\x1b\x02", b"\x1b")
        if kind == "z":
            data = DeflateIO(BytesIO(data), RAW, 11).read()
    except (OSError, ValueError, EOFError):
        return None
    return data if len(data) == size and binascii.crc32(data) == crc else None


def scribe_numbers(head):
    """(letter, length on the wire, length, CRC-32) of a frame's head; raises ValueError."""
    text = bytes(head).decode()
    return text[0], int(text[1:5], 16), int(text[5:9], 16), int(text[9:17], 16)


class scribe_Wire:
    """Frames as raw bytes on standard input; `k` or `r` (once more, please) answers each."""

    def __init__(self, room):
        self.read = sys.stdin.buffer.readinto
        self.head = bytearray(SCRIBE_HEAD)
        self.room = memoryview(bytearray(room))

    def next(self):
        while True:
            self.read(self.head)
            try:
                kind, length, size, crc = scribe_numbers(self.head)
                part = self.room[:length]
            except (ValueError, UnicodeError):
                self.lost()
            if length > len(self.room):
                self.lost()
            self.read(part)
            data = bytes(part)
            if b"\x03" in data:  # never sent inside a frame; some firmware does not make an interrupt of it
                raise KeyboardInterrupt
            data = scribe_unpacked(kind, data, size, crc)
            if data is not None:
                return data
            self.answer("r")

    def lost(self):
        """Bytes went missing: swallow the rest until the sender gives up, or it would be taken for Python code."""
        if b"\x03" not in self.head:
            one = self.head[:1]
            self.answer("x")
            while one[0] != 3:
                self.read(one)
        raise KeyboardInterrupt

    def answer(self, letter):
        sys.stdout.write(letter)


class scribe_Sink:
    """Appends frames to a file until it is whole."""

    def __init__(self, path, at, size):
        self.at, self.size, self.synced = at, size, at
        self.file = open(path + ".part", "ab" if at else "wb")

    def write(self, data):
        n = self.file.write(data)
        if n is not None and n != len(data):
            raise OSError(28)
        self.at += len(data)
        if self.at - self.synced >= SCRIBE_SYNC:
            self.file.flush()
            self.synced = self.at

    def close(self):
        self.file.close()


class scribe_Rom:
    """Writes frames to a ROMFS partition. The first stays in RAM until all the others are right: no header, no image."""

    def __init__(self, number, size):
        import vfs

        self.at, self.size, self.number, self.ioctl, self.first = 0, size, number, vfs.rom_ioctl, None
        self.region = vfs.rom_ioctl(2, number)
        self.blocks = hasattr(self.region, "ioctl")
        try:
            vfs.umount("/rom")
        except OSError:
            pass
        if self.blocks:
            self.block = self.region.ioctl(5, 0)
            for block in range((size + self.block - 1) // self.block):
                self.region.ioctl(6, block)
        else:
            block = self.ioctl(6, number)
            if 0 < block < len(self.region):
                for offset in range(0, size, 32768):
                    part = min(size - offset, 32768)
                    self.ioctl(3, number, offset, (part + block - 1) // block * block)
            else:
                self.ioctl(3, number, size)

    def write(self, data):
        if self.first is None:
            self.first = data
        else:
            self.program(self.at, data)
        self.at += len(data)

    def program(self, offset, data):
        if self.blocks:
            self.region.writeblocks(offset // self.block, data, offset % self.block)
        else:
            self.ioctl(4, self.number, offset, data)

    def close(self):
        pass

    def finish(self, digest):
        view = memoryview(self.region)
        h = hashlib.sha256(self.first)
        for at in range(len(self.first), self.size, 4096):
            h.update(view[at : min(at + 4096, self.size)])
        if binascii.hexlify(h.digest()).decode() != digest:
            return "damaged"
        self.program(0, self.first)
        if not self.blocks:
            self.ioctl(5, self.number)
        return "done"


def scribe_digest(path):
    h = hashlib.sha256()
    buf = memoryview(bytearray(1024))
    with open(path, "rb") as f:
        while True:
            n = f.readinto(buf)
            if not n:
                return binascii.hexlify(h.digest()).decode()
            h.update(buf[:n])


def scribe_size(path):
    try:
        return os.stat(path)[6]
    except OSError:
        return -1


def scribe_look(path, size):
    """Line: digest of the file if it has this size, else "-"; size and digest of what was begun, else -1 and "-"."""
    part = path + ".part"
    begun = scribe_size(part)
    print(scribe_digest(path) if scribe_size(path) == size else "-", begun,
          scribe_digest(part) if 0 < begun <= size else "-")


def scribe_folder(path):
    """Make a folder and those above it."""
    at = 0
    while at >= 0:
        at = path.find("/", at + 1)
        name = path if at < 0 else path[:at]
        if scribe_size(name) < 0:
            os.mkdir(name)


def scribe_remove(path):
    try:
        os.remove(path)
    except OSError:
        pass


def scribe_finish(path, digest):
    """What was begun gets its name, if it is right."""
    if scribe_digest(path + ".part") != digest:
        os.remove(path + ".part")
        return "damaged"
    os.rename(path + ".part", path)
    return "done"


def scribe_take(sink, room):
    """Frames from the wire into the sink; the frame that fills the disk is answered by OSError instead."""
    wire = scribe_Wire(room)
    wire.answer("k")
    try:
        while sink.at < sink.size:
            sink.write(wire.next())
            wire.answer("k")
    finally:
        sink.close()


def scribe_text(sink, head, data):
    """One frame as base64 text, where the wire can't be read raw."""
    kind, _, size, crc = scribe_numbers(head)
    data = scribe_unpacked(kind, binascii.a2b_base64(data), size, crc)
    if data is None:
        print("r")
    else:
        sink.write(data)
        print("k")
