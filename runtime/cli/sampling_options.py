"""Options for how tokens are sampled."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ...errors import EngineError
from .option_groups import OptionGroup, Section, option

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..engine.sampling.settings import Sampling

_OWN = ("temperature", "top_k", "top_p", "seed", "stop")
"""Settings with an option of their own."""


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
    known = {one.name: str(one.type) for one in fields(Sampling) if one.name not in _OWN}
    if not equals or key not in known:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not KEY=VALUE with one of the keys {', '.join(known)}"
        )
    if key == "logit_bias":
        return key, _bias(value)
    kinds: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "Sequence[str]": _words}
    kind = kinds[known[key].removesuffix(" | None")]
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


class SamplingOptions(OptionGroup):
    """Options for how tokens are sampled."""

    title = Section("sampling", "defaults: the model file's settings, else greedy decoding")
    temperature: float | None = option(
        *("--temp", "--temperature", "T"), type=_setting("temperature", "--temp", float)
    )
    """sampling temperature; 0 takes the most likely token"""
    top_k: int | None = option("N", type=_setting("top_k", "--top-k", int))
    """sample from the N most likely tokens; 0: all"""
    top_p: float | None = option("P", type=_setting("top_p", "--top-p", float))
    """sample from the most likely tokens whose probabilities add up to P"""
    seed: int | None = option("N", type=_seed)
    """random seed, or `random`; the same seed gives the same text (default: 0)"""
    stop: list[str] | None = option("TEXT", action="append", type=_setting("stop", "--stop", str))
    """end the answer before TEXT; repeatable"""
    sampling: list[tuple[str, Any]] | None = option("KEY=VALUE", action="append", type=_pair)
    """any other setting: min_p=0.05, repeat_penalty=1.1, presence_penalty=0.5,
    frequency_penalty=0.5, penalty_last=64, logit_bias=ID:X (-inf forbids a token), typical_p,
    xtc_probability, dry_multiplier, mirostat and so on; repeatable"""


def sampling_of(args: argparse.Namespace) -> Sampling | None:
    """Return the sampling of the arguments; None if they set nothing."""
    given = {name: getattr(args, name) for name in _OWN}
    for name, value in args.sampling or ():
        given[name] = {**given.get(name, {}), **value} if name == "logit_bias" else value
    if all(value is None for value in given.values()):
        return None
    from ..engine.sampling.settings import Sampling

    return Sampling(**given)
