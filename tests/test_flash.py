"""What a model reads from the flash under littlefs, counted block by block in real MicroPython."""

import json

import numpy as np
import pytest

from tools.fileformat import Packed, read_sections
from tools.micropython import ROOT
from tools.parity import held_out

SCRIPT = ROOT / "tools" / "on_device" / "flash.py"
MODEL = ROOT / "weights" / "tales.scribe"


@pytest.fixture(scope="module")
def count(micropython, tmp_path_factory):
    """Run a few tokens of held-out text on a mount: what the flash saw."""
    tokens = tmp_path_factory.mktemp("flash") / "tokens"
    np.asarray(held_out(Packed.load(MODEL), 24), dtype="<u2").tofile(tokens)

    def run(readsize, progsize, known):
        return json.loads(micropython(SCRIPT, MODEL, tokens, readsize, progsize, known, heapsize="64m").stdout)

    return run


@pytest.mark.parametrize("progsize", [256, 32], ids=["rp2", "esp32"])
def test_experts_cost_their_bytes_and_three_percent(count, progsize):
    """Below a stock mount, where the board's flash is known; the same logits either way."""
    below, above = count(32, progsize, "known"), count(32, progsize, "unknown")
    config = Packed.load(MODEL).config
    assert below["writing"]["experts"] == above["writing"]["experts"] == 24 * config.n_layers
    assert below["writing"]["own"] == above["writing"]["own"]  # what the tokens asked for
    assert 0 < below["writing"]["overhead"] <= 0.03 < above["writing"]["overhead"] < 0.09
    assert below["writing"]["reads_per_expert"] <= above["writing"]["reads_per_expert"] < 300
    assert below["logits"] == above["logits"]


def test_opening_reads_once(count):
    """Everything but the experts, and an expert of each layer; 1024 bytes at a time, and jumps."""
    opening = count(32, 256, "known")["opening"]
    config = Packed.load(MODEL).config
    parts = read_sections(MODEL.read_bytes())
    kept = sum(len(part) for (tag, *_), part in parts.items() if tag != "XPRT")
    expert = len(parts["XPRT", 0, 0])
    table = 32 + 20 * len(parts)
    assert opening["own"] == table + kept + config.n_layers * expert
    assert opening["own"] < opening["bytes"] < 1.03 * opening["own"]
    assert opening["reads"] < 3 * opening["bytes"] / 1024


@pytest.mark.parametrize("there, reads_below", [
    ("same", True), ("other", False), ("none", False), ("no littlefs", False)])
def test_another_file_below_is_not_read(micropython, tmp_path, there, reads_below):
    """The flash's own file of that name is used only if it is the same model."""
    import models

    path, _, _ = models.packed(models.HYBRID, tmp_path, "one")
    other, _, _ = models.packed(models.GRIFFIN, tmp_path, "two")
    out = micropython(f"""
import sys, vfs, os
sys.path.insert(0, {str(SCRIPT.parent)!r})
import ramdisk
class Disk(ramdisk.Disk):
    reads = 0
    def readblocks(self, *args):
        self.reads += 1
        ramdisk.Disk.readblocks(self, *args)
disk = Disk(bytearray(ramdisk.BLOCK * 200))
there = {there!r}
if there != "no littlefs":
    vfs.VfsLfs2.mkfs(disk)
    fs = vfs.VfsLfs2(disk)
    if there != "none":
        folder = ""
        for name in {str(path.parent)!r}.split("/")[1:]:
            folder += "/" + name
            fs.mkdir(folder)
        with fs.open({str(path)!r}, "wb") as f:
            f.write(open({str(path)!r} if there == "same" else {str(other)!r}, "rb").read())
class Board: bdev = disk
sys.modules["flashbdev"] = Board
os.chdir({str(path.parent)!r})
from scribe.modelfile import ModelFile
file = ModelFile({path.name!r})
disk.reads = 0
file.load(b"TOKN")
print(disk.reads > 0, file.n_experts)
print(file.description()["config"]["recipe"])
file.close()
""").stdout.split()
    assert out[0] == str(reads_below) and int(out[1]) > 0 and out[2] == models.HYBRID.recipe
