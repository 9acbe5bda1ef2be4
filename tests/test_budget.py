"""The budget: sizes to the byte against packed files, RAM against the device's own figures, boards, --fit, the page."""

import ast
import dataclasses
import json
import pathlib
import subprocess
import sys

import models
import numpy as np
import pytest

from tools import budget, story
from tools.boards_table import BOARDS
from tools.config import Config
from tools.errors import UserError
from tools.fileformat import ENTRY, HEADER, Matrix, Packed

ROOT = budget.ROOT
#: Shapes that the random models of models.py leave out: one kind of layer only, no attention window in use.
MORE = {
    "recurrent": Config(recipe="SS", vocab_size=260, d_model=24, d_rnn=40, rnn_heads=5, d_ff=16, n_experts=0),
    "wide": Config(recipe="SA", vocab_size=330, d_model=136, d_rnn=200, rnn_heads=4, n_heads=2, n_kv_heads=1,
                   head_dim=66, window=300, d_ff=0, n_experts=5, d_expert=150),
}
SHAPES = {**models.ALL, **MORE}
LLAMA_3 = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "rope_theta": 500000.0, "rms_norm_eps": 1e-5, "bos_token_id": 128000,
    "eos_token_id": 128001, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget")
    return {name: models.packed(config, folder, name)[0] for name, config in SHAPES.items()}


def run(*args):
    return subprocess.run([sys.executable, "-m", "tools.budget", *map(str, args)], cwd=ROOT, capture_output=True,
                          text=True)


# Sizes


@pytest.mark.parametrize("name", SHAPES)
def test_a_configs_sections_are_the_packed_files(packed, name):
    """Every section but CONF and TOKN follows from the config alone, to the byte; with those two, so does the file."""
    exact = budget.from_packed(packed[name])
    from_sizes = budget.from_config(SHAPES[name], name, exact.size("TOKN"))
    assert list(from_sizes.sections) == list(exact.sections)
    for key, size in exact.sections.items():
        if key[0] != "CONF":
            assert from_sizes.sections[key] == size, key
    assert abs(from_sizes.size("CONF") - exact.size("CONF")) <= 2  # a binary point of one digit, or of three
    from_sizes.sections["CONF", 0, 0] = exact.size("CONF")
    assert from_sizes.file == exact.file == packed[name].stat().st_size


