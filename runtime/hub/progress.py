"""Progress reports of a download, and sizes for people."""

from __future__ import annotations


class ProgressReporter:
    """A receiver of a download's progress; methods that a subclass does not override do nothing."""

    def begin(self, label: str, total: int) -> None:
        """Start a file of `total` bytes."""

    def at(self, done: int) -> None:
        """Report the number of the file's bytes on disk so far."""

    def note(self, text: str) -> None:
        """Report an event that is worth a line, such as a retry."""


def size_text(count: float) -> str:
    """Format bytes as the Hub's pages do: in thousands, about three digits."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 99.95 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.0f} GB" if count >= 99.95 else f"{count:.2f} GB"
