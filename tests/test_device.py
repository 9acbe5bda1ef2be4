"""The device package in real MicroPython: layers and models against the integer reference, stories, faults, memory."""

import binascii
import dataclasses
import json

import models
import numpy as np
import pytest

from tools import integer
from tools.engines import Device
from tools.fileformat import ENTRY, HEADER, Packed
from tools.micropython import MicroPythonError
from tools.sampling import Sampler
from tools.tokenizer import Tokenizer

RNG = np.random.default_rng(11)


@pytest.fixture(scope="module")
def packed(tmp_path_factory, micropython):
    folder = tmp_path_factory.mktemp("device")
    return {name: models.packed(config, folder, name) for name, config in models.ALL.items()}


@pytest.fixture
def scribe(micropython, packed):
    """Run code in MicroPython with `s` an open model; returns what it printed."""

    def run(code, name="hybrid", cache=0, **options):
        opened = f"import scribe\ns = scribe.open({str(packed[name][0])!r}, {cache})\n"
        return micropython(opened + code, **options).stdout

    return run


@pytest.mark.parametrize("name", models.ALL)
def test_every_logit_equals_the_reference(packed, name):
    """Past the window, so that the ring wraps; every feature that the format has."""
    path, model, _ = packed[name]
    tokens = RNG.integers(0, model.config.vocab_size, 300)
    assert (Device(path).logits(tokens) == integer.forward(model, tokens)).all()


@pytest.mark.parametrize("recipe", ("S", "A"))
def test_a_layer_alone_equals_the_reference(tmp_path, micropython, recipe):
    path, model, _ = models.packed(dataclasses.replace(models.HYBRID, recipe=recipe), tmp_path, "one")
    tokens = RNG.integers(0, model.config.vocab_size, 60)
    assert (Device(path).logits(tokens) == integer.forward(model, tokens)).all()


def test_extreme_weights_stay_in_32_bits(tmp_path, micropython):
    """A model of the largest weights: whatever saturates, saturates alike."""
    config = dataclasses.replace(models.HYBRID, recipe="SA")
    weights = {name: v * 5 if "weight" in name and "norm" not in name else v
               for name, v in models.random_weights(config).items()}
    from tools import pack

    tokens = RNG.integers(0, config.vocab_size, 80)
    largest = {key: v / 16 for key, v in pack.calibrate(config, weights, [tokens]).items()}
    model = pack.Packer(config, weights).pack(largest, {}, models.tokenizer_section(config.vocab_size, tmp_path))
    model.save(tmp_path / "x.scribe")
    assert (Device(tmp_path / "x.scribe").logits(tokens) == integer.forward(model, tokens)).all()


def test_position_300_is_slot_44_and_nothing_moves(tmp_path, micropython):
    path, _, _ = models.packed(dataclasses.replace(models.HYBRID, recipe="A", window=256), tmp_path, "ring")
    out = micropython(f"""
from scribe.model import Model, State
m = Model({str(path)!r}); s = State(m)
keys, values = s.layers[0]
for p in range(300):
    m.step(p % 200, s, False)
before, values_before = bytes(keys), bytes(values)
m.step(7, s, False)
slots, dim, heads = 256, 8, 2
changed = [i // dim % slots for i in range(len(keys)) if bytes(keys)[2*i:2*i+2] != before[2*i:2*i+2]]
print(sorted(set(changed)))
after = bytes(values)
print(sorted(set(i % slots for i in range(len(values)) if after[2*i:2*i+2] != values_before[2*i:2*i+2])))
""").stdout.split("\n")
    assert out[0] == "[44]" and out[1] == "[44]"


@pytest.mark.parametrize("position", (65_536, 2**31 - 3, 2**32 - 3, 2**32 + 70))
def test_far_positions_are_exact(packed, micropython, tmp_path, position):
    """Counters set far ahead, past 31 and 32 bits: the rotary phases wrap as the reference's."""
    path, model, _ = packed["llama"]
    tokens = RNG.integers(0, 288, 12)
    out = micropython(f"""
from scribe.model import Model, State
m = Model({str(path)!r}); s = State(m)
s.seek({position}); s.used = 1
slot = s.slot
for i, t in enumerate({tokens.tolist()}):
    # the ring holds nothing from before: only slots written since then count
    s.slot, s.used = i, i + 1
    m.step(t, s)
    print(list(m.logits))
""").stdout.split("\n")
    state = integer.State(model.config)
    steps = model.sections["LAYR", 0, 0]["attention.rotary"].values
    state.phases = ((position * steps.astype(object) + 2**31) % 2**32 - 2**31).astype(np.int64)
    wanted = integer.forward(model, tokens, state)
    assert (np.array([json.loads(line) for line in out if line]) == wanted).all()


