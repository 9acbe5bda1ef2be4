# Runs in MicroPython: replays expert reads from littlefs on a RAM flash that counts, one JSON line per layout.
# The request (sizes, mount options, trace) arrives as JSON in SCRIBE_LAYOUTS.
import gc
import json
import micropython
import os
import vfs

BLOCK = 4096
BRAIN_TAG = 0xFFFE


@micropython.viper
def _copy(target: ptr8, source: ptr8, offset: int, size: int):
    # Byte by byte, and no slice: a slice would be an allocation, and allocations are one of the things measured.
    i = 0
    while i < size:
        target[i] = source[offset + i]
        i += 1


class Flash:
    """A block device in RAM that counts what the file system reads. It allocates nothing while it serves."""

    def __init__(self, blocks):
        self.data = bytearray(BLOCK * blocks)
        self.touched = bytearray(blocks)
        self.blocks = blocks
        self.reset()

    def reset(self):
        self.calls = self.size = self.distinct = 0

    def forget_blocks(self):
        """Start counting distinct blocks afresh."""
        touched = self.touched
        for i in range(len(touched)):
            touched[i] = 0

    def readblocks(self, block, buffer, offset=0):
        size = len(buffer)
        self.calls += 1
        self.size += size
        if not self.touched[block]:
            self.touched[block] = 1
            self.distinct += 1
        _copy(buffer, self.data, block * BLOCK + offset, size)

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


def write(name, parts):
    """Write a file of (size, tag) parts; a part's first two bytes are its tag, so that a wrong read is caught."""
    with open(name, "wb") as f:
        for size, tag in parts:
            part = bytearray(size)
            if size:
                part[0], part[1] = tag & 255, tag >> 8
            f.write(part)


def allocated(action):
    """Heap bytes that action() takes, garbage included."""
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    action()
    after = gc.mem_alloc()
    gc.enable()
    return after - before


def allocates_nothing(action):
    micropython.heap_lock()
    try:
        action()
        return True
    except MemoryError:
        return False
    finally:
        micropython.heap_unlock()


class Layout:
    """Which files there are, and where expert e and the brain lie in them, as (file name, offset).

    `parts` is {name: [(size, tag), ...]}. Files are opened once, or for each read.
    """

    def __init__(self, request, parts, place, brain, keep_open=True, piece=0):
        self.parts = parts
        self.place = [place(e) for e in range(request["experts"])]
        self.brain = brain
        self.piece = piece or request["expert_bytes"]
        self.names = sorted({name for name, _ in self.place})
        self.keep_open = keep_open
        self.handles = {}

    def open_all(self):
        for name in self.names:
            self.handles[name] = open(name, "rb")

    def bind(self, buffer):
        """Views of the pieces of the buffer, made before anything is measured."""
        view = memoryview(buffer)
        self.views = [view[i : min(i + self.piece, len(view))] for i in range(0, len(view), self.piece)]

    def fill(self, f, offset):
        f.seek(offset)
        for view in self.views:
            f.readinto(view)

    def read(self, expert):
        name, offset = self.place[expert]
        if self.keep_open:
            self.fill(self.handles[name], offset)
        else:
            f = open(name, "rb")
            self.fill(f, offset)
            f.close()


