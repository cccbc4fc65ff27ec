"""Selects what a command removes, and asks for confirmation."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import SettingError
from ..hub.progress import size_text
from .exit_codes import Exit
from .option_groups import OptionGroup, argument, option
from .output import Output, read_answer

T = TypeVar("T")
_AGE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)([mhdw])")
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def age(text: str) -> float:
    """Parse an age in minutes, hours, days or weeks, into seconds."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 45m, 12h, 30d or 8w")
    return float(found[1]) * _UNITS[found[2]]


class RemovingOptions(OptionGroup):
    """Options that select what is removed."""

    names: list[str] = argument("NAME", nargs="*")
    older_than: float | None = option("AGE", type=age)
    """those last written more than AGE ago, e.g. 12h, 30d, 8w"""
    all: bool = option()
    """all of them"""
    yes: bool = option("-y")
    """do not ask before removing"""

    @classmethod
    def of(cls, what: str) -> type[OptionGroup]:
        """Return the options, with `what` as the name of the removed items in their help."""
        return cls.but(names={"metavar": what.upper(), "help": f"{what}s by name"})


YES = RemovingOptions.only("yes")
"""The option that skips the confirmation."""


def chosen(
    args: argparse.Namespace,
    by_name: Callable[[str], T],
    kept: Callable[[], Sequence[tuple[T, float]]],
) -> list[T]:
    """Return the items that the arguments select.

    Args:
        args: with exactly one of names, an age, or all.
        by_name: finds an item, or raises a TriplepointError.
        kept: returns all items, each with the time of its last write.

    Raises:
        SettingError: the arguments select none, or in two ways.
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
    """List what would be removed, ask for confirmation; return None to proceed, else a status.

    Args:
        lines: what would be removed, and the bytes of each.
        nothing: message where there is nothing to remove.
    """
    for text, nbytes in lines:
        output.line(f"{text}  {size_text(nbytes)}")
    if not lines:
        output.line(nothing)
        output.json({"removed": [], "freed": 0})
        return Exit.OK
    return None if confirmed(args, output) else Exit.USAGE


def confirmed(args: argparse.Namespace, output: Output) -> bool:
    """Ask for confirmation on a terminal, unless `--yes` was given; report a no."""
    if args.yes or (
        output.can_ask and read_answer("remove? [y/N]").strip().lower() in ("y", "yes")
    ):
        return True
    output.error("nothing was removed; --yes removes without asking")
    output.json({"removed": [], "freed": 0})
    return False


def report_removed(removed: Sequence[object], freed: int, output: Output) -> None:
    """Report what was removed."""
    output.line(f"removed; {size_text(freed)} are free again")
    output.json({"removed": list(removed), "freed": freed})
