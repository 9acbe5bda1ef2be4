"""Bad input to the device: any bytes as a prompt, anything as a setting, any keys at the chat, any string to encode."""

import json
import pathlib
import random
import struct
import tempfile

import numpy as np

from tools import micropython
from tools.fileformat import Packed
from tools.tokenizer import Tokenizer
from tools.torture import Row, scaled, shipped, small_model

SCRIPT = micropython.ROOT / "tools" / "on_device" / "faults_input.py"
HELD_OUT = micropython.ROOT / "tests" / "data" / "held_out.txt"
VALUES = ("-1", "0", "1", "-0.0", "1e-300", "1e300", "0.5", "float('nan')", "float('inf')", "-float('inf')", "'0.8'",
          "''", "'x\\0y'", "None", "True", "[]", "{}", "()", "(1,)", "(1, 2)", "b'\\xff'", "bytearray(3)",
          "memoryview(b'ab')", "10**30",
          "-10**30", "2**31", "2**32", "1.5", "object()", "print", "'default'",
          "'no/such/file'", "'/'", "'never'", "range(3)", "1j")
NAMES = ("prompt", "temperature", "top_k", "top_p", "seed", "max_tokens", "preset", "slide", "resume", "path", "cache",
         "check", "bookmark", "chat")
WORDS = ("<|endofstory|>", "<s>", "</s>", "<0x41>", "<unk>", "\u2581", "it's", "\r\n", "\n\n", "  ", "\0", "\ufeff",
         "\u0301")

COMMANDS = ("/help", "/again", "/stats", "/seed", "/temperature", "/top_k", "/top_p", "/tokens", "/", "/x")
TYPED = ("", " ", " 7", " -1", " nan", " inf", " 1e9", " 0", " 99999999999999999999", " é", " random", " 0x7")


def asked(folder, heapsize="64m", **request):
    """What the script said, in order; raises UserError where it did not end well."""
    (folder / "request.json").write_text(json.dumps({"folder": str(folder), **request}))
    done = micropython.run(SCRIPT, folder / "request.json", heapsize=heapsize, timeout=None, check=False)
    lines = [json.loads(line[1:]) for line in done.stdout.splitlines() if line.startswith("@{")]
    if done.returncode:
        lines.append({"end": (done.stderr or done.stdout)[-300:]})
    return lines


def string(rng, words):
    """Bytes as people, files and mischief make them."""
    kind = rng.randrange(8)
    size = rng.choice((0, 1, 2, 3, 8, 20, 40, 60, rng.randrange(400)))
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x800), rng.randrange(0xD800),
                                       0x10000 + rng.randrange(0x100000)))) for _ in range(size // 2)).encode()
    if kind == 2:
        return bytes((rng.randrange(256),)) * size
    text = bytearray()
    while len(text) < size:
        text += rng.choice((rng.choice(words) + " ", rng.choice(WORDS), rng.choice(" \n.,'\"!?0123"))).encode()
    if kind == 3 and text:
        for _ in range(3):
            text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text)


def prompts(path, folder, rng, words, count, longest):
    row = Row(f"device: any bytes as a prompt of {path.stem}")
    packed = Packed.load(path)
    todo = [b"", b"\0", bytes(range(256)), b"<|endofstory|>", b"\xff" * 50, b"\xf0\x9f\xa6", "é🦊".encode(),
            b"a" * longest, rng.randbytes(longest), *(string(rng, words) for _ in range(count))]
    (folder / "prompts").write_text("".join(raw.hex() + "\n" for raw in todo))
    results = asked(folder, what="prompts", path=str(path), prompts=str(folder / "prompts"),
                    eos=packed.config.eos_token_id)
    for raw, result in zip(todo, [*results, *({"end": "nothing said"},) * (len(todo) - len(results))]):
        wanted = raw.decode("utf-8", "replace")
        # the last character may be the beginning of one that the story's first byte completes
        good = "end" not in result and result["said"] is None and result["same"] and not result["ends"] and (
            result["begins"] is None or result["begins"].startswith(wanted.rstrip("\ufffd")))
        row.count(good and result["length"] >= len(raw) - 3, f"{raw[:40]!r} ({len(raw)} bytes): {str(result):.300}")
    return row


def settings(path, folder, rng, amount):
    row = Row("device: anything as a setting")
    todo = [(name, value) for name in NAMES for value in VALUES]
    todo = rng.sample(todo, scaled(len(todo), amount, 40))
    results = asked(folder, what="settings", path=str(path), settings=todo)
    for (name, value), result in zip(todo, [*results, *({"end": "nothing said"},) * (len(todo) - len(results))]):
        said = result.get("said")
        # a clear error, in one line, of the kinds that are promised; or what the documentation says it means
        good = "end" not in result and result["same"] and (said is None or (
            said.startswith(("ValueError: ", "OSError: ")) and "\n" not in said and len(said) > 25))
        row.count(good, f"{name}={value}: {result}")
    return row


def chats(path, folder, rng, words, count):
    row = Row("device: any keys at the chat's prompt")
    todo = []
    for _ in range(count):
        keys = b""
        for _ in range(rng.randrange(12)):
            command, value = rng.choice(COMMANDS), rng.choice(TYPED)
            keys += rng.choice((string(rng, words)[:60], (command + value).encode(),
                                rng.choice((b"\x1b[A", b"\x1b[B", b"\x1bO", b"\x7f", b"\x15", b"\x1b"))))
            keys += rng.choice((b"\r", b"\n", b"\r\n", b""))
        todo.append(keys.replace(b"\x03", b"").hex())
    results = asked(folder, what="chats", path=str(path), chats=todo)
    for keys, result in zip(todo, [*results, *({"end": "nothing said"},) * (len(todo) - len(results))]):
        good = "end" not in result and result["said"] is None and result["same"]
        row.count(good, f"{bytes.fromhex(keys)!r}: {result}")
    return row


def tokenizers(path, folder, rng, words, count):
    row = Row(f"device: strings through the tokenizer of {path.stem}")
    packed = Packed.load(path)
    todo = [string(rng, words) for _ in range(count)]
    (folder / "tokenizer").write_bytes(packed.tokenizer)
    (folder / "strings").write_bytes(b"".join(struct.pack("<I", len(raw)) + raw for raw in todo))
    said = asked(folder, what="tokens", tokenizer=str(folder / "tokenizer"), strings=str(folder / "strings"),
                 out=str(folder / "ids"))
    reader, ids, at = Tokenizer(packed.tokenizer), (folder / "ids").read_bytes(), 0
    for raw in todo:
        length = int.from_bytes(ids[at : at + 4], "little")
        found = np.frombuffer(ids[at + 4 : at + 4 + 2 * length], "<u2").tolist()
        row.count(found == list(reader.encode(raw)) and at < len(ids), raw)
        at += 4 + 2 * length
    row.count(said == [{"wrong": 0}], said)
    return row


def run(amount, seed):
    rng = random.Random(seed)
    words = HELD_OUT.read_text().split()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path, _ = small_model("hybrid", folder)
        yield prompts(path, folder, rng, words, scaled(400, amount, 20), scaled(100_000, amount, 5000))
        if amount >= 0.5:
            yield prompts(shipped()[0], folder, rng, words, scaled(100, amount), 5000)
        yield settings(path, folder, rng, amount)
        yield chats(path, folder, rng, words, scaled(500, amount, 20))
        for path in shipped():
            yield tokenizers(path, folder, rng, words, scaled(50_000, amount, 1000))
