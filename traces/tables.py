"""Converts a trace to tables: runs, turns, phases, passes, tools, messages, layers.

The same rows are exported as CSV and Parquet, queried with SQL, and given as data frames. Every
column has a type in `COLUMNS`, in SQL's words; every row has every column of its table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import SettingError, TraceError
from . import timeline
from .event_log import EventLog
from .events import MessageEvent, PhaseEvent, ShareRecord, ToolEvent
from .spans import Leaf, RunSpan, of_runs

Row = dict[str, Any]

LIBRARIES = ("pandas", "polars")  # of data frames

TEXT, INTEGER, NUMBER, YES_NO = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN"
_WHERE = {"file": TEXT, "run": TEXT, "turn": INTEGER, "step": INTEGER}

COLUMNS: dict[str, dict[str, str]] = {
    "runs": {
        **{"file": TEXT, "run": TEXT, "parent": TEXT, "started_s": NUMBER, "task": TEXT},
        **{"model": TEXT, "model_sha256": TEXT, "architecture": TEXT, "quant": TEXT},
        **{"parameters": INTEGER, "target": TEXT, "threads": INTEGER, "kv": TEXT, "cpu": TEXT},
        **{"cores": INTEGER},
        **{"redacted": YES_NO, "status": TEXT, "turns": INTEGER, "phases": INTEGER},
        **{"transitions": INTEGER, "input_tokens": INTEGER, "cached_tokens": INTEGER},
        **{"output_tokens": INTEGER, "ttft_s": NUMBER, "tpot_s": NUMBER, "engine_s": NUMBER},
        **{"tool_calls": INTEGER, "tool_s": NUMBER, "wall_s": NUMBER},
    },
    "turns": {
        **{"file": TEXT, "run": TEXT, "turn": INTEGER, "question": TEXT, "answer": TEXT},
        **{"steps": INTEGER, "start_s": NUMBER, "wall_s": NUMBER, "input_tokens": INTEGER},
        **{"output_tokens": INTEGER, "cached_tokens": INTEGER, "reread_tokens": INTEGER},
        **{"ttft_s": NUMBER, "tpot_s": NUMBER, "status": TEXT, "message": TEXT},
    },
    "phases": {
        **_WHERE,
        **{"number": INTEGER, "phase": TEXT, "purpose": TEXT, "regime": TEXT},
        **{"predicted_regime": TEXT, "observed": TEXT, "predicted": TEXT, "tokens": INTEGER},
        **{"passes": INTEGER, "kv_before": INTEGER, "kv_after": INTEGER},
        **{"cached_tokens": INTEGER, "shared_tokens": INTEGER, "recomputed_tokens": INTEGER},
        **{"reread_tokens": INTEGER, "reread_s": NUMBER, "reread_label": TEXT},
        **{"drafted_tokens": INTEGER, "accepted_tokens": INTEGER, "forced_tokens": INTEGER},
        **{"finish_reason": TEXT, "start_s": NUMBER, "wall_s": NUMBER},
        **{"tokens_per_s": NUMBER, "gb_per_s": NUMBER, "gflops_per_s": NUMBER},
        **{"flops": NUMBER, "bytes": NUMBER, "mfu": NUMBER, "mbu": NUMBER},
        **{"dispatch_share": NUMBER, "limit_share": NUMBER, "predicted_compute_s": NUMBER},
        **{"predicted_memory_s": NUMBER, "predicted_dispatch_s": NUMBER, "ttft_s": NUMBER},
        **{"predicted_by": TEXT, "predicted_wall_s": NUMBER},
        **{"threads": INTEGER, "plan": TEXT, "memory_level": TEXT, "experts": NUMBER},
        **{"source": TEXT, "model": TEXT, "quant": TEXT, "target": TEXT, "kv": TEXT},
        **{"shared_passes": INTEGER, "shared_s": NUMBER, "shared_flops": NUMBER},
        **{"shared_bytes": NUMBER, "contended": YES_NO, "run_delay_share": NUMBER},
        **{"others_share": NUMBER, "predicted_experts": NUMBER},
        **{"joules": NUMBER},
    },
    "passes": {
        **_WHERE,
        **{"phase": INTEGER, "number": INTEGER, "sequences": INTEGER, "whose": TEXT},
        **{"rows": INTEGER, "own_rows": INTEGER, "own_kv": INTEGER, "why": TEXT, "plan": TEXT},
        **{"threads": INTEGER, "predicted": TEXT, "observed": TEXT, "start_s": NUMBER},
        **{"predicted_wall_s": NUMBER, "wall_s": NUMBER, "flops": NUMBER, "bytes": NUMBER},
        **{"share_s": NUMBER, "share_flops": NUMBER, "share_bytes": NUMBER},
    },
    "tools": {
        **_WHERE,
        **{"number": INTEGER, "name": TEXT, "arguments": TEXT, "result": TEXT},
        **{"result_characters": INTEGER, "result_sha256": TEXT, "start_s": NUMBER},
        **{"duration_s": NUMBER, "error": TEXT, "effect": TEXT, "decision": TEXT},
        **{"decided_by": TEXT, "asked_s": NUMBER, "call_id": TEXT},
    },
    "messages": {
        **_WHERE,
        **{"role": TEXT, "content": TEXT, "characters": INTEGER, "content_sha256": TEXT},
    },
    "layers": {
        **{"file": TEXT, "run": TEXT, "phase": INTEGER, "regime": TEXT, "layer": INTEGER},
        **{"wall_s": NUMBER, "attention_s": NUMBER, "ffn_s": NUMBER, "other_s": NUMBER},
        **{"wait_s": NUMBER, "mfu": NUMBER, "mbu": NUMBER, "observed": TEXT},
    },
}
"""The tables by name: each one's columns and their SQL types."""


