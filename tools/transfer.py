"""Copying files to a board: few bytes on the wire, every one of them checked, and a half file never under its name.

A file goes to NAME.part and is renamed when the board has read it back and its SHA-256 is right. What NAME.part holds
already, by SHA-256, is not sent again. The other half is tools/on_device/receiver.py, sent to the board's raw REPL.

On the wire a frame is 17 ASCII characters (how it is packed, lengths, CRC-32) and up to 2048 bytes of the file,
compressed where that makes them fewer. Ctrl-C (0x03) never occurs inside: it and ESC are escaped, so Ctrl-C always
stops the board. The next frame is sent when the board has written the one before: no board without flow control is
ever sent more than it is reading. A board whose standard input can't be read as bytes gets base64 in commands.
"""

import base64
import binascii
import hashlib
import time
import zlib

from mpremote.transport import TransportError, TransportExecError

from tools.connection import LOST, ROOM, last_line
from tools.errors import UserError
from tools.micropython import ROOT

RECEIVER = ROOT / "tools" / "on_device" / "receiver.py"
CHUNK = 2048
TRIES = 5  # failures in a row, without a byte of progress
ANSWER = 20  # seconds for a frame to be written
SLOWEST = 20000  # bytes a second that any board hashes


class Lost(Exception):
    """The board and this side no longer agree on where they are."""


def escaped(data):
    """Bytes without Ctrl-C."""
    return data.replace(b"\x1b", b"\x1b\x02").replace(b"\x03", b"\x1b\x01")


def frame(data, compress=True):
    """(head, body) of a piece of a file, as they go over the wire."""
    kind, body = "r", escaped(data)
    if compress:
        packed = escaped(deflated(data))
        if len(packed) < len(body):
            kind, body = "z", packed
    return f"{kind}{len(body):04x}{len(data):04x}{binascii.crc32(data):08x}".encode(), body


