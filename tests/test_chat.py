"""The prompt for stories: driven through a pseudo-terminal, key by key, as a person would."""

import contextlib
import os
import pathlib
import pty
import select
import subprocess
import sys
import time

import models
import pty_board
import pytest

from tools.micropython import ROOT


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small model's path; its stories do not end by themselves."""
    return models.packed(models.HYBRID, tmp_path_factory.mktemp("model"), "small", endless=True)[0]


class Terminal:
    """A terminal with a program in it: type(text), and until(text) reads to a text and returns all before it."""

    def __init__(self, *command):
        self.pid, self._end = pty.fork()
        if not self.pid:
            os.chdir(ROOT)
            os.execv(command[0], command)
        self._held = b""

    def type(self, text):
        os.write(self._end, text if isinstance(text, bytes) else text.encode())

    def until(self, text, seconds=300):
        end = time.monotonic() + seconds
        raw = self._held
        while text.encode() not in raw:
            if not select.select([self._end], [], [], max(0, end - time.monotonic()))[0]:
                self._held = raw
                raise AssertionError(f"no {text!r} in {raw!r}")
            try:
                raw += os.read(self._end, 4096)
            except OSError:
                raise AssertionError(f"the program ended: {raw!r}") from None
        before, _, self._held = raw.partition(text.encode())
        return before.decode()

    def something(self):
        """Wait for more than was read so far."""
        if not self._held and not select.select([self._end], [], [], 300)[0]:
            raise AssertionError("silence")

    def prompt(self):
        """The REPL's prompt, through mpremote: what is typed before that has made this terminal raw is lost."""
        self.until("to exit this shell")
        for _ in range(60):
            self.type("\r")
            try:
                self.until(">>> ", 2)
                return
            except AssertionError:
                pass
        raise AssertionError("no prompt")

    def close(self):
        with contextlib.suppress(OSError, ChildProcessError):
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self._end)

    def status(self):
        """Exit status of the program, once it has ended."""
        with contextlib.suppress(OSError):
            while os.read(self._end, 4096):
                pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def converse(terminal):
    """What every terminal must do, from the first prompt on."""
    ask = terminal.until("\n> ")
    assert "/help lists the commands" in ask

    def say(line, end="\n> "):
        terminal.type(line + "\r")
        return terminal.until(end).replace("\r", "")

    assert say("/tokens 12") == "/tokens 12"
    assert say("/seed 7") == "/seed 7"
    story = say("Once")
    assert story.startswith("Once\nOnce") and story.endswith("tokens/s, seed 7]")
    again = say("/again")
    assert again.split("\n")[1:-1] == story.split("\n")[1:-1]  # the same seed, the same story
    # whole characters go, whatever their bytes; a removed one leaves no half behind
    assert "\nño 👍" in say("ño é\x7f👍")
    assert "\nn👍" in say("n👍🦊é\x7f\x7f")
    terminal.type("\x1b[A")
    assert terminal.until("n👍").endswith("") and "\nn👍!" in say("!")
    terminal.type("\x1b[A\x1b[A\x1b[A\x1b[B")  # three up, one down
    assert "\nn👍" in say("")
    terminal.type("rubbish\x1b[D\x1b[3~\x15")  # keys that do nothing; Ctrl-U
    assert "[12 tokens" not in say("")
    for bad, answer in {
        "/temperature hot": "/temperature hot: a number from 0 to 100 is needed",
        "/temperature nan": "/temperature nan: a number from 0 to 100 is needed",
        "/top_k -1": "/top_k -1: a whole number from 0 to 65536 is needed",
        "/top_p 2": "/top_p 2: a number from 0 to 1 is needed",
        "/tokens 0": "/tokens 0: a whole number from 1 to 1000000 is needed",
        "/seed seven": "/seed seven: a whole number from 0 to 4294967295 is needed",
        "/help me": "/help takes no value",
        "/dance": "/dance: no such command; /help lists them",
        "/": "/: no such command; /help lists them",
        "/top_k": "/top_k is 40",
        "/preset": "/preset is one of default, llama",
        "/preset gpt": "/preset gpt: one of default, llama is needed",
    }.items():
        assert say(bad) == f"{bad}\n{answer}", bad
    assert say("/preset llama") == "/preset llama"
    for setting, value in (("/temperature", "0.6"), ("/top_k", "0"), ("/top_p", "0.9")):
        assert say(setting).endswith(f"is {value}")
    for good in ("/temperature 0", "/top_k 5", "/top_p 0.9", "/seed random"):
        assert say(good) == good
    assert "RAM: " in say("/stats") and "/again" in say("/help")
    say("/tokens 1000000")
    terminal.type("On and on\r")
    terminal.until("On and on")  # as typed
    terminal.until("On and on")  # as the story begins
    terminal.something()
    terminal.type("\x03")
    assert terminal.until("\n> ").rstrip().endswith("stopped]")
    terminal.type("half")
    terminal.until("half")
    terminal.type("\x03")
    terminal.until("> ")
    assert say("/tokens 1") == "/tokens 1"
    terminal.type("\x04")


def test_on_this_computer(model):
    with contextlib.closing(Terminal(sys.executable, "-m", "tools.chat", "--model", str(model))) as terminal:
        converse(terminal)
        assert terminal.status() == 0


