"""The standard reports of a warehouse: time, failures, prediction errors.

The SQL of each is in `reports.sql`; the columns are those of the query, and `_KINDS` and
`_HEADINGS` say how they are shown. Times are the phases' wall times: of agents that ran at once
they add up to more than the clock showed. Tokens of a tool are those of the calls that the model
wrote (`call tokens`) and of the results that it then read (`result tokens`); calls of one step
share them, results by their lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import SettingError
from ..events import REGIMES
from ..sanitize import short
from ..timeline import duration, rate
from .reading import Warehouse, queries

Kind = Literal["text", "count", "seconds", "share", "rate", "factor", "money"]
_WIDTH = 60  # characters of a text in a table

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("status", "phase", "purpose", "regime", "tool", "model", "quant"), "text"),
    **dict.fromkeys(("cpu", "target", "run", "label", "file", "what", "kind"), "text"),
    **dict.fromkeys(("example", "predicted_by"), "text"),
    **dict.fromkeys(("time_share", "limit_share", "as_predicted", "answered", "cached"), "share"),
    **dict.fromkeys(("share", "mean_error"), "share"),
    **dict.fromkeys(("tokens_per_s", "prefill_per_s", "decode_per_s"), "rate"),
    **dict.fromkeys(("p10", "median", "p90", "p99"), "factor"),
}
"""Kinds of the columns that are neither counts nor, with a name in ``_s``, seconds."""

_HEADINGS = {
    **{"time_s": "time", "wall_s": "time", "reread_s": "time", "time_share": "share"},
    **{"tool_s": "tools", "engine_s": "engine", "median_s": "median", "p95_s": "p95"},
    **{"tokens_per_s": "tok/s", "prefill_per_s": "prefill tok/s", "decode_per_s": "decode tok/s"},
    **{"input_tokens": "input", "cached_tokens": "cached", "output_tokens": "output"},
    **{"reread_tokens": "computed again", "recomputed_tokens": "evicted"},
    **{"result_characters": "characters", "purpose": "for", "limit_share": "of limit"},
    **{"quant": "weights", "cpu": "CPU", "label": "what differed", "share": "of all such"},
    **{"example": "an example", "predicted_by": "by"},
}


@dataclass(frozen=True)
class Column:
    """A column of a report: ``name`` in CSV and JSON, ``heading`` for people."""

    name: str
    heading: str
    kind: Kind = "text"

    def shown(self, value: Any) -> str:
        """Format a value for people."""
        if value is None:
            return ""
        if self.kind == "text":
            return short(str(value), _WIDTH)
        if self.kind == "count":
            return f"{round(value):,}"
        if self.kind == "seconds":
            return duration(value)
        if self.kind == "share":
            return f"{value:.1%}"
        if self.kind == "money":
            return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
        return rate(value) if self.kind == "rate" else f"{value:.2f}×"


@dataclass(frozen=True)
class Found:
    """The result of a report: raw values, by column."""

    columns: Sequence[Column]
    rows: list[dict[str, Any]]

    @property
    def words(self) -> list[int]:
        """Return the left-aligned columns."""
        return [i for i, column in enumerate(self.columns) if column.kind == "text"]

    def cells(self) -> list[list[str]]:
        """Return the rows with their values formatted for people."""
        return [[column.shown(row[column.name]) for column in self.columns] for row in self.rows]


@dataclass(frozen=True)
class Report:
    """A standard report: an SQL query, and how its columns are shown."""

    name: str
    title: str
    about: str
    """A note for readers of the report."""
    bar: str = ""
    """The column that is drawn as bars."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Headings by column, where they differ from the common ones."""
    matrix: bool = False

    @property
    def sql(self) -> str:
        """Return the report's SQL; empty where the report needs no warehouse."""
        return queries().get(self.name, "")

    def run(self, opened: Warehouse, limit: int | None = 20) -> Found:
        """Run the query; ``limit`` bounds the rows of a report of single turns, None for all."""
        sql = self.sql
        names, rows = opened.ask(sql, {"limit": limit} if "$limit" in sql else {})
        if self.matrix:
            return _matrix(rows)
        columns = [Column(name, self._heading(name), _kind(name)) for name in names]
        return Found(columns, [dict(zip(names, row, strict=True)) for row in rows])

    def _heading(self, name: str) -> str:
        if name == "ttft_s":
            return "TTFT" if self.name == "turns" else "median TTFT"
        return self.headings.get(name) or _HEADINGS.get(name) or name.replace("_", " ")


