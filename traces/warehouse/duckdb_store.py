"""A warehouse in one duckdb file: each batch of traces is one transaction."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TraceError
from ..export_tables import DUCKDB_CONFIG, declaration, json_source, need_duckdb
from .extract import Extract
from .schema import COLUMNS, VERSION

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUFFIXES = (".duckdb", ".db", ".ddb")


class DuckdbStore:
    """The file, open for writing. Two writers at a time are refused by duckdb.

    Raises:
        TraceError: it cannot be opened, is no duckdb file, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = connect(path)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        """Make the tables, or the columns that an older triplepoint did not have."""
        there = columns_of(self._database)
        if there:
            check_version(self._database, self.path)
        self._database.execute("BEGIN")
        for table, columns in COLUMNS.items():
            if table not in there:
                self._database.execute(declaration(table, columns))
                continue
            for name in columns.keys() - there[table]:
                self._database.execute(f'ALTER TABLE "{table}" ADD COLUMN "{name}" {columns[name]}')
        if not there:
            self._database.execute(f"CREATE TABLE warehouse AS SELECT {VERSION} AS version")
        self._database.execute("COMMIT")

    def known(self) -> list[dict[str, Any]]:
        """The rows of ``files``."""
        return records(self._database.execute("SELECT * FROM files"))

    def add(self, batch: Sequence[Extract], replaced: Sequence[str]) -> None:
        """Put files in, and take out what was there of those that are replaced."""
        with tempfile.TemporaryDirectory(prefix="triplepoint-") as folder:
            sources = write_lines(batch, Path(folder))
            self._database.execute("BEGIN")
            try:
                for table in COLUMNS if replaced else ():
                    query = f'DELETE FROM "{table}" WHERE file IN (SELECT unnest(?))'
                    self._database.execute(query, [list(replaced)])
                for table, path in sources.items():
                    source = json_source(str(path), COLUMNS[table])
                    self._database.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM {source}')
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def records(found: DuckDBPyConnection) -> list[dict[str, Any]]:
    """Return the rows of a query by the names of its columns."""
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def write_lines(batch: Sequence[Extract], folder: Path) -> dict[str, Path]:
    """The rows of a batch as a file of JSON lines for each table that has some."""
    sources: dict[str, Path] = {}
    texts: dict[str, list[str]] = {}
    for extract in batch:
        for table, lines in extract.lines_with_record().items():
            texts.setdefault(table, []).append(lines)
    for table, parts in texts.items():
        sources[table] = folder / f"{table}.json"
        with sources[table].open("w", encoding="ascii") as file:
            file.writelines(parts)
    return sources


def connect(path: Path | str, *, read_only: bool = False) -> DuckDBPyConnection:
    """A connection to a file; one that could not be made, on a full disk say, is not left empty.

    Raises:
        TraceError: it cannot be opened.
    """
    duckdb = need_duckdb()
    there = os.path.lexists(path)
    try:
        return duckdb.connect(str(path), read_only=read_only, config=DUCKDB_CONFIG)
    except duckdb.Error as error:
        if not (there or read_only):
            Path(path).unlink(missing_ok=True)  # duckdb would not take it the next time
        reason = str(error).partition("\n")[0]
        raise TraceError(f"cannot open {path}: {reason}") from None


def columns_of(database: DuckDBPyConnection) -> dict[str, set[str]]:
    """The columns of each table that is there."""
    found: dict[str, set[str]] = {}
    for table, column in database.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
    ).fetchall():
        found.setdefault(table, set()).add(column)
    return found


def check_version(database: DuckDBPyConnection, path: Path) -> None:
    """Say so where a file is not a warehouse that this version reads.

    Raises:
        TraceError: it is another database, or of another version.
    """
    duckdb = need_duckdb()
    try:
        version = database.execute("SELECT version FROM warehouse").fetchone()
    except duckdb.Error:
        raise TraceError(
            f"{path} is not a database of traces; make one with `triplepoint trace ingest … -o "
            "traces.duckdb`"
        ) from None
    if version is None or version[0] != VERSION:
        raise TraceError(
            f"{path} was made by another version of triplepoint; ingest the traces into a new file"
        )