_NUMBERS = {
    table: [name for name, kind in columns.items() if kind == NUMBER]
    for table, columns in COLUMNS.items()
}


def rows(traces: EventLog | Iterable[EventLog], table: str) -> Iterator[Row]:
    """Yield the rows of one table, a dict each, over one trace or many.

    Raises:
        ValueError: there is no such table.
    """
    if table not in COLUMNS:
        raise ValueError(f"no table {table!r}; choose from {', '.join(COLUMNS)}")
    for trace in [traces] if isinstance(traces, EventLog) else traces:
        for part in parts(trace):
            yield from rows_of(part, table)


def frame(trace: EventLog, table: str, library: str | None) -> Any:
    """Return one of the trace's tables as a data frame, by default the phases."""
    if library is not None and library not in LIBRARIES:
        raise SettingError(f"no library {library!r}; choose from {', '.join(LIBRARIES)}")
    if not isinstance(table, str) or table not in COLUMNS:
        raise SettingError(f"no table {table!r}; choose from {', '.join(COLUMNS)}")
    wanted = LIBRARIES if library is None else (library,)
    found = next((name for name in wanted if find_spec(name) is not None), None)
    if found is None:
        raise TraceError(
            f"a data frame needs {' or '.join(wanted)}, which is not installed; "
            "`tables.rows` gives the same rows as plain dicts"
        )
    records = list(rows(trace, table))
    columns = {name: [row[name] for row in records] for name in COLUMNS[table]}
    return import_module(found).DataFrame(columns)


Part = tuple[RunSpan, str]
"""One run of a trace, and the name of its file."""


def parts(trace: EventLog) -> list[Part]:
    """Return the runs of a trace, for the rows of several tables."""
    name = "" if trace.path is None else str(trace.path)
    return [(span, name) for span in of_runs(trace)]


def rows_of(part: Part, table: str) -> Iterator[Row]:
    """Yield the rows of one table over one run."""
    span, name = part
    columns = COLUMNS[table]
    for row in _MAKERS[table](span):
        found = {**row, "file": name, "run": span.run}
        whole = {column: found.get(column) for column in columns}
        for column in _NUMBERS[table]:  # what is no number is none, in every format
            value = whole[column]
            if value is not None and not math.isfinite(value):
                whole[column] = None
        yield whole


def _runs(span: RunSpan) -> Iterator[Row]:
    trace, header, sums = span.log, span.header, timeline.totals(span.log)
    row: Row = {
        "started_s": span.start / 1e9,
        "status": trace.end.status if trace.end else None,
        "turns": len(span.begun),
        "phases": len(trace.phases),
        "transitions": len(trace.transitions),
        **vars(sums),
        "wall_s": (span.end - span.start) / 1e9,
        "redacted": trace.redacted,
    }
    if header is not None:
        row |= {
            **{"parent": header.parent, "task": header.task, "cpu": header.machine.cpu},
            "cores": header.machine.cores,
            **{"model_sha256": header.model.sha256, "parameters": header.model.parameters},
            **{"architecture": header.model.architecture, "threads": header.threads},
            **_model(span),
        }
    yield row


