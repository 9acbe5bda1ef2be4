"""Processes to be killed, and what they had to say.

They come from a server of Python's own, not from a fork of the process that asks: other threads may run there, whose
locks a fork would take along locked, and tqdm's lock would be shared with a process that is killed.
"""

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
import traceback

import tqdm

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", "tools.deploy", "tools.pack", "tools.convert", "tools.train"])
#: What a tool does to files, as Python tells it; a process can be killed before any of it.
EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "shutil.copyfile"}


def started(action):
    """A process that runs an action, which says nothing. The action has to be one that pickles."""
    return _begin(_quietly, action)


def kill(process):
    """SIGKILL, and wait until it is gone."""
    process.kill()
    process.join()


def _begin(target, *args):
    process = _CONTEXT.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def _own_locks():
    """tqdm's usual lock is a semaphore of the system, which a process that is killed leaves behind."""
    tqdm.tqdm.set_lock(threading.RLock())


def _quietly(action):
    _own_locks()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        with contextlib.suppress(Exception):
            action()


def attempt(main, args, before=None, after=None, limit=None):
    """Run a tool's main; returns (exit status, negative for a signal; what it said; seconds).

    before: kill it before its so manieth change of a file. after: kill it after so many seconds. limit: bytes that a
    file may have.
    """
    ours, theirs = _CONTEXT.Pipe(duplex=False)  # a file would be under the limit too
    process = _begin(_tool, theirs, main, args, before, limit)
    theirs.close()
    with ours:
        began = time.monotonic()
        with contextlib.suppress(EOFError):
            ours.recv_bytes()  # it is there, and begins
            began = time.monotonic()
        if after is not None:
            time.sleep(after)
            kill(process)
        said = b""
        while part := os.read(ours.fileno(), 65536):
            said += part
    process.join()
    return process.exitcode, said.decode(errors="replace"), time.monotonic() - began


def _tool(pipe, main, args, before, limit):
    status = 70
    _own_locks()
    pipe.send_bytes(b"")
    os.dup2(pipe.fileno(), 1)
    os.dup2(pipe.fileno(), 2)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
    try:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        if before is not None:
            sys.addaudithook(_killer(before))
        status = main(args)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _killer(count):
    left = count

    def hook(event, args):
        nonlocal left
        if event in EVENTS and not (event == "open" and not _writes(args)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def _writes(args):
    _, mode, flags = args
    return (isinstance(mode, str) and set(mode) & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR))
