# Freezes the package into a firmware that you build yourself; in the board's manifest.py (docs/firmware.md):
#
#     include("PATH/device/manifest.py")
#     include("PATH/device/manifest.py", processor="rv32")      # or "none": neither Arm nor RISC-V
#
# mpy-cross compiles for one processor and refuses another's assembler, so those files stay out.
import os

metadata(description="A small language model that writes stories", version="0.1.0", license="MIT")
options.defaults(processor="arm")

ASSEMBLER = {"arm": ("dsp_kernels.py", "m0_kernels.py", "thumb_kernels.py"), "rv32": ("rv32_kernels.py",), "none": ()}
foreign = {name for names in ASSEMBLER.values() for name in names} - set(ASSEMBLER[options.processor])

package("scribe", files=sorted(name for name in os.listdir("scribe") if name.endswith(".py") and name not in foreign))
