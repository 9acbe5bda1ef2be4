# Runs in MicroPython: tells stories and writes, for each, the tokens and every step's logits. What to tell arrives as
# a JSON file: [{"prompt": ids, "temperature": ..., "top_k": ..., "top_p": ..., "seed": ..., "max_tokens": ...}].
import json
import sys
from array import array

from scribe.model import Model, State
from scribe.sampler import Sampler


def main():
    with open(sys.argv[1]) as f:
        request = json.load(f)
    model = Model(request["model"])
    state = State(model)
    sampler = Sampler(model.config["vocab_size"], model.work.tables, model.logit_params)
    with open(request["out"], "wb") as logits, open(request["out"] + ".tokens", "wb") as tokens:
        for story in request["stories"]:
            state.reset()
            sampler.set(story["temperature"], story["top_k"], story["top_p"], story["seed"])
            written = array("H", story["prompt"])
            for i in range(len(written) + story["max_tokens"]):
                model.step(written[i], state)
                logits.write(model.logits)
                if i + 1 == len(written):
                    following = sampler.pick(model.logits)
                    if following == model.config["eos_token_id"] or i + 1 == len(story["prompt"]) + story["max_tokens"]:
                        tokens.write(array("H", (len(written), following)))
                        tokens.write(written)
                        break
                    written.append(following)


main()
