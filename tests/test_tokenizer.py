"""The tokenizer: the host twin against Hugging Face's library and a transcription of llama2.c, the board's code in real
MicroPython against the host twin, and damaged sections.

Heap, measured on the unix port: an open tokenizer takes about 640 bytes beside its section (10.4 KB for 1024 tokens of
kind 0, 6.2 KB for tok512 of kind 1); encoding 100 KB of stories takes 2 bytes per byte of text.
"""

import importlib.util
import json
import pathlib
import random
import struct

import pytest

from tools import bpe, tokenizer
from tools.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICE_FILE = ROOT / "device" / "scribe" / "tokenizer.py"
#: In MicroPython the module is imported by itself: nothing else of the package takes part.
ALONE = {"MICROPYPATH": f"{DEVICE_FILE.parent}:.frozen"}

STORY = ("Once upon a time there was a little girl named Lily. She didn't like the big, dark forest; it's scary!\n"
         "\"Don't be afraid,\" said the old owl. 'Tis only the wind...\n\nThe end. 1, 2, 30 sheep!   They sleep\tnow.\n"
         "The café's naïve Zoë ate crème brûlée. 😀🌲 The dogs' bones and the cat's hat. "
         "Пошёл дождь. 今天 我们去玩。\n")
WORDS = STORY.split(" ") + ["'", " '", "''s", "\n", "\n\n", "  ", "   ", " ", "\t", "\r\n", "7", " 42", "...", " ?!",
                            "é", "😀", "👩‍🚀", "don't've", "\x7f", "\x00", "<|endofstory|>", "<s>", "</s>", "<0x0A>",
                            "\u0301", "ﬁ"]


