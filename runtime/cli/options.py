"""Options whose help ends with their default, and number types shared by several verbs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .arguments import group_of, numbers, positive


def add_option(
    parser: argparse._ActionsContainer,
    *flags: str,
    help: str,
    default: Any = None,
    **settings: Any,
) -> None:
    """Add an option; a default other than None is named at the end of its help."""
    if default is not None:
        values = default if isinstance(default, list | tuple) else [default]
        shown = ",".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)
        help = f"{help} (default: {shown})"
    parser.add_argument(*flags, default=default, help=help, **settings)


def add_number(parser: argparse._ActionsContainer, *flags: str, **settings: Any) -> None:
    """Add a numeric option, as `add_option` does; `type` defaults to integers from 1."""
    add_option(parser, *flags, **{"type": positive, "metavar": "N", **settings})


def add_numbers(parser: argparse._ActionsContainer, *flags: str, **settings: Any) -> None:
    """Add an option of integers separated by commas, as `add_option` does."""
    add_option(parser, *flags, **{"type": numbers, "metavar": "N,…", **settings})


def add_switch(parser: argparse._ActionsContainer, *flags: str, help: str) -> None:
    """Add an option that is on where it is given."""
    parser.add_argument(*flags, action="store_true", help=help)


def add_on_off(parser: argparse._ActionsContainer, flag: str, *, default: bool, help: str) -> None:
    """Add an option that is on or off."""
    shown = "on" if default else "off"
    help = f"{help} (default: {shown})"
    parser.add_argument(flag, type=on_off, default=default, metavar="{on,off}", help=help)


def on_off(text: str) -> bool:
    """Parse ``on`` or ``off``."""
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not on or off")
    return text == "on"


def add_file(parser: argparse._ActionsContainer, *flags: str, help: str) -> None:
    """Add an option, or a positional argument, that is the name of a file."""
    parser.add_argument(*flags, metavar="FILE", help=help)


def add_threads_option(verb: argparse._ActionsContainer) -> None:
    """Add the number of threads, for work that needs no engine."""
    add_number(verb, "-t", "--threads", help="number of threads (default: the physical cores)")


def add_format_option(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Add the format of a table; the first is the default."""
    add_option(
        group_of(parser, "output"),
        "--format",
        choices=formats,
        default=formats[0],
        help="format of the table",
    )


def add_limit_option(verb: argparse._ActionsContainer, help: str) -> None:
    """Add the max number of rows that are shown; 0 means all."""
    add_number(verb, "--limit", type=count, default=20, help=f"{help}; 0: all")


def count(text: str) -> int:
    """Parse a nonnegative integer; 0 means all."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a whole number of 0 or more")
    return int(text)


def amount(text: str) -> float:
    """Parse a number above zero."""
    return within(text, "a number above 0", lambda value: 0 < value < 1e12)


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
