"""What if: the work of a recorded run done again, on this model or another, or predicted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Agent, Engine, Trace, replay
from triplepoint.errors import ContextOverflowError, ReplayError
from triplepoint.runtime.engine.teacher_forcing import ForcedConstraint, decode_teacher_forced
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.latency_model import Efficiency, Passes
from triplepoint.runtime.replay.machine_file import read_machine
from triplepoint.runtime.replay.replay import PhaseCheck
from triplepoint.runtime.replay.report import PerfPhase, PerfReport
from triplepoint.traces.events import ModelRecord, PhaseEvent, RunStart, ToolEvent

QUESTIONS = "Which files are here?", "What is on line 2 of notes.txt?"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model."""
    with Engine.load("nano", context=2048) as engine:
        yield engine


@pytest.fixture(scope="module")
def other(tiny_model: Callable[[str], Path]) -> Iterator[Engine]:
    """A model with another, smaller vocabulary."""
    with Engine.load(tiny_model("q8_0"), threads=1) as other:
        yield other


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to ask about."""
    folder = tmp_path_factory.mktemp("files")
    lines = [f"10:{n:02}:00 INFO http: GET /health 200" for n in range(20)]
    (folder / "app.log").write_text("\n".join([*lines, "10:20:00 ERROR disk: no space left\n"]))
    (folder / "notes.txt").write_text("call the plumber\nbuy milk\n")
    return folder


def record(engine: Engine, folder: Path, path: Path, **settings: Any) -> Trace:
    """Two questions, read back from their file."""
    with Agent(engine, workspace=folder, trace=path, **settings) as agent:
        for question in QUESTIONS:
            agent.run(question)
    return Trace.load(path)


@pytest.fixture(scope="module")
def trace(engine: Engine, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A recorded conversation; tests do not change it."""
    return record(engine, folder, tmp_path_factory.mktemp("trace") / "run.jsonl")


def sizes(phases: list[PhaseEvent]) -> list[tuple[str, str, int, int, int]]:
    """What was asked of the engine."""
    return [(p.phase, p.purpose, p.tokens, p.kv_before, p.kv_after) for p in phases]


def test_the_recorded_passes_run_again(engine: Engine, trace: Trace) -> None:
    """Every phase has the recorded tokens at the recorded place, in as many passes."""
    seen: list[PerfPhase] = []

    report = replay.run_workload(trace, engine, on_phase=seen.append)

    assert report.settings == []
    assert report.phases == seen
    assert sizes(report.now) == sizes(report.recorded) == sizes(trace.phases)
    assert [p.token_ids for p in report.now] == [p.token_ids for p in trace.phases]
    assert [p.passes for p in report.now] == [p.passes for p in trace.phases]
    assert [(p.turn, p.step) for p in report.now] == [(p.turn, p.step) for p in trace.phases]
    assert report.wait_s == pytest.approx(sum(tool.duration_s for tool in trace.tools))
    assert all(p.wall_s > 0 and p.observed for p in report.now)


def test_a_forced_decode_leaves_what_a_free_one_would(engine: Engine) -> None:
    """The cache after forced tokens is that after the same tokens fed: the next ones agree."""
    ids = engine.tokenizer.encode("Which file mentions retry? Look into app.log first.")
    fed, forced = engine.session(), engine.session()
    fed.prefill(ids)
    wanted = list(fed.decode(max_tokens=5))
    forced.prefill(ids[:4])

    phase = decode_teacher_forced(forced, ids[4:], stop=[7])

    assert (phase.phase, phase.tokens, phase.passes) == ("decode", len(ids) - 4, len(ids) - 5)
    assert phase.token_ids == ids[4:]
    assert phase.stop == [7]
    assert list(forced.decode(max_tokens=5)) == wanted


def test_forced_tokens_that_do_not_fit_are_refused(engine: Engine) -> None:
    """Nothing has changed then."""
    session = engine.session(context=16)
    session.prefill(range(1, 11))

    with pytest.raises(ContextOverflowError, match="7 tokens after 10 do not fit"):
        decode_teacher_forced(session, [5] * 7)

    assert (len(session.tokens), session.n_cached) == (10, 10)


