"""The command line: ``triplepoint run``, ``chat``, ``replay``, ``doctor`` and ``bench``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from importlib import import_module

from ...errors import (
    ContextOverflowError,
    LimitReachedError,
    ModelError,
    TargetError,
    TraceError,
    TriplepointError,
)
from .arguments import build_parser


class Exit(IntEnum):
    """What the exit status says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FILE = 3
    LIMIT = 4
    INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Every error is one line on stderr."""
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as done:  # argparse has said what is wrong, or printed the help
        return done.code if isinstance(done.code, int) else Exit.USAGE
    if args.verb is None:
        parser.print_help()
        return Exit.USAGE

    from .output import Output

    output = Output(as_json=args.json)
    try:
        return import_module(f".{args.verb}", __name__).run(args, output)
    except KeyboardInterrupt:
        output.error("interrupted")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except Exception as error:
        if os.environ.get("TRIPLEPOINT_DEBUG"):
            raise
        status, message = explain(error)
        output.error(message)
        output.json({"status": "error", "error": message, "exit": status})
        return status


def explain(error: Exception) -> tuple[Exit, str]:
    """Exit status and message for an error that ended a command."""
    if isinstance(error, LimitReachedError | ContextOverflowError):
        return Exit.LIMIT, str(error)
    if isinstance(error, TargetError):
        return Exit.USAGE, str(error)
    if isinstance(error, ModelError | TraceError):
        return Exit.FILE, str(error)
    if isinstance(error, TriplepointError):
        return Exit.FAILED, str(error)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return Exit.FILE, f"{name}{error.strerror or error}"
    kind = type(error).__name__
    return Exit.FAILED, f"a bug: {kind}: {error} (TRIPLEPOINT_DEBUG=1 shows where)"
