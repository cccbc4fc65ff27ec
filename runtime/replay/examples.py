"""The library of recorded runs, `examples/runs`: finding and loading them."""

from __future__ import annotations

from pathlib import Path

from ...errors import TraceError
from ...traces.reader import Trace

SUFFIX = ".jsonl"


def root() -> Path:
    """The checkout: where this file is, or, if pip installed it without its examples, here."""
    package = Path(__file__).parents[2]
    return package if _is_checkout(package) else Path.cwd()


def folder() -> Path:
    """Where the recorded runs are: in a checkout, not in what pip installs."""
    return root() / "examples" / "runs"


def names() -> list[str]:
    """The recorded runs that are there."""
    return sorted(path.stem for path in folder().glob(f"*{SUFFIX}"))


def holds(path: Path) -> bool:
    """Whether a file is a recorded run of some checkout, this one or another."""
    folder = path.resolve().parent
    return folder.parts[-2:] == ("examples", "runs") and _is_checkout(folder.parents[1])


def _is_checkout(folder: Path) -> bool:
    return (folder / "examples" / "incident").is_dir()


def load(name: str) -> Trace:
    """A recorded run.

    Raises:
        TraceError: there is none of that name; says which there are.
    """
    if name not in names():
        known = ", ".join(names()) or "none; they are in examples/runs of a source checkout"
        raise TraceError(f"no recorded run {name!r}; known: {known}")
    return Trace.load(folder() / f"{name}{SUFFIX}")
