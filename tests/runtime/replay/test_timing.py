"""The schedule of a recorded run as a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint import Agent, Engine
from triplepoint.runtime.replay.timing import Timed, measure


def test_each_phase_and_the_sums_are_measured(tmp_path: Path) -> None:
    """So many times for every phase; prefill, decode and the whole are sums of each repetition."""
    (tmp_path / "notes.txt").write_text("buy milk\n")
    calls: list[int] = []
    with Engine.load("nano") as engine:
        with Agent(engine, workspace=tmp_path, trace=False) as agent:
            trace = agent.run("What is on line 1 of notes.txt?").trace

        found = measure(trace, engine, repeat=3, between=lambda: calls.append(1))

    *phases, prefill, decode, whole = found
    assert len(calls) == 4
    assert [t.name for t in phases] == ["1.1 prompt", "1.1 tool call", "1.2 tool result",
                                        "1.2 answer"]  # fmt: skip
    assert [(t.tokens, t.kv) for t in phases] == [(p.tokens, p.kv_before) for p in trace.phases]
    assert {len(t.seconds) for t in found} == {3}
    assert [t.kind for t in (prefill, decode, whole)] == ["prefill", "decode", "engine"]
    assert prefill.tokens + decode.tokens == whole.tokens == sum(p.tokens for p in trace.phases)
    for n in range(3):
        parts = prefill.seconds[n] + decode.seconds[n]
        assert whole.seconds[n] == pytest.approx(parts)
    assert all(t.regime and t.share is not None for t in phases)
    assert (whole.regime, whole.share) == ("", None)


def test_the_figures_of_a_row() -> None:
    """Median and standard deviation of the tokens per second."""
    timed = Timed("decode", "decode", 100, None, [1.0, 2.0, 4.0])

    assert timed.rates == [100, 50, 25]
    assert timed.median == 50
    assert timed.spread == pytest.approx(38.188, abs=1e-3)
    assert Timed("x", "decode", 100, None, [1.0]).spread == 0
