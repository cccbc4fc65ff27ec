"""What removes kept things: which of them go, and that a person agrees."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import SettingError
from ..hub.progress import size_text
from .exit_codes import Exit
from .options import add_switch
from .output import Output, read_answer

T = TypeVar("T")
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def add_removing_options(verb: argparse.ArgumentParser, what: str) -> None:
    """Those that say which of the kept things go."""
    verb.add_argument("names", nargs="*", metavar=what.upper(), help=f"{what}s by name")
    verb.add_argument(
        "--older-than",
        type=age,
        metavar="AGE",
        help="those last written more than AGE ago, e.g. 12h, 30d, 8w",
    )
    add_switch(verb, "--all", help="all of them")
    add_yes_option(verb)


def add_yes_option(verb: argparse.ArgumentParser) -> None:
    """The one that agrees beforehand."""
    add_switch(verb, "-y", "--yes", help="do not ask before removing")


def age(text: str) -> float:
    """A number of minutes, hours, days or weeks, in seconds."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 45m, 12h, 30d or 8w")
    return float(found[1]) * _UNITS[found[2]]


def chosen(
    args: argparse.Namespace,
    by_name: Callable[[str], T],
    kept: Callable[[], Sequence[tuple[T, float]]],
) -> list[T]:
    """Those that the arguments mean.

    Args:
        args: with names, an age, or all; one of the three.
        by_name: finds one, or raises an error of ours.
        kept: all that are kept, and when each was written last.

    Raises:
        SettingError: the arguments name none, or in two ways.
    """
    ways = [bool(args.names), args.older_than is not None, args.all]
    if sum(ways) != 1:
        raise SettingError(
            "say what to remove: names, --older-than AGE or --all (exactly one of these)"
        )
    if args.names:
        named: list[T] = []
        for one in map(by_name, args.names):
            if one not in named:
                named.append(one)
        return named
    until = time.time() - (args.older_than or 0)
    return [one for one, written in kept() if args.all or written < until]


def agreed(
    lines: Sequence[tuple[str, int]], nothing: str, args: argparse.Namespace, output: Output
) -> Exit | None:
    """Show what would go, and ask; None where it may go, else how the command ends.

    Args:
        lines: what would go, and the bytes of each.
        nothing: what is said where that is nothing.
    """
    for text, nbytes in lines:
        output.line(f"{text}  {size_text(nbytes)}")
    if not lines:
        output.line(nothing)
        output.json({"removed": [], "freed": 0})
        return Exit.OK
    return None if confirmed(args, output) else Exit.USAGE


def confirmed(args: argparse.Namespace, output: Output) -> bool:
    """Ask on a terminal, unless `--yes` was given; where the answer is no, say so."""
    can_ask = not output.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if args.yes or (can_ask and read_answer("remove? [y/N]").strip().lower() in ("y", "yes")):
        return True
    output.error("nothing was removed; --yes removes without asking")
    output.json({"removed": [], "freed": 0})
    return False


def report_removed(removed: Sequence[object], freed: int, output: Output) -> None:
    """Say what is gone."""
    output.line(f"removed; {size_text(freed)} are free again")
    output.json({"removed": list(removed), "freed": freed})
