"""Traces on the command line: their folder and their JSON form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import user_folder

if TYPE_CHECKING:
    from ...traces.reader import Trace


TRACE = "a trace file, a run's name or its beginning, `last`, or a recorded example"
"""The help's description of the argument of `load_trace`."""


def default_folder() -> Path:
    """Return the folder of traces in the user's state folder; file names in it sort by time."""
    return user_folder("state") / "traces"


def trace_json(trace: Trace) -> dict[str, Any]:
    """Return a whole trace for ``--json``: header, phases without token ids, tools, sums."""
    from dataclasses import asdict

    from ...traces import timeline

    return {
        "trace": trace.path and str(trace.path),
        "run": trace.header.model_dump() if trace.header else None,
        "answer": trace.answer,
        "status": trace.end.status if trace.end else None,
        "phases": [p.model_dump(exclude={"token_ids", "v", "event"}) for p in trace.phases],
        "tools": [tool.model_dump(exclude={"v", "event"}) for tool in trace.tools],
        "totals": asdict(timeline.totals(trace)),
        "torn": trace.torn,
    }
