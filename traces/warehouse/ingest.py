"""Ingests traces into a warehouse: in batches, by several processes, each trace once.

A file whose size and time are as they were is skipped, one that grew or changed is replaced. What
cannot be read is reported with its reason, now and at every ingest that meets it again.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ...errors import TraceError
from ..end_with_parent import end_with_parent
from ..find import SUFFIX
from .extract import Extract, FileRecord, extract, name_of
from .store import Store

_BATCH_FILES = 500
_BATCH_CHARACTERS = 64 << 20
_CHUNK = 16  # files that a process gets at once
_ALONE = 64  # files that are read sooner than processes start


@dataclass
class Summary:
    """A summary of an ingest.

    Attributes:
        files: that were found; new, replaced, unchanged: what became of those that can be read;
            problems: records of all that are not whole, those from earlier among them.
        rows: that were written; seconds: that it took.
    """

    files: int = 0
    new: int = 0
    replaced: int = 0
    unchanged: int = 0
    rows: int = 0
    seconds: float = 0.0
    problems: list[FileRecord] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """Return the number of files without rows in the tables."""
        return sum(not record.usable for record in self.problems)


Progress = Callable[[int, int], None]


def ingest(
    sources: Iterable[str],
    target: str | Path,
    *,
    texts: bool = False,
    tokens: bool = False,
    jobs: int = 0,
    progress: Progress | None = None,
) -> Summary:
    """Ingest traces into a warehouse.

    Args:
        sources: files, folders (all ``*.jsonl`` in them, however deep) and patterns.
        target: a file that ends in ``.duckdb``, or a folder for Parquet files; made if not there.
        texts: with questions, answers, arguments and results.
        tokens: with token ids.
        jobs: processes that read; 0: one for each core.
        progress: called with the files done and their number.

    Raises:
        TraceError: a source is not there, the target cannot be written, or duckdb is missing.
    """
    began = time.perf_counter()
    paths = find(sources)
    done = Summary(files=len(paths))
    with ExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # as private as traces
        store = stack.enter_context(Store(Path(target)))
        known = store.known()
        same, todo = _sorted_out(paths, known, texts, tokens)
        again = {name_of(path) for path in todo}
        writer = _Writer(store, known, done, again)
        for old in same:
            writer.skip(old)
        if progress:
            progress(len(paths) - len(todo), len(paths))
        read = partial(extract, texts=texts, tokens=tokens)
        for number, found in enumerate(_extracts(stack, todo, read, jobs), 1):
            writer.put(found)
            if progress:
                progress(len(paths) - len(todo) + number, len(paths))
        writer.flush()
        with _writing():
            store.copy_tables()
    done.problems.sort(key=lambda record: record.file)
    done.seconds = time.perf_counter() - began
    return done


@contextmanager
def _writing() -> Iterator[None]:
    """Translate duckdb's errors, mostly of a full disk."""
    try:
        yield
    except TraceError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise TraceError(f"cannot write the tables: {reason}") from error


def find(sources: Iterable[str]) -> list[str]:
    """Return the files that paths and patterns match, each once, by name.

    Raises:
        TraceError: a word means nothing.
    """
    found: dict[str, str] = {}
    for source in sources:
        if os.path.lexists(source):
            paths = [source]
        else:
            paths = sorted(glob.glob(source, recursive=True)) if glob.has_magic(source) else []
            if not paths:
                raise TraceError(f"no traces: {source} does not exist")
        for named in paths:
            for path in _below(named) if os.path.isdir(named) else [named]:
                found.setdefault(os.path.realpath(path), path)
    if not found:
        raise TraceError(f"no traces in {', '.join(sources)}: none of the files ends in {SUFFIX}")
    return [found[name] for name in sorted(found)]


