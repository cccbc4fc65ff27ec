"""``python -m triplepoint`` and the ``triplepoint`` command."""

from __future__ import annotations

import atexit
import gc
import os
import sys

INTERRUPTED = 130  # `Exit.INTERRUPTED`, which may not have been imported yet


def main() -> int:
    """Run the command line; returns the exit status."""
    _open_closed_streams()
    # What a command imports and loads stays: looking through it for garbage, some hundred times,
    # took a tenth of its start, and came in the midst of a pass now and then. A warm run makes
    # some 200,000 objects before its answer.
    gc.set_threshold(300_000, 20, 50)
    # For the same reason at the end: Python's last collections took a sixth of a short run.
    atexit.register(_skip_last_collections)
    try:
        from .runtime.cli import main as run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were imported, or threads and files closed
        status = INTERRUPTED
    if status == INTERRUPTED:
        import signal

        # One more Ctrl-C on the way out would end Python by the signal, not with the status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _skip_last_collections() -> None:
    """Not beside duckdb: its bindings report on stderr, line by line, what was not collected."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def _open_closed_streams() -> None:
    """Let /dev/null stand where stdin, stdout or stderr were closed (``<&-``).

    Else the next file that is opened, a model or a trace, would be the one that they mean.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


if __name__ == "__main__":
    raise SystemExit(main())
