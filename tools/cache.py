"""Which experts are worth keeping in RAM: replays a model's routing through cache policies.

`python -m tools.cache weights/NAME.scribe` reads held-out text with the integer reference, and for each cache size
prints the share of expert reads that each policy saves, beside the best that any policy could (Belady 1966).
"""

import collections
import pathlib
import sys

import numpy as np

from tools import integer
from tools.errors import Parser, UserError, command
from tools.fileformat import Packed
from tools.parity import held_out


def routing(packed, tokens):
    """Expert numbers (layer * n_experts + expert) in the order that a board reads them, token by token."""
    config, chosen = packed.config, {}

    def watch(name, layer, values, clipped):
        if name == "expert":
            chosen.setdefault(layer, []).append(np.array(values))

    state = integer.State(config)
    for at in range(0, len(tokens), 512):
        integer.forward(packed, tokens[at : at + 512], state, watch, last_only=True)
    layers = [np.concatenate(chosen[i]) + i * config.n_experts for i in range(config.n_layers)]
    return np.stack(layers, 1).ravel().tolist()


def lru_hits(trace, slots):
    """Whether each read of a trace hits, least recently used."""
    kept = collections.OrderedDict()
    for e in trace:
        yield e in kept
        kept[e] = None
        kept.move_to_end(e)
        if len(kept) > slots:
            kept.popitem(last=False)


def lru(trace, slots, config):
    """Hits of least recently used."""
    return sum(lru_hits(trace, slots))


def lfu(trace, slots, config):
    """Hits of least frequently used (the older of equals goes)."""
    kept, count, hits = {}, collections.Counter(), 0
    for now, e in enumerate(trace):
        count[e] += 1
        hits += e in kept
        if e not in kept and len(kept) >= slots:
            del kept[min(kept, key=lambda k: (count[k], kept[k]))]
        kept[e] = now
    return hits


def per_layer_hits(trace, slots, config):
    """Whether each read hits, bool [tokens, layers]: one LRU a layer, the slots shared out evenly, as on a board."""
    layers = config.n_layers
    trace = np.reshape(trace, (-1, layers))
    hits = np.zeros(trace.shape, bool)
    for i in range(layers):
        share = slots * (i + 1) // layers - slots * i // layers
        if share:
            hits[:, i] = list(lru_hits(trace[:, i].tolist(), share))
    return hits


def per_layer(trace, slots, config):
    """Hits of one LRU a layer, the slots shared out evenly."""
    return int(per_layer_hits(trace, slots, config).sum())


def mru(trace, slots, config):
    """Hits of a cache that, once full, replaces what it used last: right for reads that go round and round."""
    kept, hits, last = set(), 0, None
    for e in trace:
        if e in kept:
            hits += 1
        else:
            if len(kept) >= slots:
                kept.discard(last)
            kept.add(e)
        last = e
    return hits


def optimum(trace, slots, config):
    """Hits of the policy that knows the future: what is needed last goes (Belady 1966)."""
    following, later = [], {}
    for i in range(len(trace) - 1, -1, -1):
        following.append(later.get(trace[i], len(trace)))
        later[trace[i]] = i
    following.reverse()
    kept, hits = {}, 0
    for e, after in zip(trace, following):
        if e in kept:
            hits += 1
        elif len(kept) >= slots:
            worst = max(kept, key=kept.get)
            if kept[worst] > after:
                del kept[worst]
            else:
                continue
        kept[e] = after
    return hits


POLICIES = {"LRU": lru, "LFU": lfu, "LRU per layer": per_layer, "MRU": mru, "optimum": optimum}


def table(trace, config, sizes):
    """{slots: {policy: hit rate}}."""
    return {slots: {name: policy(trace, slots, config) / len(trace) for name, policy in POLICIES.items()}
            for slots in sizes}


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.cache", description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path, help="a packed model with experts")
    parser.add_argument("--tokens", type=int, default=2048, help="of held-out text (default %(default)s)")
    args = parser.parse_args(argv)
    if not 1 <= args.tokens <= 1_000_000:
        raise UserError("--tokens must be from 1 to a million")
    packed = Packed.load(args.model)
    config = packed.config
    if not config.n_experts:
        raise UserError(f"{args.model}: has no experts")
    trace = routing(packed, held_out(packed, args.tokens))
    count = config.n_layers * config.n_experts
    sizes = sorted({max(1, count * part // 8) for part in (1, 2, 3, 4, 6, 7)})
    print("| experts in RAM of " + f"{count} | " + " | ".join(POLICIES) + " |")
    print("|---" * (len(POLICIES) + 1) + "|")
    for slots, rates in table(trace, config, sizes).items():
        print(f"| {slots} | " + " | ".join(f"{100 * rate:.1f}%" for rate in rates.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
