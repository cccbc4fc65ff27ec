"""Captures a command's terminal output as an SVG picture."""

from __future__ import annotations

import io
import re

from rich.console import Console

from ...traces import timeline
from ...traces.reader import Trace
from ...traces.sanitize import printable
from .output import Output

WIDTH = 118  # columns
_FONT_FILES = re.compile(r"@font-face\s*\{[^}]*\}\s*")


class SvgCapture(Output):
    """An output that draws what a command writes, in colors, as SVG instead of showing it."""

    def __init__(self) -> None:
        super().__init__()
        self.as_json, self.in_color = False, True
        self._console = Console(
            record=True,
            file=io.StringIO(),
            width=WIDTH,
            force_terminal=True,
            color_system="truecolor",
            highlight=False,
            markup=False,
            emoji=False,
        )

    def piece(self, text: str, style: str = "") -> None:
        """Draw part of a line as plain text, with control characters escaped."""
        shown = printable(text, block=True)
        self._inside_line = not shown.endswith("\n")
        self.console.print(shown, style=style or None, end="", soft_wrap=True)

    def timeline(self, trace: Trace) -> None:
        """Draw the table of phases."""
        self.end_line()
        self.console.print(timeline.rich(trace, WIDTH))

    def svg(self, title: str) -> str:
        """Return the picture as SVG, without links to fonts on the network."""
        return _FONT_FILES.sub("", self.console.export_svg(title=title))