def test_another_model_does_the_same_work(other: Engine, trace: Trace) -> None:
    """Ids are mapped into its vocabulary; what differs is listed."""
    report = replay.run_workload(trace, other, waits=False)

    assert sizes(report.now) == sizes(trace.phases)
    assert [p.passes for p in report.now] == [p.passes for p in trace.phases]
    assert any(p.forced_tokens for p in trace.phases)  # so a decode has fewer passes than tokens
    most = other.tokenizer.n_vocab
    assert all(0 <= i < most for p in report.now for i in p.token_ids)
    assert most < max(i for p in trace.phases for i in p.token_ids)
    names = [name for name, _, _ in report.settings]
    assert {"model", "model.sha256", "threads"} <= {*names}


def test_a_redacted_run_does_the_same_work(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """Without ids made-up ones are fed, as many."""
    redacted = record(engine, folder, tmp_path / "r.jsonl", redact=True)

    report = replay.run_workload(redacted, engine)

    assert sizes(report.now) == sizes(redacted.phases)
    assert all(len(p.token_ids) == p.tokens for p in report.now)


def test_a_fork_and_a_compaction_do_their_work(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    """What a fork took over is filled in before its first phase; a dropped tail is dropped."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        agent.run("Which file mentions health?")  # a long result
        fork = agent.fork(trace=tmp_path / "fork.jsonl")
        fork.run(QUESTIONS[1])
        fork.compact()
        fork.run("Hello!")
        fork.close()
    trace = Trace.load(tmp_path / "fork.jsonl")

    report = replay.run_workload(trace, engine)

    assert "compaction" in [p.purpose for p in trace.phases]
    assert sizes(report.now) == sizes([p for p in trace.phases if p.tokens])


def made_trace(*phases: tuple[str, int, int, int]) -> Trace:
    """A run of phases: kind, tokens, and positions before and after."""
    start = RunStart(model=ModelRecord(name="some model", quant="Q4_0"), threads=99)
    start.machine.cpu = "elsewhere"
    events: list[Any] = [start]
    for kind, tokens, before, after in phases:
        fields = {"predicted": "memory", "observed": "memory", "wall_s": 0.1}
        sized = {"phase": kind, "tokens": tokens, "kv_before": before, "kv_after": after}
        events += [PhaseEvent.model_validate(fields | sized), ToolEvent(name="t", duration_s=0.25)]
    return Trace(events)


def test_what_does_not_fit_names_the_field(engine: Engine) -> None:
    """Context, impossible sizes, no phases, no header, another server."""
    long = made_trace(("prefill", 3000, 0, 3000))
    with pytest.raises(ReplayError, match="context differs: the run needs 3,001 positions"):
        replay.run_workload(long, engine)
    with pytest.raises(ReplayError, match=r"phase 2 \(prompt\): kv_before 9, kv_after 30 and tok"):
        replay.run_workload(made_trace(("prefill", 9, 0, 9), ("prefill", 5, 9, 30)), engine)
    with pytest.raises(ReplayError, match="no phases"):
        replay.run_workload(made_trace(), engine)
    with pytest.raises(ReplayError, match="no run_start"):
        replay.run_workload(Trace([ToolEvent(name="t")]), engine)
    with pytest.raises(ReplayError, match="no number 3"):
        replay.run_workload(long, engine, run=3)
    remote = made_trace(("prefill", 3, 0, 3))
    assert remote.header is not None
    remote.header.config["server"] = "http://elsewhere"
    with pytest.raises(ReplayError, match="ran on a server"):
        replay.run_workload(remote, engine)


def test_a_part_that_is_missing_is_filled_in(engine: Engine) -> None:
    """A trace that begins in the middle still has its phases at their places."""
    trace = made_trace(("prefill", 20, 100, 120), ("decode", 4, 120, 123), ("prefill", 8, 123, 131))

    report = replay.run_workload(trace, engine, waits=False)

    assert sizes(report.now) == sizes(trace.phases)


# --- predicted


def calibration(engine: Engine, **rates: float) -> Calibration:
    """A made-up one on this machine's limits."""
    passes = Passes(chunk=512, tile=16, decode_barriers=20, prefill_barriers=40)
    machine = dataclasses.replace(engine.machine, **rates)
    return Calibration(engine.model.name, Efficiency(), passes, machine, "today")


def test_a_prediction_is_the_sum_of_its_passes(engine: Engine) -> None:
    """A decode is its single passes, a prefill one of so many; nothing is run."""
    trace = made_trace(("prefill", 30, 0, 30), ("decode", 4, 30, 33))
    found = calibration(engine)

    report = replay.predict(trace, engine, found)

    assert report.predicted
    wanted = [
        found.estimate(engine.loaded.cost, 30, 0).seconds,
        sum(found.estimate(engine.loaded.cost, 1, at).seconds for at in (30, 31, 32)),
    ]
    assert [p.wall_s for p in report.now] == pytest.approx(wanted)
    assert sizes(report.now) == sizes(trace.phases)
    assert ("threads", 99, engine.threads) in report.settings


def test_a_decode_that_jumped_is_predicted_by_its_passes(engine: Engine) -> None:
    """Two passes for five positions: as many as were recorded, not one a token."""
    trace = made_trace(("prefill", 30, 0, 30), ("decode", 6, 30, 35))
    trace.phases[1].passes = 2
    found = calibration(engine)

    now = replay.predict(trace, engine, found).now[1]

    wanted = [found.estimate(engine.loaded.cost, *part).seconds for part in ((2, 30), (3, 32))]
    assert now.wall_s == pytest.approx(sum(wanted))
    assert (now.tokens, now.kv_after) == (6, 35)


def test_a_prediction_for_another_machine(engine: Engine) -> None:
    """A hundredth of every rate: more time, and its CPU among what differs."""
    trace = made_trace(("prefill", 30, 0, 30), ("decode", 4, 30, 33))
    here = calibration(engine)
    slow = dataclasses.replace(
        engine.machine,
        cpu="abacus",
        read_gbps={level: rate / 100 for level, rate in engine.machine.read_gbps.items()},
        int8_gops=engine.machine.int8_gops / 100,
    )

    fast_report = replay.predict(trace, engine, here)
    report = replay.predict(trace, engine, here, slow)

    assert ("machine.cpu", "elsewhere", "abacus") in report.settings
    for fast, late in zip(fast_report.now, report.now, strict=True):
        assert late.wall_s > 5 * fast.wall_s


# --- what both give


def test_the_figures_of_a_report() -> None:
    """Ratios, regimes with their sums, labels, and the median error of the long phases."""

    def phase(kind: Any, observed: Any, seconds: float, tokens: int = 10) -> PhaseEvent:
        return PhaseEvent(
            phase=kind,
            predicted=observed,
            observed=observed,
            tokens=tokens,
            kv_before=0,
            kv_after=tokens,
            wall_s=seconds,
        )

    pairs = [
        (phase("prefill", "compute", 0.1), phase("prefill", "compute", 0.11)),
        (phase("decode", "memory", 0.2), phase("decode", "dispatch", 0.1)),
        (phase("decode", "memory", 0.3), phase("decode", "memory", 0.3)),
        (phase("decode", "memory", 0.01), phase("decode", "memory", 0.09)),
    ]
    phases = [PerfPhase(n, was, now, 0.5) for n, (was, now) in enumerate(pairs, 1)]
    report = PerfReport("r", [], phases=phases)

    assert [p.ratio for p in phases] == pytest.approx([1.1, 0.5, 1.0, 9.0])
    assert report.time_error() == pytest.approx(0.1)  # of 0.1, 0.5 and 0; the last is too short
    assert report.time_error(min_s=1.0) is None
    assert [p.number for p in report.regime_changes] == [2]
    assert report.alike == 0.75
    assert report.wait_s == 2.0
    name, was, now = report.regimes()[0]
    assert (name, was.phases, now.phases) == ("memory-bound decode", 3, 2)
    assert (was.seconds, was.tokens) == (pytest.approx(0.51), 30)
    assert now.tokens_per_s == pytest.approx(20 / 0.39)
    assert report.regimes()[-1][0] == "dispatch-bound decode"


# --- another machine's file


def test_a_machine_is_read_from_many_files(engine: Engine, trace: Trace, tmp_path: Path) -> None:
    """A profile, doctor's report, a calibration, and a trace of that machine."""
    machine = engine.machine.as_dict()
    path = tmp_path / "machine.json"
    for document in (machine, {"target": {}, "machine": {"physical_cores": 2, **machine}}):
        path.write_text(json.dumps(document))
        assert read_machine(path) == (engine.machine, None)
    found = calibration(engine)
    path.write_text(json.dumps(dataclasses.asdict(found)))
    assert read_machine(path) == (found.machine, found.efficiency)
    assert trace.path is not None
    assert trace.header is not None
    profile, _ = read_machine(trace.path)
    assert profile.as_dict() == trace.header.machine.profile


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.pop("read_gbps"), "has no read_gbps"),
        (lambda m: m.pop("barrier_s"), "has no barrier_s"),
        (lambda m: m["read_gbps"].pop("DRAM"), "no read_gbps of DRAM"),
        (lambda m: m.update(int8_gops="many"), "int8_gops is 'many', not a number above 0"),
        (lambda m: m["read_gbps"].update(L2=0), "read_gbps.L2 is 0"),
        (lambda m: m.update(int8_gops=10**400), "int8_gops is 1"),
        (lambda m: m.update(threads=2.5), "threads is 2.5, not a whole number above 0"),
        (lambda m: m.update(target=["x"]), "target is .*, not a name"),
        (lambda m: m.update(caches=[1]), "caches is .*, not bytes by level"),
        (lambda m: m["caches"].update(L1="32K"), "caches.L1 is '32K', not a number from 0"),
        (lambda m: m.update(w8a8_gops="x"), "w8a8_gops is 'x'"),
    ],
)
def test_a_machine_that_lacks_something_is_told(
    engine: Engine, tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    """The message names file and field."""
    machine = json.loads(json.dumps(engine.machine.as_dict()))
    change(machine)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(machine))

    with pytest.raises(ReplayError, match=message):
        read_machine(path)


