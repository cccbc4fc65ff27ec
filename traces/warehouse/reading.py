"""A warehouse opened to be asked: nothing that a query says can change it or reach elsewhere."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import Closing
from ...errors import TraceError
from ..export_tables import DUCKDB_CONFIG, declaration, need_duckdb, quoted, selected
from . import duckdb_store, parquet_store
from .schema import COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def is_warehouse(path: Path) -> bool:
    """Whether a path is what an ingest makes: a duckdb file, or a folder with our mark."""
    if path.is_dir():
        return (path / parquet_store.MARK).exists()
    return path.suffix in duckdb_store.SUFFIXES


class Warehouse(Closing):
    """A connection that reads.

    Raises:
        TraceError: there is no such warehouse, an ingest is writing it, or it is of another
            version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise TraceError(
                f"{self.path} does not exist; make it with `triplepoint trace ingest FOLDER -o "
                f"{self.path}`"
            )
        folder = self.path.is_dir()
        if not folder and not (is_warehouse(self.path) and self.path.is_file()):
            raise TraceError(
                f"{self.path} is not a database of traces; ingest it first: `triplepoint trace "
                f"ingest {self.path} -o traces.duckdb`"
            )
        self._database = _views(self.path) if folder else _file(self.path)
        # The tables and nothing else: no file, no network, no extension, no other database.
        if folder:
            place = str(self.path.resolve())
            both = {place, glob.escape(place)}  # duckdb looks at a name before it is a pattern, too
            places = ", ".join(f"'{quoted(one)}/'" for one in both)
            self._database.execute(f"SET allowed_directories = [{places}]")
        self._database.execute("SET enable_external_access = false")
        self._database.execute("SET lock_configuration = true")

    def ask(self, sql: str, values: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of the columns and rows of a query.

        Raises:
            TraceError: the query is wrong, or wants to write.
        """
        with self.cursor(sql, values) as (names, batches):
            return names, [row for batch in batches for row in batch]

    @contextmanager
    def cursor(
        self, sql: str, values: Sequence[Any] = ()
    ) -> Iterator[tuple[list[str], Iterator[list[tuple[Any, ...]]]]]:
        """The same, with rows as they come."""
        # A folder's own files are within reach: what could write to them is no query.
        with selected(self._database, sql, values) as found:
            yield found

    def close(self) -> None:
        """Close it."""
        self._database.close()


def _file(path: Path) -> DuckDBPyConnection:
    database = duckdb_store.connect(path, read_only=True)
    try:
        duckdb_store.check_version(database, path)
        there = duckdb_store.columns_of(database)
        if any(columns.keys() - there.get(table, set()) for table, columns in COLUMNS.items()):
            raise TraceError(
                f"{path} was made by an older triplepoint; ingest into it again to add the "
                "missing columns"
            )
    except BaseException:
        database.close()
        raise
    return database


def _views(folder: Path) -> DuckDBPyConnection:
    """A database in memory whose tables are views of the folder's files."""
    folder = folder.resolve()
    parquet_store.check_version(folder)
    if (folder / parquet_store.JOURNAL).exists():
        raise TraceError(
            f"{folder}: an ingest is writing to it or was interrupted; run the ingest again to "
            "finish"
        )
    database = need_duckdb().connect(config=DUCKDB_CONFIG)
    for table, columns in COLUMNS.items():
        parts = parquet_store.parts(folder, table)
        if not parts:
            database.execute(declaration(table, columns))
            continue
        names = ", ".join(f"'{quoted(part)}'" for part in parts)
        source = f"read_parquet([{names}], union_by_name = true)"
        there = {row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
        shown = "".join(  # columns that an older triplepoint did not have
            f', NULL::{kind} AS "{name}"' for name, kind in columns.items() if name not in there
        )
        database.execute(f'CREATE VIEW "{table}" AS SELECT *{shown} FROM {source}')
    return database
