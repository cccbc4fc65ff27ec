"""For which feature sets a kernel is tested, and in which forms.

A kernel asks a feature set for little. Those that differ in nothing that it asks for get the same
IR (`tests/jit/test_targets.py` compares it): the most capable one stands for all of them. A test
file says in `ASKS` what its kernels ask for besides `COMMON`; without it they run on all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

from triplepoint.jit.targets import TARGETS, CpuTarget, detect, runnable

NATIVE = [target.name for target in runnable()]
ARM = [t.name for t in TARGETS.values() if t.arch == "aarch64" and t.name not in NATIVE]
COMMON = ("arch", "lanes", "registers", "has_fma", "has_f16")
DOT, BF16 = "dot", "bf16"  # what only some kernels ask for besides

T = TypeVar("T")


def names(fixture: str, asks: Iterable[str] = (DOT, BF16)) -> list[str]:
    """The feature sets of a fixture of `tests/jit/conftest.py`, one for all that are alike.

    asks: as a file's `ASKS`.
    """
    every = NATIVE if fixture == "native" else [*NATIVE, *ARM]
    return [alike[-1] for alike in groups(every, asks)]


def groups(every: Iterable[str], asks: Iterable[str]) -> list[list[str]]:
    """These feature sets, those beside each other that are alike."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name in every:
        kind = tuple(getattr(TARGETS[name], ask) for ask in (*COMMON, *asks))
        found.setdefault(kind, []).append(name)
    return list(found.values())


def label(name: str) -> str:
    return f"{name}-qemu" if name in ARM else name


def on(fixture: str, asks: Iterable[str]) -> pytest.MarkDecorator:
    """The feature sets of one test, whose kernels ask for less than others of the file."""
    found = names(fixture, asks)
    return pytest.mark.parametrize(fixture, found, indirect=True, ids=map(label, found))


def in_turn(
    fixture: str,
    name: str,
    values: Sequence[Any],
    asks: Iterable[str] = (DOT, BF16),
    quick: Sequence[Any] | None = None,
) -> pytest.MarkDecorator:
    """Every value on this machine's best feature set, on each other one the next of them.

    For what is the same code whatever the feature set, so that all pairs would show nothing more.
    With `quick` all but those values are slow.
    """
    slow = [] if quick is None else [value for value in values if value not in quick]
    pairs = [
        pytest.param(
            one,
            value,
            id=f"{label(one)}-{value}",
            marks=[pytest.mark.slow] if value in slow else [],
        )
        for n, one in enumerate(names(fixture, asks))
        for value in some(values, TARGETS[one], n)
    ]
    return pytest.mark.parametrize((fixture, name), pairs, indirect=[fixture])


def some(values: Sequence[T], target: CpuTarget, n: int) -> list[T]:
    """All values on this machine's best feature set, elsewhere the n-th, counted round."""
    return list(values) if target == detect() else [values[n % len(values)]]


def place(target: CpuTarget) -> int:
    """A number of each feature set, for `some`."""
    return list(TARGETS).index(target.name)


def arguments(mark: pytest.Mark) -> list[str]:
    """What a `parametrize` gives."""
    named = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [n.strip() for n in named.split(",")] if isinstance(named, str) else list(named)
