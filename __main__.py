"""``python -m triplepoint`` and the ``triplepoint`` command."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys

INTERRUPTED = 130  # `Exit.INTERRUPTED`, which may not have been imported yet


def main() -> int:
    """Run the command line; return the exit status."""
    _open_closed_streams()
    _end_in_order()
    # What a command imports and loads stays: looking through it for garbage, some hundred times,
    # took a tenth of its start, and came in the midst of a pass now and then. A warm run makes
    # some 200,000 objects before its answer.
    gc.set_threshold(300_000, 20, 50)
    # For the same reason at the end: Python's last collections took a sixth of a short run.
    atexit.register(_skip_last_collections)
    try:
        from .runtime.cli import main as run

        status = run(sys.argv[1:])
    except KeyboardInterrupt as error:  # while modules were imported, or threads and files closed
        status = error.args[0] if error.args else INTERRUPTED
    # Where a signal came in code that is made from text, as that of dataclasses is, `python -m`
    # would end as if by Ctrl-C, whatever the status, unless other text was run since.
    eval("0")
    if status == INTERRUPTED:
        import signal

        # One more Ctrl-C on the way out would end Python by the signal, not with the status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return status


def _end_in_order() -> None:
    """Let SIGTERM, and the SIGHUP of a terminal that closes, end what the command has started.

    They come as a Ctrl-C that has the exit status with it. Without this a program of `run_command`
    would run on, and a trace would have no end. A second one ends the process at once.
    """
    import signal

    def end(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, end)


def _skip_last_collections() -> None:
    """Skip the last garbage collections, except with duckdb, which reports what is left."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def _open_closed_streams() -> None:
    """Open /dev/null as stdin, stdout or stderr where these were closed (``<&-``).

    Else the next file that is opened, a model or a trace, would be the one that they mean.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free: this one
        with contextlib.suppress(OSError, AttributeError):  # Windows before 3.12 has no such call
            # Whoever shares the stream may have made it so; a read or write would fail midway.
            os.set_blocking(descriptor, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


if __name__ == "__main__":
    raise SystemExit(main())
