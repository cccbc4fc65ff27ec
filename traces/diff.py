"""Compares two runs: where they diverge, which regimes changed, and their times.

Phases are aligned by turn, step and kind. As long as the tokens are the same the two runs did the
same work, and a ratio of times says something about machine, target or settings. After the first
difference they may still be laid side by side, but they did other things.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from .events import PhaseEvent, RunStart, ToolEvent
from .reader import Trace

_HEADER = ("target", "threads", "kv")
_VERSIONS = ("triplepoint", "kernels", "llvmlite")


@dataclass(frozen=True)
class TokenDifference:
    """The first token that differs."""

    phase: int
    """Index in `Diff.phases`, from 0."""
    position: int
    """Index among the tokens of its phase, from 0."""
    first: int | None
    """Token id in the first run; None when its phase had ended before."""
    second: int | None


@dataclass(frozen=True)
class PhasePair:
    """Aligned phases of two runs; None for a run that lacks the phase."""

    first: PhaseEvent | None
    second: PhaseEvent | None

    @property
    def either(self) -> PhaseEvent:
        """Return the first run's phase, or the second's if the first run has none."""
        found = self.first or self.second
        assert found is not None
        return found

    @property
    def time_ratio(self) -> float | None:
        """Return the second run's time divided by the first's; None if one lacks the phase."""
        if self.first is None or self.second is None or self.first.wall_s <= 0:
            return None
        return self.second.wall_s / self.first.wall_s

    @property
    def same_work(self) -> bool:
        """Return whether both phases have the same tokens and context lengths."""
        a, b = self.first, self.second
        return a is not None and b is not None and (
            (a.tokens, a.kv_before, a.kv_after) == (b.tokens, b.kv_before, b.kv_after)
        )  # fmt: skip

    @property
    def regime_changed(self) -> bool:
        """Return whether both phases exist and are in different regimes."""
        a, b = self.first, self.second
        return a is not None and b is not None and a.regime != b.regime


@dataclass
class Diff:
    """The differences between two runs."""

    settings: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Name and both values of each setting that differs."""
    phases: list[PhasePair] = field(default_factory=list)
    tools: list[tuple[ToolEvent | None, ToolEvent | None]] = field(default_factory=list)
    """Pairs of aligned tool calls that differ in name, arguments or result."""
    first_difference: TokenDifference | None = None
    tokens_known: bool = True
    """False where a redacted run hides its tokens, so that only their numbers are compared."""
    answers: tuple[str | None, str | None] = (None, None)

    @property
    def same_tokens(self) -> bool:
        """Return whether no token differs and no phase is missing."""
        return self.first_difference is None and all(p.first and p.second for p in self.phases)

    @property
    def regime_changes(self) -> list[PhasePair]:
        """Return the pairs of phases in different regimes."""
        return [pair for pair in self.phases if pair.regime_changed]

    def total(self, pairs: Iterable[PhasePair] | None = None) -> tuple[float, float]:
        """Return the total seconds of each run over the pairs of phases with the same work."""
        chosen = [p for p in (self.phases if pairs is None else pairs) if p.same_work]
        first = sum(p.first.wall_s for p in chosen if p.first)
        return first, sum(p.second.wall_s for p in chosen if p.second)


def compare(first: Trace, second: Trace) -> Diff:
    """Compare the last run of one trace with the last run of another."""
    first, second = ((trace.runs or [trace])[-1] for trace in (first, second))
    diff = Diff(settings=_settings(first.header, second.header))
    diff.tokens_known = not (first.redacted or second.redacted)
    diff.phases = _aligned(first.phases, second.phases)
    diff.first_difference = _first_difference(diff)
    diff.tools = [
        (a, b)
        for a, b in zip_longest(first.tools, second.tools)
        if _call(a, diff.tokens_known) != _call(b, diff.tokens_known)
    ]
    diff.answers = first.answer, second.answer
    return diff


def _settings(a: RunStart | None, b: RunStart | None) -> list[tuple[str, Any, Any]]:
    if a is None or b is None:
        return []
    config = [name for name in {**a.config, **b.config} if name != "notes"]
    pairs = [
        ("model", a.model.name, b.model.name),
        ("model.sha256", a.model.sha256[:12], b.model.sha256[:12]),
        ("machine.cpu", a.machine.cpu, b.machine.cpu),
        *((name, getattr(a, name), getattr(b, name)) for name in _HEADER),
        *((name, a.config.get(name), b.config.get(name)) for name in config),
        *((f"{n} version", a.versions.get(n), b.versions.get(n)) for n in _VERSIONS),
        ("tools", _names(a), _names(b)),
        ("task", a.task, b.task),
    ]
    return [(name, x, y) for name, x, y in pairs if x != y]


def _names(header: RunStart) -> list[str]:
    functions = [schema.get("function") for schema in header.tools]
    return [str(f.get("name")) for f in functions if isinstance(f, dict)]


def _aligned(first: list[PhaseEvent], second: list[PhaseEvent]) -> list[PhasePair]:
    """Pair the n-th phases of a kind in the same step of the same turn."""
    a, b = _placed(first), _placed(second)
    keys = sorted({*a, *b})
    return [PhasePair(a.get(key), b.get(key)) for key in keys]


def _placed(phases: list[PhaseEvent]) -> dict[tuple[int, int, int, int], PhaseEvent]:
    placed: dict[tuple[int, int, int, int], PhaseEvent] = {}
    for phase in phases:
        kind = 0 if phase.phase == "prefill" else 1
        number = 0
        while (key := (phase.turn, phase.step, number, kind)) in placed:
            number += 1
        placed[key] = phase
    return placed


def _first_difference(diff: Diff) -> TokenDifference | None:
    for index, pair in enumerate(diff.phases):
        a, b = pair.first, pair.second
        if a is None or b is None:
            return None  # a phase is missing: `same_tokens` says so
        if not diff.tokens_known:
            if a.tokens != b.tokens:
                return TokenDifference(index, min(a.tokens, b.tokens), None, None)
            continue
        for position, (x, y) in enumerate(zip_longest(a.token_ids, b.token_ids)):
            if x != y:
                return TokenDifference(index, position, x, y)
    return None


def _call(tool: ToolEvent | None, known: bool) -> Any:
    """Return the key that two calls are compared by; hashes of a redacted run are its own."""
    if tool is None:
        return None
    if not known:
        return tool.name, bool(tool.error)
    return tool.name, tool.arguments, tool.result_sha256
