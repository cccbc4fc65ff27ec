"""The results file: one JSON line per attempt, durable before the next one starts.

A killed process leaves whole lines, and perhaps a torn one, which the next writer truncates. An
attempt counts as done while its task, model and setting are unchanged (``cell``), and unless a
technical error ended it (``status`` ``error``): then it is repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...arguments import Closing, is_file
from ...errors import SettingError
from ...traces.append_log import claim

Row = dict[str, Any]
Key = tuple[str, str, str, int]
"""Key of an attempt: task, model, setting, repeat."""

VERSION = 1
_OPENING = b'{"suite"'  # of every line


def key_of(row: Row) -> Key:
    """Return the key of a row's attempt."""
    return row["task"], row["model"], row["setting"], row["repeat"]


class ResultsFile(Closing):
    """The results file, open for one writer.

    Raises:
        SettingError: it cannot be opened, holds something else, or has a writer.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        if not is_file(path, "cannot write the results", SettingError) and path.exists():
            raise SettingError(f"cannot write the results {path}: it is not a regular file")
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
            self._file = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        except OSError as error:
            raise SettingError(f"cannot write the results {path}: {error.strerror}") from None
        try:
            if not claim(self._file.fileno()):
                raise SettingError(f"{self.path}: another eval is writing to it")
            self.rows = {key_of(row): row for row in self._whole_rows()}
            if fresh:
                self._file.truncate(0)
                self.rows = {}
        except BaseException:
            self._file.close()
            raise

    def _whole_rows(self) -> Iterator[Row]:
        """Yield the complete rows; truncate a torn tail."""
        data = self._file.read()
        end = data.rfind(b"\n") + 1
        rows = list(_rows(data[:end].splitlines(), self.path))
        if end < len(data):
            torn = data[end:]
            # A power failure may leave zeros at the end: the length was stored, the text not.
            zeros = end > 0 and not torn.strip(b"\0")
            if not (zeros or torn.startswith(_OPENING[: len(torn)])):
                raise SettingError(f"{self.path} is not a results file; name another with -o")
            self._file.truncate(end)
        yield from rows

    def add(self, row: Row) -> None:
        """Append a row durably.

        Raises:
            SettingError: the disk refused it.
        """
        data = (json.dumps({"suite": "", **row, "v": VERSION}, default=str) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._file.fileno(), data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise SettingError(f"cannot write {self.path}: {error.strerror}") from error
        self.rows[key_of(row)] = row

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_rows(path: Path) -> list[Row]:
    """Read a results file: the last row of each attempt, without a torn line.

    Raises:
        SettingError: it cannot be read, or holds something else.
    """
    if not is_file(path, "cannot read the results", SettingError) and path.exists():
        raise SettingError(f"cannot read the results {path}: it is not a regular file")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SettingError(f"cannot read the results {path}: {error.strerror}") from None
    whole = data[: data.rfind(b"\n") + 1]
    return list({key_of(row): row for row in _rows(whole.splitlines(), path)}.values())


def _rows(lines: Sequence[bytes], path: Path) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            hash((key_of(row), row["cell"], row["status"], row["passed"]))
            _ = row["questions"], row["usage"]
            if row["v"] != VERSION:
                raise SettingError(
                    f"{path} was written by another version; name another file with -o"
                )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SettingError(
                f"{path}, line {number}: not a results row; name another file with -o"
            ) from None
        yield row
