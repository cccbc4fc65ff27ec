"""Read-only access to a warehouse: no query can change it or reach outside."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from ...arguments import Closing
from ...errors import TraceError
from ..export_tables import lock, selected
from .schema import COLUMNS
from .store import SUFFIXES, check_version, columns_of, connect, database_of


@cache
def queries() -> dict[str, str]:
    """Return the reports' SQL by name, and under ``views`` that of their shared views."""
    text = Path(__file__).with_name("reports.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^--- (\w+).*\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


def is_warehouse(path: Path) -> bool:
    """Return whether a path is a warehouse: a duckdb file, or a folder with one of ours."""
    return database_of(path).exists() if path.is_dir() else path.suffix in SUFFIXES


class Warehouse(Closing):
    """A read-only connection to a warehouse.

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
        if not is_warehouse(self.path):
            raise TraceError(
                f"{self.path} is not a database of traces; ingest it first: `triplepoint trace "
                f"ingest {self.path} -o traces.duckdb`"
            )
        self._database = connect(database_of(self.path), read_only=True)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        check_version(self._database, self.path)
        there = columns_of(self._database)
        if any(columns.keys() - there.get(table, set()) for table, columns in COLUMNS.items()):
            raise TraceError(
                f"{self.path} was made by an older triplepoint; ingest into it again to add the "
                "missing columns"
            )
        self._database.execute(queries()["views"])
        lock(self._database)

    def ask(
        self, sql: str, values: Mapping[str, Any] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a query; return its column names and rows.

        Raises:
            TraceError: the query is wrong, or wants to write.
        """
        with self.cursor(sql, values) as (names, batches):
            return names, [row for batch in batches for row in batch]

    def cursor(
        self, sql: str, values: Mapping[str, Any] | None = None
    ) -> AbstractContextManager[tuple[list[str], Iterator[list[tuple[Any, ...]]]]]:
        """Run a query; yield its column names and an iterator of row batches."""
        return selected(self._database, sql, values)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()
