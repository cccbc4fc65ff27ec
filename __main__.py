"""``python -m triplepoint`` and the ``triplepoint`` command."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; returns the exit status."""
    from .runtime.cli import main as run

    return run(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
