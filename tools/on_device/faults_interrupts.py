# Runs in MicroPython: raises KeyboardInterrupt at the n-th kernel call of a story, for one n after another. Each kernel
# is replaced by a function that counts and calls it; it allocates nothing, so the heap stays locked as ever.
import json
import sys

from scribe import kernels

with open(sys.argv[1]) as f:
    request = json.load(f)

left = calls = 0


def tick():
    global left, calls
    calls += 1
    left -= 1
    if left == 0:
        raise KeyboardInterrupt


def wrap():
    """Put a counting function in each kernel's place, before a model holds on to any."""
    from scribe import kernel_cases

    with open(request["twins"]) as f:  # says how many arguments each takes
        for line in f:
            name, _, rest = line[4:].partition("(")
            if line.startswith("def ") and name in kernel_cases.NAMES:
                rest = rest.partition(")")[0]
                space = {"tick": tick, "kernel": getattr(kernels, name)}
                exec("def counted(%s):\n    tick()\n    return kernel(%s)" % (rest, rest), space)
                setattr(kernels, name, space["counted"])


def main():
    global left, calls
    wrap()
    import scribe

    s = scribe.open(request["path"], request["cache"])
    story = dict(prompt=request["prompt"], seed=3, temperature=0.9, top_k=5, top_p=0.9, max_tokens=3)
    whole = s.write(**story)
    calls = 0
    s.write(**story)
    total = calls
    print(json.dumps({"calls": total}))
    # told on beside all this, a piece at a time: other stories' interrupts are no business of its
    beside = s.fork()
    asked = dict(prompt="A", seed=8, temperature=0, max_tokens=100)
    alone = beside.write(**asked)
    pieces, text = beside.stream(**asked), ""
    for n in range(request["first"], total + 1, request["every"]):
        left = n
        stopped = False
        try:
            s.write(**story)
        except KeyboardInterrupt:
            stopped = True
        left = 0
        try:
            s.bookmark(request["mark"])
            marked = True
        except ValueError:
            marked = False
        same = s.write(**story) == whole
        if n % 5 == 0:
            text += next(pieces, "")
        print(json.dumps({"at": n, "stopped": stopped, "marked": marked, "same": same}))
    text += "".join(pieces)
    print(json.dumps({"beside": text == alone}))


main()
