"""kill -9 and full disks under the tools that write models: `pack`, `convert`, and `train` where PyTorch is installed.

What a tool leaves under a final name is always whole; what it was at can be started again, or resumed, and ends as if
nothing had happened. A full disk is a limit on the size of any file (RLIMIT_FSIZE): one line, and nothing half-written.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback

import numpy as np

from tools import convert, pack
from tools.micropython import ROOT
from tools.torture import Row, scaled

MOMENTS = 100  # of each tool
TEMPORARY = (".tmp",)
#: What a tool does to files, as Python tells it; a process can be killed before any of it.
EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "shutil.copyfile"}
STORY = "Once there was a fox who had a red hat. The fox sat on the hat.\n<|endofstory|>\n" * 40


def attempt(main, args, before=None, after=None, limit=None):
    """Run a tool in a child process; returns (exit status, negative for a signal; what it said; seconds).

    before: kill it before its so manieth change of a file. after: kill it after so many seconds. limit: bytes that a
    file may have.
    """
    reader, writer = os.pipe()  # a file would be under the limit too
    sys.stdout.flush()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            # not the files that a test runner may have put there
            sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
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
    os.close(writer)
    if after is not None:
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said, time.monotonic() - began


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


def files(folder):
    """{name: bytes} of all files below a folder under final names."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.endswith(TEMPORARY)}


class Writer:
    """A tool that writes into a folder: how to run it there, and what a run to the end leaves."""

    def __init__(self, name, main, args, folder):
        self.name, self.main, self.args = name, main, args
        status, said, self.seconds = attempt(main, args(folder / "whole"))
        if status:
            raise RuntimeError(f"{name}: {said}")
        self.whole = files(folder / "whole")
        self.folder = folder / "here"

    def begin(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()

    def again(self):
        """Run to the end in a folder where a run was broken off."""
        return attempt(self.main, self.args(self.folder))

    def problem(self, left):
        """What is wrong with what a broken-off run has left, or ""."""
        for name, data in left.items():
            if data != self.whole[name]:
                return f"half of {name}"
        return ""

    def equal(self):
        """Whether what is there is what a run to the end leaves, and no temporary file beside it."""
        return files(self.folder) == self.whole and not [p for p in self.folder.rglob("*") if p.name.endswith(TEMPORARY)]


class Trainer(Writer):
    """Training keeps a folder that is replaced step by step; its last model is what counts."""

    def again(self):
        there = any((self.folder / name).exists() for name in ("resume", "resume.old", "model.safetensors"))
        return attempt(self.main, self.args(self.folder) + (["--resume"] if there else []))

    def problem(self, left):
        from safetensors.numpy import load

        for name, data in left.items():
            if name.endswith(".safetensors") and "resume.tmp" not in name and "resume.old" not in name:
                try:
                    load(data)
                except Exception as error:
                    return f"half of {name}: {error}"
            if name in ("config.json", "tokenizer.json") and data != self.whole[name]:
                return f"half of {name}"
        return ""

    def equal(self):
        there = files(self.folder)
        wanted = ("config.json", "tokenizer.json", "model.safetensors", "resume/state.safetensors")
        return all(there.get(name) == self.whole[name] for name in wanted) and not list(self.folder.glob("*.tmp"))


def writers(folder):
    """The tools, each with inputs of its own."""
    from tools.torture.host_fuzz import TINY, sound

    source = ROOT / "weights" / "stories260K"
    (folder / "m.bin").write_bytes(sound("llama2c1"))
    names = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % byte for byte in range(256))]
    names += [b" ", *(bytes([97 + i % 26, 97 + i // 26]) for i in range(TINY.vocab_size - 260))]
    entries = b"".join(np.float32(-i).tobytes() + np.int32(len(name)).tobytes() + name for i, name in enumerate(names))
    (folder / "t.bin").write_bytes(np.int32(6).tobytes() + entries)

    def out(at, name):
        at.mkdir(exist_ok=True)
        return ["-o", str(at / name), "--tokens", "16", "--original", str(at / "original")]

    yield Writer("pack", pack.main, lambda at: [str(source), *out(at, "x.scribe")], folder / "pack")
    yield Writer("convert", convert.main, lambda at: [
        "llama2c", str(folder / "m.bin"), "--tokenizer", str(folder / "t.bin"), *out(at, "x.scribe")], folder / "convert")
    if importlib.util.find_spec("torch") is None:
        print("left out: training under kill -9 (PyTorch is not installed)", file=sys.stderr)
        return
    (folder / "text").write_text(STORY)
    train = importlib.import_module("tools.train")
    yield Trainer("train", train.main, lambda at: [
        "--corpus", str(folder / "text"), "--out", str(at), "--steps", "4", "--save-every", "0", "--batch", "2", "--seq",
        "32", "--recipe", "SA", "--vocab", "260", "--d-model", "16", "--d-rnn", "16", "--rnn-heads", "2", "--n-heads",
        "2", "--n-kv-heads", "1", "--head-dim", "8", "--experts", "2", "--d-expert", "8", "--window", "8", "--threads",
        "1"], folder / "train")


def killed(row, writer, **how):
    """One run that is killed, and one after it. Returns False where the first had ended before."""
    writer.begin()
    status, said, _ = attempt(writer.main, writer.args(writer.folder), **how)
    if status not in (0, -signal.SIGKILL):
        row.count(False, f"{how}: status {status}: {said}")
        return True
    problem = writer.problem(files(writer.folder))
    if not problem:
        again, said, _ = writer.again()
        problem = "" if again == 0 and writer.equal() else f"status {again}, then not as a run that was never killed: {said}"
    row.count(not problem, f"{how}: {problem}")
    return status != 0


def full(row, writer, limit):
    """One run on a disk that takes no more than `limit` bytes a file."""
    writer.begin()
    status, text, _ = attempt(writer.main, writer.args(writer.folder), limit=limit)
    said = [line for line in text.splitlines() if line.startswith("error:") or "Traceback" in line]
    left = files(writer.folder)
    temporary = [path.name for path in writer.folder.rglob("*") if path.name.endswith(TEMPORARY)]
    problem = writer.problem(left) or (f"left {temporary}" if temporary else "")
    if status not in (0, 2) or status == 2 and len(said) != 1:
        problem = f"status {status}: {text[-300:]}"
    if not problem:
        again, more, _ = writer.again()
        problem = "" if again == 0 and writer.equal() else f"then status {again}: {more}"
    row.count(not problem, f"limit {limit}: {problem}")


def run(amount, seed):
    if not hasattr(os, "fork"):
        print("left out: kill -9 of the tools (no fork on this system)", file=sys.stderr)
        return
    rng = np.random.default_rng([seed, 4])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("pack", "convert", "train"):
            (folder / name).mkdir()
        for writer in writers(folder):
            moments = scaled(MOMENTS, amount)
            row = Row(f"kill -9 of {writer.name}, before a change of a file")
            at = 1
            while row.tried < moments and killed(row, writer, before=at):
                at += 1 if amount >= 0.5 else int(rng.integers(1, 6))
            yield row
            row = Row(f"kill -9 of {writer.name} at a random moment")
            for _ in range(moments):
                killed(row, writer, after=rng.uniform(0, 1.1 * writer.seconds))
            yield row
            row = Row(f"no room for what {writer.name} writes")
            largest = max(map(len, writer.whole.values()))
            for _ in range(scaled(MOMENTS / 4, amount)):
                full(row, writer, int(largest * rng.uniform(0, 1.1) ** 2))
            yield row
