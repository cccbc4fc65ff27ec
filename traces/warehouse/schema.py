"""The tables of a warehouse: those of a trace, error kinds, and a row for each file.

Questions, answers, arguments, results and messages are left out unless requested, and so
are token ids: their columns are there and hold nothing. docs/analysis.md has every column.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any

from ..reader import Trace
from ..tables import COLUMNS as TRACE_COLUMNS
from ..tables import INTEGER, NUMBER, TEXT, YES_NO, parts, rows_of

VERSION = 2
"""Version of the tables; a warehouse of another version is not added to."""

TOKEN_IDS = "BIGINT[]"

COLUMNS: dict[str, dict[str, str]] = {
    "files": {
        **{"file": TEXT, "status": TEXT, "problem": TEXT, "size": INTEGER, "mtime_ns": INTEGER},
        **{"sha256": TEXT, "events": INTEGER, "runs": INTEGER, "texts": YES_NO, "tokens": YES_NO},
        "ingested_s": NUMBER,
    },
    **TRACE_COLUMNS,
    "phases": {**TRACE_COLUMNS["phases"], "token_ids": TOKEN_IDS},
    "tools": {**TRACE_COLUMNS["tools"], "error_kind": TEXT},
    "turns": {**TRACE_COLUMNS["turns"], "error_kind": TEXT},
}
"""The tables by name: each one's columns and their SQL types."""

CONTENT: dict[str, set[str]] = {
    "runs": {"task"},
    "turns": {"question", "answer", "message"},
    "tools": {"arguments", "result", "error"},
    "messages": {"content"},
}
"""Columns that are empty unless texts were requested."""

USABLE = ("ok", "torn", "newer")
"""Statuses of files whose rows are in the tables."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|«[^»]*»|“[^”]*”")
_NAME = re.compile(r"\S*[/\\]\S*|\S*\w[.=@]\w\S*|\S*\d\S*")
_KIND = 80


def table_rows(trace: Trace, name: str, *, texts: bool, tokens: bool) -> dict[str, list[dict]]:
    """Return a trace's rows by table, without its file's own.

    Args:
        name: of the file, as the tables have it.
        texts: with questions, messages and results.
        tokens: with the ids of every phase.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    runs = parts(trace)
    for table in TRACE_COLUMNS:
        found = []
        left_out = set() if texts else CONTENT.get(table, set())
        for row in chain.from_iterable(rows_of(part, table) for part in runs):
            row["file"] = name
            if table == "tools":
                row["error_kind"] = error_kind(row["error"], row["name"])
            elif table == "turns":
                row["error_kind"] = error_kind(row["message"])
            for column in left_out:
                row[column] = None
            found.append(row)
        tables[table] = found
    if tokens:
        phases = (phase for span, _ in runs for phase in span.log.phases)
        for row, phase in zip(tables["phases"], phases, strict=True):
            row["token_ids"] = phase.token_ids
    return tables


def error_kind(text: str | None, tool: str | None = None) -> str | None:
    """Return an error's kind: its text without names, numbers and quotations.

    It is the text before the first colon, or behind it where that is the tool's name; so the
    kinds of a thousand errors can be counted, and say nothing of what was read or written.
    """
    if not text:
        return None
    if text.startswith("[redacted"):
        return "[redacted]"
    head, _, rest = text.partition(": ")
    if head == tool and rest:
        head = rest.partition(": ")[0]
    head = head.partition("; ")[0].partition("\n")[0]
    head = _NAME.sub("…", _QUOTED.sub("…", head)).strip()
    return (head or "…")[:_KIND]
