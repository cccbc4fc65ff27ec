"""What passes of several sequences leave in traces: each one's share, and together the whole."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.shared_pass import SharedPass
from triplepoint.traces import Trace
from triplepoint.traces.events import PassEvent, PhaseEvent

INCIDENT = Path(__file__).parents[4] / "examples" / "incident"
QUESTIONS = ("What's the error in app.log?", "Which files are here?", "Which file mentions retry?")
AGENTS = 6


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Of agents that ran at once on one engine, then of one that ran alone."""
    folder = tmp_path_factory.mktemp("traces")
    ready = threading.Barrier(AGENTS)
    with Engine.load("nano", threads=2) as engine:

        def ask(n: int) -> Trace:
            with Agent(engine, workspace=INCIDENT, trace=folder / f"{n}.jsonl") as agent:
                if n < AGENTS:
                    ready.wait()
                agent.run(QUESTIONS[n % len(QUESTIONS)])
            return Trace.load(folder / f"{n}.jsonl")

        with ThreadPoolExecutor(AGENTS) as threads:
            together = list(threads.map(ask, range(AGENTS)))
        return [*together, ask(AGENTS)]


def _by_phase(trace: Trace) -> list[tuple[PhaseEvent, list[PassEvent]]]:
    found: list[tuple[PhaseEvent, list[PassEvent]]] = []
    passes: list[PassEvent] = []
    for event in trace.events:
        if isinstance(event, PassEvent):
            passes.append(event)
        elif isinstance(event, PhaseEvent):
            found.append((event, passes))
            passes = []
    assert not passes, "each belongs to a phase"
    return found


@pytest.mark.slow
def test_shares_make_up_the_pass(traces: list[Trace]) -> None:
    """Every sequence of a pass has it in its trace; their shares sum to its time, FLOPs, bytes."""
    seen: dict[int, list[PassEvent]] = defaultdict(list)
    for trace in traces:
        assert trace.header is not None
        for event in trace.events:
            if isinstance(event, PassEvent):
                assert event.sequences[event.own] == trace.header.run
                seen[event.number].append(event)

    assert seen, "nobody shared a pass"
    for events in seen.values():
        first = events[0]
        assert len(events) == len(first.sequences) == len(first.rows) > 1
        assert sorted(event.own for event in events) == list(range(len(events)))
        for name, whole in (
            ("share_s", "wall_s"),
            ("share_flops", "flops"),
            ("share_bytes", "bytes"),
        ):
            total = sum(getattr(event, name) for event in events)
            assert total == pytest.approx(getattr(first, whole), rel=1e-9)
        assert first.predicted_wall_s > 0
        assert {(event.rows[0], event.wall_s, event.observed) for event in events} == {
            (first.rows[0], first.wall_s, first.observed)
        }


def test_a_phase_has_the_shares_of_its_passes(traces: list[Trace]) -> None:
    """`shared` of a phase adds up the passes before it, and its counts hold them."""
    for trace in traces:
        for phase, passes in _by_phase(trace):
            share = phase.shared
            if share is None:
                assert not passes
                continue
            assert share.passes == len(passes) <= phase.passes
            assert share.seconds == pytest.approx(sum(one.share_s for one in passes))
            assert share.flops == pytest.approx(sum(one.share_flops for one in passes))
            assert share.bytes == pytest.approx(sum(one.share_bytes for one in passes))
            assert share.seconds <= phase.wall_s
            assert share.flops <= phase.flops * (1 + 1e-9)
            assert share.bytes <= phase.bytes * (1 + 1e-9)


def test_one_who_is_alone_leaves_none(traces: list[Trace]) -> None:
    """Passes of a single sequence are no events, and its phases have no share."""
    alone = traces[-1]
    assert not [event for event in alone.events if isinstance(event, PassEvent)]
    assert all(phase.shared is None for phase in alone.phases)


@pytest.mark.slow
def test_why_a_pass_has_so_many_rows() -> None:
    """All that waited; or, beside a decode, a part of a prompt that keeps the deadline."""
    seen: list[SharedPass] = []
    over = threading.Event()
    with Engine.load("nano", threads=2, context=4096) as engine:
        engine.core.runner.shared_observers.append(seen.append)
        engine.core.scheduler.deadline_s = 0.004
        decoder, reader = engine.session(), engine.session()
        decoder.prefill([1, 2, 3])

        def decode() -> None:
            while not over.is_set():
                list(decoder.decode(max_tokens=50))
                decoder.truncate(3)

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(decode)
            try:
                reader.prefill([5 + n % 900 for n in range(3000)])
                list(reader.decode(max_tokens=20))
            finally:
                over.set()
            writing.result()

    whys = {shared.why for shared in seen}
    assert "deadline" in whys
    assert "all" in whys
    for shared in seen:
        if shared.why == "deadline":
            assert max(part.tokens for part in shared.parts) < engine.loaded.tuning.chunk
