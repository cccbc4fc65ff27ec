"""Finds and loads the recorded runs of `examples/runs`."""

from __future__ import annotations

from pathlib import Path

from ...errors import TraceError
from ...traces.reader import Trace

SUFFIX = ".jsonl"


def root() -> Path:
    """Return the checkout of this file, or the working directory for a pip installation."""
    package = Path(__file__).parents[2]
    return package if _is_checkout(package) else Path.cwd()


def folder() -> Path:
    """Return the folder of the recorded runs, which only a checkout has."""
    return root() / "examples" / "runs"


def names() -> list[str]:
    """Return the names of the recorded runs."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def holds(path: Path) -> bool:
    """Return whether a file is a recorded run of any checkout."""
    folder = path.resolve().parent
    return folder.parts[-2:] == ("examples", "runs") and _is_checkout(folder.parents[1])


def _is_checkout(folder: Path) -> bool:
    return (folder / "examples" / "incident").is_dir()


def load(name: str) -> Trace:
    """Load a recorded run.

    Raises:
        TraceError: there is none of that name; says which there are.
    """
    if name not in names():
        known = ", ".join(names()) or "none; they are in examples/runs of a source checkout"
        raise TraceError(f"no recorded run {name!r}; known: {known}")
    return Trace.load(folder() / f"{name}{SUFFIX}")
