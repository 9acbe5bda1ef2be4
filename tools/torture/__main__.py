"""Damage, starve and interrupt everything, and print how it fared: `make torture` (docs/reliability.md)."""

import sys
import time

from tools import torture
from tools.errors import Parser, UserError, command


@command
def main(argv=None):
    parser = Parser(prog="python -m tools.torture", description=__doc__.splitlines()[0])
    parser.add_argument("topics", nargs="*", help=f"of {', '.join(torture.topics())} (default: all)")
    parser.add_argument("--amount", type=float, default=1.0, help="share of the full number of faults (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices (default: 0)")
    args = parser.parse_args(argv)
    unknown = set(args.topics) - set(torture.topics())
    if unknown:
        raise UserError(f"topic {sorted(unknown)[0]!r}: one of {', '.join(torture.topics())} is needed")
    if not 0 < args.amount <= 100:
        raise UserError("--amount must be above 0, and 100 at most")
    print(torture.HEAD, flush=True)
    found = []
    for topic in args.topics or torture.topics():
        began = time.monotonic()
        for row in torture.rows(topic, args.amount, args.seed):
            print(row, flush=True)
            found += [f"{row.name}: {what}" for what in row.found]
        print(f"{topic}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    for line in found:
        print(f"found: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
