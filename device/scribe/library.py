"""The library: experts on flash, read one at a time into one buffer allocated at start-up."""

from .modelfile import Section

CHECK_FIRST, CHECK_ALWAYS, CHECK_NEVER = 0, 1, 2  # when an expert's CRC-32 is compared


class Library:
    """`expert(number)` gives an expert's bytes and allocates nothing. Where the file is memory-mapped they stay in
    flash; elsewhere they are good until the next call."""

    def __init__(self, file, check=CHECK_FIRST):
        self._file = file
        self.check = check
        self._checked = bytearray(file.n_experts)
        self._buf = self._views = None
        if file.mapped:
            self._views = [file.expert_view(i) for i in range(file.n_experts)]
        elif file.n_experts:
            self._buf = bytearray(file.expert_bytes)

    def expert(self, number):
        """Expert `number`'s section, checked. Raises ValueError where it is damaged, OSError where it can't be read."""
        if self._views is not None:
            buf = self._views[number]
        else:
            buf = self._buf
            self._file.read_expert(number, buf)
        if self.check == CHECK_ALWAYS or (self.check == CHECK_FIRST and not self._checked[number]):
            self._file.check_expert(number, buf)
            self._checked[number] = 1
        return buf

    def shape(self, number):
        """An expert's records, to read the descriptors from that all experts of its layer share."""
        return Section(self._file, self.expert(number), "XPRT")

    def size(self):
        """Bytes of RAM in use."""
        return len(self._buf) if self._buf is not None else 0
