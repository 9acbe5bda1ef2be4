"""The unix port of MicroPython as a board: its REPL behind a pseudo-terminal that mpremote and tools.deploy can open.

A line carries the bytes between the two ends, counts them, and can damage or cut what it carries. The board's file
system is littlefs on a file, so that a board can be unplugged and plugged in again.
"""

import json
import os
import pty
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import tty

from tools.chat import serial_like
from tools.micropython import ROOT, micropython, run

# What the firmware of a board does before its REPL: mounts a flash file system and sets the path.
FLASH = """
import os, sys, vfs, json
settings = json.loads(os.getenv("SCRIBE_BOARD"))
class Flash:
    def __init__(self, path, blocks, writes=-1):
        self.blocks, self.path = blocks, path
        self.written, self.writes = 0, writes
        try:
            self.file = open(path, "r+b")
            self.new = False
        except OSError:
            self.file = open(path, "w+b")
            self.new = True
            for i in range(blocks):
                self.file.write(b"\\xff" * 4096)
    def readblocks(self, n, buf, off=0):
        self.file.seek(n * 4096 + off)
        self.file.readinto(buf)
    def writeblocks(self, n, buf, off=None):
        self.file.seek(n * 4096 + (off or 0))
        self.written += 1
        if self.written == self.writes:  # the power goes in the middle of this one
            self.file.write(memoryview(buf)[: len(buf) // 2])
            open(self.path + ".dark", "w").close()
            while True:
                pass
        self.file.write(buf)
    def ioctl(self, op, arg):
        if op == 3:
            self.file.flush()
        return {4: self.blocks, 5: 4096, 6: 0}.get(op, 0)
flash = Flash(settings["flash"], settings["blocks"], settings.get("writes", -1))
"""
BOOT = FLASH + """
if flash.new:
    vfs.VfsLfs2.mkfs(flash)
vfs.mount(vfs.VfsLfs2(flash), "/flash")
os.chdir("/flash")
sys.path[:] = ["", ".frozen", "/flash/lib"]
if settings["pretend"]:
    class Pretend:
        def __init__(self, real, **other):
            for name in other:
                setattr(self, name, other[name])
            self.real = real
        def __getattr__(self, name):
            return getattr(self.real, name)
    exec(settings["pretend"])
sys.modules["flash"] = flash
del Flash, flash, settings, json
"""


#: What is on the flash, whatever the board is doing just then.
LOOK = FLASH + """
import hashlib, binascii
vfs.mount(vfs.VfsLfs2(flash, readsize=32), "/flash", readonly=True)
for name, kind, *_ in os.ilistdir("/flash"):
    if kind == 0x8000:
        print("/flash/" + name, binascii.hexlify(hashlib.sha256(open("/flash/" + name, "rb").read()).digest()).decode())
"""


