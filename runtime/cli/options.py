"""The format of tables as an option, and types of numbers, that several verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .arguments import whole
from .option_groups import OptionGroup, Section, option


class TableFormat(OptionGroup):
    """How a table is written."""

    title = Section("output")
    format: str = option(choices=("text", "csv"), default="text")
    """format of the table"""


def on_off(text: str) -> bool:
    """Parse ``on`` or ``off``."""
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not on or off")
    return text == "on"


def count(text: str) -> int:
    """Parse a nonnegative integer; 0 means all."""
    return whole(text, "a whole number of 0 or more")


def amount(text: str) -> float:
    """Parse a number above zero."""
    return within(text, "a number above 0", lambda value: 0 < value < 1e12)


def pair_of(text: str, what: str) -> tuple[float, float]:
    """Parse two numbers above zero, separated by a comma; `what` names them in an error."""
    first, comma, second = text.partition(",")
    if not comma:
        raise argparse.ArgumentTypeError(f"{text!r} is not two {what}")
    return amount(first), amount(second)


def share(text: str) -> float:
    """Parse a fraction from 0 to 1."""
    return within(text, "a share from 0 to 1", lambda value: 0 <= value <= 1)


def seconds(text: str) -> float:
    """Parse a duration above zero, in seconds."""
    return within(text, "a number of seconds above 0", lambda value: 0 < value < 1e9)


def within(text: str, what: str, fits: Callable[[float], bool]) -> float:
    """Parse a number; if it is not one that fits, raise an error that it is not `what`."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not {what}")
    return value


def apply_config(args: argparse.Namespace, *keys: str) -> None:
    """Set these options, where the command line leaves them open, from the config file."""
    from ..config import read_settings

    for key, found in read_settings().items():
        # `trace = true` is what happens anyway; as an option, a trace is the name of a file.
        if key in keys and getattr(args, key) is None and found.value is not True:
            setattr(args, key, found.value)
