"""What packing cost a model, in figures: the float original, the stand-in and the integer reference read the same text.

Every document begins afresh, as a story does. `read` gives a `Reading`, one array entry a token; `figures` what goes
into metrics.json, and `checks` what the tolerances in the model's config say of it.
"""

import dataclasses

import numpy as np

from tools import budget, cache
from tools.engines import divergence, log_softmax
from tools.evaluate import targets_of
from tools.tokenizer import Tokenizer

#: The engines that are compared with the float original.
ROUNDED = ("standin", "integer")
#: Shares of all experts that a cache holds in the figures of flash bytes a token.
CACHES = (0, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1)
#: Lengths of text that memory is given for.
LENGTHS = tuple(2**n for n in range(15))


@dataclasses.dataclass
class Reading:
    """What the engines said of each token read, documents one after the other; T tokens.

    tokens, targets, document, position: int [T] (a token read, the one that follows it, its document, its place in
    it). nats: {"float", "standin", "integer": [T]} of the target. kl, same: {"standin", "integer": [T]}, from the
    float model's distribution, and whether both think the same token the likeliest. likeliest: {"float", "integer":
    int [T]}. certainty: [T] probability of the float model's likeliest. routes: int [T, layers] experts that the
    integers chose (no layers without experts).
    """

    tokens: np.ndarray
    targets: np.ndarray
    document: np.ndarray
    position: np.ndarray
    nats: dict
    kl: dict
    same: dict
    likeliest: dict
    certainty: np.ndarray
    routes: np.ndarray

    def __len__(self):
        return len(self.tokens)


def read(engines, texts, progress=None):
    """The Reading of token lists that begin with the beginning token. engines: {"float", "standin", "integer"}."""
    config = engines["integer"].packed.config
    columns = {}

    def add(name, values):
        columns.setdefault(name, []).append(values)

    def watch(name, layer, values, clipped):
        if name == "expert":
            add(f"route {layer}", np.array(values))

    for number, tokens in enumerate(texts):
        targets, at = targets_of(config, tokens), 0
        streams = engines["float"].pieces(tokens), engines["standin"].pieces(tokens), engines["integer"].pieces(
            tokens, watch)
        for pieces in zip(*streams):
            truth, *others = [log_softmax(logits * e.scale) for logits, e in zip(pieces, engines.values())]
            rows, aim = np.arange(len(truth)), targets[at : at + len(truth)]
            for name, p in zip(engines, (truth, *others)):
                add(f"nats {name}", -p[rows, aim])
            for name, p in zip(ROUNDED, others):
                add(f"kl {name}", divergence(truth, p))
                add(f"same {name}", truth.argmax(-1) == p.argmax(-1))
            add("likeliest float", truth.argmax(-1))
            add("likeliest integer", others[-1].argmax(-1))
            add("certainty", np.exp(truth.max(-1)))
            at += len(truth)
        add("tokens", np.array(tokens))
        add("targets", targets)
        add("document", np.full(len(tokens), number))
        add("position", np.arange(len(tokens)))
        if progress:
            progress(number + 1, len(texts))
    all_of = {name: np.concatenate(parts) for name, parts in columns.items()}

    def named(kind, names):
        return {name: all_of[f"{kind} {name}"] for name in names}

    routes = [all_of[f"route {i}"] for i in range(config.n_layers)] if config.n_experts else []
    return Reading(all_of["tokens"], all_of["targets"], all_of["document"], all_of["position"],
                   named("nats", engines), named("kl", ROUNDED), named("same", ROUNDED),
                   named("likeliest", ("float", "integer")), all_of["certainty"],
                   np.stack(routes, 1) if routes else np.zeros((len(all_of["tokens"]), 0), int))


def mean(values):
    """{"mean", "error"}: the mean over tokens and its standard error."""
    values = np.asarray(values, dtype=float)
    return {"mean": float(values.mean()), "error": float(values.std() / np.sqrt(len(values)))}


def load(reading, config):
    """Tokens of each expert, int [layers, experts]."""
    return np.array([np.bincount(column, minlength=config.n_experts) for column in reading.routes.T])


def flash(reading, model):
    """[{"experts", "cache_bytes", "bytes_per_token"}]: expert bytes read a token with a cache of so many experts (LRU
    for each layer, empty at first), the whole text in one run. Empty without experts."""
    config = model.config
    if not config.n_experts:
        return []
    count, rows = config.n_layers * config.n_experts, []
    trace = reading.routes + np.arange(config.n_layers) * config.n_experts
    for slots in sorted({int(count * share) for share in CACHES}):
        misses = trace.size - cache.per_layer_hits(trace, slots, config).sum() if slots else trace.size
        rows.append({"experts": slots, "cache_bytes": slots * model.expert,
                     "bytes_per_token": float(misses * model.expert / len(trace))})
    return rows