@pytest.mark.parametrize(
    ("efficiency", "message"),
    [
        ([1], "efficiency is .*, not an object"),
        ({"speed": 1}, "efficiency: .*speed"),
        ({"products": 0}, "efficiency.products is 0, not a number above 0"),
        ({"row_s": -1.0}, "efficiency.row_s is -1.0, not a number from 0"),
        ({"waiting": None}, "efficiency.waiting is None, not a number from 0"),
    ],
)
def test_shares_of_the_limits_that_make_no_sense_are_told(
    engine: Engine, tmp_path: Path, efficiency: object, message: str
) -> None:
    """Before anything is divided by them."""
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"machine": engine.machine.as_dict(), "efficiency": efficiency}))
    with pytest.raises(ReplayError, match=message):
        read_machine(path)


def test_a_file_that_is_no_machine_is_told(tmp_path: Path) -> None:
    """No file, no JSON, a list."""
    with pytest.raises(ReplayError, match="No such file"):
        read_machine(tmp_path / "none")
    for text in ("", "[1]", "hello"):
        (tmp_path / "m").write_text(text)
        with pytest.raises(ReplayError, match="not a JSON object"):
            read_machine(tmp_path / "m")


def test_the_public_names_are_there() -> None:
    """`from triplepoint import replay` has what the docs name, as functions and classes."""
    assert replay.PhaseCheck is PhaseCheck
    for name in replay.__all__:
        assert callable(getattr(replay, name))
    with pytest.raises(AttributeError, match="nope"):
        replay.nope  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_a_pace_takes_as_many_passes(engine: Engine) -> None:
    """Jumps spread over a decode give the wanted passes and positions, and the same cache."""
    ids = engine.tokenizer.encode("Which file mentions retry? Look into app.log first.")
    assert len(ids) > 12
    after = []
    for computed, passes in ((10, 10), (10, 4), (9, 1), (8, 3)):
        session = engine.session()
        session.prefill([5, 6, 7])

        phase = decode_teacher_forced(
            session, ids[:11], constraint=ForcedConstraint(computed, passes)
        )

        assert (phase.passes, phase.kv_after - phase.kv_before) == (passes, computed)
        assert phase.token_ids == ids[:11]
        after.append(list(session.decode(max_tokens=3)))
    assert after == [after[0]] * 4
