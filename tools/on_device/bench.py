# Runs in MicroPython: counts bytes and experts read, for tools/bench.py. Prints one JSON object. argv: model, token ids
# as a file of uint16.
import json
import sys
from array import array

from scribe.model import Model, State


def main():
    with open(sys.argv[2], "rb") as f:
        tokens = array("H", f.read())
    model = Model(sys.argv[1])
    opening = model.file.bytes_read
    state = State(model)
    result = {"opening": opening, "expert": model.file.expert_bytes, "layers": len(model.layers), "prompt": {}, "cache": {}}

    def read(count):
        state.reset()
        before = model.file.bytes_read
        model.read(memoryview(tokens)[:count], state)
        return model.file.bytes_read - before

    for count in (16, 64, 256):
        result["prompt"][count] = read(count) / count
    for part in (0, 1, 2, 4, 6, 8):
        model.library.grow(model.file.n_experts * part // 8 * model.file.expert_bytes)
        state.reset()
        before, hits, calls = model.file.bytes_read, model.library.hits, model.library.calls
        for token in tokens:
            model.step(token, state, False)
        calls = model.library.calls - calls
        result["cache"][part] = {
            "bytes_per_token": (model.file.bytes_read - before) / len(tokens),
            "hit_rate": (model.library.hits - hits) / calls if calls else 0,
            "slots": model.file.n_experts * part // 8,
        }
    print(json.dumps(result))


main()
