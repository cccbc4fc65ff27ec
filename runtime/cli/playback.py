"""``triplepoint replay --speed``: play a recorded run back with its recorded timing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...traces.events import MessageEvent, PhaseEvent, ToolEvent
from ...traces.timeline import duration, rate
from .output import Output
from .transcript import show_call, show_end, show_result

if TYPE_CHECKING:
    from ...traces.reader import Trace

_TICK_S = 0.1  # between two drawings of a prefill's progress


class Playback:
    """Player that shows the events of a run, each when it is due.

    Args:
        speed: times as fast as it happened; infinite: without waiting.
        sleep, clock: for tests.
    """

    def __init__(
        self,
        output: Output,
        speed: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._output = output
        self._speed = speed
        self._sleep, self._clock = sleep, clock
        self._due = 0.0
        self._said = ""  # what the model wrote in the decode that comes next

    def play(self, run: Trace) -> None:
        """Show the run up to its end."""
        self._due = self._clock()
        for turn in run.turns[:1]:
            if turn.task:  # it was asked in the run that this one goes on with
                self._output.line(f"? {turn.task}", "bold")
        for event in run.events:
            if isinstance(event, MessageEvent) and event.role == "user":
                self._output.line(f"? {event.content}", "bold")
            elif isinstance(event, MessageEvent) and event.role == "assistant":
                self._said = event.content
            elif isinstance(event, PhaseEvent):
                self._phase(event)
            elif isinstance(event, ToolEvent):
                show_call(self._output, event.name, event.arguments)
                self._wait(event.duration_s)
                show_result(self._output, event.result, event.error)
        show_end(self._output, run)

    def _phase(self, phase: PhaseEvent) -> None:
        output = self._output
        if not phase.tokens and phase.phase == "prefill":  # pages were shared, or came from disk
            output.line(f"  {phase.purpose}: {phase.kv_after:,} tokens already cached", "dim")
            return
        if phase.phase == "prefill":
            for done in self._ticks(phase.wall_s):
                output.progress(int(done * phase.tokens), phase.tokens, phase.tokens_per_s)
        else:
            said, self._said = self._said, ""
            for piece in _pieces(said, phase.tokens):
                self._wait(phase.wall_s / max(1, min(phase.tokens, len(said))))
                output.flow(piece)
            if not said:
                self._wait(phase.wall_s)
            output.end_line()
        output.progress.clear()
        speed = f", {rate(phase.tokens_per_s)} tok/s" if phase.wall_s else ""
        output.line(
            f"  {phase.label}: {phase.tokens:,} tokens at context {phase.kv_before:,} "
            f"in {duration(phase.wall_s)}{speed}",
            "dim",
        )

    def _ticks(self, seconds: float) -> Iterator[float]:
        """Wait for a time, and yield the fraction that has passed at each tick."""
        ticks = seconds / self._speed / _TICK_S
        count = max(1, int(ticks)) if math.isfinite(ticks) else 1
        for n in range(1, count + 1):
            self._wait(seconds / count)
            yield n / count

    def _wait(self, seconds: float) -> None:
        """Wait for a recorded duration, minus the time that showing events took."""
        took = seconds / self._speed
        self._due += took if 0 < took < math.inf else 0.0  # a trace may say anything
        left = self._due - self._clock()
        if left > 0:
            self._sleep(left)


def _pieces(text: str, count: int) -> Iterator[str]:
    """Split a text into `count` parts, or into characters if it is shorter."""
    count = max(1, min(count, len(text)))
    for n in range(count if text else 0):
        yield text[n * len(text) // count : (n + 1) * len(text) // count]
