"""Exports the tables of traces as CSV and Parquet, and runs SQL over them.

CSV needs nothing. Parquet and SQL are duckdb's, which is in the extra ``analysis``.
"""

from __future__ import annotations

import csv
import glob
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from ..arguments import pip_install
from ..errors import TraceError
from .reader import Trace
from .sanitize import printable
from .tables import COLUMNS, TEXT, rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DUCKDB_CONFIG = {"autoinstall_known_extensions": "false"}
_MAX_BIGINT = (1 << 63) - 1  # that a BIGINT holds
_OBJECT = 16 * 2**20  # bytes of a line of JSON that duckdb has room for by default
_FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute


def write_csv(traces: Iterable[Trace], table: str, file: IO[str]) -> int:
    """Write one table as CSV with a heading; return the number of rows.

    Control characters are escapes, as everywhere that a terminal may be; a text that a spreadsheet
    would take for a formula begins with an apostrophe.
    """
    columns = COLUMNS[table]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    count = 0
    for count, row in enumerate(rows(traces, table), 1):  # noqa: B007 - given back below
        writer.writerow([cell(row[name], kind) for name, kind in columns.items()])
    return count


def cell(value: Any, kind: str | None = None) -> Any:
    """Format a value as a CSV cell; without a kind, by its own type."""
    if value is None:
        return ""
    if kind != TEXT and (kind or isinstance(value, int | float)):
        return value
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def write_parquet(traces: Sequence[Trace], table: str, path: Path) -> int:
    """Write one table as a Parquet file; return the number of rows.

    Raises:
        TraceError: duckdb is not installed, or the file cannot be written.
    """
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # as private as a trace
        database = stack.enter_context(connect(traces, [table]))
        try:
            database.execute(f"COPY {table} TO '{quoted(path)}' (FORMAT parquet, COMPRESSION zstd)")
        except Exception as error:
            raise TraceError(f"cannot write {path}: {error}") from error
        found = database.execute(f"SELECT count(*) FROM {table}").fetchone()
    return found[0] if found else 0


def query(
    traces: Sequence[Trace], sql: str, during: AbstractContextManager[object] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run an SQL query over the tables; return its column names and rows.

    Args:
        during: entered while the query runs, when nothing is left to tidy up.

    Raises:
        TraceError: duckdb is not installed, or the query is wrong.
    """
    with connect(traces, list(COLUMNS)) as database:
        lock(database)
        with during or nullcontext(), selected(database, sql) as (names, batches):
            return names, [row for batch in batches for row in batch]


def lock(database: DuckDBPyConnection) -> None:
    """Restrict queries to the tables: no file, network, extension or other database."""
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")


@contextmanager
def selected(
    database: DuckDBPyConnection, sql: str, values: Mapping[str, Any] | None = None
) -> Iterator[tuple[list[str], Iterator[list[tuple[Any, ...]]]]]:
    """Run SQL that must be one SELECT; yield its column names and an iterator of row batches.

    Raises:
        TraceError: the query is wrong, or wants to do something else.
    """
    duckdb = need_duckdb()
    try:
        kinds = [one.type for one in database.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise TraceError("the query failed: give exactly one SELECT")
        done = database.execute(sql, values)
        names = [column[0] for column in done.description or []]
        yield names, iter(lambda: [tuple(map(_plain, row)) for row in done.fetchmany(10_000)], [])
    except duckdb.Error as error:
        raise TraceError(f"the query failed: {error}") from error


def _plain(value: Any) -> Any:
    """Convert an SQL number to a Python number, for CSV and JSON."""
    return float(value) if isinstance(value, Decimal) else value


def need_duckdb() -> ModuleType:
    """Return the duckdb module, or raise an error that says how to install it."""
    try:
        import duckdb
    except ImportError:
        raise TraceError(
            f"Parquet and SQL need duckdb, which is not installed: {pip_install('analysis')}"
        ) from None
    return duckdb


def connect(traces: Sequence[Trace], tables: Sequence[str]) -> DuckDBPyConnection:
    """Open an in-memory database that holds the tables of the traces.

    Raises:
        TraceError: duckdb is not installed, or cannot hold them.
    """
    duckdb = need_duckdb()
    try:
        database = duckdb.connect(config=DUCKDB_CONFIG)
        try:
            for table in tables:
                database.execute(declaration(table, COLUMNS[table]))
                insert(database, table, COLUMNS[table], map(json_line, rows(traces, table)))
        except BaseException:
            database.close()
            raise
    except (duckdb.Error, ValueError) as error:
        raise TraceError(f"cannot make the tables: {error}") from error
    return database


def storable(value: Any) -> Any:
    """Escape what a database refuses: lone surrogates and NUL in a text."""
    if isinstance(value, str) and not (value.isascii() and value.isprintable()):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    return value


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as a line for `insert`.

    Raises:
        ValueError: a number is too large for a table.
    """
    for name, value in row.items():
        if isinstance(value, int) and not -_MAX_BIGINT <= value <= _MAX_BIGINT:
            raise ValueError(f"{name} is {value:.3g}, which a table cannot hold")
    return json.dumps({k: storable(v) for k, v in row.items() if v is not None}) + "\n"


def insert(
    database: DuckDBPyConnection, table: str, columns: Mapping[str, str], lines: Iterable[str]
) -> None:
    """Insert rows, given as JSON lines, through a temporary file: faster than one at a time."""
    handle, name = tempfile.mkstemp(suffix=".json", prefix="triplepoint-")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(lines)
        if os.path.getsize(name):
            source = _json_source(name, columns)
            database.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM {source}')
    finally:
        os.unlink(name)


def _json_source(name: str, columns: Mapping[str, str]) -> str:
    """Return SQL for the rows of a file of JSON lines."""
    with open(name, "rb") as file:
        longest = max(map(len, file), default=0)
    types = ", ".join(f"'{column}': '{kind}'" for column, kind in columns.items())
    path = quoted(glob.escape(name))
    return (
        f"read_json('{path}', format = 'newline_delimited', columns = {{{types}}}, "
        # duckdb takes twice as much memory, in older versions for each thread.
        f"maximum_object_size = {max(_OBJECT, longest + 1)})"
    )


def quoted(text: str | Path) -> str:
    """Escape a text for an SQL string literal."""
    return str(text).replace("'", "''")


def declaration(table: str, columns: Mapping[str, str]) -> str:
    """Return the SQL statement that creates a table."""
    names = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
    return f'CREATE TABLE "{table}" ({names})'
