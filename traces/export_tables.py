"""The tables of traces as CSV and Parquet, and SQL over them.

CSV needs nothing. Parquet and SQL are duckdb's, which is in the extra ``analysis``.
"""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import TraceError
from .reader import Trace
from .sanitize import printable
from .tables import COLUMNS, TEXT, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute


def write_csv(traces: Iterable[Trace], table: str, file: IO[str]) -> int:
    """One table as CSV with a heading; gives the number of rows.

    Control characters are escapes, as everywhere that a terminal may be; a text that a spreadsheet
    would take for a formula begins with an apostrophe.
    """
    columns = COLUMNS[table]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for count, row in enumerate(rows(traces, table), 1):  # noqa: B007 - given back below
        writer.writerow([_cell(row[name], kind) for name, kind in columns.items()])
    return count


def _cell(value: Any, kind: str) -> Any:
    if value is None:
        return ""
    if kind != TEXT:
        return value
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_parquet(traces: Sequence[Trace], table: str, path: Path) -> int:
    """One table as a Parquet file; gives the number of rows.

    Raises:
        TraceError: duckdb is not installed, or the file cannot be written.
    """
    with connect(traces, [table]) as database:
        target = str(path).replace("'", "''")
        try:
            database.execute(f"COPY {table} TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
        except Exception as error:
            raise TraceError(f"cannot write {path}: {error}") from error
        found = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    return found[0] if found else 0


def query(traces: Sequence[Trace], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of the columns and rows of an SQL query over the tables.

    Raises:
        TraceError: duckdb is not installed, or the query is wrong.
    """
    with connect(traces, list(COLUMNS)) as database:
        # The query reads these tables and nothing else: no file, no network, no extension.
        database.execute("SET enable_external_access = false")
        database.execute("SET lock_configuration = true")
        try:
            done = database.execute(sql)
            names = [column[0] for column in done.description or []]
            return names, done.fetchall()
        except Exception as error:
            raise TraceError(f"the query failed: {error}") from error


def connect(traces: Sequence[Trace], tables: Sequence[str]) -> DuckDBPyConnection:
    """A database in memory that holds the tables of the traces."""
    try:
        import duckdb
    except ImportError:
        raise TraceError(
            "Parquet and SQL need duckdb, which is not installed: "
            "pip install 'triplepoint[analysis]'"
        ) from None
    database = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    try:
        for table in tables:
            _load(database, traces, table)
    except BaseException:
        database.close()
        raise
    return database


def _storable(value: Any) -> Any:
    """What a database takes: no lone surrogate and no NUL in a text, but their escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return value


def _load(database: DuckDBPyConnection, traces: Sequence[Trace], table: str) -> None:
    """One table by way of a file of JSON lines, which is much faster than inserting rows."""
    columns = COLUMNS[table]
    names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    database.execute(f'CREATE TABLE "{table}" ({names})')
    handle, name = tempfile.mkstemp(suffix=".json", prefix="triplepoint-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            count = 0
            for count, row in enumerate(rows(traces, table), 1):  # noqa: B007 - used below
                file.write(json.dumps({k: _storable(v) for k, v in row.items()}) + "\n")
        if count:
            types = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
            source = name.replace("'", "''")
            database.execute(
                f"INSERT INTO \"{table}\" SELECT * FROM read_json('{source}', "
                f"format = 'newline_delimited', columns = {{{types}}}, "
                "maximum_object_size = 1073741824)"
            )
    finally:
        os.unlink(name)
