"""``triplepoint map`` as a process: results, resuming after a kill, exit statuses, what is told."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Trace
from triplepoint.runtime.cli.exit_codes import Exit

from .conftest import COMMAND, Run

QUESTIONS = ("What's the error in app.log?", "Which files are in this folder?", "Hello")


@pytest.fixture
def questions(folder: Path, tmp_path: Path) -> Path:
    """Rows about the folder."""
    path = tmp_path / "q.jsonl"
    rows = [{"id": n, "question": QUESTIONS[n % 3], "dir": str(folder)} for n in range(24)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_file_of_questions(triplepoint: Run, questions: Path, tmp_path: Path) -> None:
    """A line for each, in order, and a trace; the second run does nothing; --json tells of both."""
    done = triplepoint("map", questions, "-o", "r.jsonl", "-m", "nano", "--max-tokens", 300)

    assert done.returncode == Exit.OK, done.stderr
    assert "24 rows: " in done.stdout
    assert "rows/s" in done.stdout
    found = results(tmp_path / "r.jsonl")
    assert [one["id"] for one in found] == list(range(24))
    assert len({(one["question"], one["answer"]) for one in found}) == 3
    assert found[0]["usage"]["prompt"] > found[0]["usage"]["computed"]
    assert Trace.load(tmp_path / found[5]["trace"]).answer == found[5]["answer"]

    again = triplepoint("map", questions, "-o", "r.jsonl", "--json")
    told = json.loads(again.stdout)
    assert (told["rows"], told["earlier"], told["finished"], told["left"]) == (24, 24, 0, 0)
    assert results(tmp_path / "r.jsonl") == found


def test_questions_from_stdin(triplepoint: Run, tmp_path: Path) -> None:
    """`-` reads the rows there; stdin stays open, since what is told comes after."""
    rows = "".join(json.dumps({"question": one}) + "\n" for one in ("Hello", "hi"))
    done = triplepoint("map", "-", "-o", "r.jsonl", "-m", "nano", stdin=rows)

    assert (done.returncode, done.stderr) == (Exit.OK, "")
    assert [one["question"] for one in results(tmp_path / "r.jsonl")] == ["Hello", "hi"]


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True])
def test_it_goes_on_after_kill_9(
    torn: bool, env: dict[str, str], triplepoint: Run, questions: Path, tmp_path: Path
) -> None:
    """The driver is killed in the midst, perhaps within a line: the same command does the rest, and
    each row has one answer, the same as without a kill."""
    path = tmp_path / "r.jsonl"
    arguments = ["map", str(questions), "-o", str(path), "-m", "nano", "--to", "local:2"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=env, cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    before = path.read_bytes()
    if torn:
        path.write_bytes(before[:-20])

    done = triplepoint(*arguments, "--json")
    assert done.returncode == Exit.OK, done.stderr
    assert 2 <= json.loads(done.stdout)["earlier"] < 24
    found = results(path)
    assert [one["id"] for one in found] == list(range(24))
    assert len({(one["question"], one["answer"]) for one in found}) == 3


@pytest.mark.slow
def test_failures_have_a_status_and_can_be_asked_again(
    triplepoint: Run, folder: Path, tmp_path: Path
) -> None:
    """Status 1 and one line of error; --retry-failed asks those alone."""
    late = tmp_path / "late"
    lines = [{"question": "Hello", "dir": str(folder)}, {"question": "Hello", "dir": str(late)}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = ("map", "q.jsonl", "-o", "r.jsonl", "-m", "nano", "--trace", "off", "--order", "done")
    failed = triplepoint(*command)
    assert failed.returncode == Exit.FAILED
    assert "1 of 2 rows failed" in failed.stderr
    assert not (tmp_path / "r.traces").exists()

    late.mkdir()
    assert triplepoint(*command).returncode == Exit.FAILED
    done = triplepoint(*command, "--retry-failed")
    assert done.returncode == Exit.OK, done.stderr
    assert "1 were already done" in done.stdout
    assert {one["status"] for one in results(tmp_path / "r.jsonl")} == {"answered"}
    assert not (tmp_path / "r.poison.jsonl").exists()


def test_folders_and_a_template(triplepoint: Run, folder: Path, tmp_path: Path) -> None:
    """A row for each folder; its name is in the question."""
    done = triplepoint(
        *("map", "--dir-from", tmp_path, "--question", "Hello {name}"),
        *("-o", "out.jsonl", "-m", "nano", "--max-tokens", 20, "-q"),
    )
    found = results(tmp_path / "out.jsonl")

    assert (done.stdout, done.returncode) == ("", Exit.OK)
    assert ("files", "Hello files") in [(one["name"], one["question"]) for one in found]


@pytest.mark.slow
def test_a_bound_ends_it_with_status_4(triplepoint: Run, questions: Path, tmp_path: Path) -> None:
    """And the same command goes on."""
    command = ("map", questions, "-o", "r.jsonl", "-m", "nano", "--price", "in=1000", "--max-cost")
    cheap = triplepoint(*command, "1", "--to", "local:2")

    assert cheap.returncode == Exit.LIMIT, cheap.stderr
    assert "stopped: " in cheap.stderr
    assert sum(one["cost"] for one in results(tmp_path / "r.jsonl")) <= 1
    assert triplepoint(*command, "1000").returncode == Exit.OK
    over = triplepoint("map", questions, "-o", "s.jsonl", "-m", "nano", "--until", "0s")
    assert over.returncode == Exit.LIMIT
    assert results(tmp_path / "s.jsonl") == []


@pytest.mark.slow
def test_a_default_that_is_a_server(triplepoint: Run, questions: Path) -> None:
    """`triplepoint use URL` is no model to load here either; it is said how to run rows on it."""
    more = {"TRIPLEPOINT_MODEL": "http://h:1"}
    done = triplepoint("map", questions, "-o", "r.jsonl", more=more)
    assert done.returncode == Exit.USAGE
    assert "rows run on a server with --to http://h:1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["-o", "r.jsonl"], Exit.USAGE, "give a QUESTIONS file, or --dir-from"),
        (["q.jsonl", "-o", "r.jsonl", "--to", "moon"], Exit.USAGE, "unknown target: 'moon'"),
        (["q.jsonl", "-o", "r.jsonl", "--max-cost", "1"], Exit.USAGE, "needs --price"),
        (["q.jsonl", "-o", "r.jsonl", "--until", "soon"], Exit.USAGE, "is not a time such as"),
        (["q.jsonl", "-o", "q.jsonl", "-m", "nano"], Exit.FILE, "line 1 is not a result"),
        (["missing", "-o", "r.jsonl"], Exit.FILE, "missing: No such file"),
        (["q.jsonl", "-o", "r.jsonl", "-m", "no.gguf"], Exit.FILE, "no such model"),
        (["q.jsonl", "-o", "r.jsonl", "-m", "http://h:1"], Exit.USAGE, "with --to http://h:1"),
        (["q.jsonl", "-o", "-"], Exit.USAGE, "-o must be a file"),
        (["q.jsonl", "-o", "/"], Exit.FILE, "the results must be a file, and '/' is a folder"),
        (["q.jsonl", "-o", "r.jsonl", "--workers", "2"], Exit.USAGE, "need a cluster"),
        (["q.jsonl", "-o", "r.jsonl", "--policy", "no.toml"], Exit.FILE, "cannot read the policy"),
        (
            ["q.jsonl", "-o", "r.jsonl", "--to", "http://h:1", "--kv", "q8"],
            Exit.USAGE,
            "--kv has no",
        ),
        (["bare.jsonl", "-o", "r.jsonl", "--dir", "no"], Exit.FILE, "--dir: no such folder: no"),
    ],
)
def test_what_it_refuses(
    arguments: list[str], status: Exit, said: str, triplepoint: Run, questions: Path
) -> None:
    """One line that says what to do; the questions are as they were."""
    before = questions.read_bytes()
    questions.with_name("bare.jsonl").write_text('{"question": "Hello"}')
    done = triplepoint("map", *arguments)

    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert questions.read_bytes() == before


@pytest.mark.slow
def test_a_terminal_shows_progress(
    on_terminal: Callable[..., tuple[int, str]], questions: Path
) -> None:
    """A line that is drawn over itself: rows, rate, time left."""
    status, shown = on_terminal("map", questions, "-o", "r.jsonl", "-m", "nano")

    assert status == Exit.OK, shown
    assert " of 24 rows · " in shown
    assert " left · " in shown
    assert "24 rows: 24 answered" in shown or "ended by a limit" in shown


def test_rows_do_not_see_each_other(triplepoint: Run, tmp_path: Path) -> None:
    """Results, rows set aside and traces lie in the folder that rows search: rows that are alike
    get the same answer from the same prompt, also when a run goes on; traces in that very folder
    cannot be hidden, so they are refused."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "notes.txt").write_text("the launch code is mango\n")
    rows = [{"question": "Which file mentions mango?", "n": n} for n in range(4)]
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "q.jsonl").write_text("".join(lines[:2]))
    command = ("map", "q.jsonl", "-o", "files/r.jsonl", "--dir", "files", "--to", "local:1")
    assert triplepoint(*command, "-q").returncode == Exit.OK
    (tmp_path / "q.jsonl").write_text("".join(lines))
    assert triplepoint(*command, "-q").returncode == Exit.OK

    found = results(tmp_path / "files" / "r.jsonl")
    assert len(found) == 4
    assert len({(one["answer"], one["usage"]["prompt"]) for one in found}) == 1
    assert found[0]["trace"].startswith("r.traces/")

    refused = triplepoint(*command, "--trace", "files")
    assert refused.returncode == Exit.USAGE
    assert "the folder that rows read" in refused.stderr


def test_two_numbers_of_rows_at_once(triplepoint: Run, questions: Path) -> None:
    """Neither overrides the other."""
    command = ("map", questions, "-o", "r.jsonl", "--parallel", "3", "--to")
    refused = triplepoint(*command, "local:2")
    assert refused.returncode == Exit.USAGE
    assert "two numbers of concurrent rows; give one" in refused.stderr
