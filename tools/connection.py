"""The serial connection to a board: finding it, entering its raw REPL, and asking it what it is.

The transport is mpremote's own (`mpremote.transport_serial.SerialTransport`); this module says what goes wrong in one
line, and gets a board out of a transfer that was cut off.
"""

import ast
import contextlib
import dataclasses
import itertools
import os
import pathlib
import time

import serial
import serial.tools.list_ports
from mpremote.transport import TransportError, TransportExecError
from mpremote.transport_serial import SerialTransport

from tools.errors import UserError

#: The oldest MicroPython that Scribe runs on.
OLDEST = (1, 24)
#: Frames on the wire are no longer than this, so as many Ctrl-C's end a transfer that was cut off inside one.
ROOM = 4400
ANSWER = 15  # seconds for a board to answer: a file system that tidies up can take some
PATIENCE = 45  # seconds in all for a prompt: most boards need none, only a dead one takes them all
SILENCE = 0.2, 0.5, 1, 2  # seconds without a word after which a prompt is asked for again, attempt by attempt
BANNER = b"raw REPL; CTRL-B to exit\r\n"

LOST = (serial.SerialException, OSError)

_ABOUT = """
import sys
def scribe_about():
    import gc
    i = sys.implementation
    d = {'name': i.name, 'version': tuple(i.version[:3]), 'machine': getattr(i, '_machine', sys.platform),
         'mpy': getattr(i, '_mpy', 0), 'platform': sys.platform, 'path': [str(p) for p in sys.path],
         'raw': hasattr(sys.stdin, 'buffer'), 'deflate': False, 'root': None, 'flash': 0, 'block': 0, 'rom': None}
    try:
        import deflate, io
        d['deflate'] = hasattr(io, 'BytesIO')
    except ImportError:
        pass
    try:
        import os
        d['root'] = os.getcwd()
        s = os.statvfs(d['root'])
        d['flash'], d['block'] = s[0] * s[3], s[0]
    except (ImportError, AttributeError, OSError):
        pass
    try:
        import vfs
        r = vfs.rom_ioctl(2, 0)
        d['rom'] = r.ioctl(4, 0) * r.ioctl(5, 0) if hasattr(r, 'ioctl') else len(r)
    except (ImportError, AttributeError, OSError, TypeError, ValueError):
        pass
    gc.collect()
    d['heap'] = gc.mem_free()
    print(repr(d))
scribe_about()
"""


@dataclasses.dataclass
class About:
    """What a board said of itself: sizes in bytes; `root` is where its files go, None without a file system."""

    name: str
    version: tuple
    machine: str
    mpy: int
    platform: str
    path: list
    raw: bool
    deflate: bool
    root: str | None
    flash: int
    block: int
    rom: int | None
    heap: int

    def line(self):
        """The board in a line."""
        flash = f"{kilobytes(self.flash)} of flash" if self.root is not None else "no file system"
        rom = f", {kilobytes(self.rom)} of ROMFS" if self.rom else ""
        return (f"{self.machine}, MicroPython {'.'.join(map(str, self.version))}; "
                f"free: {flash}{rom}, {kilobytes(self.heap)} of heap")

    def library(self):
        """Where packages go: the first folder named lib that imports look in (as mip has it), else beside the files."""
        for path in self.path:
            if path.endswith("/lib") and not path.startswith("/rom"):
                return path
        return (self.root or "").rstrip("/")

    def check(self):
        """Raise UserError for a board that Scribe can't run on."""
        if self.name != "micropython":
            raise UserError(f"the board runs {self.name}, not MicroPython: flash MicroPython first (docs/boards.md)")
        if tuple(self.version[:2]) < OLDEST:
            raise UserError(f"MicroPython {'.'.join(map(str, self.version))} on {self.machine} is too old; "
                            f"{OLDEST[0]}.{OLDEST[1]} or newer is needed: flash it first (docs/boards.md)")


def kilobytes(size):
    return f"{size / 1024:.0f} KB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MB"


def candidates():
    """The serial ports that may be boards: USB devices, as (port, description), sorted."""
    return sorted((p.device, " ".join(filter(None, (p.manufacturer, p.product or p.description, p.serial_number))))
                  for p in serial.tools.list_ports.comports() if p.vid is not None)


def find_port(port=None):
    """The port that was named, or the only candidate. Raises UserError with the list where the choice is not clear."""
    if port:
        return port
    found = candidates()
    if len(found) == 1:
        return found[0][0]
    if not found:
        raise UserError("no board found on USB; plug one in, or name its port: PORT=/dev/ttyACM0 (or COM3)")
    names = "; ".join(f"{device} ({about})" for device, about in found)
    raise UserError(f"{len(found)} boards found, so name one with PORT=...: {names}")


