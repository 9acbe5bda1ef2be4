"""A prompt for stories at the REPL: type how one begins, Enter, and it is written. `scribe.chat()` starts it."""

import sys

from .story import PRESETS

HISTORY = 16  # lines kept for the arrow keys
LONGEST = 2000  # characters of an opening
#: MicroPython on a computer reads from a terminal that edits and echoes lines itself.
COOKED = ("linux", "darwin", "win32")

HELP = """Type how a story begins, then Enter. Up and down bring back earlier openings.
  Ctrl-C         stops the story                Ctrl-D   leaves
  /again         the last opening once more, another story unless a seed is set
  /seed 7        the same seed writes the same story; /seed random
  /temperature   0 takes the likeliest token, higher is wilder: /temperature 0.8
  /top_k         of how many likeliest tokens one is drawn: /top_k 40 (0: all)
  /top_p         of how much probability: /top_p 0.9 (1: all)
  /preset llama  these three by name; /preset lists them
  /tokens        how long a story may be: /tokens 200
  /stats         speed, flash reads, memory     /help    this"""


def columns(character):
    """How many columns a terminal gives a character."""
    code = ord(character)
    if code < 0x300:
        return 1
    if code < 0x370 or code in (0x200B, 0x200C, 0x200D) or 0xFE00 <= code <= 0xFE0F or 0x1F3FB <= code <= 0x1F3FF:
        return 0  # combining marks, joiners, variations
    wide = 0x1100 <= code <= 0x115F or 0x2E80 <= code <= 0xA4CF or 0xAC00 <= code <= 0xD7A3 or 0xF900 <= code <= 0xFAFF
    return 2 if wide or 0xFE30 <= code <= 0xFE6F or 0xFF00 <= code <= 0xFF60 or 0x1F300 <= code <= 0x3FFFD else 1


class Editor:
    """Reads lines, byte by byte, from a serial line or a raw terminal: whole UTF-8 characters, backspace, history.

    `input()` drops everything that is not ASCII on many ports, hence this.
    """

    def __init__(self, read, write):
        self._read = read  # read(1) gives a byte
        self._write = write
        self._history = []
        self._after_return = False
        self._ahead = bytearray()  # typed while a story was written
        self._poll = None
        try:
            from select import POLLIN, poll

            self._poll = poll()
            self._poll.register(sys.stdin, POLLIN)
        except (ImportError, OSError):
            pass

    def stopped(self):
        """Whether Ctrl-C lies among what was typed since: firmware without a keyboard interrupt shows it no other way.
        The rest is kept for the next line."""
        while self._poll and self._poll.poll(0):
            byte = self._read(1)
            if not byte or byte[0] == 3:
                return bool(byte)
            if len(self._ahead) < LONGEST:
                self._ahead.extend(byte)
        return False

    def line(self, prompt):
        """The next line, or None for Ctrl-D on an empty one. Raises KeyboardInterrupt for Ctrl-C."""
        self._write(prompt)
        text, at = "", len(self._history)
        while True:
            byte = self._byte()
            if byte < 0:
                self._write("\n")
                return text or None
            if byte in (10, 13):
                if byte == 10 and self._after_return:  # of a carriage return and line feed
                    self._after_return = False
                    continue
                self._after_return = byte == 13
                self._write("\n")
                self._remember(text)
                return text
            self._after_return = False
            if byte == 3:
                raise KeyboardInterrupt
            if byte == 4 and not text:
                self._write("\n")
                return None
            if byte in (8, 127):
                if text:
                    self._erase(text[-1:])
                    text = text[:-1]
            elif byte == 21:  # Ctrl-U
                self._erase(text)
                text = ""
            elif byte == 27:
                move = self._escape()
                if move and 0 <= at + move <= len(self._history):
                    at += move
                    self._erase(text)
                    text = self._history[at] if at < len(self._history) else ""
                    self._write(text)
            elif byte >= 32:
                character = self._character(byte)
                if len(text) >= LONGEST:
                    self._write("\a")
                elif character:
                    text += character
                    self._write(character)

    def _byte(self):
        """The next byte, or -1 where the other end is closed."""
        if self._ahead:
            byte = self._ahead[0]
            self._ahead = self._ahead[1:]
            return byte
        byte = self._read(1)
        return byte[0] if byte else -1

    def _escape(self):
        """-1 for the up key, 1 for the down key, 0 for all others."""
        byte = self._byte()
        if byte not in (0x5B, 0x4F):
            return 0
        byte = self._byte()
        while 0 <= byte < 0x40 and byte != 4:
            byte = self._byte()
        return {0x41: -1, 0x42: 1}.get(byte, 0)

    def _character(self, byte):
        """The character that begins with this byte, or "" where it is none."""
        raw = bytes((byte,))
        for _ in range(0 if byte < 0xC0 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3):
            raw += bytes((max(0, self._byte()),))
        try:
            return raw.decode()
        except UnicodeError:
            return ""

    def _erase(self, text):
        width = 0
        for character in text:
            width += columns(character)
        if text:
            self._write("\b" * width + "\x1b[K")

    def _remember(self, text):
        if text and text not in self._history[-1:]:
            self._history.append(text)
            if len(self._history) > HISTORY:
                self._history.pop(0)


