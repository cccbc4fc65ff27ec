"""Profiles of use from records: traces, and rows of results with their usage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SettingError, TraceError
from ...traces.events import PassEvent, PhaseEvent, RunEnd, TurnEnd
from ...traces.reader import Trace
from .cost import Speeds

GOOD = ("passed", "correct")  # fields of a row of results that say whether the answer is right
DONE = ("answered", "ok", "done", "passed")  # values of `status` of a row that has neither
_MAX = 1 << 53  # tokens of a question
_COUNTS = ("input_tokens", "cached_tokens", "output_tokens")
_ATTEMPT = ("task", "model", "setting", "repeat")
_OF_MAP = {"input_tokens": "prompt", "cached_tokens": "cached", "output_tokens": "generated"}
"""Fields of usage, by their names in results of `triplepoint map`."""


@dataclass
class Recorded:
    """Sums over the recorded questions."""

    questions: int = 0
    answered: int = 0
    """Number of questions, and of those with useful answers."""
    input: int = 0
    cached: int = 0
    output: int = 0
    """Tokens of all questions."""
    steps: int = 0
    """Number of replies of the model."""
    prefill_tokens: int = 0
    prefill_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    """Computed tokens, and the seconds that they took."""
    joules: float = 0.0
    joules_s: float = 0.0
    """Energy of the CPU packages in the phases that have it, and the seconds of these."""
    weights: int = 0
    """Number of weights of the model; 0: unknown."""
    model: str = ""
    """The model's name."""

    @property
    def speeds(self) -> Speeds | None:
        """The recorded speeds; None without recorded times."""
        if not (self.prefill_tokens and self.prefill_s and self.decode_tokens and self.decode_s):
            return None
        return Speeds(
            self.prefill_tokens / self.prefill_s, self.decode_tokens / self.decode_s, "recorded"
        )

    @property
    def watts(self) -> float | None:
        """Mean power of the CPU packages during phases; None if no phase recorded it."""
        return self.joules / self.joules_s if self.joules_s else None

    def add_trace(self, trace: Trace) -> None:
        """Add all runs of a trace."""
        for run in trace.runs:
            if run.header is not None:
                self.weights = run.header.model.parameters or self.weights
                self.model = run.header.model.name or self.model
            passes: list[PassEvent] = []
            for event in run.events:
                if isinstance(event, PassEvent):
                    passes.append(event)
                elif isinstance(event, TurnEnd):
                    self._add(event.input_tokens, event.cached_tokens, event.output_tokens)
                elif isinstance(event, RunEnd):
                    self.answered += event.status == "answered"
                    if event.status != "answered":  # no `turn_end` tells of it
                        self._add(*(event.totals.get(name, 0) for name in _COUNTS))
                elif isinstance(event, PhaseEvent):
                    self._phase(event, own_seconds(event, passes))
                    passes = []

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Add a row of results; one without usage still counts as a question."""
        usage = row.get("usage") or {}
        if not isinstance(usage, Mapping):
            raise SettingError(f"usage must be an object, not {usage!r}")
        counts = [usage.get(name, usage.get(_OF_MAP[name], 0)) for name in _COUNTS]
        for name, count in zip(_COUNTS, counts, strict=True):
            if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < _MAX:
                raise SettingError(f"usage.{name} must be a number of tokens, not {count!r}")
        self._add(*counts)
        steps = usage.get("steps", 0)
        self.steps += steps if isinstance(steps, int) and 0 < steps < _MAX else 0
        # Of `map` a column of the questions may have that name, such as the text of the right one.
        verdicts = (row[name] for name in GOOD if name in row)
        known = [one for one in verdicts if isinstance(one, bool | int | float | None)]
        self.answered += bool(known[0]) if known else row.get("status", "answered") in DONE

    def _add(self, prompt: int, cached: int, output: int) -> None:
        self.questions += 1
        self.input += prompt
        self.cached += min(cached, prompt)
        self.output += output

    def _phase(self, phase: PhaseEvent, seconds: float) -> None:
        if phase.joules is not None:
            self.joules, self.joules_s = self.joules + phase.joules, self.joules_s + phase.wall_s
        if phase.phase == "prefill":
            self.prefill_tokens += phase.kv_after - phase.kv_before - phase.shared_tokens
            self.prefill_s += seconds
        else:
            self.steps += 1
            self.decode_tokens += phase.tokens
            self.decode_s += seconds


def own_seconds(phase: PhaseEvent, passes: Sequence[PassEvent]) -> float:
    """Return a phase's machine time in seconds, without the time it waited for other agents.

    Of passes with rows of others that is its share; of the time besides, in which they waited as
    it did, the part of one among as many.

    Args:
        passes: the shared ones of the phase.
    """
    if phase.shared is None or not phase.shared.passes:
        return phase.wall_s
    share = phase.shared.seconds
    alone = max(0, phase.passes - phase.shared.passes)
    count = phase.shared.passes
    at_once = (count * max(1.0, phase.shared.sequences) + alone) / (count + alone)
    besides = phase.wall_s - max(share, sum(one.wall_s for one in passes))
    return min(phase.wall_s, share + max(0.0, besides) / at_once)


def read_recorded(paths: Iterable[Path]) -> Recorded:
    """Sum the use in traces and files of results, JSON lines with ``usage`` in each row.

    Raises:
        TraceError, SettingError: a file cannot be read, or has no questions with tokens in it.
    """
    found, names = Recorded(), []
    for path in paths:
        names.append(str(path))
        rows = _rows(path)
        if rows is None:
            found.add_trace(Trace.load(path))
            continue
        for number, row in _standing(rows):
            try:
                found.add_row(row)
            except SettingError as error:
                raise SettingError(f"{path}, row {number}: {error}") from None
    if not found.questions or not found.input or not found.output:
        raise SettingError(
            f"{', '.join(names)}: no answered question with token counts; give traces, or "
            "results whose rows have usage"
        )
    return found


def _standing(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the numbered rows that count: for `eval`, with ``cell``, only the last of each
    attempt, without technical failures."""
    last: dict[object, tuple[int, Mapping[str, Any]]] = {}
    for number, row in enumerate(rows, 1):
        attempt = tuple(str(row.get(name)) for name in _ATTEMPT)
        last[attempt if "cell" in row else number] = number, row
    return [
        (n, row) for n, row in last.values() if "cell" not in row or row.get("status") != "error"
    ]


def _rows(path: Path) -> Sequence[Mapping[str, Any]] | None:
    """Return the rows of results; None if it is a trace, or no such file."""
    try:
        if not path.is_file():
            return None
        with path.open(encoding="utf-8") as file:
            first = file.readline(1 << 20)
            if _begins_trace(first):
                return None
            text = first + file.read()
    except (OSError, UnicodeDecodeError):
        return None  # `Trace.load` says what is wrong
    try:
        whole = json.loads(text)
        rows = whole.get("results", [whole]) if isinstance(whole, dict) else whole
    except (ValueError, RecursionError):
        rows = _lines(text, path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingError(f"{path} is neither a trace nor a results file")
    return rows


def _begins_trace(line: str) -> bool:
    """Return whether a first line is of a trace; rows of results may have an ``event``, too."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):  # cut off
        return line.startswith('{"v":')
    return isinstance(found, dict) and {"v", "event"} <= found.keys() and "usage" not in found


def _lines(text: str, path: Path) -> list[Any]:
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        raise TraceError(f"{path} is neither a trace nor a results file") from None