@pytest.mark.parametrize("bits", (8, 4))
@pytest.mark.parametrize("cols", (1, 8, 63, 64, 65, 130))
@pytest.mark.parametrize("bias", (False, True))
def test_matrix_bytes(bits, cols, bias):
    rows = 3
    matrix = Matrix(np.zeros((rows, cols), int), np.zeros((rows, -(-cols // 64)), int), 0, bits,
                    bias=np.zeros(rows, int) if bias else None)
    assert budget.matrix_bytes(rows, cols, bits, bias) == len(matrix.to_bytes())


def test_shipped_models_are_as_their_configs_say():
    paths = sorted(story.WEIGHTS.glob("*.scribe"))
    for path in paths:
        exact = budget.from_packed(path)
        computed = budget.section_bytes(exact.config)
        assert {key: exact.sections[key] for key in computed} == computed and exact.file == path.stat().st_size


def test_the_tokenizers_estimate():
    """Against docs/tokenizer.md: what vocabularies trained on stories take."""
    for vocab, kilobytes in ((512, 4.2), (1024, 10.4), (2048, 23.8), (4096, 52.1)):
        assert budget.tokenizer_bytes(vocab) == pytest.approx(1000 * kilobytes, rel=0.06), vocab


def test_a_folders_own_tokenizer_is_exact(tmp_path):
    section = models.tokenizer_section(288, tmp_path)
    (tmp_path / "tokenizer-288.json").rename(tmp_path / "tokenizer.json")
    models.HYBRID.save(tmp_path / "config.json")
    model = budget.load(str(tmp_path))
    assert model.tokenizer_exact and model.size("TOKN") == len(section) and model.name == tmp_path.name
    (tmp_path / "tokenizer.json").unlink()
    assert not budget.load(str(tmp_path / "config.json")).tokenizer_exact


# RAM, against the device


@pytest.fixture(scope="module")
def device(micropython, packed):
    """{(name, cache in bytes): (stats, heap of the open model)} from the device package."""
    caches = {name: (0, 3 * budget.from_packed(path).expert + 5, 1 << 20) if SHAPES[name].n_experts else (0,)
              for name, path in packed.items()}
    jobs = [(name, str(packed[name]), cache) for name in packed for cache in caches[name]]
    out = micropython(f"""
import gc, json, scribe
for name, path, cache in {jobs!r}:
    s = None
    gc.collect(); before = gc.mem_alloc()
    s = scribe.open(path, cache=cache)
    gc.collect(); heap = gc.mem_alloc() - before
    s.write("A", max_tokens=4, seed=1, temperature=0)
    print(json.dumps([name, cache, s.stats(), heap]))
    s.close()
""", heapsize="16m").stdout
    return {(name, cache): (stats, heap) for name, cache, stats, heap in map(json.loads, out.splitlines())}


def test_ram_is_what_the_device_says(device, packed):
    for (name, cache), (stats, _) in device.items():
        model = budget.from_packed(packed[name])
        assert budget.stats_ram(model, cache) == stats["ram"], (name, cache)
        if not cache:
            assert budget.flash_per_token(model) == stats["flash_bytes_per_token"]
    assert len(device) > len(packed)


def test_objects_are_of_the_right_size(device, packed):
    """The estimate is for 32-bit boards; the same objects take about 1.7 times that on the 64-bit unix port."""
    for (name, cache), (stats, heap) in device.items():
        if not cache:
            model = budget.from_packed(packed[name])
            rest = heap - stats["ram_bytes"] - model.size("TABL")
            assert 1.35 < rest / budget.object_bytes(model.config) < 2.2, name


def test_the_codes_figures_are_of_this_package(micropython, tmp_path):
    """The recorded Cortex-M3 figures belong to a package of about this size: measure again when this fails."""
    found = budget.measure(tmp_path)
    for kind, size in found.items():
        if size is not None:
            assert size == pytest.approx(budget.UNIX_HEAP[kind], rel=0.25), kind
    sources = list((ROOT / "device" / "scribe").glob("*.py"))
    blocks = sum(-(-path.stat().st_size // budget.BLOCK) * budget.BLOCK for path in sources)
    assert blocks == pytest.approx(budget.CODE["py"].files, rel=0.25)


# What a token costs


def test_macs_are_the_matrices(packed):
    """Every matrix that a token meets, once; the embedding is met as the head."""
    for name, config in SHAPES.items():
        records = Packed.load(packed[name]).sections
        met = sum(r.w.size for (tag, _, expert), section in records.items() for r in section.values()
                  if isinstance(r, Matrix) and expert == 0 and (tag != "EMBD" or config.tie_embeddings))
        parts = budget.macs(config)
        assert met == sum(parts.values()) - parts["convolution"] - parts["attention, full window"], name


def test_parameters_are_the_checkpoints(packed):
    for name, config in SHAPES.items():
        total = sum(v.size for v in models.random_weights(config).values())
        assert budget.parameters(config)["total"] == total


def test_default_configs_macs():
    parts = budget.macs(Config())
    assert parts["head"] == 1024 * 128 and parts["attention, full window"] == 2 * 2 * 128 * 256
    assert parts["experts"] == 8 * 3 * 128 * 128 and parts["recurrence gates"] == 6 * 2 * 128 * 32


# Llama-3-8B


def test_llama_3_8b(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_3))
    done = run(path, "--json", "--board", "esp32-s3-8mb")
    assert done.returncode == 0, done.stderr
    r = json.loads(done.stdout)
    assert r["kv_bytes_per_token"] == 128 << 10
    rings = next(line["bytes"] for line in r["ram"] if line["part"] == "ring buffers")
    assert rings == 1 << 30
    assert "vocab_size is 128256" in r["notes"][0] and not r["boards"]["esp32-s3-8mb"]["fits"]
    assert r["parameters"]["total"] == 8030261248
    r = json.loads(run(path, "--json", "--window", 256, "--kv-heads", 1).stdout)
    assert r["kv_bytes_per_token"] == 16 << 10
    assert next(line["bytes"] for line in r["ram"] if line["part"] == "ring buffers") == 4 << 20


def test_other_hugging_face_configs(tmp_path):
    path = tmp_path / "config.json"
    gemma = {"architectures": ["RecurrentGemmaForCausalLM"], "model_type": "recurrent_gemma", "vocab_size": 1000,
             "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 1, "attention_window_size": 32}
    path.write_text(json.dumps(gemma))
    assert budget.load(str(path)).config.recipe == "SSA"
    for change, message in (({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
                            ({"architectures": ["LlamaForCausalLM"], "hidden_size": "x"}, "hidden_size is 'x'"),
                            ({"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 3}, "do not fit")):
        path.write_text(json.dumps({**gemma, **change}))
        with pytest.raises(UserError, match=message):
            budget.load(str(path))


# Boards


def test_every_figure_of_a_board_has_its_source():
    for name, board in BOARDS.items():
        for source in (board.heap_source, board.files_source):
            assert source.split(":")[0] in ("stated", "reported", "derived", "estimated"), name
        assert 60000 < board.heap < 16 << 20 and board.files >= 112 << 10
        assert board.piece is None or board.piece <= board.heap


def test_verdicts_say_why():
    small = budget.from_config(models.HYBRID, "small")
    big = budget.from_config(dataclasses.replace(Config(), d_model=512, d_rnn=512, d_expert=1024), "big")
    assert budget.verdict(small, BOARDS["pico2"])["fits"]
    assert budget.verdict(small, BOARDS["pico2"])["cached"] == 12  # of 12: there is room
    assert "importing .py" in budget.verdict(small, BOARDS["pyboard"])["why"][-1]
    why = " ".join(budget.verdict(big, BOARDS["pico"])["why"])
    assert "heap short by" in why and "file system short by" in why
    one = budget.from_config(Config(vocab_size=4096, d_model=64, d_rnn=64), "one buffer")
    assert any("largest piece" in reason for reason in budget.verdict(one, BOARDS["esp32"])["why"])


def test_a_model_that_just_fits_and_one_byte_less():
    model = budget.from_config(models.HYBRID, "m")
    need = sum(line.bytes for line in budget.ram_lines(model))
    board = dataclasses.replace(BOARDS["pico"], heap=need)
    assert budget.verdict(model, board)["heap_left"] == 0 and budget.verdict(model, board)["fits"]
    assert not budget.verdict(model, dataclasses.replace(board, heap=need - 1))["fits"]


# --fit


@pytest.mark.parametrize("board", ("pico", "pico2", "esp32-s3-2mb"))
@pytest.mark.parametrize("recipe", ("SSASSASS", "AAAA"))
def test_fit_fits_with_room_and_nothing_wider_does(board, recipe):
    model = budget.fit(BOARDS[board], recipe)
    assert budget.verdict(model, BOARDS[board], "py", budget.FIT_SHARE)["fits"]
    d_model = model.config.d_model + 8
    wider = budget.candidate(recipe, d_model, budget.vocabulary_for(recipe, d_model, 256), 256, budget.LEAST)
    assert not budget.verdict(budget.from_config(wider, "wider"), BOARDS[board], "py", budget.FIT_SHARE)["fits"]


def test_a_fitted_config_packs_to_the_size_foretold():
    config = budget.fit(BOARDS["pico"], "SA", window=32).config
    foretold = budget.section_bytes(config)
    from tools import pack

    weights = models.random_weights(config)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 50)
    data = pack.Packer(config, weights).pack(pack.calibrate(config, weights, [tokens]), {"name": "x"}, b"").to_bytes()
    count = HEADER.unpack_from(data)[3]
    found = {}
    for i in range(count):
        tag, layer, expert, _, length, _ = ENTRY.unpack_from(data, HEADER.size + i * ENTRY.size)
        found[tag.decode(), layer, expert] = length
    assert {key: found[key] for key in foretold} == foretold


def test_fits_command_line_is_the_trainers():
    """Every option is one of tools.train's (read from its source: torch may not be here), with the config's values."""
    tree = ast.parse((ROOT / "tools" / "train.py").read_text())
    sizes = next(ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                 and node.targets[0].id == "SIZES")
    theirs = {field: "--" + option.replace("_", "-") for option, field in sizes.items()}
    assert all(theirs[field] == option for field, option in budget.TRAIN_OPTIONS.items())
    done = run("--fit", "pico2", "--json")
    r = json.loads(done.stdout)
    words = r["train"].split()
    assert words[:3] == ["python", "-m", "tools.train"]
    for field, option in budget.TRAIN_OPTIONS.items():
        assert words[words.index(option) + 1] == str(r["config"][field])
    untouched = set(r["config"]) - set(budget.TRAIN_OPTIONS)
    assert all(r["config"][field] == getattr(Config(), field) for field in untouched)
    text = run("--fit", "pico2").stdout
    assert r["train"] in text and '"d_model"' in text


# The command


def test_text_and_json_agree(packed):
    text, r = run(packed["hybrid"], "--board", "pico2").stdout, json.loads(run(packed["hybrid"], "--json").stdout)
    assert list(r["boards"]) == list(BOARDS) and r["source"] == "packed file"
    assert f"{r['macs_per_token']:,}" in text and f"{r['file_bytes']:,}" in text
    assert r["ram_bytes"] == sum(line["bytes"] for line in r["ram"])
    assert "pico2" in text and "esp32" not in text and max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("args, message", (
    (["no-such-model"], "no model 'no-such-model'"),
    (["x.json"], "x.json: cannot be read"),
    ([], "name a model, or --fit"),
    (["--fit", "toaster"], "no board 'toaster'; known are pico, pico2"),
    (["{hybrid}", "--board", "toaster"], "no board 'toaster'"),
    (["{hybrid}", "--kv-heads", "3"], "n_heads 4 must be a multiple"),
    (["{hybrid}", "--window", "0"], "'0' is not a whole number"),
    (["--fit", "pico2", "--recipe", "SXA"], "'X'"),
    (["--fit", "pyboard"], "not even the smallest"),
    (["{hybrid}", "--fit", "pico2"], "--fit proposes a model"),
    (["{hybrid}", "--recipe", "SA"], "go with --fit"),
))
def test_mistakes_are_one_line(packed, args, message):
    done = run(*(str(packed["hybrid"]) if a == "{hybrid}" else a for a in args))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr


def test_a_damaged_file_is_refused(packed, tmp_path):
    data = bytearray(pathlib.Path(packed["hybrid"]).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.scribe").write_bytes(data)
    done = run(tmp_path / "bad.scribe")
    assert done.returncode == 2 and "is damaged" in done.stderr and done.stderr.count("\n") == 1


def test_the_page_is_current():
    """docs/budget.md is what --table prints: `python -m tools.budget --table > docs/budget.md`."""
    assert (ROOT / "docs" / "budget.md").read_text() == budget.page()
    assert "128.0 KiB | 1,024 MiB" in budget.page() and "16.0 KiB | 4 MiB" in budget.page()


def test_make_passes_model_and_board_as_typed(tmp_path):
    import test_setup

    done = test_setup.make("-n", "budget", "MODEL=it's $x", "BOARD=pico2")
    assert "it's" not in done.stdout and '--board="$SCRIBE_BOARD"' in done.stdout
