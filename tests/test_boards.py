"""Real 32-bit firmware under QEMU: on Arm and RISC-V the board's code equals the integer reference to the bit."""

import concurrent.futures
import subprocess
import sys

import models
import numpy as np
import pytest

from tools import firmware, fixedpoint, package
from tools.boards import ON_BOARD, Board, BoardError, files
from tools.errors import UserError
from tools.fileformat import Packed
from tools.firmware import build, frozen, images, parity, source
from tools.micropython import ROOT
from tools.parity import held_out
from tools.torture.host_extremes import extreme

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("firmware_built")]
TARGETS = tuple(firmware.TARGETS)
PACKED = sorted((ROOT / "weights").glob("*.scribe"))
#: How the package and a model lie on a board: in place in ROMFS as source, and copied from littlefs as machine code.
WAYS = {"romfs": {"kind": "romfs"}, "littlefs": {"kind": "littlefs", "compiled": True}}
READ = 500  # tokens of held-out text, at least


# Kernels


@pytest.fixture
def board(request):
    """Start a board whose ROMFS holds the package, as source or compiled; ends with the test."""
    running = []

    def start(target, heap=1 << 20, compiled=False, mpy_cross=None, **more):
        march = firmware.TARGETS[target].march if compiled else None
        image = images.romfs(files(march=march, mpy_cross=mpy_cross, **more))
        running.append(Board(target, heap, image).__enter__())
        return running[-1]

    yield start
    for each in running:
        each.close()


@pytest.mark.parametrize("compiled", (False, True), ids=("py", "mpy"))
@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_is_machine_code_and_right(board, target, compiled):
    """By the emitter of the board's own MicroPython, and by the mpy-cross of the same version."""
    tables = fixedpoint.Tables().to_bytes()
    on = board(target, compiled=compiled, mpy_cross=build.mpy_cross() if compiled else None, tables=tables)
    out = on.run("from scribe import kernels; print(kernels.name, kernels.check(), kernels.check("
                 "open('/rom/tables', 'rb').read(), 12))")
    # what the import says of a kernel that it does not use would come first
    name, _, differing = out.partition(" ")
    assert differing == "[] []\n" and "viper" in name and "plain" not in name, out


# Models


def differences(results):
    for result in results:
        print(result)
    return [str(result) for result in results if result.mismatches]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Plans for the small random models: text past their windows, and stories."""
    folder = tmp_path_factory.mktemp("boards")
    rng = np.random.default_rng(3)
    plans = []
    for name, config in models.ALL.items():
        path, packed, _ = models.packed(config, folder, name)
        plans.append(parity.plan(path, rng.integers(0, packed.config.vocab_size, 100), told=40))
    return plans


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", TARGETS)
def test_small_models_equal_the_reference(small, target, way):
    """Every feature of the format, the heap locked; from littlefs with a little cache: experts come and go."""
    results = parity.check(target, small, **WAYS[way], cache=3000 if way == "littlefs" else 0)
    assert len(results) == len(small) and all(result.read == 100 and result.told == 80 for result in results)
    assert not differences(results)


@pytest.mark.parametrize("target", TARGETS)
def test_models_at_the_formats_extremes_equal_the_reference(tmp_path, target):
    """The largest weights, scales, norms and biases: what saturates saturates alike, and nothing leaves 32 bits."""
    rng, plans = np.random.default_rng(4), []
    for name, config in models.ALL.items():
        _, packed, _ = models.packed(config, tmp_path, name)
        for signs in ("same", "rows", "random"):
            path = tmp_path / f"{name}-{signs}.scribe"
            extreme(packed, rng, signs).save(path)
            plans.append(parity.plan(path, rng.integers(0, packed.config.vocab_size, 30)))
    results = parity.check(target, plans)
    assert len(results) == 12 and all(result.read == 30 for result in results)
    assert not differences(results)


def test_the_package_frozen_into_a_firmware_equals_the_reference(small):
    """By device/manifest.py, as a board's own firmware would have it: nothing of it lies on a file system."""
    target = frozen.target("m4")
    build.build([target], said=lambda line: None)
    assert f'version="{package.listing()["version"]}"' in frozen.MANIFEST.read_text()
    todo = small[0]
    image = images.romfs({"board.py": (ON_BOARD / "board.py").read_bytes(), todo.path.name: todo.path.read_bytes()})
    with Board(target, 192 << 10, image) as on:
        on.run("import board, gc, scribe")
        assert on.run("import os; print(scribe.__file__, sorted(os.listdir('/rom')))") == (
            f"scribe/__init__.py ['board.py', '{todo.path.name}']\n")
        result = parity.follow(on, todo, "ROMFS, frozen code")
    assert result.read == 100 and result.told == 80 and result.kernels == "dsp+thumb+viper"
    assert not differences([result])


@pytest.mark.parametrize("old, new", (("state.advance()", "state.slot = 0"),
                                      ("norm(work.n, x", "norm(work.n, work.n")))