class Line:
    """Carries bytes between a board's file descriptor and `port`, a pseudo-terminal that tools open.

    Nothing here blocks: a board that has hung takes no more, and the test that meets it fails instead of hanging too.
    """

    def __init__(self, board=None):
        self.board = board  # None while it is unplugged; its reads and writes do not block
        if board is not None:
            os.set_blocking(board, False)
        self.to_board = self.from_board = 0  # bytes carried
        self.garble = 0.0  # probability that a byte of a long write is damaged on its way to the board
        self.cut_at = None  # bytes carried to the board at which the line goes dead
        self.cut_after = None  # (text, bytes): it goes dead so many bytes after the text
        self.drop = 0  # bytes of the next long write that get lost
        self._random = random.Random(1)
        self._side, self._user = pty.openpty()  # the user's end stays open, so that a tool may come and go
        tty.setraw(self._user)
        os.set_blocking(self._side, False)
        self.port = os.ttyname(self._user)
        self._inward = self._outward = b""  # what the board, or the tool, has not taken yet
        self._stopping = False
        self.carrying = threading.Lock()  # held while bytes are carried
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        while not self._stopping:
            board = self.board
            reads, writes = [], []
            if not self._inward:
                reads.append(self._side)
            elif board is not None:
                writes.append(board)
            if self._outward:
                writes.append(self._side)
            elif board is not None:
                reads.append(board)
            try:
                reads, writes, _ = select.select(reads, writes, [], 0.2)
                with self.carrying:
                    if board is self.board:  # else it was unplugged meanwhile, and its number may be another's
                        self._pass_on(board, reads, writes)
            except BlockingIOError:
                continue
            except OSError:
                time.sleep(0.05)  # the board has gone

    def _pass_on(self, board, reads, writes):
        if self._side in writes:
            self._outward = self._outward[os.write(self._side, self._outward) :]
        if self._side in reads:
            self._inward = self._towards(os.read(self._side, 4096))
            if board is None:
                self._inward = b""
        if board in reads:
            self._outward = os.read(board, 4096)
            self.from_board += len(self._outward)
        if board is not None and self._inward:
            self._inward = self._inward[os.write(board, self._inward) :]

    def cut(self):
        """Whether the line went dead at `cut_at`."""
        return self.cut_at is not None and self.to_board >= self.cut_at

    def cut_later(self, text, count):
        """The line goes dead so many bytes after a text on its way to the board; after so many bytes, for b""."""
        self._seen = b""
        self.cut_at = None if text else self.to_board + count
        self.cut_after = (text, count) if text else None

    def mend(self):
        """The line carries again; what was sent while it was dead is gone."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with self.carrying:
                if not self._inward and not select.select([self._side], [], [], 0)[0]:
                    self.cut_at = self.cut_after = None
                    return
            time.sleep(0.001)
        raise AssertionError(f"the board has not taken {len(self._inward)} bytes in a minute: it hangs")

    def _towards(self, data):
        """What of a tool's bytes comes through, damaged or cut as the test wants it."""
        if self.garble and len(data) > 20:  # commands have no checksum; frames do
            data = bytes(b ^ 0x40 if self._random.random() < self.garble else b for b in data)
        if self.drop and len(data) > 1000:
            data, self.drop = data[: -self.drop], 0
        if self.cut_after:
            text, count = self.cut_after
            seen = self._seen + data
            if text in seen:
                self.cut_at = self.to_board + seen.index(text) + len(text) - len(self._seen) + count
                self.cut_after = None
            self._seen = seen[-len(text) :]
        if self.cut_at is not None:
            data = data[: max(0, self.cut_at - self.to_board)]
        self.to_board += len(data)
        return data

    def close(self):
        self._stopping = True
        self._thread.join()
        os.close(self._side)
        os.close(self._user)

    def mpremote(self, *args, timeout=900):
        """Run mpremote against the board; returns a CompletedProcess."""
        return subprocess.run([sys.executable, "-m", "mpremote", "connect", self.port, "resume", *args],
                              capture_output=True, text=True, timeout=timeout, cwd=ROOT)

    def deploy(self, *args, timeout=900):
        """Run tools.deploy against the board; returns a CompletedProcess."""
        return subprocess.run([sys.executable, "-m", "tools.deploy", "--port", self.port, *args],
                              capture_output=True, text=True, timeout=timeout, cwd=ROOT)


class PtyBoard(Line):
    """A board on `port`. `pretend` is code that runs at boot; `heap` and `blocks` (of 4096 bytes) are its sizes.

    A program gets Ctrl-C as a byte, as on MicroPython's port for QEMU. `interrupts`: one that was started from the
    friendly REPL is interrupted by it. The unix port then jumps out of whatever it is doing; now and then that is an
    allocation, after which it hangs or ends, so only a test of just that has it.
    Ctrl-D on an empty line ends the unix port, where a board would only restart.
    """

    def __init__(self, folder, heap="4m", blocks=512, pretend="", interrupts=False):
        self.flash = folder / "flash.bin"
        self.boot = folder / "boot.py"
        self.boot.write_text(BOOT)
        self.heap, self.blocks, self.pretend, self.interrupts = heap, blocks, pretend, interrupts
        super().__init__()
        self.plug()

    @property
    def dark(self):
        """Whether the power went at the write that `plug` was told."""
        return self._dark.exists()

    def plug(self, writes=-1):
        """Power on. `writes`: at which write to the flash, half done, it goes off again: see `dark`, then `unplug`."""
        self.cut_at = self.cut_after = None
        self._dark = self.flash.with_name(self.flash.name + ".dark")
        self._dark.unlink(missing_ok=True)
        self.pid, board = pty.fork()
        if not self.pid:
            serial_like(0, self.interrupts)
            os.environ["SCRIBE_BOARD"] = json.dumps(
                {"flash": str(self.flash), "blocks": self.blocks, "pretend": self.pretend, "writes": writes})
            os.environ.pop("MICROPYPATH", None)
            os.execv(micropython(), [micropython(), "-X", f"heapsize={self.heap}", "-i", str(self.boot)])
        seen = b""
        end = time.monotonic() + 120
        while not seen.endswith(b">>> "):
            if not select.select([board], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"the board did not boot: {seen!r}")
            seen += os.read(board, 4096)
        os.set_blocking(board, False)
        self.board = board

    def on_flash(self):
        """{path: SHA-256} of the files at the top of the flash, looked at from outside, in a copy."""
        copy = self.flash.with_suffix(".copy")
        shutil.copy(self.flash, copy)
        settings = json.dumps({"flash": str(copy), "blocks": self.blocks})
        done = run(LOOK, env={"SCRIBE_BOARD": settings}, heapsize="8m")
        return dict(line.split() for line in done.stdout.splitlines())

    def unplug(self):
        """Power off, at once."""
        with self.carrying:
            board, self.board, self._inward, self._outward = self.board, None, b"", b""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(board)

    def close(self):
        if self.board is not None:
            self.unplug()
        super().close()
