# Runs in MicroPython: opens damaged model files; a JSON line for each says how it was met. The request is a JSON file:
# {"paths": [...], "story": of the undamaged file or absent}.
import gc
import json
import sys

import scribe


def meet(path, story):
    """refused: what opening said; stopped: what a story said; same: it was the undamaged file's; experts: what reading
    each of them said."""
    result = {"refused": None, "stopped": None, "kind": None, "same": False, "experts": []}
    try:
        s = scribe.open(path, 0)
    except (ValueError, OSError, MemoryError) as error:
        result["refused"], result["kind"] = str(error), type(error).__name__
        return result
    try:
        result["story"] = s.write("The", seed=1, temperature=1.2, top_k=0, max_tokens=12)
        result["same"] = result["story"] == story
    except (ValueError, OSError, MemoryError) as error:
        result["stopped"] = str(error)
    for i in range(s._model.file.n_experts):
        try:
            s._model.library.expert(i)
        except (ValueError, OSError) as error:
            result["experts"].append(str(error))
    s.close()
    return result


def main():
    with open(sys.argv[1]) as f:
        request = json.load(f)
    for path in request["paths"]:
        gc.collect()
        print(json.dumps(meet(path, request.get("story"))))


main()
