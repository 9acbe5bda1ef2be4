# Runs in MicroPython, on the host and on emulated boards: a block device in memory.

BLOCK = 4096


@micropython.viper
def _copy(target: ptr8, source: ptr8, at: int, size: int):
    # No slice: a slice would be an allocation, and reading an expert must need none, as with a board's own flash.
    i = 0
    while i < size:
        target[i] = source[at + i]
        i += 1


class Disk:
    def __init__(self, data):
        self.data = data
        self.blocks = len(data) // BLOCK

    def readblocks(self, block, buffer, offset=0):
        _copy(buffer, self.data, block * BLOCK + offset, len(buffer))

    def writeblocks(self, block, buffer, offset=0):
        start = block * BLOCK + offset
        self.data[start : start + len(buffer)] = buffer

    def ioctl(self, op, arg):
        if op == 4:
            return self.blocks
        if op == 5:
            return BLOCK
        if op == 6:  # erase
            return 0
