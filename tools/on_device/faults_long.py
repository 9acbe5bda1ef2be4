# Runs in MicroPython (the unix port and emulated boards): one text of many thousand tokens, drawn as a story is, the
# end token read like any other. At given places the whole state is written down, then the tokens and the CRC-32 of the
# logits of the next `each` steps: what the integer reference needs to go on from there.
import binascii
import gc
import micropython


def place(state):
    return [state.first, state.slot, state.used] + list(state.phases)


def dump(state):
    """All layers' arrays, as hexadecimal."""
    return [[binascii.hexlify(a).decode() for a in arrays] for arrays in state.layers]


def step(s, token):
    micropython.heap_lock()
    try:
        s._model.step(token, s._state)
        return s._sampler.pick(s._model.logits)
    finally:
        micropython.heap_unlock()


def largest(state, layers):
    """(largest magnitude, how many are not 0) of the recurrences' states."""
    most = alive = 0
    for i in range(len(layers)):
        if layers[i] == "S":
            for v in state.layers[i][0]:
                most = max(most, abs(v))
                alive += v != 0
    return most, alive


def run(s, total, places, each, seed, states, tell):
    """`tell` is given objects for JSON: {"at", "place", "state", "steps": [[token, crc]]} for each place, and figures
    every 1000 tokens. places: [(token number, position to set or None)]. Without `states` none is written down."""
    s._sampler.set(1.0, 0, 1.0, seed)
    s._state.reset()
    recipe = s._model.config["recipe"]
    token = s._model.config["bos_token_id"]
    at = 0
    crc = 0
    for stop, position in places + [(total, None)]:
        while at < stop:
            token = step(s, token)
            at += 1
            if at % 1000 == 0:
                crc = binascii.crc32(s._model.logits, crc)
                most, alive = largest(s._state, recipe)
                gc.collect()
                tell({"tokens": at, "heap": gc.mem_alloc(), "largest": most, "alive": alive, "crc": crc})
        if stop == total:
            return
        if position is not None:
            window = s._model.window
            # the same slot of the ring, or what it holds would be somewhere else
            s._state.seek(position - position % window + s._state.slot)
        result = {"at": at, "place": place(s._state), "state": dump(s._state) if states else None, "steps": []}
        for _ in range(each):
            was = token
            token = step(s, token)
            at += 1
            result["steps"].append([was, binascii.crc32(s._model.logits)])
        tell(result)
        result = None
