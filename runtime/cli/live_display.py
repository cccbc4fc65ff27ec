"""Live display of an answer: complete blocks as Markdown, the rest and the regime below.

Only for terminals that can draw; elsewhere the text goes out as it comes (`conversation.follow`).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Iterable

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ...traces.events import PhaseEvent
from ...traces.sanitize import printable
from ...traces.timeline import duration, limit_name, rate
from ..agent import events
from ..agent.agent import Agent
from ..agent.result import RunResult
from .job_control import no_interrupts, when_stopped
from .markdown_stream import MarkdownStream, as_markdown
from .output import Output
from .transcript import show_call, show_result

_REFRESH = 8  # times a second
_PENDING_LINES = 8  # of an unfinished block that are shown


class Transitions:
    """The regime changes of a run, formatted phase by phase."""

    def __init__(self) -> None:
        self._before: PhaseEvent | None = None
        self._count = 0

    def line(self, phase: PhaseEvent) -> str:
        """Format a completed phase on one line: its regime, and whether the regime changed."""
        before = self._before
        if phase.tokens:  # a fork, or a session from disk, runs in no regime
            self._before = phase
        if before is None or before.regime == phase.regime or not phase.tokens:
            return f"  {regime_text(phase)}"
        self._count += 1
        return f"→ {self._count}: {before.regime} → {regime_text(phase)}"


class LiveDisplay:
    """The live display of one turn's events on a terminal.

    `transitions` shows the regime of each phase on a line that stays, where it is given.
    """

    def __init__(
        self, agent: Agent, output: Output, transitions: Transitions | None = None
    ) -> None:
        self._agent = agent
        self._transitions = transitions
        self._output = output
        self._blocks = MarkdownStream()
        self._thinking = False
        self._live: Live | None = None
        self._doing = "reading"
        self._pieces = 0
        self._first_at = 0.0

    def follow(self, stream: Iterable[events.AgentEvent]) -> RunResult:
        """Show the events as they arrive, and return the result of the turn."""
        result = None
        setup = self._agent.setup
        progress, setup.on_progress = setup.on_progress, self._progress
        with contextlib.ExitStack() as last:  # each of them, also if Ctrl-C comes once more
            last.enter_context(when_stopped(self._show_cursor, self._begin_anew))
            last.callback(self._pause)
            last.callback(self._end_text)
            last.callback(setattr, setup, "on_progress", progress)
            if isinstance(stream, Generator):
                last.callback(stream.close)  # where nobody reads on: the run ends before its trace
            self._resume()
            for event in stream:
                if isinstance(event, events.RunFinished):
                    result = event.result
                else:
                    self._show(event)
        assert result is not None, "an agent's stream ends with RunFinished or an error"
        return result

    def _show(self, event: events.AgentEvent) -> None:
        match event:
            case events.TextDelta(text) | events.ThinkingDelta(text):
                self._say(text, isinstance(event, events.ThinkingDelta))
            case events.ToolCallStarted(_, name, arguments, by):
                self._end_text()
                self._pause()  # a person may be asked now
                show_call(self._output.aside, name, arguments, by)
            case events.ToolCallFinished(_, _, text, error):
                show_result(self._output.aside, text, error)
                self._doing = "reading"
                self._resume()
            case events.Notice(message):
                self._beside(f"note: {printable(message)}", "yellow")
            case events.PhaseFinished(phase):
                self._doing = regime_text(phase)
                self._pieces = 0
                if self._transitions is not None:
                    self._end_text()
                    self._beside(printable(self._transitions.line(phase)), "cyan")
            case _:
                pass

    def _beside(self, text: str, style: str) -> None:
        """Print a line on stderr, which may be this terminal or not."""
        self._pause()
        self._output.aside.words(text, style)
        self._resume()

    def _say(self, text: str, thinking: bool) -> None:
        if thinking is not self._thinking:
            self._end_text()
            self._thinking = thinking
        if not self._pieces:
            self._first_at = time.monotonic()
        self._pieces += 1
        for block in self._blocks.push(text):
            self._draw(block)

    def _end_text(self) -> None:
        if rest := self._blocks.finish():
            self._draw(rest)

    def _draw(self, block: str) -> None:
        text = printable(block, block=True)
        if self._thinking:
            self._output.console.print(text, style="dim italic")
        else:
            self._output.console.print(as_markdown(text))

    def _progress(self, done: int, total: int, tokens_per_s: float) -> None:
        self._doing = f"reading {done:,} of {total:,} tokens, {rate(max(tokens_per_s, 0))} tok/s"

    # The region that is drawn again and again.

    def _resume(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._region,
                console=self._output.console,
                refresh_per_second=_REFRESH,
                transient=True,
            )
            self._live.start()

    def _pause(self) -> None:
        if self._live is not None:
            with no_interrupts():  # one that is half stopped draws over everything that follows
                self._live.stop()
                self._live = None

    def _show_cursor(self) -> None:
        if self._live is not None:
            os.write(self._output.stream.fileno(), b"\x1b[?25h")

    def _begin_anew(self) -> None:
        """Write as many lines as the region has, so that redrawing it erases no shell output."""
        if self._live is not None:
            lines = self._output.console.render_lines(self._region(), pad=False)
            os.write(self._output.stream.fileno(), b"\n" * (len(lines) - 1) + b"\x1b[?25l")

    def _region(self) -> RenderableType:
        lines = printable(self._blocks.pending, block=True).split("\n")[-_PENDING_LINES:]
        pending = Text("\n".join(lines)) if any(lines) else Text()
        status = Text(self._status(), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(pending, status) if pending else status

    def _status(self) -> str:
        if not self._pieces:
            return self._doing
        seconds = time.monotonic() - self._first_at
        speed = f", {rate(self._pieces / seconds)} a second" if seconds > 0.2 else ""
        what = "thinking" if self._thinking else "writing"
        return f"{what}: {self._pieces:,} pieces{speed}; before: {self._doing}"


def regime_text(phase: PhaseEvent) -> str:
    """Format a phase in a few words: regime, speed and share of the limit."""
    if not phase.tokens:
        return (
            f"nothing to compute: {phase.kv_after:,} tokens already cached, in "
            f"{duration(phase.wall_s)}"
        )
    speed = f", {rate(phase.tokens_per_s)} tok/s" if phase.wall_s else ""
    share = ""
    if phase.observed != "unknown":
        share = f", {phase.limit_share:.0%} {limit_name(phase)}"
    return f"{phase.label}: {phase.tokens:,} tokens in {duration(phase.wall_s)}{speed}{share}"
