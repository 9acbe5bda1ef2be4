"""Firmware with the package frozen in, by device/manifest.py: a target as any other, for build.py and boards.Board."""

import dataclasses
import hashlib

from tools import package
from tools.firmware import TARGETS, build

MANIFEST = package.DEVICE / "manifest.py"


def target(name):
    """The Target whose firmware is that of TARGETS[name] with the package in it, built again when a file changes."""
    plain = TARGETS[name]
    digest = hashlib.sha256(MANIFEST.read_bytes())
    for path, data in package.sources().items():
        digest.update(path.encode() + data)
    processor = "rv32" if plain.march.startswith("rv32") else "arm"
    return dataclasses.replace(plain, name=f"{name}frozen", make=(
        *plain.make,
        f"FROZEN_MANIFEST=\"include('{MANIFEST}', processor='{processor}')\"",
        f"MICROPY_MPYCROSS={build.mpy_cross()}",  # make would build another, of which nothing can be frozen
        "MPY_LIB_DIR=$(TOP)",  # of which only a README.md is looked for: nothing of micropython-lib goes in
        f"SCRIBE={digest.hexdigest()}",  # for the folder's name, which is a hash of all that goes in
    ))