def _model(span: RunSpan) -> Row:
    if (header := span.header) is None:
        return {}
    return {
        **{"model": header.model.name, "quant": header.model.quant},
        **{"target": header.target, "kv": header.kv},
    }


def _turns(span: RunSpan) -> Iterator[Row]:
    for turn in span.begun:
        close, end = turn.close, turn.outcome
        row: Row = {
            **{"turn": turn.number, "question": turn.question, "steps": len(turn.steps)},
            "start_s": (turn.start - span.start) / 1e9,
            "wall_s": (turn.end - turn.start) / 1e9,
        }
        if close is not None:
            names = ("answer", "input_tokens", "output_tokens", "cached_tokens", "reread_tokens")
            row |= {name: getattr(close, name) for name in (*names, "ttft_s", "tpot_s")}
        if end is not None:
            row |= {"status": end.status, "message": end.message}
        yield row


def _numbered(span: RunSpan, kind: type[Any]) -> Iterator[tuple[int, Leaf, Any]]:
    """Yield number from 1, leaf and event of each phase or tool call of a run."""
    leaves = [leaf for leaf in span.leaves if isinstance(leaf.event, kind)]
    for number, leaf in enumerate(leaves, 1):
        yield number, leaf, leaf.event


def _phases(span: RunSpan) -> Iterator[Row]:
    model = _model(span)
    for number, leaf, phase in _numbered(span, PhaseEvent):
        wall, shared, miss = phase.wall_s, phase.shared or ShareRecord(), phase.miss
        predicted = {f"predicted_{k}_s": v for k, v in phase.predicted_s.items()}
        yield {
            **phase.model_dump(),
            **predicted,
            **model,
            "number": number,
            "start_s": (leaf.start - span.start) / 1e9,
            "gb_per_s": phase.bytes / wall / 1e9 if wall > 0 else None,
            "gflops_per_s": phase.flops / wall / 1e9 if wall > 0 else None,
            "reread_s": miss.seconds if miss else None,
            "reread_label": miss.label if miss else None,
            "shared_passes": shared.passes,
            "shared_s": shared.seconds,
            "shared_flops": shared.flops,
            "shared_bytes": shared.bytes,
        }


def _passes(span: RunSpan) -> Iterator[Row]:
    for number, leaf, _ in _numbered(span, PhaseEvent):
        for shared in leaf.passes:
            event = shared.event
            own = event.own
            yield {
                **event.model_dump(exclude={"rows", "kv", "sequences"}),
                "phase": number,
                "sequences": len(event.sequences),
                "whose": json.dumps(dict(zip(event.sequences, event.rows, strict=False))),
                "rows": sum(event.rows),
                "own_rows": event.rows[own] if 0 <= own < len(event.rows) else None,
                "own_kv": event.kv[own] if 0 <= own < len(event.kv) else None,
                "start_s": (shared.start - span.start) / 1e9,
            }


def _tools(span: RunSpan) -> Iterator[Row]:
    for number, leaf, tool in _numbered(span, ToolEvent):
        yield {
            **tool.model_dump(),
            "number": number,
            "arguments": json.dumps(tool.arguments, default=str),
            "result_characters": len(tool.result),
            "start_s": (leaf.start - span.start) / 1e9,
        }


def _messages(span: RunSpan) -> Iterator[Row]:
    for event in span.log.events:
        if isinstance(event, MessageEvent):
            yield {**event.model_dump(exclude={"ids"}), "characters": len(event.content)}


def _layers(span: RunSpan) -> Iterator[Row]:
    for number, _, phase in _numbered(span, PhaseEvent):
        for layer in phase.layers:
            yield {**layer.model_dump(), "phase": number, "regime": phase.regime}


_MAKERS = {
    "runs": _runs,
    "turns": _turns,
    "phases": _phases,
    "passes": _passes,
    "tools": _tools,
    "messages": _messages,
    "layers": _layers,
}