class Lines:
    """Reads lines where the terminal edits and echoes them itself."""

    def __init__(self, readline, write):
        self._readline = readline
        self._write = write

    def stopped(self):
        return False

    def line(self, prompt):
        self._write(prompt)
        raw = self._readline()
        if not raw:
            self._write("\n")
            return None
        try:
            return raw.decode().rstrip("\r\n")
        except UnicodeError:
            self._write("that was not UTF-8 text\n")
            return ""


class Asked:
    """Reads lines by `input()`, where standard input gives no bytes: history and editing are the port's, ASCII only."""

    def stopped(self):
        return False

    def line(self, prompt):
        try:
            return input(prompt)
        except EOFError:
            return None


def reader(raw=None):
    """The best way to read lines here. `raw`: the terminal neither edits nor echoes (None: as this port has it)."""
    write = sys.stdout.write
    if not hasattr(sys.stdin, "buffer"):
        return Asked()
    if raw is None:
        raw = sys.platform not in COOKED
    return Editor(sys.stdin.buffer.read, write) if raw else Lines(sys.stdin.buffer.readline, write)


class Chat:
    """A conversation of openings and stories with one model."""

    def __init__(self, scribe, lines):
        self._scribe = scribe
        self._lines = lines
        self._settings = {"seed": None, "max_tokens": 400}  # type: dict
        self._preset("default")
        self._opening = None

    def run(self):
        """Ask and write until Ctrl-D."""
        print("%s is ready. Type how a story begins, then Enter; /help lists the commands, Ctrl-D leaves."
              % self._scribe.name.split("/")[-1])
        while True:
            try:
                line = self._lines.line("> ")
                if line is None:
                    return
                if line.startswith("/"):
                    self._command(line)
                elif line.strip():
                    self._opening = line
                    self._story()
            except KeyboardInterrupt:
                print()

    def _command(self, line):
        name, _, value = line[1:].strip().partition(" ")
        value = value.strip()
        if name in ("help", "stats", "again"):
            if value:
                print("/%s takes no value" % name)
            else:
                getattr(self, "_" + name)()
        elif name == "preset":
            self._preset(value)
        elif name in KINDS:
            self._set(name, value)
        else:
            print("/%s: no such command; /help lists them" % name)

    def _set(self, name, value):
        setting = "max_tokens" if name == "tokens" else name
        kind, low, high = KINDS[name]
        if not value:
            was = self._settings[setting]
            print("/%s is %s" % (name, "random" if was is None else was))
            return
        if name == "seed" and value == "random":
            self._settings["seed"] = None
            return
        try:
            number = kind(value)
        except (ValueError, OverflowError):
            number = None
        if number is None or not low <= number <= high:
            print("/%s %s: %s from %s to %s is needed" % (
                name, value, "a whole number" if kind is int else "a number", low, high))
        else:
            self._settings[setting] = number

    def _preset(self, name):
        if name in PRESETS:
            for setting in PRESETS[name]:
                self._settings[setting] = PRESETS[name][setting]
            return
        names = ", ".join(sorted(PRESETS))
        print("/preset %s: one of %s is needed" % (name, names) if name else "/preset is one of %s" % names)

    def _help(self):
        print(HELP)

    def _again(self):
        if self._opening is None:
            print("/again: there was no opening yet")
        else:
            self._story()

    def _story(self):
        write, scribe = sys.stdout.write, self._scribe
        stopped = ""
        try:
            for piece in scribe.stream(self._opening, **self._settings):
                write(piece)
                if self._lines.stopped():
                    stopped = ", stopped"
                    break
        except KeyboardInterrupt:
            stopped = ", stopped"
        except (ValueError, MemoryError, OSError) as error:
            print("\n%s" % (error or "out of memory"))
            return
        write("\n")
        if scribe.notice():
            print(scribe.notice())
        stats = scribe.stats()
        print("[%d tokens, %s, seed %d%s]" % (stats["tokens"], _speed(stats), stats["seed"], stopped))

    def _stats(self):
        stats = self._scribe.stats()
        print("last story: %d tokens of opening, %d written, %s" % (
            stats["prompt_tokens"], stats["tokens"], _speed(stats)))
        print("flash: %d bytes read a token, %d on opening the model" % (
            stats["flash_bytes_per_token"], stats["flash_bytes_opening"]))
        ram = stats["ram"]
        parts = ", ".join("%s %d" % (part, ram[part]) for part in sorted(ram))
        print("RAM: %d bytes (%s)" % (stats["ram_bytes"], parts))


def _speed(stats):
    speed = stats["tokens_per_second"]  # None where a story was too short to time, or there is no clock
    return "? tokens/s" if speed is None else "%.1f tokens/s" % speed


#: Commands that take a number: its kind and range.
KINDS = {
    "seed": (int, 0, 0xFFFFFFFF),
    "temperature": (float, 0, 100),
    "top_k": (int, 0, 65536),
    "top_p": (float, 0, 1),
    "tokens": (int, 1, 1000000),
}


def run(model=None, raw=None):
    """Chat with a model: a `Scribe`, a path or name as `scribe.open` takes it, or None for the first one there is."""
    opened = None
    if model is None or isinstance(model, str):
        from . import open

        try:
            model = opened = open(model)
        except (OSError, ValueError, MemoryError) as error:
            print("scribe: %s" % error)
            return
    elif not hasattr(model, "stream"):
        raise ValueError("chat needs a model's name, or what scribe.open gave; not %r" % (model,))
    try:
        Chat(model, reader(raw)).run()
    finally:
        if opened:
            opened.close()