def test_a_difference_is_found_and_told(small, monkeypatch, old, new):
    """A board whose code is wrong does not pass."""
    broken = {**images.sources(), "scribe/model.py": images.sources()["scribe/model.py"].replace(
        old.encode(), new.encode())}
    assert broken != images.sources()
    monkeypatch.setattr(images, "sources", lambda: broken)
    result, = parity.check("m3", small[:1], heaps=[400])
    assert result.mismatches > 90 and "logits differ: logit " in result.different


@pytest.fixture(scope="module")
def runs():
    """Results of the shipped models on every board: {(model, target, way): a future}. Two at a time, from the start."""
    pool, futures = concurrent.futures.ThreadPoolExecutor(2), {}
    for path in PACKED:
        packed = Packed.load(path)
        past = packed.config.window + 40
        for way in WAYS:
            if way == "romfs":
                todo = parity.plan(path, held_out(packed, max(READ, past)))
            else:
                todo = parity.plan(path, told=past)
            for target in TARGETS:
                futures[path, target, way] = pool.submit(parity.check, target, [todo], **WAYS[way])
    yield futures
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", PACKED, ids=lambda path: path.stem)
def test_shipped_models_equal_the_reference(runs, capsys, path, way, target):
    """Past the window: held-out text, in place in ROMFS; stories, greedy and drawn, with experts from littlefs."""
    result, = runs[path, target, way].result()
    with capsys.disabled():
        print(f"\n{result}", end="")
    window = Packed.load(path).config.window
    assert result.read > max(READ - 1, window) if way == "romfs" else result.told > 2 * window
    assert not differences([result])


@pytest.mark.parametrize("target", TARGETS)
def test_a_story_is_that_of_the_unix_port(board, micropython, target):
    """What a person at the REPL calls, tokenizer and all."""
    path = min(PACKED, key=lambda path: path.stat().st_size)
    code = "s = scribe.open({!r}); print(s.write('Once there was a fox. 3 é', seed=11, max_tokens=40, temperature=1.1))"
    on = board(target, compiled=True, **{path.name: path.read_bytes()})
    assert on.run("import scribe\n" + code.format(f"/rom/{path.name}")) == micropython(
        "import scribe\n" + code.format(str(path))).stdout


def test_counters_pass_what_a_small_integer_holds(board, small):
    """A larger integer would be an object, which a token may not make: 2^30 bytes read are 4,500 tokens of tales."""
    path = small[0].path
    on = board("m3", **{path.name: path.read_bytes()})
    out = on.run("""
import board, scribe, vfs
class Card:
    def mount(self, readonly, mkfs):
        pass
    def stat(self, path):
        return (0x8000, 0, 0, 0, 0, 0, 0)
    def open(self, path, mode):
        return File(path)
class File:
    def __init__(self, path):
        f = open("/rom/" + path.strip("/"), "rb")
        self.seek, self.readinto, self.close = f.seek, f.readinto, f.close
vfs.mount(Card(), "/card")
s = scribe.open("/card/%s", 0)
file, library = s._model.file, s._model.library
file._megabytes, file._bytes = 1023, (1 << 20) - 9
library.calls = 0x3FFFFFFE
before = file.bytes_read
for token in range(20):
    board.step(s, token)
print(file.mapped, file.bytes_read - before == 20 * 4 * file.expert_bytes, file.bytes_read > 1 << 30, library.calls)
""" % path.name)
    assert out.split() == ["False", "True", "True", str(20 * 4 - 2)]


# The firmware itself


@pytest.mark.parametrize("target", TARGETS)
def test_mpremote_finds_a_board(board, target):
    """A clock that goes, files that can be written, and mpremote as a person runs it."""
    on = board(target)
    code = ("import sys, time; t = time.ticks_ms(); time.sleep_ms(50); "
            "print(sys.implementation.version[:2], time.ticks_ms() - t >= 50)")
    done = subprocess.run([sys.executable, "-m", "mpremote", "connect", on.port, "resume", "exec", code],
                          capture_output=True, text=True, timeout=600)
    assert done.stdout == "(1, 25) True\n", done.stdout + done.stderr


def test_a_heap_is_as_large_as_asked_and_an_exception_is_one_line(board):
    on = board("m3", heap=192 << 10)
    assert 190_000 < sum(int(n) for n in on.run("import board\nboard.memory()").split()) <= 192 << 10
    with pytest.raises(BoardError, match=r"m3: ZeroDivisionError: divide by zero"):
        on.run("1 / 0")
    assert on.run("print(6 * 7)") == "42\n"


def test_another_tarball_is_not_built(tmp_path, monkeypatch):
    """The source is the one that was pinned, or it is fetched again."""
    monkeypatch.setattr(source, "BUILD", tmp_path)
    monkeypatch.setattr(source, "_mirrors", lambda: [])
    (tmp_path / source.TARBALL).write_bytes(b"something else")
    with pytest.raises(UserError, match="no Debian mirror"):
        source.tarball()


def test_what_is_missing_is_said_with_the_command(monkeypatch):
    monkeypatch.setattr(firmware.shutil, "which", lambda name: None)
    said = firmware.lacking(firmware.targets(["rv32"]))
    assert "qemu-system-riscv32" in said and "apt-get install" in said and "picolibc-riscv64-unknown-elf" in said
    with pytest.raises(UserError, match="board 'z80': one of m3"):
        firmware.targets(["z80"])
