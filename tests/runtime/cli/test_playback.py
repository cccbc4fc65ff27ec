"""A recorded run shown in its own time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.playback import Playback
from triplepoint.traces import Trace
from triplepoint.traces.events import MessageEvent, PhaseEvent, RunEnd, ToolEvent


def phase(kind: str, tokens: int, seconds: float) -> PhaseEvent:
    """A phase of so many tokens."""
    fields = {"predicted": "memory", "observed": "memory", "kv_before": 3, "kv_after": 9}
    return PhaseEvent.model_validate({"phase": kind, "tokens": tokens, "wall_s": seconds, **fields})


RUN = Trace(
    [
        MessageEvent(role="system", content="You answer."),
        MessageEvent(role="user", content="Where?"),
        phase("prefill", 100, 2.0),
        MessageEvent(role="assistant", content="let me look"),
        phase("decode", 4, 1.0),
        ToolEvent(name="find", arguments={"for": "it"}, result="there\x1b[2J", duration_s=3.0),
        MessageEvent(role="tool", content="there\x1b[2J"),
        phase("prefill", 8, 0.5),
        phase("decode", 3, 0.5),
        RunEnd(status="limit", message="too long"),
    ]
)


@pytest.mark.parametrize(("speed", "whole"), [(1.0, 7.0), (10.0, 0.7), (float("inf"), 0.0)])
def test_it_takes_the_recorded_time(
    capsys: pytest.CaptureFixture[str], speed: float, whole: float
) -> None:
    """All waits together are the time of phases and tools, by the speed."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        assert seconds > 0
        now += seconds

    Playback(Output(), speed, sleep=sleep, clock=lambda: now).play(RUN)

    assert now == pytest.approx(whole)
    assert capsys.readouterr().out.splitlines() == [
        "? Where?",
        "  memory-bound prefill: 100 tokens at context 3 in 2 s, 50.0 tok/s",
        "let me look",
        "  memory-bound decode: 4 tokens at context 3 in 1 s, 4.00 tok/s",
        '> find(for="it")',
        "  there\\x1b[2J",
        "  memory-bound prefill: 8 tokens at context 3 in 500 ms, 16.0 tok/s",
        "  memory-bound decode: 3 tokens at context 3 in 500 ms, 6.00 tok/s",
        "limit: too long",
    ]


def test_what_is_shown_late_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A slow terminal takes time too: the end is where it was."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def clock() -> float:
        nonlocal now
        now += 0.01  # each look at the clock stands for some drawing
        return now

    Playback(Output(), 1.0, sleep=sleep, clock=clock).play(RUN)

    assert now == pytest.approx(7.0, abs=0.1)
    assert "too long" in capsys.readouterr().out


def test_on_the_command_line(
    triplepoint: Callable[..., subprocess.CompletedProcess[str]], recorded: Path
) -> None:
    """--speed max shows it and the table; what is no speed is wrong usage."""
    done = triplepoint("replay", recorded, "--speed", "max")

    assert (done.returncode, done.stderr) == (0, "")
    assert "? What's the error in app.log?" in done.stdout
    assert "streaming prefill: 3 tokens at context 0 in 10 ms, 300.0 tok/s" in done.stdout
    assert "regimes: streaming prefill" in done.stdout
    assert triplepoint("replay", recorded, "--speed", "0").returncode == 2