def test_a_token_allocates_nothing(scribe):
    out = scribe("""
import micropython

def go(m, st, sa):
    token = 0
    micropython.heap_lock()
    for i in range(60):
        m.step(token, st, i & 1 == 0)
        if i & 1 == 0:
            token = sa.pick(m.logits)
    micropython.heap_unlock()

for greedy in (0, 0.8):
    s._sampler.set(greedy, 40, 0.9, 1)
    s._state.reset()
    go(s._model, s._state, s._sampler)
print("nothing")
""")
    assert out.strip() == "nothing"


def test_kernels_are_machine_code_and_right(scribe):
    assert scribe("from scribe import kernels; print(kernels.name, kernels.check())").strip() == "viper []"


def test_without_a_viper_emitter_the_twins_serve(packed, micropython, tmp_path):
    """A port with no emitter raises SyntaxError at the decorator: a notice, and the same story."""
    import shutil

    from tools.micropython import ROOT

    shutil.copytree(ROOT / "device" / "scribe", tmp_path / "scribe")
    (tmp_path / "scribe" / "viper_kernels.py").write_text("@micropython.nonsense\ndef f(): pass\n")
    code = f"import scribe; s = scribe.open({str(packed['hybrid'][0])!r}); print(s.write('The', seed=2, max_tokens=20))"
    slow = micropython(code, env={"MICROPYPATH": f"{tmp_path}:.frozen"}).stdout
    fast = micropython(code).stdout
    assert slow.split("\n", 1)[0].startswith("kernels:") and slow.split("\n", 1)[1] == fast


def test_same_seed_same_story_and_other_seeds_other_stories(scribe):
    out = scribe("""
a, b, c = (s.write("A", seed=seed, max_tokens=30) for seed in (5, 5, 6))
print(a == b, a == c)
first = s.write("A", max_tokens=30); seed = s.stats()["seed"]
print(first == s.write("A", max_tokens=30, seed=seed))
""").split()
    assert out == ["True", "False", "True"]


@pytest.mark.parametrize("settings", (
    {"temperature": 0}, {"temperature": 0.8, "top_k": 40}, {"temperature": 1.0, "top_k": 0, "top_p": 0.9},
    {"temperature": 5.0, "top_k": 3, "top_p": 0.5}, {"temperature": 0.001}, {"temperature": 2.5, "top_k": 0},
    {"top_p": 0.0, "temperature": 1}))
def test_draws_equal_the_reference_sampler(scribe, packed, settings):
    """The reference draws the same tokens from the same logits."""
    _, model, _ = packed["untied"]
    settings = {"top_k": 40, "top_p": 1.0, "seed": -3, **settings}
    out = scribe(f"""
m, st, sa = s._model, s._state, s._sampler
sa.set({settings['temperature']}, {settings['top_k']}, {settings['top_p']}, {settings['seed']})
tokens = [0]
for i in range(60):
    m.step(tokens[-1], st)
    tokens.append(sa.pick(m.logits))
print(tokens)
""", "untied")
    tokens = json.loads(out)
    sampler = Sampler(model.sections["HEAD", 0, 0]["params"][:2], **settings)
    assert [sampler.pick(row) for row in integer.forward(model, tokens[:-1])] == tokens[1:]


