"""Progress of a download: a bar on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ...traces.sanitize import printable
from ..hub.progress import ProgressReporter, size_text
from .output import Output, may_be_lost

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LINE_EVERY = 30.0  # seconds between two lines where there is no terminal


class Bars(ProgressReporter):
    """The progress display of a download on stderr; a context manager.

    Args:
        output: of the command; with ``--json`` only notes are shown.
        bars: whether bars are wanted at all.

    Attributes:
        label, total, done: the name of the file, its size, and the bytes downloaded so far.
    """

    def __init__(self, output: Output, *, bars: bool = True) -> None:
        self._output = output
        self._drawn = bars and sys.stderr.isatty() and not output.as_json
        self._lines = not self._drawn and not output.as_json
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.label, self.total, self.done = "", 0, 0
        self._said_at = 0.0

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begin(self, label: str, total: int) -> None:
        """Start the progress of a new file."""
        self._stop()
        self.label, self.total, self.done = printable(label), total, 0
        self._said_at = time.monotonic()

    def at(self, done: int) -> None:
        """Update the bar to the bytes downloaded so far."""
        self.done = done
        if self._drawn:
            self._bar(done)
        elif self._lines and time.monotonic() - self._said_at > _LINE_EVERY:
            self._said_at = time.monotonic()
            self._say(f"{self.label}: {done / max(1, self.total):.0%} of {size_text(self.total)}")

    def note(self, text: str) -> None:
        """Print a line of text above the bar."""
        self._say(printable(text))

    def _bar(self, done: int) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            console = Console(stderr=True, no_color=not self._output.in_color, markup=False)
            name = TextColumn("{task.description}", markup=False)
            columns = (name, BarColumn(None), DownloadColumn(), TransferSpeedColumn())
            self._progress = Progress(
                *columns, TimeRemainingColumn(compact=True), console=console, transient=True
            )
            # Only what comes from now on counts for the speed, not what was there before.
            self._task = self._progress.add_task(self.label, total=self.total, completed=done)
            self._progress.start()
        assert self._task is not None
        self._progress.update(self._task, completed=done)

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None

    def _say(self, text: str) -> None:
        if self._progress is not None:
            self._progress.console.print(text, highlight=False, soft_wrap=True)
        else:
            with may_be_lost():
                print(text, file=sys.stderr, flush=True)
