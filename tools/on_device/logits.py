# Runs in MicroPython: reads token ids from a file and writes every step's logits, as int32, to another.
import json
import sys
from array import array

from scribe.model import Model, State


def main():
    with open(sys.argv[1]) as f:
        request = json.load(f)
    model = Model(request["model"])
    state = State(model)
    with open(request["tokens"], "rb") as f:
        tokens = array("H", f.read())
    with open(request["out"], "wb") as out:
        for token in tokens:
            model.step(token, state)
            out.write(model.logits)


main()
