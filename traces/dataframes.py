"""Tables of a trace as data frames of pandas or polars, whichever is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import SettingError, TraceError
from .event_log import EventLog
from .tables import COLUMNS, rows

LIBRARIES = ("pandas", "polars")


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
