"""How much faster `tools.train` trains with its own scan than with one that autograd follows step by step.

`python -m tools.bench_training` (needs PyTorch) takes the same steps with both, in turns in one process, and prints
tokens a second of each and their ratio.
"""

import json
import statistics
import sys
import time

from tools.config import Config
from tools.errors import Parser, UserError, command


def naive_rg_lru(u, gate_i, gate_a, lam, starts):
    """`scan.rg_lru` as its formula says it: a loop over time, left to autograd."""
    import torch
    from torch.nn import functional as F

    i, r = torch.sigmoid(gate_i), torch.sigmoid(gate_a)
    log_a = (-8 * F.softplus(lam) * r).masked_fill(starts.unsqueeze(-1), float("-inf"))
    x = torch.sqrt((1 - torch.exp(2 * log_a)).clamp_min(1e-6)) * i * u
    a, states = torch.exp(log_a), []
    for t in range(len(x)):
        states.append(x[t] if t == 0 else a[t] * states[-1] + x[t])
    return torch.stack(states)


def seconds(model, optimizer, batch):
    """Of one training step: forward, backward, AdamW."""
    start = time.perf_counter()
    loss, _, count, _ = model.losses(*batch)
    optimizer.zero_grad(set_to_none=True)
    (loss / count).backward()
    optimizer.step()
    return time.perf_counter() - start


def measure(config, rows, length, steps):
    """{"tokens_per_second", "naive_tokens_per_second", "ratio"}: medians of `steps` steps of each kind, in turns."""
    import torch

    from tools import model as module

    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = module.Decoder(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(1, config.vocab_size, (rows, length))
    batch = tokens, tokens.roll(-1, 1), torch.zeros(rows, length, dtype=torch.bool)
    kinds = {"tokens_per_second": module.rg_lru, "naive_tokens_per_second": naive_rg_lru}
    spent = {kind: [] for kind in kinds}
    for step in range(steps + 1):
        for kind, rg_lru in kinds.items():
            module.rg_lru, usual = rg_lru, module.rg_lru
            try:
                taken = seconds(model, optimizer, batch)
            finally:
                module.rg_lru = usual
            if step:  # the first is to warm up
                spent[kind].append(taken)
    result = {kind: round(rows * length / statistics.median(times), 1) for kind, times in spent.items()}
    result["ratio"] = round(result["tokens_per_second"] / result["naive_tokens_per_second"], 2)
    return {**result, "recipe": config.recipe, "rows": rows, "length": length}


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.bench_training", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4, help="texts in a step (default %(default)s)")
    parser.add_argument("--length", type=int, default=256, help="tokens of each (default %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="of each kind (default %(default)s)")
    args = parser.parse_args(argv)
    for name in ("rows", "length", "steps"):
        if not 1 <= getattr(args, name) <= 100_000:
            raise UserError(f"--{name} must be from 1 to 100000")
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UserError("PyTorch is not installed; it comes with: make train") from None
    config = Config(recipe="SSASSASS", vocab_size=1024, d_model=192, d_rnn=192, n_heads=4, head_dim=48, d_ff=64,
                    n_experts=8, d_expert=96)  # as tales
    print(json.dumps(measure(config, args.rows, args.length, args.steps)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
