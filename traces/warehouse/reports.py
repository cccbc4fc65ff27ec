"""Ready questions to a warehouse: what took the time, what failed, how wrong predictions were.

Times are the phases' wall times: of agents that ran at once they add up to more than the clock
showed. Tokens of a tool are those of the calls that the model wrote (``call tokens``) and of the
results that it then read (``result tokens``); calls of one step share them, results by their
lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ...errors import SettingError
from ..events import REGIMES
from ..sanitize import short
from ..timeline import duration, rate
from .reading import Warehouse
from .report_sql import SQL

Kind = Literal["text", "count", "seconds", "share", "rate", "factor", "money"]
_WIDTH = 60  # characters of a text in a table


@dataclass(frozen=True)
class Column:
    """A column of a report: ``name`` in CSV and JSON, ``heading`` where people read it."""

    name: str
    heading: str
    kind: Kind = "text"

    def shown(self, value: Any) -> str:
        """A value as people read it."""
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
    """What a report found: values as they are, by column."""

    columns: Sequence[Column]
    rows: list[dict[str, Any]]

    @property
    def words(self) -> list[int]:
        """The columns that stand to the left."""
        return [i for i, column in enumerate(self.columns) if column.kind == "text"]

    def cells(self) -> list[list[str]]:
        """The rows as people read them."""
        return [[column.shown(row[column.name]) for column in self.columns] for row in self.rows]


@dataclass(frozen=True)
class Report:
    """A question that is always the same.

    Attributes:
        about: what a reader should know; bar: the column that a bar is drawn of; bound: the column
            whose bound gives the bar its color.
    """

    name: str
    title: str
    about: str
    columns: Sequence[Column]
    bar: str = ""
    limited: bool = False
    matrix: bool = field(default=False)

    def run(self, opened: Warehouse, limit: int | None = 20) -> Found:
        """Ask it; ``limit`` is the number of rows of a report of single turns, None: all."""
        _, rows = opened.ask(SQL[self.name], [limit] if self.limited else [])
        if self.matrix:
            return _matrix(rows)
        names = [column.name for column in self.columns]
        return Found(self.columns, [dict(zip(names, row, strict=True)) for row in rows])


def _matrix(rows: list[tuple[Any, ...]]) -> Found:
    """From regime × to regime, in the order in which the regimes are named."""
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


def _count(name: str, heading: str = "") -> Column:
    return Column(name, heading or name.replace("_", " "), "count")


def _seconds(name: str, heading: str) -> Column:
    return Column(name, heading, "seconds")


def _share(name: str, heading: str) -> Column:
    return Column(name, heading, "share")


_TIME = (_seconds("time_s", "time"), _share("time_share", "share"))
_SPEED = Column("tokens_per_s", "tok/s", "rate")
_PHASES = (_count("phases"), _count("tokens"))
_RUNS = (
    *(_count("runs"), _count("turns"), _share("answered", "answered")),
    *(_count("input_tokens", "input"), _share("cached", "cached")),
    *(_count("output_tokens", "output"), *_TIME),
    *(Column("prefill_per_s", "prefill tok/s", "rate"),),
    *(Column("decode_per_s", "decode tok/s", "rate"), _seconds("ttft_s", "median TTFT")),
)
_TURN = (Column("run", "run"), _count("turn"), Column("model", "model"))

REPORTS = {
    report.name: report
    for report in (
        Report(
            "overview",
            "Contents",
            "Files by status; the tables contain the rows of files that are ok, torn or newer.",
            (
                *(Column("status", "files"), _count("files", "number"), _count("runs")),
                *(_count("turns"), _count("phases"), _count("tool_calls")),
                *(_count("input_tokens", "input"), _count("output_tokens", "output")),
                *(_seconds("time_s", "time in phases"), _seconds("tool_s", "in tools")),
            ),
            bar="files",
        ),
        Report(
            "phases",
            "Time and tokens by phase",
            "What prefills read, what decodes wrote, and what was recomputed.",
            (
                *(Column("phase", "phase"), Column("purpose", "for"), *_PHASES),
                *(_count("cached_tokens", "cached"), _count("reread_tokens", "computed again")),
                *(*_TIME, _SPEED),
            ),
            bar="time_s",
        ),
        Report(
            "regimes",
            "Time and tokens by regime",
            "Of limit: time-weighted share of the machine's measured limit.",
            (
                *(Column("regime", "regime"), *_PHASES, *_TIME, _SPEED),
                *(_share("limit_share", "of limit"), _share("as_predicted", "as predicted")),
            ),
            bar="time_s",
        ),
        Report(
            "tools",
            "Time and tokens by tool",
            "Call tokens: written to call the tool. Result tokens: read after it returned.",
            (
                *(Column("tool", "tool"), _count("calls"), _count("errors"), _count("denied")),
                *(_TIME[0], _TIME[1], _seconds("median_s", "median"), _seconds("p95_s", "p95")),
                *(_count("result_characters", "characters"), _count("call_tokens")),
                _count("result_tokens"),
            ),
            bar="time_s",
        ),
        Report(
            "models",
            "Time and tokens by model",
            "Answered: share of questions with an answer. Cached: input that was not recomputed.",
            (Column("model", "model"), Column("quant", "weights"), *_RUNS),
            bar="time_s",
        ),
        Report(
            "machines",
            "Time and tokens by machine",
            "A machine is a CPU, a kernel target and a number of threads.",
            (
                *(Column("cpu", "CPU"), Column("target", "target"), _count("threads")),
                *_RUNS,
            ),
            bar="time_s",
        ),
        Report(
            "turns",
            "Slowest turns",
            "Time from the first to the last event of a question; see the trace for details.",
            (
                *_TURN,
                *(_seconds("wall_s", "time"), _seconds("engine_s", "engine")),
                *(_seconds("tool_s", "tools"), _seconds("ttft_s", "TTFT"), _count("steps")),
                *(_count("input_tokens", "input"), _count("cached_tokens", "cached")),
                *(_count("output_tokens", "output"), Column("file", "file")),
            ),
            bar="wall_s",
            limited=True,
        ),
        Report(
            "rereads",
            "Most re-read turns",
            "Tokens that were computed before and had to be recomputed.",
            (
                *_TURN,
                *(
                    _count("reread_tokens", "computed again"),
                    _count("recomputed_tokens", "evicted"),
                ),
                *(_seconds("reread_s", "time"), _count("input_tokens", "input")),
                *(_share("cached", "cached"), Column("label", "what differed")),
                Column("file", "file"),
            ),
            bar="reread_tokens",
            limited=True,
        ),
        Report(
            "failures",
            "Failures by kind",
            "Questions without an answer, failed or denied calls, replies that repeated "
            "themselves, and incomplete files.",
            (
                *(Column("what", "what"), Column("kind", "kind"), _count("number")),
                *(_count("runs"), _share("share", "of all such"), Column("example", "an example")),
            ),
            bar="number",
        ),
        Report(
            "transitions",
            "Regime transitions",
            "For the phases in each regime: the regime of the run's next phase.",
            (),
            matrix=True,
        ),
        Report(
            "predictions",
            "Prediction error",
            "Factor: measured time over predicted time. A roofline predicts the minimum time, a "
            "calibration the expected time.",
            (
                *(Column("predicted_by", "by"), Column("regime", "regime"), _count("phases")),
                *(Column("p10", "p10", "factor"), Column("median", "median", "factor")),
                *(Column("p90", "p90", "factor"), Column("p99", "p99", "factor")),
                *(_share("mean_error", "mean error"), _share("as_predicted", "bound as predicted")),
                *_TIME,
            ),
            bar="mean_error",
        ),
    )
}
"""The reports by name, in the order of the page."""


def chosen(names: Sequence[str]) -> list[Report]:
    """The reports of these names; all, if there are none.

    Raises:
        SettingError: there is no such report; says which there are.
    """
    for name in names:
        if name not in REPORTS:
            raise SettingError(f"no report {name!r}; choose from {', '.join(REPORTS)}")
    return [REPORTS[name] for name in dict.fromkeys(names)] or list(REPORTS.values())
