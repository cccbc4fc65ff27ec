"""The library of recorded runs: what is recorded verifies, and so does what is in the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint import Engine, Trace
from triplepoint.errors import TraceError
from triplepoint.jit import targets
from triplepoint.runtime.replay import examples, record_examples
from triplepoint.runtime.replay.replay import verify

HEAVY = ("seed", "edit")  # of a synthetic model, which is written to the cache first


def engine_of(trace: Trace) -> Engine:
    """The engine that a recorded run needs."""
    header = trace.header
    assert header is not None
    model = header.model.path or "nano"
    return Engine.load(model, target=header.target, kv="bf16", context=header.config["context"])


_RECORDED = {"seed": pytest.mark.exhaustive, "edit": pytest.mark.exhaustive}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        # The last two take long, and are verified below as they are in the folder.
        pytest.param(n, marks=_RECORDED.get(n, ()))
        for n in record_examples.RUNS
    ],
)
def test_what_is_recorded_verifies(name: str, tmp_path: Path) -> None:
    """Recorded now on this machine, each run gives the same tokens again, and names no folder."""
    trace = record_examples.record(name, tmp_path / f"{name}.jsonl")

    assert str(Path(__file__).parents[3]) not in (tmp_path / f"{name}.jsonl").read_text()
    with engine_of(trace) as engine:
        report = verify(trace, engine)
    assert report.ok
    assert report.total == len(trace.phases) > 3


def test_the_seed_has_its_shape(tmp_path: Path) -> None:
    """Where the run of that shape is in the folder, its sizes are those that the project names."""
    if "seed" not in examples.names():
        pytest.skip("it has not been recorded: make runs")
    trace = examples.load("seed")

    fed = [phase.tokens for phase in trace.phases if phase.phase == "prefill"]
    said = [phase.tokens for phase in trace.phases if phase.phase == "decode"]
    assert (fed, said) == ([220, 5001], [30, 60])  # the call's last token is computed with it


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n in HEAVY else [])
        for n in examples.names() or [""]
    ],
)
def test_the_recorded_runs_verify(name: str) -> None:
    """On a machine that has their target, they give the recorded tokens."""
    if not name:
        pytest.skip("none are in examples/runs: make runs")
    trace = examples.load(name)
    assert trace.header is not None
    target = targets.TARGETS[trace.header.target]
    if lacks := targets.missing(target):
        pytest.skip(f"recorded for {target.name}; this machine lacks {', '.join(lacks)}")

    with engine_of(trace) as engine:
        report = verify(trace, engine)

    assert report.ok, report.first_difference


def test_the_library_is_small() -> None:
    """All files together stay under 2 MB."""
    assert sum(path.stat().st_size for path in examples.folder().glob("*")) < 2_000_000


def test_a_run_that_is_not_there_is_told() -> None:
    """The message names those that are."""
    with pytest.raises(TraceError, match="no recorded run 'nope'; known: "):
        examples.load("nope")
