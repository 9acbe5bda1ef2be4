# Runs in MicroPython: counts bytes and experts read, and bytes of heap, for tools/bench.py. Prints one JSON object.
# argv: model, token ids as a file of uint16.
import gc
import json
import sys
from array import array

from scribe.model import Model, State
from scribe.modelfile import ModelFile
from scribe.story import Scribe


def heap(path):
    """Bytes of heap that a token takes, garbage included: its step and draw, and with the text of a story."""
    s = Scribe(path, cache=0)
    list(s.stream(seed=1, max_tokens=4))  # what is built on first use
    model, state, pick = s._model, s._state, s._sampler.pick
    state.reset()
    token = model.config["bos_token_id"]
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    i = 0
    while i < 100:
        model.step(token, state)
        token = pick(model.logits)
        i += 1
    step = gc.mem_alloc() - before
    gc.enable()
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    for _ in s.stream(seed=1, max_tokens=100):
        pass
    story = gc.mem_alloc() - before
    gc.enable()
    return {"per_token": step / 100, "per_token_with_text": story / max(1, s.stats()["tokens"])}


def main():
    with open(sys.argv[2], "rb") as f:
        tokens = array("H", f.read())
    fill, reads = ModelFile._fill, [0]

    def counted(file, at, buf):
        reads[0] += 1
        fill(file, at, buf)

    ModelFile._fill = counted
    model = Model(sys.argv[1])
    ModelFile._fill = fill
    opening = model.file.bytes_read
    state = State(model)
    result = {"opening": opening, "reads": reads[0], "heap": heap(sys.argv[1]), "expert": model.file.expert_bytes,
              "layers": len(model.layers), "prompt": {}, "cache": {}}

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
