"""Tokens a second on real boards, estimated: measured instructions and bytes, a board's clock, and assumptions."""

import dataclasses

from tools.boards_table import BOARDS
from tools.budget import verdict


@dataclasses.dataclass(frozen=True)
class Chip:
    """A board's processor: its clock as its firmware sets it, the emulated board whose counts stand for it, and what
    the estimate assumes: cycles an instruction (low, high) and bytes a second from flash through littlefs."""

    processor: str
    megahertz: int
    target: str
    cycles: tuple
    flash: int

    def seconds(self, instructions, flash_bytes):
        """(least, most) seconds a token."""
        reading = flash_bytes / self.flash
        return tuple(instructions * cycles / (self.megahertz * 1e6) + reading for cycles in self.cycles)


#: Cycles: loads of several words count one instruction but a cycle a word; M0+ and Hazard3 take 2 for a load or a taken
#: branch; an ESP32 has the brain in PSRAM or SRAM behind a cache. `viper` is RV32 without its assembler, which stands
#: for Xtensa, where MicroPython has no assembler either. None of this is measured on hardware.
CHIPS = {
    "pico": Chip("Cortex-M0+", 125, "m0", (1.3, 1.8), 8_000_000),
    "pico2": Chip("Cortex-M33", 150, "m4", (1.3, 1.8), 10_000_000),
    "pico-plus-2": Chip("Cortex-M33, brain in PSRAM", 150, "m4", (1.6, 3.0), 10_000_000),
    "esp32": Chip("Xtensa LX6", 160, "viper", (1.2, 2.0), 5_000_000),
    "esp32-s3": Chip("Xtensa LX7", 160, "viper", (1.2, 2.0), 8_000_000),
    "esp32-s3-2mb": Chip("Xtensa LX7, brain in PSRAM", 160, "viper", (1.3, 2.5), 8_000_000),
    "esp32-s3-8mb": Chip("Xtensa LX7, brain in PSRAM", 160, "viper", (1.3, 2.5), 8_000_000),
    "teensy41": Chip("Cortex-M7", 600, "m4", (0.8, 1.5), 20_000_000),
    "pyboard": Chip("Cortex-M4", 168, "m4", (1.3, 1.8), 5_000_000),
    "xiao-nrf52840": Chip("Cortex-M4", 64, "m4", (1.3, 1.8), 2_000_000),
}


def estimates(model, counts, expert_bytes):
    """{board: {...}} of a budget.Model. counts: {target: instructions a token, the draw included}; expert_bytes: of a
    token's experts, all read anew."""
    result = {}
    for name, chip in CHIPS.items():
        board = BOARDS[name]
        fits = verdict(model, board, "mpy")
        if chip.target not in counts:
            continue
        entry = {"processor": chip.processor, "megahertz": chip.megahertz, "stands_for_it": chip.target,
                 "fits": fits["fits"], "instructions": counts[chip.target]}
        if fits["fits"]:
            missing = 1 - fits["cached"] / model.config.n_experts / model.config.n_layers if expert_bytes else 0
            low, high = chip.seconds(counts[chip.target], expert_bytes * max(0.0, missing))
            entry["tokens_per_second"] = [round(1 / high, 1), round(1 / low, 1)]
        else:
            entry["why_not"] = fits["why"]
        result[name] = entry
    return result
