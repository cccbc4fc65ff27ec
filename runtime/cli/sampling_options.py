"""Options for how tokens are sampled."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...errors import EngineError
from .arguments import group_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.sampling.settings import Sampling

_OWN: dict[str, tuple[tuple[str, ...], str, Callable[[str], Any], str]] = {
    "temperature": (
        ("--temp", "--temperature"),
        "T",
        float,
        "sampling temperature; 0 takes the most likely token",
    ),
    "top_k": (("--top-k",), "N", int, "sample from the N most likely tokens; 0: all"),
    "top_p": (
        ("--top-p",),
        "P",
        float,
        "sample from the most likely tokens whose probabilities add up to P",
    ),
}
"""Settings with an option of their own: flags, value, type, help."""
_WHOLE = ("top_k", "seed", "penalty_last", "min_keep", "mirostat")
_WHOLE += ("dry_allowed_length", "dry_penalty_last_n")
_LISTS = ("order", "dry_sequence_breakers")


def add_sampling_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of sampling, in a group of their own."""
    group = group_of(verb, "sampling", "defaults: the model file's settings, else greedy decoding")
    for name, (flags, metavar, kind, text) in _OWN.items():
        read = _setting(name, flags[0], kind)
        group.add_argument(*flags, dest=name, metavar=metavar, type=read, help=text)
    group.add_argument(
        "--seed",
        type=_seed,
        metavar="N",
        help="random seed, or `random`; the same seed gives the same text (default: 0)",
    )
    group.add_argument(
        "--stop",
        action="append",
        type=_setting("stop", "--stop", str),
        metavar="TEXT",
        help="end the answer before TEXT; repeatable",
    )
    group.add_argument(
        "--sampling",
        action="append",
        type=_pair,
        metavar="KEY=VALUE",
        help="any other setting: min_p=0.05, repeat_penalty=1.1, presence_penalty=0.5, "
        "frequency_penalty=0.5, penalty_last=64, logit_bias=ID:X (-inf forbids a token), "
        "typical_p, xtc_probability, dry_multiplier, mirostat and so on; repeatable",
    )


def sampling_of(args: argparse.Namespace) -> Sampling | None:
    """Return the sampling of the arguments; None if they set nothing."""
    given = {name: getattr(args, name) for name in (*_OWN, "seed", "stop")}
    for name, value in args.sampling or ():
        given[name] = {**given.get(name, {}), **value} if name == "logit_bias" else value
    if all(value is None for value in given.values()):
        return None
    from ..engine.sampling.settings import Sampling

    return Sampling(**given)


def _setting(name: str, flag: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that parses a value and validates it."""

    def read(text: str) -> Any:
        from ..engine.sampling.settings import Sampling

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


def _pair(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE into the name of a setting in `Sampling` and its value."""
    from dataclasses import fields

    from ..engine.sampling.settings import Sampling

    key, equals, value = text.partition("=")
    key = key.replace("-", "_")
    known = [one.name for one in fields(Sampling) if one.name not in (*_OWN, "seed", "stop")]
    if not equals or key not in known:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not KEY=VALUE with one of the keys {', '.join(known)}"
        )
    if key == "logit_bias":
        return key, _bias(value)
    kind = _words if key in _LISTS else int if key in _WHOLE else float
    return key, _setting(key, "--sampling", kind)(value)


def _words(text: str) -> list[str]:
    return text.split(",")


def _bias(text: str) -> dict[int, float]:
    token, colon, value = text.partition(":")
    try:
        if not colon:
            raise ValueError
        bias = {int(token): float(value)}
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ID:NUMBER, such as 151645:-2 or 11:-inf"
        ) from None
    return _setting("logit_bias", "--sampling", lambda _: bias)(text)
