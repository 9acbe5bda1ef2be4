"""MicroPython's own firmware for boards that QEMU emulates: 32-bit processors, real code, no hardware.

`TARGETS` says what there is; source.py fetches MicroPython's source from Debian, build.py compiles it with the
overlay, and images.py makes the file systems that a board finds in its memory.
"""

import dataclasses
import shutil
import subprocess

from tools.errors import UserError
from tools.micropython import ROOT

#: Firmware, and whatever else is built, by a hash of all that went in. Ignored by git.
BUILD = ROOT / "build" / "firmware"

#: The boards' memory, as overlay/overlay.c has it: words read at start-up, the heap, and a file system's image.
HEAP_AT, HEAP_MAX = 0x1000, 0x3FF000
IMAGE_AT, IMAGE_MAX = 0x400000, 0xC00000


@dataclasses.dataclass(frozen=True)
class Target:
    """A board that QEMU emulates."""

    name: str
    processor: str
    board: str  # as MicroPython's ports/qemu calls it
    qemu: tuple  # the command that starts it
    base: int  # of its external memory
    march: str  # as mpy-cross calls the processor
    compiler: str
    library: str  # a file of the compiler's C library, to see whether that is installed
    packages: tuple  # Debian's, for all of it
    make: tuple = ()

    def missing(self, build=True):
        """Whatever this target needs and this machine lacks."""
        lacks = [] if shutil.which(self.qemu[0]) else [self.qemu[0]]
        if build and not shutil.which(self.compiler):
            lacks.append(self.compiler)
        elif build:
            found = subprocess.run([self.compiler, f"--print-file-name={self.library}"], capture_output=True, text=True)
            if found.stdout.strip() == self.library:
                lacks.append(f"{self.compiler}'s C library")
        return lacks


_ARM = dict(compiler="arm-none-eabi-gcc", library="nosys.specs", base=0x21000000,
            packages=("gcc-arm-none-eabi", "libnewlib-arm-none-eabi", "qemu-system-arm"))
TARGETS = {t.name: t for t in (
    Target("m3", "Cortex-M3", "MPS2_AN385", ("qemu-system-arm", "-machine", "mps2-an385"), march="armv7m", **_ARM),
    Target("m4", "Cortex-M4F", "MPS2_AN386", ("qemu-system-arm", "-machine", "mps2-an386"), march="armv7emsp", **_ARM),
    Target("rv32", "RV32IMC", "VIRT_RV32", ("qemu-system-riscv32", "-machine", "virt", "-bios", "none"),
           base=0x81000000, march="rv32imc", compiler="riscv64-unknown-elf-gcc", library="picolibc.specs",
           packages=("gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "qemu-system-misc"),
           # Debian's picolibc is built for the older ISA specification, which has no separate Zicsr extension
           make=("RV32_ARCH=rv32imac", "RV32_ABI=ilp32 -misa-spec=2.2")),
    # More memory than any real one has, so that a file system fits beside the heap: see docs/firmware.md
    Target("m0", "Cortex-M0", "MICROBIT", ("qemu-system-arm", "-machine", "microbit", "-global",
                                           "nrf51-soc.flash-size=1048576", "-global", "nrf51-soc.sram-size=33554432"),
           march="armv6m", **_ARM),
)}


def lacking(targets, build=True):
    """What this machine lacks for these targets, in one line with the command that brings it; "" for nothing."""
    lacks = {what: target for target in targets for what in target.missing(build)}
    if not lacks:
        return ""
    return (f"board firmware needs {', '.join(lacks)}; on Debian, as root: "
            f"apt-get install --no-install-recommends {' '.join(packages(lacks.values()))}")


def packages(targets):
    """Names of the Debian packages that these targets take."""
    return sorted({package for target in targets for package in target.packages})


def targets(names=()):
    """Targets by name, all of them for none. Raises UserError for an unknown one."""
    for name in names:
        if name not in TARGETS:
            raise UserError(f"board {name!r}: one of {', '.join(TARGETS)} is needed")
    return [TARGETS[name] for name in names or TARGETS]