def deflated(data):
    """Raw deflate with a window of 2 KB, which is what a board has to allocate to undo it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -11)
    return packer.compress(data) + packer.flush()


class Transfer:
    """Copies files over an open connection. `progress(n)` is told how far a file is, in bytes, resumed ones too."""

    def __init__(self, connection, about, raw=True, compress=True):
        self.connection = connection
        self.raw = raw and about.raw
        self.compress = compress and about.deflate
        self._load()

    def _load(self):
        """Send the receiver. It is made small first: comments and blank lines stay here."""
        lines = RECEIVER.read_text().splitlines()
        lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        code = "\n".join(lines)
        if self.compress:
            packed = base64.b64encode(deflated(code.encode())).decode()
            code = ("import io,deflate,binascii\n"
                    f"exec(deflate.DeflateIO(io.BytesIO(binascii.a2b_base64('{packed}')),deflate.RAW,11).read())")
        try:
            self.connection.run(code)
        except TransportExecError as error:
            raise UserError(f"the board can't receive files: {last_line(error)}") from None

    def _run(self, code, timeout=None):
        return self.connection.run(code, timeout or ANSWER)

    def look(self, path, data):
        """(is the whole file there?, how many bytes of it are in its .part)"""
        answer = self._run(f"scribe_look({path!r},{len(data)})", ANSWER + 2 * len(data) / SLOWEST).split()
        digest, begun, digest_begun = answer
        begun = int(begun)
        if begun > 0 and digest_begun != hashlib.sha256(data[:begun]).hexdigest():
            begun = 0  # of another version of the file
        return digest == hashlib.sha256(data).hexdigest(), max(0, begun)

    def begun(self, path):
        """Bytes that an unfinished copy of the file takes on the board."""
        return max(0, int(self._run(f"print(scribe_size({path + '.part'!r}))")))

    def size(self, path):
        """Bytes of a file on the board, -1 where there is none."""
        return int(self._run(f"print(scribe_size({path!r}))"))

    def remove(self, *paths):
        """Remove whichever of these files are there."""
        self._run(f"for p in {paths!r}:\n scribe_remove(p)")

    def folder(self, path):
        """Make a folder on the board, and those above it."""
        if path not in ("", "/"):
            self._run(f"scribe_folder({path!r})")

    def put(self, path, data, progress=lambda n: None, looked=None):
        """Make the file on the board be `data`. Returns False where it already was. `looked`: what `look` just said.

        Raises UserError where the file system is full (what was begun is removed), the connection breaks (it is kept)
        or the line is too bad.
        """
        there, at = looked or self.look(path, data)
        if there:
            self.remove(path + ".part")
            progress(len(data))
            return False
        self._persist(path, data, at, progress, lambda at: f"scribe_Sink({path!r},{at},{len(data)})",
                      lambda: self.look(path, data)[1],
                      f"print(scribe_finish({path!r},{hashlib.sha256(data).hexdigest()!r}))")
        return True

    def burn(self, number, image, progress=lambda n: None):
        """Make the ROMFS partition hold an image, a multiple of CHUNK long. Returns False where it already did."""
        digest = hashlib.sha256(image).hexdigest()
        code = (f"import vfs\nh=hashlib.sha256()\nm=memoryview(vfs.rom_ioctl(2,{number}))\n"
                f"for i in range(0,{len(image)},4096):\n h.update(m[i:min(i+4096,{len(image)})])\n"
                "print(binascii.hexlify(h.digest()).decode())")
        if self._run(code, ANSWER + len(image) / SLOWEST) == digest:
            progress(len(image))
            return False
        self._persist(f"ROMFS {number}", image, 0, progress, lambda at: f"scribe_Rom({number},{len(image)})", lambda: 0,
                      f"print(scribe_sink.finish({digest!r}))")
        return True

    def _persist(self, name, data, at, progress, opening, resume, finishing):
        """Send until all is there, picking up after whatever can be picked up from."""
        failures, furthest = 0, at
        while True:
            progress(at)
            try:
                self._send(data, at, opening(at), progress)
                answer = self._run(finishing, ANSWER + len(data) / SLOWEST)
                if answer == "done":
                    return
                at = 0  # what the board read back is not what was sent
            except TransportExecError as error:
                self._refused(name, error)
            except (Lost, TransportError):
                self.connection.enter()
                at = resume()
            failures = 0 if at > furthest else failures + 1
            furthest = max(furthest, at)
            if failures == TRIES:
                raise UserError(f"{name}: {TRIES} times in a row the board did not get what was sent; try another "
                                "cable or USB port, and look at the board's flash (docs/boards.md)")

    def _refused(self, name, error):
        """What the board's exception means; removes what was begun where it can't be finished."""
        what = last_line(error)
        if "ENOSPC" in what or what in ("OSError: 28", "OSError: [Errno 28]"):
            self._run(f"scribe_remove({name + '.part'!r})")
            raise UserError(f"{name}: the board's file system is full, so nothing was kept; remove what you do not "
                            "need (mpremote fs ls, mpremote fs rm), or pack a smaller model") from None
        if what.startswith("MemoryError"):
            raise UserError("the board has too little free heap to receive files; reset it and try again") from None
        raise UserError(f"{name}: the board says {what}") from None

    def _send(self, data, at, opening, progress):
        if not self.raw:
            self._send_text(data, at, opening, progress)
            return
        transport, wire = self.connection.transport, self.connection.serial
        before = wire.timeout
        try:
            transport.exec_raw_no_follow(f"scribe_sink={opening}\nscribe_take(scribe_sink,{ROOM})")
            wire.timeout = 0.5  # a letter that does not come is looked for again
            self._answered(b"k", 60)  # erasing a partition takes a while
            while at < len(data):
                piece = data[at : at + CHUNK]
                head, body = frame(piece, self.compress)
                for _ in range(TRIES):
                    wire.write(head + body)
                    if self._answered(b"kr") == b"k":
                        break
                else:
                    raise Lost
                at += len(piece)
                progress(at)
            said, error = transport.follow(ANSWER)
        except LOST as error:
            raise self.connection.lost(error) from None
        finally:
            wire.timeout = before
        if error:
            raise TransportExecError(said, error.decode("utf-8", "replace"))

    def _answered(self, wanted, seconds=None):
        """The board's letter; raises TransportExecError where it ended instead."""
        transport, wire = self.connection.transport, self.connection.serial
        end = time.monotonic() + (seconds or ANSWER)
        letter = b""
        while not letter and time.monotonic() < end:
            letter = wire.read(1)
        if letter == b"\x04":
            error = transport.read_until(1, b"\x04", timeout=ANSWER)[:-1]
            raise TransportExecError(b"", error.decode("utf-8", "replace"))
        if not letter or letter not in wanted:
            raise Lost
        return letter

    def _send_text(self, data, at, opening, progress):
        self._run(f"scribe_sink={opening}", 60)
        while at < len(data):
            piece = data[at : at + CHUNK // 4]  # the whole command is compiled on the board's heap
            head, body = frame(piece, self.compress)
            text = base64.b64encode(body).decode()
            if self._run(f"scribe_text(scribe_sink,{head!r},'{text}')") != "k":
                raise Lost
            at += len(piece)
            progress(at)
        self._run("scribe_sink.close()")
