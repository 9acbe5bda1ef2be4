# Runs in MicroPython: a model on littlefs on a flash that counts what is read from it, for tools/bench.py and tests.
# Prints one JSON object. argv: model, token ids as a file of uint16, readsize and progsize of the mount, "known" where
# the board's flash can be found below its file system.
import gc
import json
import os
import sys
import vfs
from array import array

import ramdisk


class Flash(ramdisk.Disk):
    """Counts reads and bytes."""

    reads = size = 0

    def readblocks(self, block, buffer, offset=0):
        self.reads += 1
        self.size += len(buffer)
        ramdisk.Disk.readblocks(self, block, buffer, offset)


class Board:
    """Stands for esp32's module `flashbdev`."""


def copy(source, target):
    with open(source, "rb") as f, open(target, "wb") as out:
        buf = bytearray(65536)
        while True:
            n = f.readinto(buf)
            if not n:
                break
            out.write(memoryview(buf)[:n])


def main():
    path, tokens, readsize, progsize, known = sys.argv[1:]
    with open(tokens, "rb") as f:
        tokens = array("H", f.read())
    size = os.stat(path)[6]
    flash = Flash(bytearray((size // 4000 + 16) * ramdisk.BLOCK))
    mount = {"readsize": int(readsize), "progsize": int(progsize)}
    vfs.VfsLfs2.mkfs(flash, **mount)
    vfs.mount(vfs.VfsLfs2(flash, **mount), "/flash")
    copy(path, "/flash/model.scribe")
    if known == "known":
        Board.bdev = flash
        sys.modules["flashbdev"] = Board
    gc.collect()
    from scribe.model import Model, State

    flash.reads = flash.size = 0
    model = Model("/flash/model.scribe")
    result = {"file": size, "opening": {"reads": flash.reads, "bytes": flash.size, "own": model.file.bytes_read}}
    state = State(model)
    flash.reads = flash.size = 0
    own, calls = model.file.bytes_read, model.library.calls
    for token in tokens:
        model.step(token, state, False)
    count = model.library.calls - calls
    own = model.file.bytes_read - own
    result["writing"] = {
        "experts": count, "reads": flash.reads, "bytes": flash.size, "own": own,
        "overhead": flash.size / own - 1 if own else 0, "reads_per_expert": flash.reads / count if count else 0,
    }
    model.step(tokens[0], state)
    result["logits"] = sum(model.logits)
    print(json.dumps(result))


main()