def _below(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise TraceError(f"cannot read the folder {error.filename}: {error.strerror}") from error

    for parent, _, names in os.walk(folder, onerror=refuse):
        yield from (os.path.join(parent, name) for name in names if name.endswith(SUFFIX))


def _sorted_out(
    paths: Sequence[str], known: dict[str, FileRecord], texts: bool, tokens: bool
) -> tuple[list[FileRecord], list[str]]:
    """Return the records of unchanged files, and the files to read."""
    same = {path: known[name] for path in paths if (name := name_of(path)) in known}
    same = {path: old for path, old in same.items() if not _changed(path, old, texts, tokens)}
    again = {name_of(path) for path in paths if path not in same}
    # A copy of what a file was is no copy any more once that has changed, or is gone.
    copied = {old.sha256 for old in same.values() if old.status == "duplicate"}
    whole = {
        row.sha256
        for name, row in known.items()
        if name not in again and row.usable and row.sha256 in copied and os.path.exists(name)
    }
    same = {
        path: old for path, old in same.items() if old.status != "duplicate" or old.sha256 in whole
    }
    return list(same.values()), [path for path in paths if path not in same]


def _changed(path: str, old: FileRecord, texts: bool, tokens: bool) -> bool:
    """Return whether a file has more than the warehouse knows."""
    try:
        about = os.stat(path)
    except OSError:
        return True
    if (about.st_size, about.st_mtime_ns) != (old.size, old.mtime_ns):
        return True
    more = (texts and not old.texts) or (tokens and not old.tokens)
    return more and old.usable


def _extracts(
    stack: ExitStack, paths: Sequence[str], read: Callable[[str], Extract], jobs: int
) -> Iterator[Extract]:
    """Yield every file's rows, in order."""
    jobs = min(jobs or _cores(), 1 + len(paths) // _ALONE)
    if jobs == 1:
        yield from map(read, paths)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Not forked: duckdb has threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    window = _CHUNK * jobs * 16  # files in flight: what is read ahead stays in memory
    try:
        for start in range(0, len(paths), window):
            yield from pool.map(read, paths[start : start + window], chunksize=_CHUNK)
    except BrokenProcessPool:
        raise TraceError(
            "a reader process was killed, perhaps because memory ran out; what it read before "
            "is kept. Ingest again with --jobs 1"
        ) from None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Writer:
    """Gathers files into batches, and finds those that are there under another name."""

    def __init__(
        self, store: Store, known: dict[str, FileRecord], done: Summary, again: set[str]
    ) -> None:
        self._store = store
        self._known = known
        self._done = done
        self._hashes = {
            row.sha256: name for name, row in known.items() if row.usable and name not in again
        }
        self._batch: list[Extract] = []
        self._moved: list[str] = []
        self._size = 0

    def skip(self, old: FileRecord) -> None:
        """Count a file that is as it was; what was wrong with it still is."""
        self._done.unchanged += old.usable
        if old.status != "ok":
            self._done.problems.append(old)

    def put(self, found: Extract) -> None:
        """Add a file that was read."""
        record = found.record
        if record.usable:
            self._look_for_the_same(found)
        if record.usable:
            self._hashes[record.sha256] = record.file
            if record.file in self._known:
                self._done.replaced += 1
            else:
                self._done.new += 1
            self._done.rows += found.count
        if record.status != "ok":
            self._done.problems.append(record)
        self._batch.append(found)
        self._size += sum(map(len, found.lines.values()))
        if len(self._batch) >= _BATCH_FILES or self._size >= _BATCH_CHARACTERS:
            self.flush()

    def _look_for_the_same(self, found: Extract) -> None:
        """Report and skip a copy; a moved file replaces its old name."""
        record = found.record
        other = self._hashes.get(record.sha256)
        if other is None or other == record.file:
            return
        if not os.path.exists(other):
            self._moved.append(other)
            return
        record.status, record.problem = "duplicate", f"the same as {other}"
        found.lines, found.count = {}, 0

    def flush(self) -> None:
        """Write what was gathered, whole or not at all."""
        if not self._batch:
            return
        names = [one.record.file for one in self._batch]
        replaced = [name for name in names if name in self._known] + self._moved
        with _writing():
            self._store.add(self._batch, replaced)
        self._known.update((one.record.file, one.record) for one in self._batch)
        self._batch, self._moved, self._size = [], [], 0