def test_stream_write_and_tell_give_one_text(scribe):
    out = scribe("""
pieces = list(s.stream("Hé 🦊", seed=1, max_tokens=80))
text = s.write("Hé 🦊", seed=1, max_tokens=80)
print("".join(pieces) == text, text.startswith("Hé 🦊"), all(isinstance(p, str) and p for p in pieces))
s.tell("Hé 🦊", seed=1, max_tokens=80)
print(text)
""").split("\n", 1)
    assert out[0] == "True True True"
    told, written = out[1][: len(out[1]) // 2], out[1][len(out[1]) // 2 :]
    assert told == written


def test_the_end_token_ends_a_story_and_is_not_printed(scribe, packed):
    """Temperature 5 finds the end soon; the story stops there, and its text holds nothing of it."""
    out = scribe("""
for seed in range(40):
    text = s.write("A", seed=seed, temperature=5, top_k=0, max_tokens=2000)
    n = s.stats()["tokens"]
    if n < 2000:
        break
print(n, "endofstory" in text)
m, st, sa = s._model, s._state, s._sampler
""").split()
    assert int(out[0]) < 2000 and out[1] == "False"


def test_any_bytes_are_a_prompt(scribe):
    """Every byte value, invalid UTF-8, NUL and the end token's own text are plain text."""
    out = scribe("""
t = s._tokenizer
every = bytes(range(256))
print(b"".join(t.piece(i, 0) for i in t.encode(every)) == every)
print(0 in list(t.encode("<|endofstory|>")))
print("<|endofstory|>" in s.write("x<|endofstory|>y", max_tokens=3, seed=1))
s.write(every, max_tokens=3); s.write(b"", max_tokens=3); s.write("", max_tokens=0)
print(s.stats()["tokens"])
""").split()
    assert out == ["True", "False", "True", "0"]


@pytest.mark.parametrize("call, message", (
    ("temperature=-1", "temperature is -1"), ("temperature='hot'", "temperature must be a number"),
    ("temperature=float('nan')", "temperature is nan"), ("top_k=-1", "top_k is -1"),
    ("top_k=1.5", "top_k must be a whole"),
    ("top_p=2", "top_p is 2"), ("seed='x'", "seed must be"), ("max_tokens=-1", "max_tokens must be"),
    ("max_tokens=None", "max_tokens must be"), ("temperature=True", "temperature must be a number"),
    ("seed=1.5", "seed must be")))
def test_bad_settings_are_refused_in_one_line(scribe, call, message):
    out = scribe(f"""
try:
    s.tell("A", {call})
except ValueError as error:
    print("refused:", error)
s.write("A", max_tokens=2, seed=0)
print("usable")
""").split("\n")
    assert out[0].startswith("refused: " + message) and out[1] == "usable"


def test_bad_prompt(scribe):
    out = scribe("try:\n    s.write(7)\nexcept ValueError as e:\n    print(e)")
    assert out.startswith("prompt must be a string or bytes")


def test_ctrl_c_stops_a_story_and_the_object_stays_usable(scribe):
    """An interrupt at many points of a step: the next story is that of a fresh model."""
    out = scribe("""
from scribe import feedforward, model, recurrence, sampler
for module in (feedforward, model, sampler):
    module.heap_lock = module.heap_unlock = lambda: None  # the traps below need the heap
whole = s.write("A", seed=3, max_tokens=30)
K = recurrence.k
left = 0
real = {name: getattr(K, name) for name in ("norm", "linear", "conv", "recur", "rotate", "softmax", "mix", "add_scaled",
                                            "argmax", "draw")}
def trap(f):
    def g(*a):
        global left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return f(*a)
    return g
for name in real:
    setattr(K, name, trap(real[name]))
same = 0
for at in range(1, 120, 7):
    left = at
    s.tell("A", seed=9, max_tokens=30)
    left = -1
    same += s.write("A", seed=3, max_tokens=30) == whole
print()
print("same", same)
""")
    assert out.strip().endswith("same 17") and out.count("(stopped)") == 17


def test_a_real_ctrl_c_leaves_the_heap_unlocked(packed, micropython, tmp_path):
    """SIGINT in the middle of a locked step, over and over; then the story of a fresh model."""
    import os
    import signal
    import subprocess
    import threading

    from tools import micropython as mp

    # larger than the other random ones: MicroPython on a computer leaves by a jump whatever it is doing on SIGINT, and
    # this one does hardly anything but its locked steps; and it has no end to come first
    config = dataclasses.replace(models.HYBRID, d_model=192, d_rnn=192, d_ff=384, d_expert=192)
    path = models.packed(config, tmp_path, "endless", endless=True)[0]
    code = f"""
import scribe
s = scribe.open({str(path)!r}, 0)
whole = s.write("A", seed=3, max_tokens=30)
stopped = 0
for i in range(5):
    print("go")
    s.tell("A", seed=i, temperature=0, max_tokens=1000000)
    stopped += 1
print("ended", stopped, s.write("A", seed=3, max_tokens=30) == whole)
"""
    process = subprocess.Popen([mp.micropython(), "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={**os.environ, "MICROPYPATH": mp.PATH}, start_new_session=True)
    guard = threading.Timer(600, process.kill)  # hung: the pipe ends, and the test fails
    guard.start()

    def until(text, more=0):
        seen = b""
        while text not in seen[: len(seen) - more]:
            byte = process.stdout.read(1)
            assert byte, seen
            seen += byte
        return seen

    for i in range(5):
        until(b"go\n", 3 + 7 * i)  # in the middle of the story, further on each time
        os.killpg(process.pid, signal.SIGINT)
        until(b"(stopped)")
    assert until(b"ended 5 ") and process.stdout.read() == b"True\n"
    guard.cancel()
    process.wait()


def test_stats_count_what_was_read(scribe, packed):
    """Flash bytes a token are one expert a layer, exactly; parts add up to the whole."""
    _, model, _ = packed["hybrid"]
    out = json.loads(scribe("import json\ns.write('A', max_tokens=25, seed=1, temperature=0)\n"
                            "print(json.dumps(s.stats()))"))
    expert = next(entry for entry in sections(packed["hybrid"][0]) if entry[0] == b"XPRT")[4]
    assert out["flash_bytes_per_token"] == expert * model.config.n_layers
    assert out["ram_bytes"] == sum(out["ram"].values()) and out["ram"]["library"] == expert
    assert out["tokens"] == 25 and out["seed"] == 1


def test_help_and_repr_say_how(scribe):
    out = scribe("help(s)\nprint(s)")
    assert "s.tell(" in out and "max_tokens=400" in out and "help(s)" in out


def test_open_finds_a_model_by_name_and_without(packed, micropython, tmp_path):
    folder = packed["hybrid"][0].parent
    out = micropython(f"""
import os
os.chdir({str(folder)!r})
import scribe
print(scribe.find("llama"), scribe.find("llama.scribe"), scribe.find())
try:
    scribe.open("nothing")
except OSError as e:
    print(e)
os.mkdir({str(tmp_path / 'none')!r}); os.chdir({str(tmp_path / 'none')!r})
scribe.PLACES = (".",)
try:
    scribe.open()
except OSError as e:
    print(e)
""").stdout.split("\n")
    assert out[0].startswith("llama.scribe llama.scribe ") and out[0].endswith("griffin.scribe")
    assert "no such model" in out[1] and "hybrid.scribe" in out[1]
    assert "no *.scribe" in out[2]


# Bad files


def sections(path):
    """[(tag, layer, expert, offset, length, crc)] of a packed file."""
    data = path.read_bytes()
    count = HEADER.unpack_from(data)[3]
    return [ENTRY.unpack_from(data, HEADER.size + i * ENTRY.size) for i in range(count)]


def refixed(data, index=None):
    """The file with its checksums made right again, so that what they protect is reached."""
    data = bytearray(data)
    count = HEADER.unpack_from(data)[3]
    for i in range(count):
        at = HEADER.size + i * ENTRY.size
        tag, layer, expert, offset, length, _ = ENTRY.unpack_from(data, at)
        data[at : at + ENTRY.size] = ENTRY.pack(tag, layer, expert, offset, length,
                                                binascii.crc32(data[offset : offset + length]))
    end = HEADER.size + count * ENTRY.size
    fields = list(HEADER.unpack_from(data))
    fields[4] = binascii.crc32(data[HEADER.size : end])
    head = HEADER.pack(*fields)[:-4]
    data[: HEADER.size] = head + binascii.crc32(head).to_bytes(4, "little")
    return bytes(data)


def damages(path):
    """(what must be said, bytes) of damaged files."""
    data = path.read_bytes()
    table = sections(path)

    def flipped(at):
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]

    yield "not a packed Scribe model", b"hello"
    yield "not a packed Scribe model", b""
    yield "not a packed Scribe model", b"PK\x03\x04" + data[4:]
    yield "header is damaged", flipped(13)
    yield "section table is damaged", flipped(HEADER.size + 9)
    yield "copy is incomplete", data[:-64]
    yield "copy is incomplete", data + bytes(64)
    yield "copy is incomplete", data[: len(data) // 2]
    for tag, layer, expert, offset, length, _ in table:
        name = {b"LAYR": f"LAYR {layer}", b"XPRT": f"XPRT {layer}.{expert}"}.get(tag, tag.decode())
        if tag != b"XPRT" or expert == 0:
            yield f"section {name} is damaged", flipped(offset + length // 2)
    newer = bytearray(data)
    newer[8] = 9
    yield "format version 9", refixed(newer)
    about = json.loads(data[table[0][3] : table[0][3] + table[0][4]])
    for field, value in (("d_model", 10**6), ("n_experts", 200), ("recipe", "SXAS"), ("window", -1), ("vocab_size", 0)):
        changed = json.dumps({**about, "config": {**about["config"], field: value}}, separators=(",", ":")).encode()
        room = table[0][4] + -table[0][4] % 64
        if len(changed) <= room:
            hostile = bytearray(data)
            hostile[table[0][3] : table[0][3] + room] = changed.ljust(room, b" ")
            at = HEADER.size
            hostile[at : at + ENTRY.size] = ENTRY.pack(b"CONF", 0, 0, table[0][3], len(changed), 0)
            yield "", refixed(hostile)


def test_bad_files_are_refused_on_host_and_board(packed, micropython, tmp_path):
    from tools.errors import UserError

    path = packed["hybrid"][0]
    cases = list(damages(path))
    assert len(cases) > 20
    for i, (_, data) in enumerate(cases):
        (tmp_path / f"{i}.scribe").write_bytes(data)
    out = micropython(f"""
import scribe
for i in range({len(cases)}):
    try:
        s = scribe.open({str(tmp_path)!r} + "/%d.scribe" % i)
        s.write("A", max_tokens=60, temperature=5, top_k=0, seed=1)
        print("accepted")
    except ValueError as e:
        print(e)
""").stdout.split("\n")
    for i, (message, _) in enumerate(cases):
        assert message in out[i] and f"{i}.scribe: " in out[i] and out[i] != "accepted", (i, message, out[i])
        with pytest.raises(UserError, match=f"{i}.scribe: .*{message}"):
            Packed.load(tmp_path / f"{i}.scribe")


def test_a_damaged_expert_is_found_on_its_first_read(packed, micropython, tmp_path):
    path = packed["hybrid"][0]
    data = bytearray(path.read_bytes())
    for tag, _, expert, offset, length, _ in sections(path):
        if tag == b"XPRT" and expert:
            data[offset + length // 3] ^= 1
    (tmp_path / "x.scribe").write_bytes(data)
    out = micropython(f"""
import scribe
s = scribe.open({str(tmp_path / 'x.scribe')!r})
for seed in range(5):
    try:
        s.write("Once", seed=seed, max_tokens=40, temperature=5, top_k=0)
    except ValueError as e:
        print(e)
""").stdout
    assert "section XPRT" in out and "is damaged" in out


def test_a_file_that_fails_mid_story_leaves_the_object_usable(packed, micropython, tmp_path):
    """One line that names the file; the next story opens it again, and is that of a fresh model."""
    import shutil

    path = tmp_path / "m.scribe"
    shutil.copy(packed["hybrid"][0], path)
    out = micropython(f"""
import os, scribe
path = {str(path)!r}
s = scribe.open(path, 0)
whole = s.write("A", max_tokens=9, seed=1)
f = s._model.file
class Broken:
    def __init__(self, error, file):
        self.error, self.file, self.left = error, file, 20
    def seek(self, at):
        self.left -= 1
        if self.left < 0 and self.error:
            raise OSError(self.error)
        return self.file.seek(at)
    def readinto(self, buf):
        return 10 if self.left < 0 else self.file.readinto(buf)
    def close(self):
        self.file.close()
for error in (5, 0):
    f._file = Broken(error, f._file)
    try:
        s.write("A", max_tokens=9, seed=1)
    except OSError as e:
        print(e)
    print(s.write("A", max_tokens=9, seed=1) == whole)
f._file = Broken(19, f._file)
f._file.left = 0
os.rename(path, path + ".away")
try:
    s.tell("A")
except OSError as e:
    print(e.errno, e)
os.rename(path + ".away", path)
print(s.write("A", max_tokens=9, seed=1) == whole)
s.close()
try:
    s.tell("A")
except ValueError as e:
    print(e)
""").stdout.split("\n")
    assert out[0] == f"[Errno 5] EIO: {path}: the file can't be read; was it or its card removed?"
    stopped = "reading stopped early; the file can't be read; was it or its card removed?"
    assert out[2] == f"[Errno 5] EIO: {path}: {stopped}"
    assert out[1] == out[3] == out[5] == "True" and out[4].startswith("2 [Errno 2] ENOENT: ")
    assert "was closed" in out[6]


def test_another_file_in_an_open_models_place_is_refused(packed, micropython, tmp_path):
    path = tmp_path / "m.scribe"
    path.write_bytes(packed["hybrid"][0].read_bytes())
    out = micropython(f"""
import scribe
path = {str(path)!r}
s = scribe.open(path, 0)
whole = s.write("A", max_tokens=9, seed=1)
with open(path, "r+b") as f:
    data = f.read()
with open({str(packed['untied'][0])!r}, "rb") as f:
    other = f.read()
def write(data):
    with open(path, "r+b") as f:
        f.write(data)
for i in range(9):
    s._model.library.expert(i)
pieces = s.stream("A", max_tokens=200, seed=1)
next(pieces)
write(other)
for attempt in (lambda: "".join(pieces), s.write):
    try:
        print(attempt())
    except ValueError as e:
        print(e)
write(data)
print(s.write("A", max_tokens=9, seed=1) == whole)
""").stdout.split("\n")
    assert "section XPRT" in out[0] and "is damaged" in out[0], out
    assert "another file is in its place" in out[1] and out[2] == "True"


# Several stories on one model


@pytest.mark.parametrize("name", models.ALL)
def test_forks_tell_stories_at_the_same_time(scribe, name):
    """Each story, written a piece at a time in turn, is the one told alone; with what stats() says of its costs."""
    out = json.loads(scribe("""
import gc, json
asked = [dict(prompt="The", seed=3, max_tokens=50), dict(prompt="A fox", seed=4, temperature=1.5, max_tokens=70),
         dict(prompt="Once", seed=5, top_p=0.5, max_tokens=60), dict(seed=3, temperature=0, max_tokens=40)]
alone = [s.write(**a) for a in asked]
figures = s.stats()
tellers, costs = [s], []
for _ in asked[1:]:
    gc.collect()
    before = gc.mem_alloc()
    tellers.append(s.fork())
    gc.collect()
    costs.append(gc.mem_alloc() - before)
streams = [t.stream(**a) for t, a in zip(tellers, asked)]
texts = [""] * len(asked)
while any(streams):
    for i, stream in enumerate(streams):
        try:
            texts[i] += next(stream) if stream else ""
        except StopIteration:
            streams[i] = None
again = tellers[-1].stats()
print(json.dumps([texts == alone, costs, figures["fork_bytes"], [again[k] == figures[k] for k in
    ("tokens", "prompt_tokens", "flash_bytes_per_token", "ram_bytes")]]))
""", name))
    same, costs, told, figures = out
    assert same and all(figures)
    assert all(0.8 * told < cost <= told for cost in costs), (costs, told)


def test_two_models_at_once_and_two_stories_on_one_object(scribe, packed):
    out = scribe(f"""
t = scribe.open({str(packed['llama'][0])!r})
alone = s.write("A", seed=1, max_tokens=30), t.write("A", seed=1, max_tokens=30)
first, second = s.stream("A", seed=1, max_tokens=30), t.stream("A", seed=1, max_tokens=30)
a = b = ""
for _ in range(40):
    a += next(first, "")
    b += next(second, "")
print((a, b) == alone)
old = s.stream("A", seed=1, max_tokens=30)
next(old)
new = s.stream("A", seed=1, max_tokens=30)
try:
    print(list(old))
except ValueError as e:
    print(e)
print("".join(new) == alone[0])
t.close()
print(s.write("A", seed=1, max_tokens=30) == alone[0])
""").split("\n")
    assert out[0] == out[2] == out[3] == "True" and "another story has begun" in out[1]


def test_a_story_stopped_within_a_token_can_not_be_marked(scribe, tmp_path):
    """Its layers stand at two tokens: a bookmark of that would go on as another story."""
    out = scribe(f"""
step = s._model.step
def stop(token, state):
    raise KeyboardInterrupt
s._model.step = stop
s.tell("A", seed=1)
s._model.step = step
try:
    s.bookmark({str(tmp_path / "x.mark")!r})
except ValueError as e:
    print(e)
""")
    assert "stopped in the middle of a token" in out and not list(tmp_path.iterdir())


# Memory


def test_too_little_memory_says_how_much_is_needed(packed, micropython):
    """From far too small to ample: it works, or the message has both figures; the REPL stays usable."""
    worked = []
    for kilobytes in range(160, 700, 60):
        done = micropython(f"""
import scribe, gc
try:
    s = scribe.open({str(packed['griffin'][0])!r})
    s.write("A", max_tokens=5, seed=1)
    print("works")
except MemoryError as e:
    print(e)
gc.collect()
print(1 + 1)
""", heapsize=f"{kilobytes}k", check=False)
        if "MemoryError" in done.stdout + done.stderr and "needs about" not in done.stdout:
            continue  # too small even for the package itself
        lines = done.stdout.split("\n")
        assert lines[0] == "works" or "needs about" in lines[0] and "are free" in lines[0], done.stdout + done.stderr
        assert lines[1] == "2"
        worked.append(lines[0] == "works")
    assert worked[-1] and not worked[0] and worked == sorted(worked)


def test_opening_and_closing_fifty_times_gives_the_memory_back(packed, micropython):
    out = micropython(f"""
import scribe, gc
free = []
for i in range(50):
    s = scribe.open({str(packed['hybrid'][0])!r})
    s.write("A", max_tokens=3, seed=i)
    s.close()
    s = None
    gc.collect()
    free.append(gc.mem_free())
print(free[5] - min(free[5:]))
""", heapsize="1m").stdout
    assert int(out) < 2000


def test_crash_of_the_interpreter_is_one_line(micropython):
    with pytest.raises(pytest.fail.Exception):
        micropython("raise ValueError('no')")
    assert issubclass(MicroPythonError, Exception)


def test_tokenizer_of_the_file_serves_both_sides(scribe, packed):
    _, model, _ = packed["hybrid"]
    text = "The other one, it's there. 42 🦊\n\nEnd"
    out = scribe(f"print(list(s._tokenizer.encode({text!r})))")
    assert json.loads(out) == Tokenizer(model.tokenizer).encode(text)


def test_memory_mapped_models_are_used_in_place(packed, micropython, tmp_path):
    """On ROMFS sections and experts are views of the flash: nothing is copied, and the story is the same. Where the
    file system left the file on an odd address, the model is copied instead and still right."""
    import shutil
    import subprocess
    import sys

    (tmp_path / "rom").mkdir()
    shutil.copy(packed["hybrid"][0], tmp_path / "rom" / "m.scribe")
    subprocess.run([sys.executable, "-m", "mpremote", "romfs", "--no-mpy", "-o", tmp_path / "x.romfs", "build",
                    tmp_path / "rom"], check=True, capture_output=True)
    out = micropython(f"""
import vfs, scribe, micropython
with open({str(packed['hybrid'][0])!r}, "rb") as f:
    expected = f.read()
wanted = scribe.open({str(packed['hybrid'][0])!r}).write("The", seed=4, max_tokens=40)
with open({str(tmp_path / 'x.romfs')!r}, "rb") as f:
    image = f.read()
copied = mapped = 0
for shift in range(4):
    flash = bytearray(len(image) + 4)
    flash[shift : shift + len(image)] = image
    vfs.mount(vfs.VfsRom(memoryview(flash)[shift : shift + len(image)]), "/rom")
    s = scribe.open("/rom/m.scribe")
    same = s.write("The", seed=4, max_tokens=40) == wanted
    r = s.stats()
    if s._model.file.mapped:
        mapped += 1
        assert r["ram"]["brain"] == r["ram"]["library"] == r["flash_bytes_per_token"] == 0, r
        m, st = s._model, s._state
        def step():
            micropython.heap_lock()
            m.step(3, st)
            micropython.heap_unlock()
        step()
    else:
        copied += 1
    assert same
    vfs.umount("/rom")
print(mapped, copied)
""").stdout.split()
    assert out == ["1", "3"]


# Cache, prompts, bookmarks


@pytest.mark.parametrize("slots", (0, 1, 3, 4, 7, 12, 100))
def test_a_cache_of_any_size_changes_nothing_but_the_reads(scribe, packed, slots):
    """The story is the same; bytes read are those of the misses, and never more than without a cache."""
    _, model, _ = packed["hybrid"]
    size = next(entry for entry in sections(packed["hybrid"][0]) if entry[0] == b"XPRT")[4]
    out = json.loads(scribe("""
import json
text = s.write("The", seed=1, max_tokens=40)
print(json.dumps([text, s.stats(), s._model.library.hits, s._model.library.calls]))
""", cache=slots * size + 5))
    text, stats, hits, calls = out
    assert text == scribe('print(s.write("The", seed=1, max_tokens=40))')[:-1]
    layers, each = model.config.n_layers, model.config.n_experts
    assert stats["ram"]["library"] == size * (min(slots, layers * each) + (slots < layers))
    if slots >= layers * each:
        assert stats["cache_hit_rate"] > 0.85
    assert (hits == 0) if slots == 0 else (0 < hits < calls)
    assert abs(stats["flash_bytes_per_token"] - size * layers * (1 - stats["cache_hit_rate"])) <= 1


def test_cache_equals_its_simulation(scribe, packed):
    """The board's hits are those of LRU per layer in tools/cache.py."""
    from tools import cache

    _, model, _ = packed["hybrid"]
    size = next(entry for entry in sections(packed["hybrid"][0]) if entry[0] == b"XPRT")[4]
    tokens = RNG.integers(0, 288, 120).tolist()
    out = scribe(f"""
lib = s._model.library
before = lib.hits
for t in {tokens}:
    s._model.step(t, s._state, False)
print(lib.hits - before)
""", cache=6 * size)
    assert int(out) == cache.per_layer(cache.routing(model, tokens), 6, model.config) > 0


@pytest.mark.parametrize("name", models.ALL)
@pytest.mark.parametrize("count", (1, 2, 15, 16, 17, 40))
def test_a_prompt_in_chunks_equals_token_by_token(scribe, name, count):
    tokens = RNG.integers(0, 270, count + 1).tolist()
    out = scribe(f"""
from array import array
from scribe.model import State
m = s._model
one, many = State(m), State(m)
tokens = array("H", {tokens})
for t in tokens:
    m.step(t, one)
wanted = bytes(m.logits)
m.read(memoryview(tokens)[:-1], many)
m.step(tokens[-1], many)
pairs = [pair for x, y in zip(one.layers, many.layers) for pair in zip(x, y)]
print(bytes(m.logits) == wanted, all(bytes(a) == bytes(b) for a, b in pairs))
""", name)
    assert out.split() == ["True", "True"]


def test_a_chunk_reads_each_expert_once_a_layer(scribe, packed):
    _, model, _ = packed["hybrid"]
    size = next(entry for entry in sections(packed["hybrid"][0]) if entry[0] == b"XPRT")[4]
    out = scribe("""
from array import array
m = s._model
before = m.file.bytes_read
m.read(array("H", range(16)), s._state)
print(m.file.bytes_read - before)
""")
    assert int(out) <= size * model.config.n_experts * model.config.n_layers


@pytest.mark.parametrize("name", models.ALL)
def test_a_bookmark_goes_on_as_if_nothing_had_happened(scribe, tmp_path, name):
    """Also past the window, in a new process, and from one opening for many stories."""
    mark = str(tmp_path / "a.mark")
    whole = scribe('print(s.write("The", seed=5, max_tokens=60, top_k=0))', name)
    for cut in (0, 1, 11, 45):
        first = scribe(f'print(s.write("The", seed=5, max_tokens={cut}, top_k=0)); s.bookmark({mark!r})', name)
        rest = scribe(f'print(s.write(resume={mark!r}, max_tokens={60 - cut}, top_k=0))', name)
        if "\ufffd" not in first:
            assert first[:-1] + rest == whole
    out = scribe(f"""
import os
print(os.stat({mark!r})[6])
s.write("The", seed=1, max_tokens=0); s.bookmark({mark!r})
a = s.write("re", seed=3, max_tokens=20, resume={mark!r}); b = s.write("re", seed=3, max_tokens=20, resume={mark!r})
print(a == b)
""", name).split()
    assert out[1] == "True"


def test_bad_bookmarks_are_refused(scribe, packed, tmp_path):
    mark = tmp_path / "a.mark"
    scribe(f'''
try:
    s.bookmark({str(mark)!r})
except ValueError as e:
    print(e)
s.write("The", seed=1, max_tokens=9); s.bookmark({str(mark)!r})
''')
    data = mark.read_bytes()
    (tmp_path / "cut.mark").write_bytes(data[:-9])
    (tmp_path / "flip.mark").write_bytes(data[:50] + bytes([data[50] ^ 4]) + data[51:])
    (tmp_path / "none.mark").write_bytes(b"")
    ask = "".join(f"""
try:
    s.write(resume={str(tmp_path / name)!r}, max_tokens=3)
except (ValueError, OSError) as e:
    print(type(e).__name__, e)
""" for name in ("cut.mark", "flip.mark", "none.mark", "missing.mark"))
    out = scribe(ask + 'print(len(s.write("The", seed=1, max_tokens=3)) > 0)').split("\n")
    assert all("damaged" in line for line in out[:3]) and out[3].startswith("OSError") and out[4] == "True"
    out = scribe(f"""
try:
    s.write(resume={str(mark)!r})
except ValueError as e:
    print(e)
""", "llama")
    assert "another model" in out