def memory(config):
    """State and key-value memory in bytes by length of text: this model's (allocated once, so the same at any length),
    and what its A layers, or all of its layers as A, would hold without a window."""
    state = config.recipe.count("S") * budget.recurrent_bytes(config)
    rings = config.recipe.count("A") * budget.ring_bytes(config)
    token = 2 * 2 * config.n_kv_heads * config.head_dim if config.n_heads else 0
    rows = [{"tokens": n, "model": state + rings,
             "used": state + config.recipe.count("A") * token * min(n, config.window),
             "no_window": state + config.recipe.count("A") * token * n,
             "all_attention": config.n_layers * token * n} for n in LENGTHS]
    return {"state": state, "rings": rings, "by_length": rows}


def worst(reading, packed, count=20, context=12):
    """The tokens with the largest KL divergence of the integers: [{"kl", "document", "position", "before", "read",
    "actual", "float", "integer", "nats_float", "nats_integer"}], texts as str."""
    reader, rows = Tokenizer(packed.tokenizer), []
    for i in np.argsort(-reading.kl["integer"], kind="stable")[:count]:
        first = max(i - reading.position[i], i - context)
        rows.append({
            "kl": float(reading.kl["integer"][i]), "document": int(reading.document[i]),
            "position": int(reading.position[i]),
            "before": text_of(reader, reading.tokens[first:i]), "read": text_of(reader, reading.tokens[i : i + 1]),
            "actual": name_of(reader, packed.config, reading.targets[i]),
            "float": name_of(reader, packed.config, reading.likeliest["float"][i]),
            "integer": name_of(reader, packed.config, reading.likeliest["integer"][i]),
            "nats_float": float(reading.nats["float"][i]), "nats_integer": float(reading.nats["integer"][i])})
    return rows


def text_of(reader, tokens):
    """Text of tokens inside a text (no dummy space is taken off)."""
    return b"".join(reader.piece(int(token)) for token in tokens).decode("utf-8", "replace")


def name_of(reader, config, token):
    """A token as a person reads it."""
    if token == config.eos_token_id:
        return "(end)"
    return text_of(reader, [token]) or f"({int(token)})"


def figures(reading, packed, model):
    """What metrics.json holds of a Reading; `model` is the packed file's budget.Model."""
    config, reader = packed.config, Tokenizer(packed.tokenizer)
    ends = np.flatnonzero(np.diff(reading.document, append=-1)) + 1
    size = sum(len(reader.decode(part.tolist())) for part in np.split(reading.tokens, ends[:-1]))
    result = {"documents": len(ends), "tokens": len(reading), "bytes": size}
    for name, nats in reading.nats.items():
        result[name] = {"nats_per_token": float(nats.mean()),
                        "bits_per_byte": float(nats.sum() / np.log(2) / max(size, 1))}
    for name in ROUNDED:
        kl = reading.kl[name]
        result[name] |= {
            "cross_entropy": mean(reading.nats[name] - reading.nats["float"]),
            "kl": {**mean(kl), "median": float(np.median(kl)), "99%": float(np.quantile(kl, 0.99)),
                   "largest": float(kl.max())},
            "top1": mean(reading.same[name])}
    counts = load(reading, config)
    if counts.size:
        result["load"] = {"tokens": counts.tolist(), "max_over_mean": (counts.max(1) / counts.mean(1)).tolist()}
    result["flash"] = flash(reading, model)
    result["memory"] = memory(config)
    return result


def checks(found, tolerances):
    """[{"name", "what", "value", "error", "limit", "most", "pass"}] of `figures` against {name: limit}; `most`: the
    limit is the largest allowed, not the smallest; `error`: the value's standard error, or None."""
    integer = found["integer"]
    load = found.get("load", {}).get("max_over_mean")
    values = {
        "cross_entropy": ("cross-entropy that the integers lose, nats a token", integer["cross_entropy"], True),
        "kl": ("KL divergence of the integers from the float original, nats", integer["kl"], True),
        "top1": ("tokens with the same likeliest next token", integer["top1"], False),
        "load": ("busiest expert's tokens over the mean, worst layer",
                 {"mean": max(load), "error": None} if load else None, True),
    }
    rows = []
    for name, limit in tolerances.items():
        what, value, most = values[name]
        rows.append({"name": name, "what": what, "value": value["mean"], "error": value["error"], "limit": limit,
                     "most": most, "pass": bool(value["mean"] <= limit if most else value["mean"] >= limit)})
    return rows
