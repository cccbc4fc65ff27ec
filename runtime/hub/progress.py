"""What a download tells of itself, and sizes as people read them."""

from __future__ import annotations

from typing import Protocol


class ProgressReporter(Protocol):
    """Hears how a download goes."""

    def begin(self, label: str, total: int) -> None:
        """A file of `total` bytes comes next."""
        ...

    def at(self, done: int) -> None:
        """So many bytes of it are there."""
        ...

    def note(self, text: str) -> None:
        """Something that is worth a line: a failure that is tried again."""
        ...


class NullProgress:
    """A watcher that says nothing."""

    def begin(self, label: str, total: int) -> None:
        """Ignore it."""

    def at(self, done: int) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""


def size_text(count: float) -> str:
    """Bytes as the Hub's pages have them: in thousands, three digits or so."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 99.95 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.0f} GB" if count >= 99.95 else f"{count:.2f} GB"
