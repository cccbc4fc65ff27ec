"""A warehouse on disk: a duckdb file, or a folder with one and a Parquet copy of each table.

Each batch of traces is one transaction, so that a trace is there once or not at all. The copies are
made at the end of an ingest; one that was killed before leaves it to the next one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import Closing
from ...errors import TraceError
from ..export_tables import DUCKDB_CONFIG, declaration, insert, need_duckdb, quoted
from .extract import Extract, FileRecord
from .schema import COLUMNS, VERSION

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SUFFIXES = (".duckdb", ".db", ".ddb")
_DATABASE = "warehouse.duckdb"
_STALE = ".stale"  # in a folder whose database has more than the copies
_OTHERS = (".sqlite", ".sqlite3", ".csv", ".json", ".jsonl", ".parquet", ".xlsx", ".arrow")
"""Suffixes of other file formats: a target with one is refused, not made a folder."""


def database_of(path: Path) -> Path:
    """Return a warehouse's database: the file itself, or the one in the folder."""
    return path / _DATABASE if path.is_dir() else path


class Store(Closing):
    """A warehouse open for writing; duckdb refuses a second writer.

    Raises:
        TraceError: it cannot be opened, or holds something else.
    """

    def __init__(self, target: Path) -> None:
        in_folder = target.is_dir() or target.suffix not in SUFFIXES
        self._folder = target if in_folder else None
        try:
            path = _in_folder(target) if in_folder else _as_file(target)
        except OSError as error:
            raise TraceError(f"cannot write into {target}: {error.strerror}") from error
        self._database = connect(path)
        try:
            self._make_tables(target)
        except BaseException:
            self.close()
            raise

    def _make_tables(self, target: Path) -> None:
        """Create the tables, or the columns that an older version lacked."""
        there = columns_of(self._database)
        if there:
            check_version(self._database, target)
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

    def known(self) -> dict[str, FileRecord]:
        """Return the rows of the table ``files``, by file name."""
        names = COLUMNS["files"]
        found = self._database.execute(f"SELECT {', '.join(names)} FROM files").fetchall()
        return {row[0]: FileRecord(**dict(zip(names, row, strict=True))) for row in found}

    def add(self, batch: Sequence[Extract], replaced: Sequence[str]) -> None:
        """Insert the rows of a batch of files, and delete the rows of the files replaced."""
        if self._folder is not None:
            (self._folder / _STALE).touch()
        made = [extract.lines_with_record() for extract in batch]
        self._database.execute("BEGIN")
        try:
            for table in COLUMNS if replaced else ():
                query = f'DELETE FROM "{table}" WHERE file IN (SELECT unnest(?))'
                self._database.execute(query, [list(replaced)])
            for table, columns in COLUMNS.items():
                insert(self._database, table, columns, (lines.get(table, "") for lines in made))
            self._database.execute("COMMIT")
        except BaseException:
            self._database.execute("ROLLBACK")
            raise

    def copy_tables(self) -> None:
        """Update the Parquet copies in a folder, each atomically."""
        if self._folder is None or not (self._folder / _STALE).exists():
            return
        for table in COLUMNS:
            path = self._folder / table
            path.mkdir(exist_ok=True)
            made = path / ".part"
            self._database.execute(
                f"COPY \"{table}\" TO '{quoted(made)}' (FORMAT parquet, COMPRESSION zstd)"
            )
            os.replace(made, path / "part-000001.parquet")
        (self._folder / _STALE).unlink()

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _as_file(target: Path) -> Path:
    if not target.parent.is_dir():
        raise TraceError(f"cannot write {target}: the folder {target.parent} does not exist")
    return target


def _in_folder(target: Path) -> Path:
    """Return the database in a folder of ours, or in a new or empty one."""
    if target.is_file() or (target.suffix in _OTHERS and not target.is_dir()):
        raise TraceError(
            f"{target} is a file, or called as one; name a folder for Parquet files, or a file "
            "that ends in .duckdb"
        )
    target.mkdir(parents=True, exist_ok=True)
    path = target / _DATABASE
    if not path.exists() and any(target.iterdir()):
        raise TraceError(f"{target} contains other files; name a new or empty folder")
    return path


def connect(path: Path | str, *, read_only: bool = False) -> DuckDBPyConnection:
    """Open a database file; remove it again where opening failed halfway.

    Raises:
        TraceError: it cannot be opened.
    """
    duckdb = need_duckdb()
    if "?" in str(path):
        raise TraceError(f"cannot open {path}: duckdb takes no path with a question mark")
    there = os.path.lexists(path)
    try:
        return duckdb.connect(str(path), read_only=read_only, config=DUCKDB_CONFIG)
    except duckdb.Error as error:
        if not (there or read_only):
            Path(path).unlink(missing_ok=True)  # duckdb would not take it the next time
        reason = str(error).partition("\n")[0]
        raise TraceError(f"cannot open {path}: {reason}") from None


def columns_of(database: DuckDBPyConnection) -> dict[str, set[str]]:
    """Return the columns of each existing table."""
    found: dict[str, set[str]] = {}
    for table, column in database.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
    ).fetchall():
        found.setdefault(table, set()).add(column)
    return found


def check_version(database: DuckDBPyConnection, path: Path) -> None:
    """Refuse anything but a warehouse of this version.

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
