"""What boards have: heap and file system under MicroPython, each figure with its source. Data for tools/budget.py.

`heap` is what `gc.mem_free()` gives at a fresh REPL, in bytes; `piece` the largest single allocation, where the heap
lies in several pieces; `files` the internal file system's partition. Each figure is one of:
  stated     in MicroPython's own source
  reported   printed by a board, in a public thread
  derived    calculated from such a figure
  estimated  our judgement: measure on the board before relying on it
"""

import dataclasses

#: Heap that the collector can hand out, of heap it was given: 128 bits a block to 3 bits of tables (py/gc.c).
GC_USABLE = 128 / 131


@dataclasses.dataclass(frozen=True)
class Board:
    """Sizes in bytes. `piece` is None where the heap is one piece."""

    title: str
    heap: int
    heap_source: str
    files: int
    files_source: str
    piece: int | None = None
    note: str = ""


KIB, MIB = 1 << 10, 1 << 20
PICO = 215904
#: RAM of the chip that a stock rp2 build does not leave to Python, from the Pico's figures.
RP2_OWN = 256 * KIB - PICO
PICO2 = 512 * KIB - RP2_OWN
S3_OCTAL = 8192976

BOARDS = {
    "pico": Board(
        "Raspberry Pi Pico (RP2040)", PICO, "reported: micropython#12557, v1.20, after a collection",
        1408 * KIB, "stated: rp2/boards/RPI_PICO/mpconfigboard.h"),
    "pico2": Board(
        "Raspberry Pi Pico 2 (RP2350)", PICO2,
        "derived: RAM of 512 KiB (rp2/memmap_mp_rp2350.ld) less what the Pico's build keeps of its 256 KiB",
        3 * MIB, "stated: rp2/boards/RPI_PICO2/mpconfigboard.h, 4 MiB of flash less 1 MiB"),
    "pico-plus-2": Board(
        "Pimoroni Pico Plus 2 (RP2350, 8 MB PSRAM)", PICO2 + int(8 * MIB * GC_USABLE),
        "derived: SRAM as on the Pico 2 and PSRAM as one split heap; Pimoroni say about 8.2 MiB "
        "(pimoroni-pico-rp2350#4)",
        14 * MIB, "stated: Pimoroni's mpconfigboard.h, 16 MiB of flash less 2 MiB (other versions leave 15 MiB)",
        int(8 * MIB * GC_USABLE), "Pimoroni's firmware, or another with PSRAM in the heap (micropython#15620)"),
    "esp32": Board(
        "ESP32, no PSRAM", 56 * KIB + 108032,
        "estimated: 56 KiB to begin with (esp32/mpconfigport.h), then the largest block, 108,032 bytes "
        "(reported: micropython#13035); less with Wi-Fi on",
        2 * MIB, "stated: esp32/partitions-4MiB.csv",
        108032, "the heap grows in pieces (micropython#12141)"),
    "esp32-s3": Board(
        "ESP32-S3, no PSRAM, 8 MB flash", 62432 + 188352,
        "reported: micropython#12141, free plus the largest new piece; that it was this board is our reading",
        6 * MIB, "stated: esp32/partitions-8MiB.csv",
        188352, "the heap grows in pieces"),
    "esp32-s3-2mb": Board(
        "ESP32-S3, 2 MB PSRAM, 8 MB flash", int(2 * MIB * S3_OCTAL / (8 * MIB)),
        "derived: the same share of the PSRAM as of 8 MB",
        6 * MIB, "stated: esp32/partitions-8MiB.csv",
        int((2 * MIB - 8 * MIB + 8257536) * GC_USABLE), "the heap grows in pieces, the largest as on the 8 MB board"),
    "esp32-s3-8mb": Board(
        "ESP32-S3, 8 MB PSRAM, 8 MB flash", S3_OCTAL, "reported: micropython#11853, SPIRAM_OCT firmware",
        6 * MIB, "stated: esp32/partitions-8MiB.csv (with 16 MB of flash 14 MiB: partitions-16MiB.csv)",
        int(8257536 * GC_USABLE), "the heap grows in pieces; the largest is reported in micropython#12237"),
    "teensy41": Board(
        "Teensy 4.1, no PSRAM", int(768 * KIB * GC_USABLE),
        "derived: the OCRAM of 768 KiB (mimxrt/boards/MIMXRT1062.ld) less the collector's tables",
        7 * MIB - 4 * KIB, "derived: flash of 8 MiB, 4 KiB reserved (TEENSY41/mpconfigboard.mk), 1 MiB firmware"),
    "pyboard": Board(
        "pyboard v1.1 (STM32F405)", 93632, "reported: micropython#1877 (v1.6: 102,400 in all)",
        112 * KIB, "stated: stm32/boards/stm32f405.ld, FLASH_FS (FAT takes a part)",
        None, "an SD card lifts the limit on files"),
    "xiao-nrf52840": Board(
        "Seeed XIAO nRF52840", 192 * KIB,
        "estimated: RAM of 256 KiB less 8 KiB of stack, SoftDevice and static data; the linker script "
        "(nrf/boards/nrf52840_1M_256k.ld) promises 128 KiB",
        256 * KIB, "stated: nrf/boards/SEEED_XIAO_NRF52/mpconfigboard.mk, FS_SIZE"),
}