def _device_module():
    spec = importlib.util.spec_from_file_location("scribe_tokenizer", DEVICE_FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


device = _device_module()

_DRIVER = """
import sys, struct
import tokenizer
with open(sys.argv[1], "rb") as f:
    tok = tokenizer.open_tokenizer(memoryview(f.read()))
with open(sys.argv[2], "rb") as cases, open(sys.argv[3], "wb") as results:
    while True:
        head = cases.read(4)
        if not head:
            break
        text = cases.read(struct.unpack("<I", head)[0])
        ids = tok.encode(text)
        previous, back, whole, stream = tok.bos, [], [], tokenizer.Utf8Stream()
        for token in ids:
            back.append(tok.piece(token, previous))
            whole.append(stream.feed(back[-1]))
            previous = token
        whole.append(stream.flush())
        if b"".join(back) != text:
            print("round trip", text, ids, back)
        whole = "".join(whole).encode()
        results.write(struct.pack("<II", len(ids), len(whole)))
        results.write(b"".join([struct.pack("<H", i) for i in ids]))
        results.write(whole)
print("done", tok.vocab_size, tok.bos, tok.eos)
"""


def _on_device(micropython, tmp_path, section, cases):
    """Encode the cases in MicroPython: a list of (ids, text as a stream of characters shows it)."""
    (tmp_path / "section").write_bytes(section)
    (tmp_path / "driver.py").write_text(_DRIVER)
    (tmp_path / "cases").write_bytes(b"".join(struct.pack("<I", len(case)) + case for case in cases))
    done = micropython(tmp_path / "driver.py", tmp_path / "section", tmp_path / "cases", tmp_path / "results",
                       heapsize="32m", env=ALONE)
    host = tokenizer.Tokenizer(section)
    assert (done.stdout, done.stderr) == (f"done {host.vocab_size} {host.bos} {host.eos}\n", "")
    data, at, results = (tmp_path / "results").read_bytes(), 0, []
    for _ in cases:
        count, size = struct.unpack_from("<II", data, at)
        ids = list(struct.unpack_from(f"<{count}H", data, at + 8))
        at += 8 + 2 * count
        results.append((ids, data[at:at + size].decode()))
        at += size
    assert at == len(data)
    return results


def _random_texts(count, seed):
    """Byte strings of all kinds: random bytes, letters, characters of every length, words of stories, mixtures."""
    rng = random.Random(seed)

    def character():
        top = rng.choice((0x80, 0x80, 0x800, 0x10000, 0x110000))
        code = rng.randrange(top)
        return chr(code if not 0xD800 <= code < 0xE000 else 0x20)

    kinds = (
        lambda n: rng.randbytes(n),
        lambda n: bytes(rng.choice(b"abt the'  \n.") for _ in range(n)),
        lambda n: "".join(character() for _ in range(n)).encode(),
        lambda n: "".join(rng.choice(WORDS) + rng.choice((" ", " ", "")) for _ in range(n // 2)).encode(),
        lambda n: bytes(rng.choice(b"thean") for _ in range(n)),
        lambda n: rng.choice(WORDS).encode() * n,
        lambda n: bytes(rng.choice((0x61, 0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x80, 0x20)) for _ in range(n)),
    )
    return [b"", b" ", b"\n", b"'", b"\x80"] + [
        b"".join(rng.choice(kinds)(rng.choice((1, 2, 5, 12, 40))) for _ in range(rng.choice((1, 1, 2, 3))))
        for _ in range(count - 5)]


# ---- kind 0 ----

def _training_text():
    rng = random.Random(1)
    words = STORY.split(" ")
    made = "".join("".join(rng.choice("etaoinsh") for _ in range(rng.randrange(1, 9))) + " " for _ in range(800))
    return [STORY * 3, made, *(" ".join(rng.choice(words) for _ in range(30)) for _ in range(60))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A Hugging Face tokenizer of 700 ids trained here, and the path of its tokenizer.json."""
    made = bpe.train(_training_text(), 700)
    path = tmp_path_factory.mktemp("kind0") / "tokenizer.json"
    made.save(str(path))
    return made, path


def _document(merges, **changes):
    """A tokenizer.json of a list of merges (pairs of stand-in characters), made without the library."""
    vocab = {tokenizer.END: 0}
    vocab.update((character, 1 + byte) for byte, character in tokenizer._byte_characters().items())
    for left, right in merges:
        vocab[left + right] = len(vocab)
    document = {
        "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": tokenizer.PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "model": {"type": "BPE", "vocab": vocab, "merges": [list(merge) for merge in merges]}}
    document.update(changes)
    return document


MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "a"), ("aa", "aa"), ("a", "n"), ("n", "a"), ("an", "a"),
          ("'", "s"), ("Ċ", "Ċ"), ("Ã", "©"), (".", "."), ("Ġ", "a"), ("h", "e"), ("Ġa", "n"), ("aaaa", "aaaa"),
          ("aa", "n"), ("e", "a"), ("t", "a"), ("ta", "ta"), ("a", "t"), ("tata", "tata"), ("at", "he")]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The section of the few MERGES above."""
    path = tmp_path_factory.mktemp("small") / "tokenizer.json"
    path.write_text(json.dumps(_document(MERGES)), encoding="utf-8")
    return tokenizer.section_from_json(path)


def _merge_by_rank(piece):
    """The textbook algorithm over MERGES: ids of one piece of bytes."""
    characters = tokenizer._byte_characters()
    symbols = [characters[byte] for byte in piece]
    while True:
        ranks = [MERGES.index(pair) if pair in MERGES else len(MERGES) for pair in zip(symbols, symbols[1:])]
        if not ranks or min(ranks) == len(MERGES):
            break
        at = ranks.index(min(ranks))
        symbols[at:at + 2] = [symbols[at] + symbols[at + 1]]
    vocab = _document(MERGES)["model"]["vocab"]
    return [vocab[symbol] for symbol in symbols]


def test_pattern_is_the_trainers():
    assert tokenizer.PATTERN == bpe.PATTERN


def test_host_equals_hugging_face(trained):
    reference, path = trained
    host = tokenizer.Tokenizer(tokenizer.section_from_json(path))
    assert (host.vocab_size, host.bos, host.eos) == (700, 0, 0)
    texts = [STORY, *WORDS, tokenizer.END]
    texts += [case.decode(errors="replace") for case in _random_texts(2000, 5)]
    for text in texts:
        ids = host.encode(text)
        assert ids == reference.encode(text).ids, text
        assert host.decode(ids) == text.encode() and 0 not in ids


def test_host_equals_hugging_face_on_the_corpus(trained, shared, leave_out):
    files = sorted((shared / "corpus").glob("*.valid.txt")) if shared else []
    if not files:
        leave_out("tokenizer tests on real text", "put the corpus into ../shared/corpus")
    reference, path = trained
    host = tokenizer.Tokenizer(tokenizer.section_from_json(path))
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert host.encode(text) == reference.encode(text).ids, file.name


def test_host_equals_the_textbook(small):
    host = tokenizer.Tokenizer(small)
    rng = random.Random(2)
    for _ in range(300):
        piece = bytes(rng.choice(b"thean") for _ in range(rng.randrange(1, 90)))
        assert host.encode(piece) == _merge_by_rank(piece)


@pytest.mark.parametrize("which", ["small", "trained"])
def test_device_equals_host(micropython, tmp_path, request, which):
    made = request.getfixturevalue(which)
    section = made if which == "small" else tokenizer.section_from_json(made[1])
    host = tokenizer.Tokenizer(section)
    cases = _random_texts(2000, 6) + [word.encode() for word in WORDS] + [STORY.encode() * 5]
    cases += [b"thean" * 200, b"a" * 5000, b"tata" * 3000 + b"a", random.Random(3).randbytes(20000)]
    for case, (ids, text) in zip(cases, _on_device(micropython, tmp_path, section, cases)):
        assert ids == host.encode(case)
        assert text == case.decode("utf-8", "replace")
        assert host.decode(ids) == case


def test_piece_longer_than_16_bits(small):
    text = b"tata" * 17000 + b"than" + b"a" * 1000
    assert list(device.open_tokenizer(small).encode(text)) == tokenizer.Tokenizer(small).encode(text)


def test_end_token_is_never_typed(small):
    host, board = tokenizer.Tokenizer(small), device.open_tokenizer(small)
    assert 0 not in host.encode(tokenizer.END) and 0 not in board.encode(tokenizer.END)
    assert host.piece(0) == board.piece(0) == b""
    for token in (-1, host.vocab_size):
        with pytest.raises(UserError, match="the vocabulary has"):
            host.piece(token)
        with pytest.raises(ValueError, match="the vocabulary has"):
            board.piece(token)


def test_out_is_appended_to(small):
    board = device.open_tokenizer(bytearray(small))
    out = board.encode("the ")
    assert board.encode(memoryview(b"than"), out) is out
    assert list(out) == list(board.encode("the ")) + list(board.encode("than"))


def test_surrogates_from_a_command_line(small):
    assert tokenizer.Tokenizer(small).encode(b"a\xff".decode("utf-8", "surrogateescape")) == [ord("a") + 1, 256]


def _without(document, *path):
    for name in path[:-1]:
        document = document[name]
    del document[path[-1]]


@pytest.mark.parametrize("change, message", [
    (lambda d: d.update(normalizer={"type": "NFC"}), "normalizer"),
    (lambda d: d.update(post_processor={"type": "TemplateProcessing"}), "post_processor"),
    (lambda d: d["model"].update(type="Unigram"), "not BPE"),
    (lambda d: d["model"].update(ignore_merges=True), "ignore_merges"),
    (lambda d: d["model"].update(dropout=0.1), "dropout"),
    (lambda d: d.update(added_tokens=[{"id": 5, "content": "<pad>"}]), "<pad>"),
    (lambda d: d.update(pre_tokenizer={"type": "ByteLevel"}), "pre-tokenizer"),
    (lambda d: d["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex=r"\w+"), "pattern"),
    (lambda d: d["pre_tokenizer"]["pretokenizers"][0].update(behavior="Removed"), "isolate"),
    (lambda d: d["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True), "prefix space"),
    (lambda d: _without(d, "model", "vocab", "a"), "byte 97"),
    (lambda d: _without(d, "model", "vocab", tokenizer.END), "id 0"),
    (lambda d: _without(d, "model", "vocab", "the"), "tokens"),
    (lambda d: d["model"]["merges"].reverse(), "merge 0"),
    (lambda d: d["model"]["merges"].__setitem__(0, ["t"]), "merge 0"),
])
def test_other_tokenizers_are_refused(tmp_path, change, message):
    document = _document(MERGES)
    change(document)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match=message) as error:
        tokenizer.section_from_json(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        tokenizer.section_from_json(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        tokenizer.section_from_llama2c(tmp_path / "none.bin", 512)
    (tmp_path / "bad.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match="not a JSON file"):
        tokenizer.section_from_json(tmp_path / "bad.json")


# ---- kind 1 ----

def _write_llama2c(path, plain):
    """A tokenizer.bin of the usual 259 first tokens and then the (bytes, score) of plain."""
    tokens = [(b"<unk>", 0.0), (b"\n<s>\n", 0.0), (b"\n</s>\n", 0.0)]
    tokens += [(b"<0x%02X>" % byte, 0.0) for byte in range(256)] + plain
    data = struct.pack("<I", max(len(text) for text, _ in tokens))
    path.write_bytes(data + b"".join(struct.pack("<fi", score, len(text)) + text for text, score in tokens))
    return tokens


PLAIN = [(b"th", -1.0), (b"he", -1.0), (b" t", -2.0), (b"the", 0.5), (b" the", -3.0), (b"an", -4.0), (b"na", -4.0),
         (b"ana", -2.5), (b"aa", -5.0), (b"  ", -6.0), (b"\n\n", -7.0), (b" a", -0.0), (b"nan", 0.0), (b"tt", -2e10),
         (b"\xc3\xa9t", 3.0), (b"aaa", -5.0), (b"et", float("inf")), (b"ae", float("nan"))]
PLAIN += [(text.encode(), -100.0 - n) for n, text in enumerate(" thean<s>/0xA\né😀今")]
PLAIN += [(b"th", 9.0)]  # never matched: of equal tokens the lowest id is


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    path = tmp_path_factory.mktemp("kind1") / "tokenizer.bin"
    tokens = _write_llama2c(path, PLAIN)
    return tokens, tokenizer.section_from_llama2c(path, len(tokens))


@pytest.fixture
def tok512(shared, leave_out):
    path = shared and shared / "checkpoints" / "tok512.bin"
    if not path or not path.is_file():
        leave_out("tests of a public tokenizer.bin", "put tok512.bin into ../shared/checkpoints")
    data, at, tokens = path.read_bytes(), 4, []
    while at < len(data):
        score, size = struct.unpack_from("<fi", data, at)
        tokens.append((data[at + 8:at + 8 + size], score))
        at += 8 + size
    return tokens, tokenizer.section_from_llama2c(path, 512)


def _run_c(tokens, text):
    """encode() of llama2.c's run.c, line by line, less BOS; text without NUL."""
    vocab, lookup = [text for text, _ in tokens], {}
    for token, name in enumerate(vocab):
        lookup.setdefault(name, token)
    out, buffer = [], b""
    if text:
        out.append(lookup[b" "])
    for at in range(len(text)):
        if text[at] & 0xC0 != 0x80:
            buffer = b""
        buffer += text[at:at + 1]
        if at + 1 < len(text) and text[at + 1] & 0xC0 == 0x80 and len(buffer) < 4:
            continue
        if buffer in lookup:
            out.append(lookup[buffer])
        else:
            out += [byte + 3 for byte in buffer]
        buffer = b""
    while True:
        best_score, best_id, best_at = -1e10, -1, -1
        for at in range(len(out) - 1):
            token = lookup.get(vocab[out[at]] + vocab[out[at + 1]])
            if token is not None and tokens[token][1] > best_score:
                best_score, best_id, best_at = tokens[token][1], token, at
        if best_at == -1:
            return out
        out[best_at:best_at + 2] = [best_id]


@pytest.mark.parametrize("which", ["synthetic", "tok512"])
def test_kind_1_equals_llama2c(micropython, tmp_path, request, which):
    tokens, section = request.getfixturevalue(which)
    host = tokenizer.Tokenizer(section)
    assert (host.vocab_size, host.bos, host.eos) == (len(tokens), 1, 2)
    cases = [case.replace(b"\0", b"") for case in _random_texts(1500, 7)]
    cases += [word.encode().replace(b"\0", b"") for word in WORDS] + [STORY.encode(), b"the anana" * 60, b"a" * 300]
    for case, (ids, text) in zip(cases, _on_device(micropython, tmp_path, section, cases)):
        assert ids == _run_c(tokens, case), case
        assert host.encode(case) == ids
        assert host.decode(ids) == case and text == case.decode("utf-8", "replace")


@pytest.mark.parametrize("which", ["synthetic", "tok512"])
def test_kind_1_long_texts(micropython, tmp_path, request, which):
    _, section = request.getfixturevalue(which)
    host = tokenizer.Tokenizer(section)
    cases = [b"the anana" * 2000, b"a" * 20000, b" " * 3000, STORY.encode() * 30, "é😀今".encode() * 2000, b"\0" * 400]
    for case, (ids, _) in zip(cases, _on_device(micropython, tmp_path, section, cases)):
        assert ids == host.encode(case) and host.decode(ids) == case


def test_known_encodings_of_tok512(tok512):
    host = tokenizer.Tokenizer(tok512[1])
    # What run.c feeds stories260K for this prompt, BOS apart; and the pieces it prints.
    ids = host.encode("Once upon a time")
    assert [host.piece(token) for token in ids] == [b" Once upon a time"[a:b] for a, b in _cuts(host, ids)]
    assert ids == _run_c(tok512[0], b"Once upon a time") == [403, 407, 261, 378]


def _cuts(host, ids):
    at = 0
    for token in ids:
        size = len(host.piece(token))
        yield at, at + size
        at += size


@pytest.mark.parametrize("text", ["<s>", "\n<s>\n", "</s>", "<unk>", "<0x0A>", "\n</s>\n"])
def test_names_of_control_tokens_are_plain_text(synthetic, text):
    _, section = synthetic
    host, board = tokenizer.Tokenizer(section), device.open_tokenizer(section)
    assert list(board.encode(text)) == host.encode(text)
    assert host.decode(host.encode(text)) == text.encode() and min(host.encode(text)) > 2


def test_names_stay_plain_where_the_vocabulary_could_spell_them(tmp_path):
    """A vocabulary from whose tokens llama2.c would merge its way to a control or byte token's own name."""
    steps = [b"<s", b"\n<s", b"\n<s>", b"<0", b"<0x", b"<0x0", b"<0x0A", b" \n"]
    path = tmp_path / "tokenizer.bin"
    tokens = _write_llama2c(path, PLAIN + [(step, -0.5 - n) for n, step in enumerate(steps)])
    section = tokenizer.section_from_llama2c(path, len(tokens))
    host, board = tokenizer.Tokenizer(section), device.open_tokenizer(section)
    for text in (b"<0x0A>", b"a\n<s>\n", b"\n<s>\n"):
        assert host.decode(host.encode(text)) == text
        assert list(board.encode(text)) == host.encode(text)
    assert 13 in _run_c(tokens, b"<0x0A>") and 13 not in host.encode(b"<0x0A>")


def test_one_space_goes_after_bos(synthetic):
    _, section = synthetic
    for tok in (tokenizer.Tokenizer(section), device.open_tokenizer(section)):
        token = list(tok.encode("the"))[0]
        assert (tok.piece(token, 1), tok.piece(token, 5), tok.piece(token)) == (b"the", b" the", b" the")
        assert tok.piece(3 + 32, 1) == b" "  # llama2.c looks at the name of a byte token, which begins with "<"
        assert [tok.piece(control) for control in range(3)] == [b"", b"", b""]


def test_wrong_tokenizer_bin_is_refused(tmp_path):
    path = tmp_path / "tokenizer.bin"
    size = len(_write_llama2c(path, PLAIN))
    data = path.read_bytes()
    for count, message in ((size + 1, "it ends after"), (size - 1, "are left"), (100, "must be"), (70000, "must be")):
        with pytest.raises(UserError, match=message):
            tokenizer.section_from_llama2c(path, count)
    damages = ((data[:-1], "damaged"), (data.replace(b"<0x41>", b"<0x4_>"), "byte token"), (b"", "ends after"))
    for damaged, message in damages:
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=message):
            tokenizer.section_from_llama2c(path, size)
    _write_llama2c(path, [(b"a", 0.0)])
    with pytest.raises(UserError, match="space"):
        tokenizer.section_from_llama2c(path, 260)


def _large_section(tmp_path):
    """A vocabulary of kind 1 with wide offsets and wide pairs: 20 letters, all twos and threes, 30,000 fours."""
    rng = random.Random(8)
    ones = [bytes([byte]) for byte in b"abcdefghijklmnopqrs "]
    twos = [a + b for a in ones for b in ones]
    texts = ones + twos + [a + b for a in twos for b in ones]
    texts += [twos[n // 400] + twos[n % 400] for n in rng.sample(range(160000), 30000)]
    tokens = _write_llama2c(tmp_path / "large.bin", [(text, float(rng.randrange(-9999, 0))) for text in texts])
    return tokens, tokenizer.section_from_llama2c(tmp_path / "large.bin", len(tokens))


def test_large_vocabulary(micropython, tmp_path):
    tokens, section = _large_section(tmp_path)
    assert section[5] == 3  # both tables are wide
    rng = random.Random(9)
    host = tokenizer.Tokenizer(section)
    cases = [bytes(rng.choice(b"abcdefghijklmnopqrst  ") for _ in range(n)) for n in (1, 9, 30, 60, 120) * 4]
    for case, (ids, _) in zip(cases, _on_device(micropython, tmp_path, section, cases)):
        assert ids == _run_c(tokens, case) == host.encode(case)


# ---- damage ----

_DAMAGE_DRIVER = """
import sys
import tokenizer
with open(sys.argv[1], "rb") as f:
    whole = f.read()
with open(sys.argv[2]) as f:
    changes = [[int(x) for x in line.split()] for line in f]
refused = 0
for at, value, length in changes:
    damaged = bytearray(whole[:length])
    if at < length:
        damaged[at] = value
    try:
        tok = tokenizer.open_tokenizer(damaged)
        ids = tok.encode("The theatre an ana's \\xe9t\\xe9\\n\\n42 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
        for token in ids:
            tok.piece(token)
    except ValueError as error:
        assert str(error) and "\\n" not in str(error)
        refused += 1
print(len(changes), refused)
"""


@pytest.mark.parametrize("which", ["small", "synthetic"])
def test_damage_is_refused_or_harmless(micropython, tmp_path, request, which):
    made = request.getfixturevalue(which)
    section = made if which == "small" else made[1]
    rng = random.Random(10)
    changes = [(rng.randrange(len(section)), rng.randrange(256), len(section)) for _ in range(300)]
    changes += [(at, value, len(section)) for at in range(32) for value in (0, 1, 0x7F, 0xFF)]
    changes += [(0, section[0], rng.randrange(len(section))) for _ in range(60)]
    (tmp_path / "section").write_bytes(section)
    (tmp_path / "driver.py").write_text(_DAMAGE_DRIVER)
    (tmp_path / "changes").write_text("".join("%d %d %d\n" % change for change in changes))
    done = micropython(tmp_path / "driver.py", tmp_path / "section", tmp_path / "changes", env=ALONE)
    assert done.stderr == "" and done.stdout.split()[0] == str(len(changes))
    assert int(done.stdout.split()[1]) > 150  # the rest changed padding, text or an order, or nothing
    for at, value, length in changes:
        damaged = bytearray(section[:length])
        if at < length:
            damaged[at] = value
        if damaged == section:
            tokenizer.section_check(damaged)
            continue
        try:
            tokenizer.section_check(damaged)
        except UserError as error:
            assert "\n" not in str(error)
        else:  # a sound section, if another one: another letter inside a token's text (kind 1), or another order
            assert which == "synthetic"
            device.open_tokenizer(damaged)


def test_truncation_is_refused_at_every_length(small):
    for length in range(0, len(small), 7):
        with pytest.raises(ValueError):
            device.open_tokenizer(small[:length])
        with pytest.raises(UserError):
            tokenizer.section_check(small[:length])
    tokenizer.section_check(small + b"what follows in the file")
    assert device.open_tokenizer(small + b"what follows").size == len(small)


# ---- the stream of characters ----

def test_stream_of_characters_split_anywhere():
    text = "a😀é今\U0010ffff\u07ff\uffff👩‍🚀z"
    data = text.encode()
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            stream = device.Utf8Stream()
            parts = [stream.feed(part) for part in (data[:first], data[first:second], data[second:])]
            assert "".join(parts) == text and stream.flush() == ""
            assert parts[0] == data[:first].decode(errors="ignore")


def test_stream_replaces_what_python_replaces():
    rng = random.Random(11)
    values = (0x41, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xF5, 0xFF, 0x8F, 0x90)
    for _ in range(3000):
        data = bytes(rng.choice(values) for _ in range(rng.randrange(9)))
        stream = device.Utf8Stream()
        shown = "".join(stream.feed(data[at:at + 1]) for at in range(len(data))) + stream.flush()
        assert shown == data.decode("utf-8", "replace")
        assert stream.feed(b"ok") == "ok" and stream.flush() == ""
