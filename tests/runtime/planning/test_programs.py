"""Programs from traces; made-up ones have the means they are given."""

from __future__ import annotations

import statistics

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.planning.programs import Mix, Program, Request, of_trace, repeated
from triplepoint.runtime.replay import examples
from triplepoint.runtime.replay.workload import work_items


def test_a_recorded_run_keeps_its_sizes() -> None:
    """Tokens that were computed and written, and the pauses of tools, are those of the trace."""
    trace = examples.load("search")
    (*_, program) = programs = of_trace(trace)
    works = [work for run in trace.runs for work in work_items(run)]
    prefills = [work for work in works if work.recorded.phase == "prefill"]
    decodes = [work for work in works if work.recorded.phase == "decode"]
    assert sum(one.prompt for one in programs) == sum(work.computed for work in prefills)
    assert sum(one.written for one in programs) == sum(work.recorded.tokens for work in decodes)
    pauses = sum(request.pause_s for one in programs for request in one.requests)
    assert pauses == pytest.approx(sum(work.wait_s for work in works))
    assert program.group == 0
    assert 0 < program.shared < program.requests[0].new


def test_a_mix_has_its_means() -> None:
    """Of many draws; the same for the same seed."""
    mix = Mix(shared=0, new=400, reply=80, requests=4, tool_s=0.5)
    programs = list(mix.draw(3000, 1))
    requests = [request for one in programs for request in one.requests]
    assert statistics.mean(r.new for r in requests) == pytest.approx(400, rel=0.05)
    assert statistics.mean(r.reply for r in requests) == pytest.approx(80, rel=0.05)
    assert len(requests) / len(programs) == pytest.approx(4, rel=0.05)
    pauses = [r.pause_s for one in programs for r in one.requests[1:]]
    assert statistics.mean(pauses) == pytest.approx(0.5, rel=0.06)
    assert programs == list(mix.draw(3000, 1))


@pytest.mark.parametrize("requests", [1, 2, 10, 30, 100])
def test_a_conversation_has_as_many_requests_as_asked_for(requests: int) -> None:
    """On average, also where they are many; one is always one."""
    found = [len(one.requests) for one in Mix(requests=requests).draw(2000, 3)]
    assert statistics.mean(found) == pytest.approx(requests, rel=0.06 if requests > 1 else 0)


def test_what_makes_no_sense() -> None:
    """Refused."""
    for wrong in ({"new": 0}, {"requests": 0}, {"requests": 10**6}, {"tool_s": -1.0}):
        with pytest.raises(SettingError):
            Mix(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SettingError):
        repeated([], 3, 1)


def test_length() -> None:
    """Positions that a conversation needs: with or without its replies."""
    requests = (Request(0, 10, 5), Request(0, 20, 6))
    assert Program(requests).length == 41
    assert Program(requests, kept=False).length == 36
