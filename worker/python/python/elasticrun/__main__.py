"""``python -m elasticrun`` runs the program ``elasticrun``."""

from __future__ import annotations

import os
import sys

from . import _binary


def main() -> None:
    """Replaces this process by the program."""
    try:
        program = _binary.find()
        os.execv(program, ["elasticrun", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"elasticrun: {error}")


if __name__ == "__main__":
    main()
