"""What is recorded for the library of runs verifies."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.recorded import engine_of

from labs.recording import record_examples
from triplepoint.runtime.replay.replay import verify

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