def _kind(name: str) -> Kind:
    return _KINDS.get(name) or ("seconds" if name.endswith("_s") else "count")


def _matrix(rows: list[tuple[Any, ...]]) -> Found:
    """Return a table of regimes × following regimes, in the order of their names."""
    seen = {name for row in rows for name in row[:2]}
    names = [name for name in REGIMES.values() if name in seen]
    counts = {(a, b): count for a, b, count in rows}
    columns = [Column("from", "from"), Column("all", "all", "count")]
    columns += [Column(name, f"→ {name}", "share") for name in names]
    found = []
    for a in names:
        total = sum(counts.get((a, b), 0) for b in names)
        shares = {b: counts.get((a, b), 0) / total if total else None for b in names}
        found.append({"from": a, "all": total, **shares})
    return Found(columns, found)


REPORTS = {
    report.name: report
    for report in (
        Report(
            "overview",
            "Contents",
            "Files by status; the tables contain the rows of files that are ok, torn or newer.",
            bar="files",
            headings={
                **{"status": "files", "files": "number"},
                **{"time_s": "time in phases", "tool_s": "in tools"},
            },
        ),
        Report(
            "phases",
            "Time and tokens by phase",
            "What prefills read, what decodes wrote, and what was recomputed.",
            bar="time_s",
        ),
        Report(
            "regimes",
            "Time and tokens by regime",
            "Of limit: time-weighted share of the machine's measured limit.",
            bar="time_s",
        ),
        Report(
            "tools",
            "Time and tokens by tool",
            "Call tokens: written to call the tool. Result tokens: read after it returned.",
            bar="time_s",
        ),
        Report(
            "models",
            "Time and tokens by model",
            "Answered: share of questions with an answer. Cached: input that was not recomputed.",
            bar="time_s",
        ),
        Report(
            "machines",
            "Time and tokens by machine",
            "A machine is a CPU, a kernel target and a number of threads.",
            bar="time_s",
        ),
        Report(
            "turns",
            "Slowest turns",
            "Time from the first to the last event of a question; see the trace for details.",
            bar="wall_s",
        ),
        Report(
            "rereads",
            "Most re-read turns",
            "Tokens that were computed before and had to be recomputed.",
            bar="reread_tokens",
        ),
        Report(
            "failures",
            "Failures by kind",
            "Questions without an answer, failed or denied calls, replies that repeated "
            "themselves, and incomplete files.",
            bar="number",
        ),
        Report(
            "transitions",
            "Regime transitions",
            "For the phases in each regime: the regime of the run's next phase.",
            matrix=True,
        ),
        Report(
            "predictions",
            "Prediction error",
            "Factor: measured time over predicted time. A roofline predicts the minimum time, a "
            "calibration the expected time.",
            bar="mean_error",
            headings={"as_predicted": "bound as predicted"},
        ),
    )
}
"""The reports by name, in the order of the page."""


def chosen(names: Sequence[str]) -> list[Report]:
    """Return the reports of these names, or all if there are none.

    Raises:
        SettingError: there is no such report; says which there are.
    """
    for name in names:
        if name not in REPORTS:
            raise SettingError(f"no report {name!r}; choose from {', '.join(REPORTS)}")
    return [REPORTS[name] for name in dict.fromkeys(names)] or list(REPORTS.values())
