"""The commands ``elasticrun data plan``, ``audit`` and ``convert``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import audit, convert, plan

_COMMANDS = {"plan": plan.main, "audit": audit.main, "convert": convert.main}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = _COMMANDS.get(words[0]) if words else None
    if command is not None:
        return command(words[1:])
    if words and words[0] in ("-h", "--help"):
        print(
            "usage: elasticrun data plan DATA... --from WORKERS --to WORKERS   what a change of workers moves\n"
            "       elasticrun data audit DIRECTORY [DATA...] [--epochs N]     whether each row was used once\n"
            "       elasticrun data convert SOURCE... --to DIRECTORY           WebDataset, JSON lines, MDS, Arrow to Parquet"
        )
        return 0
    given = words[0] if words else "nothing"
    print(f"elasticrun data: {given}: expected plan, audit or convert", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