class Connection:
    """A board's raw REPL. Use it in a `with`, which leaves the board at its friendly prompt."""

    def __init__(self, port):
        self.port = port
        path = pathlib.Path(port)
        if os.name == "posix" and "://" not in port:
            if not path.exists():
                names = ", ".join(device for device, _ in candidates()) or "none"
                raise UserError(f"no port {port}; ports that may be boards: {names}")
            if not path.is_char_device():
                raise UserError(f"{port} is not a serial port")
            if not os.access(port, os.R_OK | os.W_OK):
                raise UserError(f"no permission for {port}; on Linux join its group (dialout or uucp) and log in again")
        try:
            self.transport = SerialTransport(port, timeout=ANSWER)
        except (TransportError, serial.SerialException, OSError):
            raise UserError(f"{port} does not open; is another program using it (a terminal, an editor)?") from None
        self.serial = self.transport.serial
        self.serial.write_timeout = ANSWER
        self.sent = 0  # bytes put on the wire
        self._write, self.serial.write = self.serial.write, self._counted

    def _counted(self, data):
        self.sent += len(data)
        return self._write(data)

    def __enter__(self):
        try:
            self.enter()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        with contextlib.suppress(*LOST):
            if self.transport.in_raw_repl:
                self.transport.exit_raw_repl()
        with contextlib.suppress(*LOST):
            self.transport.close()

    def enter(self):
        """Stop what runs and enter the raw REPL. Raises UserError where nothing, or not a REPL, answers.

        Asks until it is answered: what runs may finish something first, or swallow what it is sent, and a tool that was
        killed may have left questions whose answers are still to come. So the prompt counts that comes after the answer
        to a question of this moment.
        """
        before, write_before = self.serial.timeout, self.serial.write_timeout
        self.serial.timeout, self.serial.write_timeout = 0.1, 1  # on a pty a read waits for this long
        self._end, self._said, reads = time.monotonic() + PATIENCE, b"", True
        try:
            for attempt in itertools.count():
                silence = SILENCE[min(attempt, len(SILENCE) - 1)]
                try:
                    if self._ask(attempt, silence):
                        self.transport.in_raw_repl = True
                        return
                    reads = True
                except serial.SerialTimeoutException:  # it is busy, and takes nothing
                    reads = False
                if time.monotonic() > self._end:
                    break
        except LOST as error:
            raise self.lost(error) from None
        finally:
            self.serial.timeout, self.serial.write_timeout = before, write_before
        said = self._said.strip(b"\x03\r\n")
        raise UserError(
            f"nothing reads on {self.port}: is it a board? Press its reset button, try again" if not reads else
            f"no MicroPython prompt on {self.port}; it says {said[-60:]!r}: is this the board's REPL port?" if said else
            f"no MicroPython prompt on {self.port}; press its reset button and try again; is the firmware MicroPython?")

    def _ask(self, attempt, silence):
        """Whether the board is at the raw REPL's prompt, and all that it was asked before is answered."""
        if attempt:
            # Some firmware makes no interrupt of Ctrl-C while a program reads; a transfer that was cut off inside a
            # frame takes these for the rest of it, and ends.
            for _ in range(ROOM // 100 + 1):
                self.serial.write(b"\x03" * 100)
                time.sleep(0.002)
                if self._hear():
                    break
            time.sleep(0.05)
            while self._hear() and time.monotonic() < self._end:  # it ends: some ports drop what arrives meanwhile
                time.sleep(0.05)
        self.serial.write(b"\r\x03")
        self._hear()
        self.serial.write(b"\r\x01")
        if not self._until(BANNER, silence):
            return False
        mark = os.urandom(6).hex()
        self.serial.write(f"print('scribe','{mark}')\x04".encode())
        return self._until(f"OKscribe {mark}".encode(), silence) and self._until(b"\x04\x04", silence)

    def _until(self, wanted, silence):
        """Read to these bytes; False after so long a silence, or when patience ends."""
        heard, last = b"", time.monotonic()
        while not heard.endswith(wanted):
            byte = self.serial.read(1)
            now = time.monotonic()
            if byte:
                heard, last = (heard + byte)[-200:], now
                self._said = (self._said + byte)[-200:]
            if now > last + silence or now > self._end:
                return False
        return True

    def _hear(self):
        """What the board said meanwhile."""
        heard = self.serial.read(self.serial.in_waiting)
        self._said = (self._said + heard)[-200:]
        return heard

    def lost(self, error):
        """The UserError for a connection that broke."""
        return UserError(f"the connection to {self.port} broke ({getattr(error, 'strerror', None) or error}); "
                         "plug it in again and repeat the command, which goes on from there")

    def reset(self):
        """Restart MicroPython without its main.py, so that the whole heap is there."""
        try:
            self.transport.read_until(1, b">", timeout=3)
            self.serial.write(b"\x04")
            data = self.transport.read_until(1, b"raw REPL; CTRL-B to exit\r\n", timeout=ANSWER, timeout_overall=30)
        except LOST as error:
            raise self.lost(error) from None
        if not data.endswith(b"raw REPL; CTRL-B to exit\r\n"):
            raise UserError(f"the board on {self.port} did not come back from a soft reset; press its reset button")

    def run(self, code, timeout=ANSWER):
        """What a piece of code printed, as text. Raises TransportExecError where the board raised an exception."""
        try:
            said, error = self.transport.exec_raw(code, timeout=timeout)
        except LOST as error:
            raise self.lost(error) from None
        if error:
            raise TransportExecError(said, error.decode("utf-8", "replace"))
        return said.decode("utf-8", "replace").strip()

    def about(self):
        """The board's `About`. Raises UserError where it can't say."""
        try:
            return About(**ast.literal_eval(self.run(_ABOUT)))
        except TransportExecError as error:
            raise UserError(f"the board can't say what it is: {last_line(error)}") from None
        except (TransportError, ValueError, SyntaxError, TypeError):
            raise UserError(f"the board on {self.port} gives no sensible answer; press its reset button") from None


def last_line(error):
    """The last line of a board's traceback."""
    lines = [line for line in error.error_output.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
