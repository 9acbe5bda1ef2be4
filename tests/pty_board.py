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
    def __init__(self, path, blocks):
        self.blocks = blocks
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
        self.file.write(buf)
    def ioctl(self, op, arg):
        if op == 3:
            self.file.flush()
        return {4: self.blocks, 5: 4096, 6: 0}.get(op, 0)
flash = Flash(settings["flash"], settings["blocks"])
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
    """Carries bytes between a board's file descriptor and `port`, a pseudo-terminal that tools open."""

    def __init__(self, board=None):
        self.board = board  # None while it is unplugged
        self.to_board = self.from_board = 0  # bytes carried
        self.garble = 0.0  # probability that a byte of a long write is damaged on its way to the board
        self.cut_after = None  # bytes to the board after which the line goes dead
        self.drop = 0  # bytes of the next long write that get lost
        self._random = random.Random(1)
        self._side, self._user = pty.openpty()  # the user's end stays open, so that a tool may come and go
        tty.setraw(self._user)
        self.port = os.ttyname(self._user)
        self._stopping = False
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def _carry(self):
        while not self._stopping:
            board = self.board
            ready, _, _ = select.select([self._side] + ([board] if board is not None else []), [], [], 0.2)
            try:
                if self._side in ready:
                    self._towards(board, os.read(self._side, 4096))
                if board in ready:
                    data = os.read(board, 4096)
                    self.from_board += len(data)
                    os.write(self._side, data)
            except OSError:
                time.sleep(0.05)  # the board has gone

    def _towards(self, board, data):
        if self.garble and len(data) > 20:  # commands have no checksum; frames do
            data = bytes(b ^ 0x40 if self._random.random() < self.garble else b for b in data)
        if self.drop and len(data) > 1000:
            data, self.drop = data[: -self.drop], 0
        if self.cut_after is not None:
            data = data[: max(0, self.cut_after - self.to_board)]
        self.to_board += len(data)
        while data and board is not None:
            data = data[os.write(board, data) :]

    def close(self):
        self._stopping = True
        self._thread.join()
        os.close(self._side)
        os.close(self._user)

    def mpremote(self, *args, timeout=120):
        """Run mpremote against the board; returns a CompletedProcess."""
        return subprocess.run([sys.executable, "-m", "mpremote", "connect", self.port, "resume", *args],
                              capture_output=True, text=True, timeout=timeout, cwd=ROOT)

    def deploy(self, *args, timeout=300):
        """Run tools.deploy against the board; returns a CompletedProcess."""
        return subprocess.run([sys.executable, "-m", "tools.deploy", "--port", self.port, *args],
                              capture_output=True, text=True, timeout=timeout, cwd=ROOT)


class PtyBoard(Line):
    """A board on `port`. `pretend` is code that runs at boot; `heap` and `blocks` (of 4096 bytes) are its sizes."""

    def __init__(self, folder, heap="4m", blocks=512, pretend=""):
        self.flash = folder / "flash.bin"
        self.boot = folder / "boot.py"
        self.boot.write_text(BOOT)
        self.heap, self.blocks, self.pretend = heap, blocks, pretend
        super().__init__()
        self.plug()

    def plug(self):
        """Power on."""
        self.cut_after = None
        self.pid, board = pty.fork()
        if not self.pid:
            os.environ["SCRIBE_BOARD"] = json.dumps(
                {"flash": str(self.flash), "blocks": self.blocks, "pretend": self.pretend})
            os.environ.pop("MICROPYPATH", None)
            os.execv(micropython(), [micropython(), "-X", f"heapsize={self.heap}", "-i", str(self.boot)])
        serial_like(board)
        seen = b""
        end = time.monotonic() + 20
        while not seen.endswith(b">>> "):
            if not select.select([board], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"the board did not boot: {seen!r}")
            seen += os.read(board, 4096)
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
        board, self.board = self.board, None
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        time.sleep(0.25)  # the line looks at the board no longer
        os.close(board)

    def close(self):
        super().close()
        if self.board is not None:
            self.unplug()
