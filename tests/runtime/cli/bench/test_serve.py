"""`triplepoint bench serve`, with the embedded model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from triplepoint.runtime.bench.load_work import Work
from triplepoint.runtime.cli import main

Run = Callable[..., "subprocess.CompletedProcess[str]"]
WORK = ["--turns", "2", "--system", "20", "--results", "5,10", "--reply", "4", "--seed", "3",
        "--pause", "0.001"]  # fmt: skip


def found(done: subprocess.CompletedProcess[str]) -> list[dict[str, float]]:
    """The rows as JSON."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_agents_in_the_same_process(triplepoint: Run) -> None:
    """A row for each number of agents: nobody failed, and what was shared was computed once."""
    one, two = found(triplepoint("bench", "serve", "1,2", "--in-process", "--json", *WORK))

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
    (row,) = found(triplepoint("bench", "serve", "2", "--json", *WORK, *left))

    assert row["failures"] == 0
    assert row["written_tokens"] > 0


def test_no_server_there(triplepoint: Run) -> None:
    """One line that names the address."""
    done = triplepoint("bench", "serve", "2", "--url", "http://127.0.0.1:9", *WORK)

    assert done.returncode == 1
    assert "no server with a model answers at http://127.0.0.1:9" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_work_beyond_the_context(triplepoint: Run) -> None:
    """It is refused before anything is asked: nano's context is shorter than the defaults."""
    done = triplepoint("bench", "serve", "1", "--in-process", "--pause", "0", "-m", "nano")

    assert done.returncode == 2
    assert "the system prompt, does not fit the model's context of 4,096" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow  # a process that loads the model
def test_work_beyond_a_servers_context(triplepoint: Run) -> None:
    """The same of a server that is started."""
    pytest.importorskip("uvicorn", reason="the server needs pip install 'triplepoint[serve]'")
    done = triplepoint("bench", "serve", "1", "--pause", "0", "-m", "nano")

    assert done.returncode == 2
    assert "does not fit the model's context of 4,096" in done.stderr


def test_nobody_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every conversation outgrew the context: that is counted, and the status says so."""
    monkeypatch.setattr(Work, "check_room", lambda *_: None)
    args = ["bench", "serve", "1", "--in-process", *WORK, "-m", "nano", "--context", "60"]

    assert main([*args, "--json"]) == 1
    said = capsys.readouterr()
    assert "the context holds 60" in said.err
    assert [row["failures"] for row in json.loads(said.out)] == [1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--url", "x", "-m", "nano"], "--model cannot be combined with --url"),
        (["--url", "x", "-t", "2"], "--threads cannot be combined with --url"),
        (["--url", "x", "--draft", "off"], "--draft cannot be combined with --url"),
        (["--url", "x", "--in-process"], "--in-process cannot be combined with --url"),
        (["--in-process", "--without", "parking"], "--without cannot be combined with --in-proc"),
        (["--in-process", "--parallel", "2"], "--parallel cannot be combined with --in-process"),
    ],
)
def test_options_of_what_is_not_started(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are refused by name."""
    assert main(["bench", "serve", "1", *args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_more_than_the_memory_holds(triplepoint: Run) -> None:
    """Nobody fails; what was taken back and found again does not count as cached twice."""
    work = ["--turns", "3", "--system", "100", "--results", "20,100", "--reply", "16",
            "--pause", "0.001"]  # fmt: skip
    memory = ["--kv-memory", "12MB", "--in-process", "--json"]
    (row,) = found(triplepoint("bench", "serve", "8", *memory, *work))

    assert row["failures"] == 0
    assert 0 < row["computed_tokens"] <= row["prompt_tokens"]
