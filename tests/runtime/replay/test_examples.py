"""The library of recorded runs: what is in the folder verifies."""

from __future__ import annotations

import pytest
from helpers.recorded import engine_of

from triplepoint.errors import TraceError
from triplepoint.jit import targets
from triplepoint.runtime.replay import examples
from triplepoint.runtime.replay.replay import verify

HEAVY = ("seed", "edit")  # of a synthetic model, which is written to the cache first


def test_the_seed_has_its_shape() -> None:
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
