"""Bookmarks: a story's state in a small file, to go on after a reset or to begin many stories from one opening.

Contents: what the story needs to go on (place, phases, generator, the token not yet read), then each layer's state;
of the ring buffers only the slots in use. A CRC-32 guards all of it, and the model's own CRC-32 ties it to one model.
"""

import struct
from array import array

from .attention import Attention
from .modelfile import read_whole, write_whole

MAGIC = b"\x93SCMARK\n"
FIELDS = "<8sIiiiiii"  # magic, model's CRC-32, first, slot, used, token not yet read, generator, tokens so far


def save(path, model, state, token, rng, read):
    """Write a bookmark: beside, then renamed. Raises OSError where it can't be written."""
    head = struct.pack(FIELDS, MAGIC, model.file.identity, state.first, state.slot, state.used, token, rng, read)
    write_whole(path, [head] + [part for _, part in _in_use(model, state)])


def load(path, model, state):
    """Restore a bookmark into `state`; returns (token not yet read, generator, tokens so far).

    Raises ValueError where the file is damaged or another model's, OSError where it can't be read. The state is
    touched only once all of the file has been checked.
    """
    data = memoryview(read_whole(path))
    size = struct.calcsize(FIELDS)
    if len(data) < size or bytes(data[:8]) != MAGIC:
        raise ValueError("%s: not a bookmark" % path)
    _, identity, first, slot, used, token, rng, read = struct.unpack_from(FIELDS, data)
    if identity != model.file.identity:
        raise ValueError("%s: a bookmark of another model" % path)
    window = model.window
    if not (0 <= slot < window and 1 <= used <= window and 0 <= token < len(model.logits)):
        raise ValueError("%s: the bookmark is damaged" % path)
    state.first, state.slot, state.used = first, slot, used
    parts = _in_use(model, state)
    if size + sum(len(part) * width for width, part in parts) != len(data):
        state.reset()
        raise ValueError("%s: the bookmark is damaged" % path)
    for width, part in parts:
        part[:] = array("i" if width == 4 else "H", bytes(data[size : size + len(part) * width]))
        size += len(part) * width
    return token, rng, read


def _in_use(model, state):
    """(bytes an element, view) of the parts of a story's state that hold anything."""
    parts = [(4, memoryview(state.phases))]
    for layer, arrays in zip(model.layers, state.layers):
        temporal = layer.temporal
        if not isinstance(temporal, Attention):
            parts += [(4, memoryview(a)) for a in arrays]
            continue
        # `used` counts the token to come; until the ring is full its slot is still empty
        n = state.used if state.used == temporal.window else state.used - 1
        keys, values = memoryview(arrays[0]), memoryview(arrays[1])
        each = temporal.slots * temporal.dim
        parts += [(2, keys[h * each : h * each + n * temporal.dim]) for h in range(temporal.kv_heads)]
        rows = temporal.kv_heads * temporal.dim
        parts += [(2, values[r * temporal.slots : r * temporal.slots + n]) for r in range(rows)]
    return parts
