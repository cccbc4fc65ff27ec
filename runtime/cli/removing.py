"""What `session rm` and `trace rm` share: which of the kept things go, and that a person agrees."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import SettingError
from ..hub.progress import size_text
from .exit_codes import Exit
from .output import Output
from .rm import confirmed

T = TypeVar("T")


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
        raise SettingError("name what to remove, or give --older-than AGE or --all: one of these")
    if args.names:
        return list({id(one): one for one in map(by_name, dict.fromkeys(args.names))}.values())
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
    if args.yes or confirmed("remove?", output):
        return None
    output.error("nothing was removed; --yes removes without asking")
    output.json({"removed": [], "freed": 0})
    return Exit.USAGE


def report(removed: Sequence[str], freed: int, output: Output) -> None:
    """Say what is gone."""
    output.line(f"removed; {size_text(freed)} are free again")
    output.json({"removed": list(removed), "freed": freed})