def layouts(request):
    """(name, Layout) pairs."""
    brain, size, n = request["brain_bytes"], request["expert_bytes"], request["experts"]
    per_layer = request["per_layer"]
    experts = [(size, e) for e in range(n)]
    brain_part = [(brain, BRAIN_TAG)]

    def experts_last(align=1, shift=0, tail=0, **options):
        stride = (size + align - 1) // align * align
        start = (brain + align - 1) // align * align + shift
        parts = [(start, BRAIN_TAG)] + [(stride, e) for e in range(n)] + [(tail, 0)]
        return Layout(request, {"m": parts}, lambda e: ("m", start + e * stride), ("m", 0), **options)

    yield "one file, experts last", experts_last()
    yield "one file, experts first", Layout(
        request, {"m": experts + brain_part}, lambda e: ("m", e * size), ("m", n * size))
    yield "brain + one library", Layout(request, {"b": brain_part, "m": experts}, lambda e: ("m", e * size), ("b", 0))
    by_layer = {"l%d" % i: experts[i * per_layer : (i + 1) * per_layer] for i in range(n // per_layer)}
    by_layer["b"] = brain_part
    yield "brain + one per layer", Layout(
        request, by_layer, lambda e: ("l%d" % (e // per_layer), e % per_layer * size), ("b", 0))
    each = {"e%d" % e: [(size, e)] for e in range(n)}
    each["b"] = brain_part
    yield "one each, kept open", Layout(request, each, lambda e: ("e%d" % e, 0), ("b", 0))
    yield "one each, opened each time", Layout(request, each, lambda e: ("e%d" % e, 0), ("b", 0), keep_open=False)
    for tail in request["tails"]:
        yield "experts last, %d bytes longer" % tail, experts_last(tail=tail)
    for align in request["aligns"]:
        yield "experts last, aligned to %d" % align, experts_last(align=align)
    for shift in request["shifts"]:
        yield "experts last, %d bytes later" % shift, experts_last(shift=shift)
    for piece in request["pieces"]:
        yield "experts last, readinto of %d" % piece, experts_last(piece=piece)


def mean_per_expert(layout, trace, buffer, flash):
    """Replay the trace; what the flash saw, per expert."""
    flash.reset()
    distinct = 0
    for expert in trace:
        buffer[0] = buffer[1] = 255
        flash.distinct = 0
        flash.forget_blocks()
        layout.read(expert)
        distinct += flash.distinct
        if buffer[0] | buffer[1] << 8 != expert:
            raise ValueError("expert %d read back wrong" % expert)
    n = len(trace)
    return {"calls": flash.calls / n, "bytes": flash.size / n, "blocks": distinct / n}


def mean_per_open(layout, flash):
    flash.reset()
    for name in layout.names:
        open(name, "rb").close()
    return {"open_calls": flash.calls / len(layout.names), "open_bytes": flash.size / len(layout.names)}


def brain_load(layout, size, flash):
    name, offset = layout.brain
    buffer = bytearray(size)
    with open(name, "rb") as f:
        flash.reset()
        f.seek(offset)
        f.readinto(buffer)
    return {"brain_calls": flash.calls, "brain_bytes": flash.size}


def row(layout, request):
    """Write a layout to a fresh file system and measure it."""
    flash = Flash(request["flash_bytes"] // BLOCK)
    vfs.VfsLfs2.mkfs(flash, **request["mount"])
    vfs.mount(vfs.VfsLfs2(flash, **request["mount"]), "/flash")
    os.chdir("/flash")
    for name in sorted(layout.parts):
        write(name, layout.parts[name])
    buffer = bytearray(request["expert_bytes"])
    layout.bind(buffer)
    result = {"files": len(layout.parts), "file_bytes": sum(sum(size for size, _ in p) for p in layout.parts.values())}
    result["handles"] = len(layout.names) if layout.keep_open else 0
    result["open_ram"] = allocated(layout.open_all) if layout.keep_open else 0
    result.update(mean_per_expert(layout, request["trace"], buffer, flash))
    result["no_alloc"] = allocates_nothing(lambda: layout.read(0))
    result["read_alloc"] = 0 if result["no_alloc"] else allocated(lambda: layout.read(0))
    for f in layout.handles.values():
        f.close()
    result.update(mean_per_open(layout, flash))
    result.update(brain_load(layout, request["brain_bytes"], flash))
    os.chdir("/")
    vfs.umount("/flash")
    return result


def main():
    request = json.loads(os.getenv("SCRIBE_LAYOUTS"))
    for name, layout in layouts(request):
        gc.collect()
        result = row(layout, request)
        result["layout"] = name
        print(json.dumps(result))


main()
