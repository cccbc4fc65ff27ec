"""``triplepoint trace ingest``, ``query`` and ``report``: from a folder of traces to a page."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.many_traces import PHASES, write_many

from triplepoint.arguments import pip_install
from triplepoint.runtime.cli.exit_codes import Exit
from triplepoint.runtime.cli.trace_warehouse import REPORTS
from triplepoint.traces.warehouse import reports

from .conftest import COMMAND

pytest.importorskip("duckdb", reason="duckdb is not installed")

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(in_folder: Callable[[str], Cli], tmp_path: Path) -> Cli:
    """Run ``triplepoint trace ARGS`` in a folder with five traces in ``many``."""
    write_many(tmp_path / "many", 5)
    return in_folder("trace")


def test_the_help_names_the_reports() -> None:
    """The parser, which loads nothing, has the names that there are."""
    assert tuple(reports.REPORTS) == REPORTS


@pytest.mark.slow
@pytest.mark.parametrize("target", ["all.duckdb", "all"])
def test_from_folder_to_page(cli: Cli, tmp_path: Path, target: str) -> None:
    """Ingest, query in both orders, reports as text, CSV, JSON and a page."""
    (tmp_path / "many" / "bad.jsonl").write_text("\x1b[2J no trace\n")
    status, out, err = cli("ingest", "many", "-o", target)
    assert (status, err) == (0, "")
    assert out.startswith("6 files in ")
    assert "5 new, 1 left out" in out
    assert "foreign: " in out
    assert "\x1b" not in out
    found = json.loads(cli("ingest", "many", "-o", target, "--json")[1])
    assert (found["new"], found["unchanged"], found["left_out"]) == (0, 5, 1)
    assert [p["status"] for p in found["problems"]] == ["foreign"]

    sql = "SELECT count(*) AS phases FROM phases"
    for words in ((target, sql), (sql, target)):
        assert cli("query", *words)[1].split() == ["phases", str(5 * PHASES)]
    assert (
        cli("ingest", "many", "-o", target)[1]
        .splitlines()[0]
        .endswith(f"5 unchanged, 1 left out; 0 rows written to {target}")
    )
    assert cli("query", target, sql, "--format", "csv")[1] == f"phases\n{5 * PHASES}\n"
    assert json.loads(cli("query", target, sql, "--json")[1])["rows"] == [[5 * PHASES]]
    status, _, err = cli("query", target, "DELETE FROM files")
    assert status == 3
    assert "the query failed" in err

    status, out, _ = cli("report", target)
    assert status == 0
    assert all(one.title in out for one in reports.REPORTS.values())
    rows = list(csv.DictReader(io.StringIO(cli("report", target, "regimes", "--format", "csv")[1])))
    assert sum(int(row["phases"]) for row in rows) == 5 * PHASES
    shown = json.loads(cli("report", target, "tools", "turns", "--limit", 2, "--json")[1])
    assert list(shown) == ["tools", "turns"]
    assert len(shown["turns"]["rows"]) == 2
    assert cli("report", target, "--format", "csv", "-o", "tables")[0] == 0
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == set(REPORTS)
    assert cli("report", target, "--html", "report.html")[1] == "report.html\n"
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_query_over_files_as_csv(cli: Cli) -> None:
    """Without an ingest, too, and with the folder before the SQL."""
    status, out, _ = cli(
        "query", "many/000", "SELECT run FROM runs ORDER BY run LIMIT 1", "--format", "csv"
    )

    assert (status, out) == (0, "run\nsynthetic-0000000\n")
    for words in (("gone", "SELECT 1 FROM runs"), ("SELECT 1 FROM runs", "gone")):
        status, _, err = cli("query", *words)
        assert status == 3
        assert "no trace 'gone'" in err


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["ingest", "many"], 2, "needs an output: -o"),
        (["ingest", "nothing", "-o", "x.duckdb"], 3, "nothing does not exist"),
        (["report", "nothing.duckdb"], 3, "make it with `triplepoint trace ingest"),
        (["report", "many"], 3, "many is not a database of traces"),
        (["query", "nothing.duckdb", "SELECT 1"], 3, "nothing.duckdb"),
    ],
)
def test_mistakes(cli: Cli, words: list[str], status: int, text: str) -> None:
    """Each is told in a line that says what to do."""
    found = cli(*words)

    assert found[0] == status
    assert text in found[2]


def test_mistakes_with_a_database(cli: Cli) -> None:
    """Reports that are not there, and CSV that has no place."""
    cli("ingest", "many", "-o", "x.duckdb")

    assert "no report 'speed'; choose from overview" in cli("report", "x.duckdb", "speed")[2]
    assert "needs a folder: -o FOLDER" in cli("report", "x.duckdb", "--format", "csv")[2]
    assert "-o needs --format csv" in cli("report", "x.duckdb", "-o", "y")[2]


def test_the_state_folder_is_the_default(cli: Cli, tmp_path: Path) -> None:
    """Without a source: the runs that are kept there."""
    write_many(tmp_path / "state" / "triplepoint" / "traces", 2)

    assert "2 new" in cli("ingest", "-o", "x.duckdb")[1]


def test_without_duckdb(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)

    status, _, err = cli("ingest", "many", "-o", "x.duckdb")

    assert status == 3
    assert pip_install("analysis") in err


def test_all_turns_and_no_fewer_than_none(cli: Cli) -> None:
    """`-n 0` lists all, of runs and of turns; what is no number of things is refused."""
    assert cli("ingest", "many", "-o", "all.duckdb")[0] == 0
    for command, few in ((("report", "all.duckdb", "turns"), 2), (("ls", "many/000"), 1)):
        lines = {n: cli(*command, "--limit", n)[1].count("\n") for n in ("0", str(few))}
        assert lines["0"] > lines[str(few)]
        for bad in ("-5", "x", "1.5"):
            assert cli(*command, f"-n={bad}")[0] == Exit.USAGE


def test_a_report_of_what_was_not_ingested(cli: Cli, tmp_path: Path) -> None:
    """A trace is no warehouse: what to do first is said."""
    (tmp_path / "one.jsonl").write_text("{}\n")
    status, _, err = cli("report", "one.jsonl")
    assert status == 3
    assert "ingest it first: `triplepoint trace ingest one.jsonl -o traces.duckdb`" in err


@pytest.mark.slow
@pytest.mark.parametrize("target", ["many/000", "all.duckdb"])
def test_an_interrupted_query_ends(
    cli: Cli, env: dict[str, str], tmp_path: Path, target: str
) -> None:
    """Ctrl-C ends a query that would take hours, at once and without an error of ours."""
    assert cli("ingest", "many", "-o", "all.duckdb")[0] == 0
    sql = "SELECT sum(a.range * b.range) FROM range(3000000000) a, range(3) b"
    process = subprocess.Popen(
        [*COMMAND, "trace", "query", target, sql],
        env=env,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        until = time.monotonic() + 60
        while cpu_s(process.pid) < 4.0:  # it computes: what is loaded took less
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out, err) == (-signal.SIGINT, b"", b"")


def cpu_s(process: int) -> float:
    """Seconds of processors that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
