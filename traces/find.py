"""Finds traces: by path, by a run's name, the last one, or all of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ..errors import TraceError
from .reader import Trace
from .retention import SUFFIX, with_stat

LAST = "last"


def resolve(name: str, folder: Path) -> Path:
    """Return the trace file that a command-line name refers to.

    Args:
        name: a path; ``last``; or a run's name or its beginning, in the folder.
        folder: where traces are stored.

    Raises:
        TraceError: no file fits, or more than one.
    """
    if not name:
        raise TraceError("the name of a trace is empty; give a file, a run or last")
    path = Path(name)
    if path.exists() or path.suffix == SUFFIX or len(path.parts) > 1:
        return path
    stats = with_stat(folder)
    paths = list(stats)
    if name == LAST:
        if not paths:
            raise TraceError(f"there are no traces in {folder}; `triplepoint run` writes one")
        # A run that is just beginning, or was killed then, has nothing to show.
        return next((path for path in paths if stats[path].st_size), paths[0])
    found = [path for path in paths if path.stem.startswith(name)]
    exact = [path for path in found if path.stem == name]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if not found:
        raise TraceError(f"no trace {name!r}: neither a file nor a run in {folder}")
    raise TraceError(
        f"{len(found)} traces in {folder} begin with {name!r}, such as {found[0].stem} and "
        f"{found[1].stem}; give more of the name"
    )


def files(folder: Path) -> list[Path]:
    """Return the trace files of a folder, the newest first; empty for a missing folder."""
    return list(with_stat(folder))


def load_all(paths: Iterable[Path]) -> Iterator[tuple[Path, Trace | TraceError]]:
    """Yield each trace, or the error that it cannot be read, so that others are still listed."""
    for path in paths:
        try:
            yield path, Trace.load(path)
        except TraceError as error:
            yield path, error