def test_a_chat_that_does_not_answer_is_ended_by_ctrl_c(tmp_path):
    """MicroPython hangs, whatever the reason: the third Ctrl-C without a sign of life ends it."""
    script = tmp_path / "chat.py"
    script.write_text("print('hanging')\nwhile True:\n    pass\n")
    code = (f"import pathlib, sys; from tools import chat, story; chat.SCRIPT = pathlib.Path({str(script)!r}); "
            "chat.find_model = pathlib.Path; chat.heap_for = lambda path: 1 << 20; sys.exit(chat.main([]))")
    with contextlib.closing(Terminal(sys.executable, "-c", code)) as terminal:
        terminal.until("hanging")
        terminal.type("\x03\x03\x03")
        assert "did not answer Ctrl-C 3 times, so it was ended" in terminal.until("ended") + "ended"
        assert terminal.status() == 2


def test_from_a_pipe(model):
    done = subprocess.run([sys.executable, "-m", "tools.chat", "--model", str(model)], input="/tokens 5\nOnce\n/bad\n",
                          capture_output=True, text=True, cwd=ROOT, timeout=600, errors="replace")
    assert done.returncode == 0 and "[5 tokens" in done.stdout and "no such command" in done.stdout


def test_through_mpremote_on_a_board(model, tmp_path):
    with contextlib.closing(pty_board.PtyBoard(tmp_path)) as board:
        assert board.deploy("--model", str(model)).returncode == 0
        repl = Terminal(sys.executable, "-m", "mpremote", "connect", board.port, "resume", "repl")
        with contextlib.closing(repl) as t:
            t.prompt()
            t.type("import scribe; scribe.chat(raw=True)\r")  # a board's terminal edits nothing itself
            converse(t)
            t.until(">>> ")  # Ctrl-D left the chat, not the REPL
            t.type("scribe.chat('none')\r")
            assert "scribe: none: no such model" in t.until(">>> ")
            t.type("scribe.chat, scribe.chat\r")
            assert t.until(">>> ").count("<function chat") == 2  # not the module of that name


EDITOR = """
import sys
from scribe.chat import Editor, columns
class Keys:
    def __init__(self, data): self.data = data
    def read(self, n):
        out, self.data = self.data[:n], self.data[n:]
        return out
out = []
keys = Keys(%r)
e = Editor(keys.read, out.append)
e._poll = None
while True:
    try: line = e.line("")
    except KeyboardInterrupt: print("C"); continue
    if line is None: break
    print(repr(line.encode()))
print([columns(c) for c in "a\\u00e9\\u0301\\u4e2d\\U0001f98a\\u200d"])
"""


@pytest.mark.parametrize("keys, lines", [
    (b"one\rtwo\r\nthree\n\n", [b"one", b"two", b"three", b""]),
    (b"\xf0\x9f\xa6\x8a\x7f\xc3\xa9\x08\x08x\r", [b"x"]),
    (b"bad \xff\xc3(\xf0\x9f\r\xc0\xafok\r", None),
    (b"a\x04b\r\x04", [b"ab"]),
    (b"a\rb\r\x1b[A\x1b[A\r\x1bOA\r\x1b[A\x1b[B\x1b[1;5C\x1b[200~z\r", [b"a", b"b", b"a", b"a", b"z"]),
    (b"x\x03y\r", ["C", b"y"]),
    (b"q" * 2100 + b"\r", [b"q" * 2000]),
])
def test_the_line_editor(micropython, keys, lines):
    out = micropython(EDITOR % keys).stdout.split("\n")
    assert out[-2] == "[1, 1, 0, 2, 2, 0]"
    if lines is not None:
        assert out[:-2] == [line if line == "C" else repr(line) for line in lines]


def test_a_character_split_over_tokens_is_never_half_written(micropython, model):
    """Each piece that the stream gives, and so each write of the chat, is whole characters."""
    code = f"""
import scribe
from scribe.chat import Chat
class Lines:
    said = ["/seed 3", "/tokens 60", "ñ👍", None]
    def line(self, prompt): return self.said.pop(0)
    def stopped(self): return False
s = scribe.open({str(model)!r})
pieces = list(s.stream("ñ👍", seed=3, max_tokens=60))
print(all(isinstance(p, str) and p.encode().decode() == p for p in pieces))
Chat(s, Lines()).run()
"""
    assert micropython(code).stdout.startswith("True\n")


@pytest.mark.ci
@pytest.mark.slow
def test_on_firmware_through_mpremote(model, leave_out):
    """The firmware of a 32-bit board, under QEMU: mpremote's REPL, as a person would have it."""
    from tools import boards
    from tools.errors import UserError
    from tools.firmware import images

    try:
        emulated = boards.Board("m3", 1 << 20, images.romfs(boards.files(model)))
        stack = contextlib.ExitStack()
        board = stack.enter_context(emulated)
    except (UserError, FileNotFoundError) as error:
        leave_out("tests on board firmware", str(error))
    with stack, contextlib.closing(
            Terminal(sys.executable, "-m", "mpremote", "connect", board.port, "resume", "repl")) as t:
        t.prompt()
        t.type("import scribe; scribe.chat()\r")
        converse(t)
        t.until(">>> ")


def test_main_py_starts_it():
    assert "scribe.chat()" in (pathlib.Path(ROOT) / "device" / "main.py").read_text()
