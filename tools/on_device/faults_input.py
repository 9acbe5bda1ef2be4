# Runs in MicroPython: any bytes as a prompt, anything as a setting, anything typed at the chat's prompt, and strings
# through the tokenizer. The request is a JSON file; answers are lines that begin with @.
import gc
import json
import os
import struct
import sys
from array import array
from binascii import unhexlify

import scribe
from scribe.tokenizer import open_tokenizer

with open(sys.argv[1]) as f:
    request = json.load(f)
os.chdir(request["folder"])  # some of what is tried are names of files to write


def say(**result):
    print("\n@" + json.dumps(result))


def prompts():
    s = scribe.open(request["path"])
    whole = s.write("The", seed=1, max_tokens=6)
    with open(request["prompts"]) as f:
        for line in f:
            raw = unhexlify(line.strip())
            try:
                text = s.write(raw, seed=2, max_tokens=4, slide=True)
                said = None
            except (ValueError, MemoryError) as error:
                text, said = "", "%s: %s" % (type(error).__name__, error)
            same = s.write("The", seed=1, max_tokens=6) == whole
            # in pieces, for a very long line takes very long to print
            raw = text.encode()
            ids = s._tokenizer.encode(unhexlify(line.strip())) if len(line) < 20000 else []
            say(begins=raw[:2000].decode("utf-8") if len(raw) < 2000 else None, length=len(raw), said=said, same=same,
                ends=request["eos"] in list(ids))
            text = raw = ids = None
            gc.collect()


def settings():
    s = scribe.open(request["path"])
    whole = s.write("The", seed=1, max_tokens=6)
    for name, value in request["settings"]:
        said = None
        space = {}
        try:
            exec("value = " + value, space)
            given = {name: space["value"]}
            if name in ("path", "cache", "check"):
                if name != "path":
                    given["path"] = request["path"]
                t = scribe.open(**given)
                t.write("A", max_tokens=1)
                t.close()
            elif name == "bookmark":
                s.bookmark(space["value"])
            elif name == "chat":
                scribe.chat(space["value"])
            else:
                pieces = s.stream(**given)
                for _ in range(4):
                    next(pieces, None)
        except Exception as error:
            said = "%s: %s" % (type(error).__name__, error)
        say(said=said, same=s.write("The", seed=1, max_tokens=6) == whole)


class Typed:
    """Lines for the chat, as if typed."""

    def __init__(self, lines):
        self.lines = lines

    def stopped(self):
        return False

    def line(self, prompt):
        return self.lines.pop(0) if self.lines else None


def chats():
    from scribe.chat import Chat, Editor

    s = scribe.open(request["path"])
    whole = s.write("The", seed=1, max_tokens=6)
    for keys in request["chats"]:
        raw = unhexlify(keys)
        at = 0

        def read(n):
            nonlocal at
            at += n
            return raw[at - n : at]

        said = None
        try:
            editor = Editor(read, lambda text: None)
            editor._poll = None
            lines = ["/tokens 3"]
            while True:
                line = editor.line("> ")
                if line is None:
                    if at >= len(raw):
                        break
                    continue
                lines.append(line)
            Chat(s, Typed(lines)).run()
        except KeyboardInterrupt:
            pass
        except Exception as error:
            said = "%s: %s" % (type(error).__name__, error)
        say(said=said, same=s.write("The", seed=1, max_tokens=6) == whole)


def tokens():
    """Each string's ids to a file, and whether its pieces make it again."""
    with open(request["tokenizer"], "rb") as f:
        t = open_tokenizer(f.read())
    wrong = 0
    with open(request["strings"], "rb") as f, open(request["out"], "wb") as out:
        while True:
            head = f.read(4)
            if not head:
                break
            raw = f.read(struct.unpack("<I", head)[0])
            ids = t.encode(raw)
            out.write(array("I", (len(ids),)))
            out.write(ids)
            before, text = t.bos, []
            for token in ids:
                text.append(t.piece(token, before))
                before = token
            wrong += b"".join(text) != raw
    say(wrong=wrong)


{"prompts": prompts, "settings": settings, "chats": chats, "tokens": tokens}[request["what"]]()
