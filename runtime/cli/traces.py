"""Traces on the command line: where they are kept, and their JSON form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import user_folder
from ...errors import TraceError

if TYPE_CHECKING:
    from ...traces.reader import Trace


TRACE = "a trace file, a run's name or its beginning, `last`, or a recorded example"
"""How the help names what `load_trace` takes."""


def default_folder() -> Path:
    """The folder of traces in the user's state folder; file names in it sort by time."""
    return user_folder("state") / "traces"


def check_place(path: str | None) -> None:
    """Say at once, before a model is loaded, that a trace cannot be written.

    Args:
        path: the trace file; None for a new one in the state folder.

    Raises:
        TraceError: it, or its folder, may not be written to or is not there.
    """
    wanted = place = Path(path) if path else default_folder()
    # Not Path.exists, which fails where a folder above may not be entered.
    while not os.path.exists(place) and place != place.parent:
        place = place.parent
    if path and place not in (wanted, wanted.parent) and os.access(place, os.X_OK):
        raise TraceError(
            f"cannot write a trace to {wanted}: the folder {wanted.parent} does not exist; create "
            "it first"
        )
    why = "is not writable" if not os.access(place, os.W_OK) else ""
    if place != wanted and not os.path.isdir(place):
        why = "is not a folder"
    if why:
        raise TraceError(
            f"cannot write a trace to {wanted}: {place} {why}; "
            "name a file with --trace, or another state folder with XDG_STATE_HOME"
        )


def trace_json(trace: Trace) -> dict[str, Any]:
    """A whole trace for ``--json``: header, phases without token ids, tools, sums."""
    from dataclasses import asdict

    from ...traces import timeline

    return {
        "trace": str(trace.path),
        "run": trace.header.model_dump() if trace.header else None,
        "answer": trace.answer,
        "status": trace.end.status if trace.end else None,
        "phases": [p.model_dump(exclude={"token_ids", "v", "event"}) for p in trace.phases],
        "tools": [tool.model_dump(exclude={"v", "event"}) for tool in trace.tools],
        "totals": asdict(timeline.totals(trace)),
        "torn": trace.torn,
    }
