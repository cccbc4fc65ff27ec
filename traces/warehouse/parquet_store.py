"""A warehouse as a folder of Parquet files: ``TABLE/part-NUMBER.parquet``, a number for each batch.

A batch is written in a hidden folder beside the tables. Then `_commit.json` says which numbers
come and which go, and the files are moved; whoever opens the folder after a kill does what is left
of it. So a trace is there once or not at all, also where a batch replaces rows of older parts:
those parts are written anew without them.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import TraceError
from ..append_log import claim
from ..export_tables import DUCKDB_CONFIG, json_source, need_duckdb, quoted
from .duckdb_store import records, write_lines
from .extract import Extract
from .schema import COLUMNS, VERSION

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MARK = "_warehouse.json"
JOURNAL = "_commit.json"
_STAGING = ".staging"
_LOCK = ".lock"


class ParquetStore:
    """The folder, open for writing by one process.

    Raises:
        TraceError: it is another folder with files in it, or is being written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._open()
        except OSError as error:
            raise TraceError(f"cannot write into {folder}: {error.strerror}") from error

    def _open(self) -> None:
        mark = self.folder / MARK
        if not mark.exists():
            begun = _beside(mark).name  # by one that was killed
            if self.folder.exists() and any(p.name != begun for p in self.folder.iterdir()):
                raise TraceError(f"{self.folder} contains other files; name a new or empty folder")
            self.folder.mkdir(parents=True, exist_ok=True)
            _write_json(mark, {"version": VERSION})  # before all else: it says that this is ours
        check_version(self.folder)
        for table in COLUMNS:
            (self.folder / table).mkdir(exist_ok=True)
        self._lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if not claim(self._lock):
            os.close(self._lock)
            raise TraceError(f"{self.folder}: another ingest is writing to it")
        self._database = need_duckdb().connect(config=DUCKDB_CONFIG)
        self._finish()
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)

    def known(self) -> list[dict[str, Any]]:
        """The rows of ``files``."""
        files = parts(self.folder, "files")
        if not files:
            return []
        query = "SELECT * FROM read_parquet(?, union_by_name = true)"
        return records(self._database.execute(query, [files]))

    def add(self, batch: Sequence[Extract], replaced: Sequence[str]) -> None:
        """Put files in, and take out what was there of those that are replaced."""
        staging = self.folder / _STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        number = self._next()
        for table, path in write_lines(batch, staging).items():
            source = json_source(str(path), COLUMNS[table])
            self._copy(f"SELECT * FROM {source}", table, number)
            path.unlink()
        added, removed = [number], []
        for old in self._numbers_of(replaced):
            number += 1
            self._rewrite(old, number, replaced)
            added.append(number)
            removed.append(old)
        _write_json(self.folder / JOURNAL, {"add": added, "remove": removed})
        self._finish()

    def close(self) -> None:
        """Let another process write."""
        self._database.close()
        os.close(self._lock)

    def _copy(self, query: str, table: str, number: int) -> None:
        folder = self.folder / _STAGING / table
        folder.mkdir(exist_ok=True)
        target = folder / _part(number)
        self._database.execute(
            f"COPY ({query}) TO '{quoted(target)}' (FORMAT parquet, COMPRESSION zstd)"
        )

    def _next(self) -> int:
        return 1 + max(
            (int(p.stem[5:]) for p in self.folder.glob("files/part-*.parquet")), default=0
        )

    def _numbers_of(self, names: Sequence[str]) -> list[int]:
        """The parts that hold rows of these files."""
        files = parts(self.folder, "files")
        if not names or not files:
            return []
        found = self._database.execute(
            "SELECT DISTINCT filename FROM read_parquet(?, filename = true) "
            "WHERE list_contains(?, file)",
            [files, list(names)],
        )
        return sorted(int(Path(row[0]).stem[5:]) for row in found.fetchall())

    def _rewrite(self, old: int, new: int, without: Sequence[str]) -> None:
        with _names(self._database, without):
            for table in COLUMNS:
                path = self.folder / table / _part(old)
                if path.exists():
                    source = f"SELECT * FROM read_parquet('{quoted(glob.escape(str(path)))}')"
                    self._copy(f"{source} WHERE file NOT IN (SELECT file FROM gone)", table, new)

    def _finish(self) -> None:
        """Do what the journal says, as far as it is not done."""
        journal = self.folder / JOURNAL
        if not journal.exists():
            return
        plan = json.loads(journal.read_text())
        for table in COLUMNS:
            for number in plan["remove"]:
                (self.folder / table / _part(number)).unlink(missing_ok=True)
            for number in plan["add"]:
                staged = self.folder / _STAGING / table / _part(number)
                if staged.exists():
                    os.replace(staged, self.folder / table / _part(number))
        journal.unlink()


@contextmanager
def _names(database: DuckDBPyConnection, names: Sequence[str]) -> Iterator[None]:
    database.execute("CREATE TEMP TABLE gone (file VARCHAR)")
    try:
        database.executemany("INSERT INTO gone VALUES (?)", [[name] for name in names])
        yield
    finally:
        database.execute("DROP TABLE gone")


def _part(number: int) -> str:
    return f"part-{number:06}.parquet"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    """A file that is there whole or not at all."""
    beside = _beside(path)
    with beside.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def check_version(folder: Path) -> None:
    """Say so where a folder is not a warehouse that this version reads.

    Raises:
        TraceError: it is another folder, or of another version.
    """
    try:
        found = json.loads((folder / MARK).read_text())
    except (OSError, ValueError):
        raise TraceError(
            f"{folder} is not a folder that `triplepoint trace ingest … -o FOLDER` made"
        ) from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise TraceError(
            f"{folder} was made by another version of triplepoint; ingest the traces into a new "
            "folder"
        )


def parts(folder: Path, table: str) -> list[str]:
    """The files of a table, in order, as duckdb reads them: it takes a name for a pattern."""
    return [glob.escape(str(path)) for path in sorted((folder / table).glob("part-*.parquet"))]
