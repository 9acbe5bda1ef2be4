"""Compile MicroPython's qemu port, with the overlay, for each target; and its mpy-cross."""

import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from tools.errors import UserError
from tools.firmware import BUILD, lacking, source

HERE = pathlib.Path(__file__).parent
INPUTS = ("build.py", "overlay/overlay.c", "overlay/overlay.h", "overlay/micropython.mk", "MPS2_AN386/mpconfigboard.mk")
#: 64-bit division, which littlefs uses, brings unwind tables that the port's linker scripts have no place for.
NO_UNWIND = "SECTIONS\n{\n    /DISCARD/ : { *(.ARM.exidx*) *(.ARM.extab*) }\n"


def firmware(target):
    """Where a target's firmware is, or will be once built: the folder's name is a hash of all that goes into it."""
    digest = hashlib.sha256(source.SHA256.encode())
    digest.update(repr(dataclasses.astuple(target)).encode())
    for name in INPUTS:
        digest.update((HERE / name).read_bytes())
    if shutil.which(target.compiler):
        digest.update(subprocess.run([target.compiler, "--version"], capture_output=True).stdout)
    return BUILD / f"{target.name}-{digest.hexdigest()[:12]}" / "firmware.elf"


def mpy_cross():
    """Where MicroPython's own compiler of that version is, or will be."""
    return BUILD / f"mpy-cross-{source.SHA256[:12]}"


def build(targets, said=print):
    """Build whatever of these targets is not built yet. Raises UserError."""
    todo = [target for target in targets if not firmware(target).is_file()]
    if not todo and mpy_cross().is_file():
        return
    lacks = lacking(todo)
    lacks = lacks or "; ".join(f"board firmware needs {tool}; on Debian, as root: apt-get install build-essential"
                               for tool in ("make", "gcc") if not shutil.which(tool))
    if lacks:
        raise UserError(lacks)
    path = source.tarball()
    # make has no quoting for spaces: a temporary folder, wherever the repository is
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with tarfile.open(path) as tar:
            tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        tree, = (entry for entry in folder.iterdir() if entry.is_dir())
        if not mpy_cross().is_file():
            said("building mpy-cross ...")
            _make(tree / "mpy-cross")
            _keep(tree / "mpy-cross" / "build" / "mpy-cross", mpy_cross())
        modules = folder / "modules"
        shutil.copytree(HERE / "overlay", modules / "overlay")
        shutil.copytree(HERE / "MPS2_AN386", tree / "ports" / "qemu" / "boards" / "MPS2_AN386")
        for target in todo:
            said(f"building the firmware for {target.name} ({target.processor}) ...")
            elf = _firmware(tree / "ports" / "qemu", modules, target)
            for old in BUILD.glob(f"{target.name}-*"):
                shutil.rmtree(old)
            _keep(elf, firmware(target))


def _firmware(port, modules, target):
    board = (port / "boards" / target.board / "mpconfigboard.mk").read_text()
    script = port / re.search(r"^LDSCRIPT = (\S+)", board, re.M)[1]
    own = modules / f"{target.name}.ld"
    text, count = re.subn(r"SECTIONS\s*\{\n", NO_UNWIND, script.read_text())
    if count != 1:
        raise UserError(f"{script}: not the linker script that the overlay was written for")
    own.write_text(text)
    # The heap that a board gets is chosen as it starts (overlay.c); the port's own, a static array, is not used.
    _make(port, f"BOARD={target.board}", "BUILD=build", "FROZEN_MANIFEST=", "MICROPY_HEAP_SIZE=1024",
          "MICROPY_VFS_LFS2=1", f"LDSCRIPT={own}", f"USER_C_MODULES={modules}",
          f"CFLAGS_EXTRA=-DMP_CONFIGFILE='\"{modules}/overlay/overlay.h\"'", *target.make)
    done = port / f"{target.name}.elf"
    shutil.move(port / "build" / "firmware.elf", done)
    shutil.rmtree(port / "build")
    return done


def _make(folder, *variables):
    command = ["make", "-C", str(folder), f"-j{os.cpu_count() or 1}", f"PYTHON={sys.executable}", *variables]
    # what `make` itself hands down would reach the inner one
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          env=env)
    if done.returncode:
        log = BUILD / "failed.log"
        log.write_text(done.stdout)
        errors = [line for line in done.stdout.splitlines() if "error" in line.lower()] or done.stdout.splitlines()
        raise UserError(f"building the firmware failed: {errors[0].strip() if errors else 'make'} (all of it: {log})")


def _keep(built, path):
    """Move a finished file to its place in one step, so that a broken-off build leaves nothing half done there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(built, path.with_suffix(".part"))
    path.with_suffix(".part").replace(path)
