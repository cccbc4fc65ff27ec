"""The options that say how tokens are picked."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import EngineError

if TYPE_CHECKING:
    from ..inference.sampling import Sampling

_OPTIONS: tuple[tuple[str, str, str, Callable[[str], Any], str], ...] = (
    ("--temp", "temperature", "T", float, "temperature; 0 takes the most likely token"),
    ("--top-k", "top_k", "N", int, "sample from the N most likely tokens; 0: from all"),
    ("--top-p", "top_p", "P", float, "sample from the most likely tokens that together reach P"),
    ("--min-p", "min_p", "P", float, "drop tokens below P times the top token's probability"),
    (
        "--repeat-penalty",
        "repeat_penalty",
        "X",
        float,
        "divide logits of this turn's tokens by X; 1: off",
    ),
    ("--presence-penalty", "presence_penalty", "X", float, "subtract X from their logits; 0: off"),
    (
        "--frequency-penalty",
        "frequency_penalty",
        "X",
        float,
        "subtract X for each occurrence; 0: off",
    ),
    (
        "--repeat-last-n",
        "penalty_last",
        "N",
        int,
        "penalties see the turn's last N tokens; -1: all",
    ),
)
_ALSO = {"--temp": ("--temperature",), "--repeat-penalty": ("--repetition-penalty",)}
"""What other programs call them."""


def add_sampling_options(verb: argparse.ArgumentParser) -> None:
    """Add them, in a group of their own."""
    group = verb.add_argument_group(
        "sampling", "defaults come from the model's file; without them greedy"
    )
    for flag, name, metavar, kind, text in _OPTIONS:
        flags = [flag, *_ALSO.get(flag, ())]
        group.add_argument(
            *flags, dest=name, metavar=metavar, type=_setting(name, flag, kind), help=text
        )
    group.add_argument(
        "--seed", type=_seed, metavar="N", help="the same seed gives the same text; or: random (0)"
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        type=_bias,
        metavar="ID=X",
        help="add X to the logit of a token; -inf forbids it; may be repeated",
    )
    group.add_argument(
        "--stop",
        action="append",
        type=_setting("stop", "--stop", str),
        metavar="TEXT",
        help="end the answer before TEXT; may be repeated",
    )


def sampling_of(args: argparse.Namespace) -> Sampling | None:
    """What the arguments say; None when they say nothing."""
    names = [name for _, name, *_ in _OPTIONS]
    given = {name: getattr(args, name) for name in (*names, "seed", "stop")}
    given["logit_bias"] = dict(args.logit_bias) if args.logit_bias else None
    if all(value is None for value in given.values()):
        return None
    from ..inference.sampling import Sampling

    return Sampling(**given)


def _setting(name: str, flag: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that reads a value and sees whether it makes sense."""

    def read(text: str) -> Any:
        from ..inference.sampling import Sampling

        try:
            value = kind(text)
            Sampling(**{name: value})
        except (ValueError, OverflowError):
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        except EngineError as error:
            problem = str(error).partition("; ")[2]
            raise argparse.ArgumentTypeError(f"{text!r}: {problem}") from None
        return value

    read.__name__ = flag
    return read


def _seed(text: str) -> int:
    if text == "random":
        import secrets

        return secrets.randbits(63)
    return _setting("seed", "--seed", int)(text)


def _bias(text: str) -> tuple[int, float]:
    token, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        pair = int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ID=NUMBER, such as 151645=-2 or 11=-inf"
        ) from None
    _setting("logit_bias", "--logit-bias", lambda _: dict([pair]))(text)
    return pair
