"""The library: experts on flash, read one at a time, and kept while there is room for them."""

import gc

from .buffers import ints
from .modelfile import Section

#: When an expert's CRC-32 is compared: whenever it is read from flash; the first time, and when some of its bytes are
#: not what they were then; or not at all.
CHECKS = "always", "first", "never"
MOST = (1 << 30) - 1  # a larger number would need the heap on a 32-bit board
SAMPLES = 3  # bytes of an expert that are remembered: enough to see that another file has taken this one's place


class Library:
    """`expert(number)` gives an expert's bytes and allocates nothing. Where the file is memory-mapped they stay in
    flash; elsewhere they are good until the next call.

    `grow` gives experts RAM to stay in, shared out evenly among the layers; a layer's least recently used expert makes
    room (docs/cache.md says why). A layer without a share reads into one buffer common to all.

    check: one of CHECKS. In a memory-mapped file a read is a use.
    """

    def __init__(self, file, layers, check="first"):
        self._file = file
        self._check = CHECKS.index(check)
        self.calls = self.hits = 0
        self._layers = layers
        self._each = file.n_experts // layers
        self._checked = bytearray(file.n_experts)
        self._samples = bytearray(SAMPLES * file.n_experts)
        self._between = file.expert_bytes // (SAMPLES + 1)
        self._suspect = 0  # after a read that failed a file system may hold on to half of what it read
        self._views = self._common = None
        if file.mapped:
            self._views = [file.expert_view(i) for i in range(file.n_experts)]
        elif file.n_experts:
            self._common = bytearray(file.expert_bytes)
        self._share([])

    def _share(self, slots):
        self._slots = slots
        self._slot = ints([-1] * self._file.n_experts)  # where an expert is
        self._first = ints([len(slots) * i // self._layers for i in range(self._layers + 1)])  # a layer's begin here
        self._holds = ints([-1] * len(slots))  # which expert is in a slot
        self._used = ints([0] * len(slots))  # when it was wanted last, in calls

    def grow(self, cache):
        """Keep experts in about `cache` bytes of RAM; None: in what the heap has left, less a quarter and at least
        64 KB for everything else. Raises MemoryError only for a size that was asked for."""
        if self._views is not None or not self._file.n_experts:
            return
        each = self._file.expert_bytes
        self._share([])
        gc.collect()
        size = max(0, gc.mem_free() - max(gc.mem_free() // 4, 65536)) if cache is None else cache
        slots = []
        for _ in range(min(size // each, self._file.n_experts)):
            try:
                slots.append(bytearray(each))
            except MemoryError:
                if cache is not None:
                    raise
                break
        if len(slots) >= self._layers:
            self._common = None  # every layer has a place of its own
        elif self._common is None:
            self._common = bytearray(each)
        self._share(slots)

    def expert(self, number):
        """Expert `number`'s section, checked. Raises ValueError where it is damaged, OSError where it can't be read."""
        self.calls = self.calls + 1 if self.calls < MOST else 0
        if self._views is not None:
            buf = self._views[number]
        else:
            slot = self._slot[number]
            if slot >= 0:
                self.hits = self.hits + 1 if self.hits < MOST else 0
                self._used[slot] = self.calls
                return self._slots[slot]
            slot = self._oldest(number // self._each)
            buf = self._common
            if slot >= 0:
                buf = self._slots[slot]
                if self._holds[slot] >= 0:
                    self._slot[self._holds[slot]] = -1
                self._holds[slot] = -1  # nothing, should the reading fail
            suspect = self._suspect
            self._suspect = 1
            self._file.read_expert(number, buf)
            self._suspect = suspect
        if self._check == 0 or (self._check == 1 and (self._suspect or not self._same(number, buf))):
            self._file.check_expert(number, buf)
            self._remember(number, buf)
            self._suspect = 0
        if self._views is None and slot >= 0:
            self._holds[slot] = number
            self._slot[number] = slot
            self._used[slot] = self.calls
        return buf

    def _same(self, number, buf):
        """Whether the expert was checked before and looks as it did then."""
        s, at, each = self._samples, number * SAMPLES, self._between
        return (self._checked[number] and buf[each] == s[at] and buf[2 * each] == s[at + 1]
                and buf[3 * each] == s[at + 2])

    def _remember(self, number, buf):
        for i in range(SAMPLES):
            self._samples[number * SAMPLES + i] = buf[(i + 1) * self._between]
        self._checked[number] = 1

    def _oldest(self, layer):
        """The layer's slot that was wanted longest ago, or -1 where it has none."""
        best = -1
        for slot in range(self._first[layer], self._first[layer + 1]):
            if self._holds[slot] < 0:
                return slot
            if best < 0 or self._used[slot] < self._used[best]:
                best = slot
        return best

    def shape(self, number):
        """An expert's records, to read the descriptors from that all experts of its layer share."""
        return Section(self._file, self.expert(number), "XPRT")

    def size(self):
        """Bytes of RAM in use."""
        buffers = len(self._slots) + (self._common is not None)
        return buffers * self._file.expert_bytes
