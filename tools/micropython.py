"""Run code in real MicroPython (its unix port) with the board's package on the path.

The board's code is never imported into CPython: tests, stories and measurements all go through here.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from tools.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: What a script imports from: the board's packages, and the modules that are part of MicroPython itself.
PATH = f"{ROOT / 'device'}:.frozen"


class MicroPythonError(UserError):
    """MicroPython ended badly. The message is one line; `traceback` is all that it said."""

    def __init__(self, message, traceback=""):
        super().__init__(message)
        self.traceback = traceback


def micropython():
    """Path of the MicroPython binary: the one `make setup` installed, else one beside this Python, else on PATH."""
    for folder in (ROOT / ".venv" / "bin", pathlib.Path(sys.executable).parent):
        binary = folder / "micropython"
        if os.access(binary, os.X_OK):
            return str(binary)
    binary = shutil.which("micropython")
    if binary is None:
        raise UserError("MicroPython is not installed here; run: make setup")
    return binary


def heap_bytes(text):
    """Bytes in a heap size as MicroPython takes it: a number, optionally with k or m. Raises UserError."""
    match = re.fullmatch(r"(\d+)([kKmM]?)", str(text))
    size = int(match[1]) << {"": 0, "k": 10, "m": 20}[match[2].lower()] if match else 0
    if not 65536 <= size < 1 << 31:
        raise UserError(f"heap {text!r}: a size such as 300k or 8m is needed, from 64k to 2047m")
    return size


def run(script_or_code, *args, heapsize=None, env=None, timeout=120, check=True, stream=False):
    """Run a script (a pathlib.Path) or code (a string) in MicroPython; returns a CompletedProcess with text output.

    `heapsize` is in bytes, or text such as "300k" or "8m". `env` is added to the environment. With `stream`, output
    goes straight to this process's stdout instead of being collected. With `check`, a crash, an uncaught exception or
    a run longer than `timeout` seconds (None: no limit) raises MicroPythonError.
    """
    command = [micropython()]
    if heapsize is not None:
        command += ["-X", f"heapsize={heap_bytes(heapsize)}"]
    command += [str(script_or_code)] if isinstance(script_or_code, pathlib.Path) else ["-c", script_or_code]
    command += [str(arg) for arg in args]
    if stream:
        sys.stdout.flush()  # what was printed before comes first
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=None if stream else subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "MICROPYPATH": PATH, **(env or {})}, timeout=timeout,
            encoding="utf-8", errors="backslashreplace")
    except subprocess.TimeoutExpired as error:
        said = error.stderr or b""
        raise MicroPythonError(f"MicroPython did not finish in {timeout} seconds",
                               said.decode("utf-8", "backslashreplace") if isinstance(said, bytes) else said) from None
    except OSError as error:
        raise UserError(f"cannot start {command[0]} ({error.strerror}); was the folder moved? "
                        "Remove .venv and run: make setup") from None
    if check:
        raise_for_status(done)
    return done


def raise_for_status(done):
    """Raise MicroPythonError, with the last line of what it said, when a finished run did not end well."""
    if done.returncode == 0:
        return
    # Some builds of the unix port print an uncaught exception's traceback on stdout, not on stderr.
    said = next((text for text in (done.stderr, done.stdout) if text and "Traceback (" in text), done.stderr or "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if done.returncode < 0:
        message = f"MicroPython crashed ({signal.Signals(-done.returncode).name})"
    elif lines:
        message = f"MicroPython: {lines[-1]}"
    else:
        message = f"MicroPython ended with exit status {done.returncode}"
    raise MicroPythonError(message, said)
