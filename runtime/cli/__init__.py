"""The command line: a module for each verb of ``triplepoint``, a package for one with commands.

The function that runs a command returns its exit status; None: it is done.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from .arguments import build_parser
from .exit_codes import Exit, explain

if TYPE_CHECKING:
    from .output import Output


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a write may fail with that names no file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Every error is one line on stderr."""
    argv = sys.argv[1:] if argv is None else argv
    parser = build_parser()
    try:
        args = parser.parse_args(argv)
    except SystemExit as done:  # argparse has said what is wrong, or printed the help
        return done.code if isinstance(done.code, int) else Exit.USAGE
    except OSError as error:  # the help could not be printed
        _drop_stdout()
        if not isinstance(error, BrokenPipeError):
            print(f"triplepoint: error: standard output: {error.strerror}", file=sys.stderr)
            return Exit.FILE
        return Exit.FAILED
    if args.verb is None:
        parser.print_help(sys.stderr)
        return Exit.USAGE

    from .output import Output, log_shown

    output = Output(as_json=args.json)
    try:
        with log_shown(output, quiet=getattr(args, "quiet", False)):
            run = args.runner
            if isinstance(run, str):
                run = import_module(f".{run}", __name__).run
            return run(args, output) or Exit.OK
    except KeyboardInterrupt as error:
        _fail(output, Exit.INTERRUPTED, output.interruption)
        return error.args[0] if error.args else Exit.INTERRUPTED  # of a signal: `__main__`
    except BrokenPipeError:
        _drop_stdout()  # whoever read our output has gone
        return Exit.FAILED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _NO_ROOM and _stdout_is_lost():
            if (signalled := _signal_behind(error)) is not None:
                return signalled
            output.error(f"standard output: {error.strerror or error}")
            return Exit.FILE
        if os.environ.get("TRIPLEPOINT_DEBUG"):
            raise
        return _fail(output, *explain(error))


def _signal_behind(error: BaseException | None) -> int | None:
    """Return the status of the signal that was ending the command; None without one.

    So it is where a terminal closes: its SIGHUP ends the command, and nothing can be shown then.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and error.args:
            return error.args[0]
        error = error.__context__
    return None


def _stdout_is_lost() -> bool:
    """Return whether writes to stdout fail, as on a full disk. Write an empty line to find out."""
    try:
        print(flush=True)
    except OSError:
        _drop_stdout()
        return True
    return False


def _drop_stdout() -> None:
    """Drop what stdout still buffers, or Python reports the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(output: Output, status: Exit, message: str) -> Exit:
    """Report an error: one line for people, an object with ``--json``."""
    is_error = status != Exit.INTERRUPTED
    (output.error if is_error else output.note)(message)
    name = "error" if is_error else "cancelled"
    output.json({"status": name, "error": message, "exit": status, **output.facts})
    return status
