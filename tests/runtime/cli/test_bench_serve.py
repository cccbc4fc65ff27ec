"""`triplepoint bench serve`, with the embedded model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WORK = ["--turns", "2", "--system", "20", "--results", "5,10", "--reply", "4", "--seed", "3",
        "--pause", "0.001"]  # fmt: skip


def found(done: subprocess.CompletedProcess[str]) -> list[dict[str, float]]:
    """The rows as JSON."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_agents_in_the_same_process(triplepoint: Run) -> None:
    """A row for each number of agents: nobody failed, and what was shared was computed once."""
    one, two = found(triplepoint("bench", "serve", "1,2", "--in-process", "-o", "json", *WORK))

    assert (one["agents"], two["agents"]) == (1, 2)
    for row in (one, two):
        assert row["failures"] == 0
        assert row["jobs_per_hour"] == pytest.approx(3600 * row["agents"] / row["seconds"])
        assert 0 < row["computed_tokens"] < row["prompt_tokens"]
        assert 0 < row["written_tokens"] <= 8 * row["agents"]
        assert row["gap_p50_s"] <= row["gap_p99_s"] <= row["gap_max_s"]


@pytest.mark.slow  # processes that load the model: 4 s each
@pytest.mark.parametrize("without", [(), ("deadline", "sharing", "programs", "parking")])
def test_a_server_of_its_own(triplepoint: Run, without: tuple[str, ...]) -> None:
    """The same over HTTP, with all that the server has and without."""
    pytest.importorskip("uvicorn", reason="the server needs pip install 'triplepoint[serve]'")
    left = [part for idea in without for part in ("--without", idea)]
    (row,) = found(triplepoint("bench", "serve", "2", "-o", "json", *WORK, *left))

    assert row["failures"] == 0
    assert row["written_tokens"] > 0


def test_no_server_there(triplepoint: Run) -> None:
    """One line that names the address."""
    done = triplepoint("bench", "serve", "2", "--url", "http://127.0.0.1:9", *WORK)

    assert done.returncode == 1
    assert "no server with a model answers at http://127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_more_than_the_memory_holds(triplepoint: Run) -> None:
    """Nobody fails; what was taken back and found again does not count as cached twice."""
    work = ["--turns", "3", "--system", "100", "--results", "20,100", "--reply", "16",
            "--pause", "0.001"]  # fmt: skip
    memory = ["--kv-memory", "12MB", "--in-process", "-o", "json"]
    (row,) = found(triplepoint("bench", "serve", "8", *memory, *work))

    assert row["failures"] == 0
    assert 0 < row["computed_tokens"] <= row["prompt_tokens"]
