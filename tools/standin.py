"""The stand-in: the float model wearing the packed file's rounding.

Every weight is what the integers in the file stand for, expanded again; the arithmetic is the float reference's. What
separates it from the original is the rounding of weights; what separates the integer reference from it, the rounding
of activations.
"""

import numpy as np

from tools.fileformat import Matrix


def expand(packed):
    """The checkpoint's tensors by name, float64, as the packed file has them."""
    config, sections = packed.config, packed.sections
    w = {"embedding.weight": sections["EMBD", 0, 0]["weight"].expanded()}
    head = sections["HEAD", 0, 0]
    w["final_norm.weight"] = norm_weight(head["norm"], head["norm.params"], config.d_model)
    if not config.tie_embeddings:
        w["head.weight"] = head["weight"].expanded()
    for i in range(config.n_layers):
        section = sections["LAYR", i, 0]
        for name, record in section.items():
            target = f"layers.{i}.{name}"
            if name.endswith("_norm"):
                w[target + ".weight"] = norm_weight(record, section[name + ".params"], config.d_model)
            elif isinstance(record, Matrix):
                weight = record.expanded()
                if record.blocks > 1 or ".gate_" in name:
                    weight = weight.reshape(record.blocks, -1, weight.shape[1])
                w[target + ".weight"] = weight
                if record.bias is not None:
                    w[target + ".bias"] = record.bias / 2.0**record.point
            elif name == "recurrence.decay":
                w[f"layers.{i}.recurrence.lam"] = inverse_decay(record.values / 2.0**record.point)
            elif name.startswith("recurrence.conv"):
                v = record.values / 2.0**record.point
                w[target] = v.reshape(config.d_rnn, -1) if name.endswith("weight") else v
        if config.n_experts:
            for m in ("gate", "up", "down"):
                parts = [sections["XPRT", i, e][m].expanded() for e in range(config.n_experts)]
                w[f"layers.{i}.moe.{m}.weight"] = np.stack(parts)
    return w


def norm_weight(vector, params, count):
    """RMSNorm weights; the file's hold sqrt(count / 2^k) as well."""
    return vector.values / 2.0**vector.point / np.sqrt(count / 2.0 ** params[0])


def decay(lam):
    """8 softplus(Lambda) / ln 2: minus log2 of the recurrence's a, for a gate of 1."""
    return 8 * np.logaddexp(0, lam) / np.log(2)


def inverse_decay(c):
    return np.log(np.expm1(np.maximum(c, 2.0**-21) * np.log(2) / 8))
