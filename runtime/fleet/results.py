"""Results: a JSON object a line, synced before it is acknowledged, without duplicates.

During a run, lines are in the order in which rows finished, each batch of them written at
once and synced. A torn last line, of a driver that was killed, is dropped when the file is opened
again. At the end of a run the file is put in the order of the rows, if that is wanted.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import RowError
from ...traces.append_log import claim

_OPENING = b'{"row": '  # of every line
FAILED = ("error", "poison")
"""Statuses of rows that `Results.forget_failed` requeues."""


class Results:
    """The results of a run; `path` None keeps them in memory.

    Raises:
        RowError: the file holds something else, or another run writes it.
        OSError: it cannot be opened.

    Attributes:
        done: status of each row that has a result, by key; row_numbers: its number, likewise.
        counts: results of each status.
        dearest: the highest cost of one of them.
        numbers: tokens, seconds and cost of all of them, by name.
        priced: how many of them have a cost for what they used.
        unpriced: tokens and seconds of those that have no cost.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.done: dict[str, str] = {}
        self.row_numbers: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.numbers: dict[str, float] = {}
        self.dearest = 0.0
        self.priced = 0
        self.unpriced: defaultdict[str, float] = defaultdict(float)
        self._spans: dict[str, tuple[int, int]] = {}  # offset and bytes of each line
        self._end = 0
        self._file: BinaryIO = io.BytesIO()
        if path is None:
            return
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
        self._file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        try:
            self._claim(path)
            self._read(path)
            self._append(_OPENING)  # a full disk is an error before any row starts
            self._file.truncate(self._end)
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self.done)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return the results, as in the file."""
        for key in self._spans:
            yield json.loads(self._line(key))

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        """Write results durably; a row's second result is dropped.

        Raises:
            OSError: the disk refused them; none of them is there.
        """
        lines: list[tuple[Mapping[str, Any], bytes]] = []
        for one in results:
            if one["key"] not in self.done and all(one["key"] != o["key"] for o, _ in lines):
                # ASCII: half a character in a model's answer has an escape, too.
                lines.append((one, json.dumps(one, default=str).encode() + b"\n"))
        if not lines:
            return
        self._append(b"".join(line for _, line in lines))
        for one, line in lines:
            self._note(one, line)

    def _append(self, data: bytes) -> None:
        """Append data and sync; raise OSError, and leave nothing written, if the disk refuses."""
        try:
            self._file.seek(self._end)
            while data:
                data = data[self._file.write(data) or 0 :]
            if self.path is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def forget_failed(self) -> int:
        """Drop the results of failed rows; return their number."""
        failed = {key for key, status in self.done.items() if status in FAILED}
        if failed:
            self._rewrite([key for key in self._spans if key not in failed])
        return len(failed)

    def sort(self, order: Mapping[str, int]) -> None:
        """Sort the lines in the order of the rows, atomically.

        Raises:
            OSError: the new file cannot be written; the old one is as it was.
        """
        keys = sorted(self._spans, key=lambda key: order.get(key, len(order)))
        if keys != list(self._spans):
            self._rewrite(keys)

    def close(self) -> None:
        """Close the file; results in memory stay."""
        if self.path is not None:
            self._file.close()

    def _note(self, result: Mapping[str, Any], line: bytes) -> None:
        key = result["key"]
        self.done[key] = result["status"]
        self.row_numbers[key] = result.get("row")
        self.counts[result["status"]] += 1
        self._spans[key] = (self._end, len(line))
        self._end += len(line)
        usage = result.get("usage")
        counts = {"seconds": result.get("seconds"), "cost": result.get("cost")}
        has_cost = isinstance(result.get("cost"), int | float)
        # One that failed before it began counts for nothing.
        self.priced += has_cost and bool(usage)
        for name, value in {**(usage if isinstance(usage, dict) else {}), **counts}.items():
            if isinstance(value, int | float):
                self.numbers[name] = self.numbers.get(name, 0) + value
                if name == "cost":
                    self.dearest = max(self.dearest, value)
                elif not has_cost:
                    self.unpriced[name] += value

    def _note_end(self, key: str) -> None:
        offset, size = self._spans[key]
        self._spans[key] = (offset, size + 1)
        self._end += 1

    def _line(self, key: str) -> bytes:
        offset, size = self._spans[key]
        self._file.seek(offset)
        data = b""
        while len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def _claim(self, path: Path) -> None:
        """Lock the file for one writer."""
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise RowError(
                f"{path} is not a regular file; results must be readable when a run resumes"
            )
        if not claim(self._file.fileno()) or not self._is_at(path):
            raise RowError(f"{path}: another run is writing to it")

    def _is_at(self, path: Path) -> bool:
        """Return whether the open file is still at `path`: a run that sorts replaces it.

        The one that was opened before then is free to claim, but its contents would be lost.
        """
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(path))
        except FileNotFoundError:
            return False

    def _read(self, path: Path) -> None:
        """Read the file; truncate it after the last whole line."""
        result, line = None, b""
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                result = _result_of(line)
                ours = line.startswith(_OPENING[: len(line)])
                # A power failure may leave zeros at the end: the length was stored, the text not.
                ours = ours or (number > 1 and not line.strip(b"\0"))
                if result is None and ours and not line.endswith(b"\n"):
                    break  # torn: its row runs again
                if result is None:
                    raise RowError(
                        f"{path}, line {number} is not a result; give another file, or fix the line"
                    )
                if result["key"] in self.done:
                    raise RowError(
                        f"{path}, line {number}: this row already has a result; remove one of "
                        "the two"
                    )
                self._note(result, line)
        self._file.truncate(self._end)
        if result is not None and not line.endswith(b"\n"):  # all of it is there but its end
            self._file.seek(self._end)
            self._file.write(b"\n")
            self._note_end(result["key"])

    def _rewrite(self, keys: list[str]) -> None:
        """Replace the file atomically by the lines of these rows, in this order."""
        lines = map(self._line, keys)
        if self.path is None:
            fresh = Results(None)
            for line in lines:
                fresh.add([json.loads(line)])
            self._take(fresh)
            return
        target = self.path.resolve()  # a link stays one
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(self._file.fileno()).st_mode))
            fresh = Results(Path(name))  # claimed before others can find it
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        folder = os.open(target.parent, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system that cannot sync a folder
            os.fsync(folder)
        os.close(folder)
        self._file.close()
        self._take(fresh)

    def _take(self, fresh: Results) -> None:
        vars(self).update(vars(fresh), path=self.path)


def _result_of(line: bytes) -> dict[str, Any] | None:
    """Parse the result of a line; None where it is missing or incomplete."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    good = isinstance(found, dict) and isinstance(found.get("key"), str)
    return found if good and isinstance(found.get("status"), str) else None
