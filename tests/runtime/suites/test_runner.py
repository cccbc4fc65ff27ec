"""Suites that run: on the embedded model, on a scripted server, killed and taken up again."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import OpenAIServer, calls, openai_server, text

from triplepoint import Engine, RemoteEngine, interrupts
from triplepoint.errors import SettingError
from triplepoint.runtime.suites.definition import Suite
from triplepoint.runtime.suites.report import as_json, as_page, sections
from triplepoint.runtime.suites.results import ResultsFile, key_of, read_rows
from triplepoint.runtime.suites.runner import current_rows, jobs_of, run_suite
from triplepoint.traces import Trace

Make = Callable[..., Suite]
ERROR = {"id": "error", "question": "What's the error in app.log?", "group": "reading"}
ERROR |= {"checks": [{"contains": "db-2 refused"}, {"grounded": True}]}
TALK: dict[str, Any] = {"id": "talk", "group": "reading"}
TALK["turns"] = [
    {"ask": "Which files are in this folder?", "checks": [{"contains": "app.log"}]},
    {"ask": "Thanks!", "group": "small talk", "checks": [{"contains": "no such word"}]},
]
FILES: dict[str, Any] = {"id": "files", "question": "Which files are in this folder?"}
COUNT = 40
FILES["checks"] = [{"contains": "app.log"}, {"called": "list_dir"}]


class Kept:
    """Gives one engine for every model, and does not let it be closed."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.loaded: list[str] = []

    def __call__(self, model: Any) -> Any:
        self.loaded.append(model.name)
        return _Uncloseable(self._engine)


class _Uncloseable:
    def __init__(self, engine: Any) -> None:
        self.__dict__["_engine"] = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        pass


def run(suite: Suite, engine: Any, path: Path, **more: Any) -> list[dict[str, Any]]:
    with ResultsFile(path) as results:
        run_suite(suite, results, lambda _: engine, **more)
        return list(results.rows.values())


@pytest.fixture
def nano(nano_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The embedded model, which stays open for the next test."""
    monkeypatch.setattr(Engine, "close", lambda self: None)
    return nano_engine


@pytest.mark.parametrize("tools", [[], ["edit"]], ids=["in place", "in a copy"])
def test_attempts_do_not_see_each_other(
    tools: list[str], suite_of: Make, nano: Engine, tmp_path: Path
) -> None:
    """Results and traces in a task's folder are hidden from its tools, and from its copy."""
    task = {**FILES, "question": "Which file mentions refused?", "checks": [{"contains": "app"}]}
    suite = suite_of(tasks=[{**task, "tools": tools}], repeats=3)
    traces = tmp_path / "logs" / "traces"
    traces.mkdir()
    rows = run(suite, nano, tmp_path / "logs" / "r.jsonl", traces=traces)
    assert len(list(traces.iterdir())) == 3
    assert len({(q["answer"]) for row in rows for q in row["questions"]}) == 1
    assert len({row["usage"]["input_tokens"] for row in rows}) == 1
    with pytest.raises(SettingError, match="the folder of task files"):
        run(suite, nano, tmp_path / "r.jsonl", traces=tmp_path / "logs")


def test_a_suite_of_the_embedded_model(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """Answers are checked question by question; the rows have usage; traces are written."""
    suite = suite_of(tasks=[ERROR, TALK, FILES], repeats=2, price_per_million=1)
    path, traces = tmp_path / "r.jsonl", tmp_path / "traces"
    traces.mkdir()
    told: list[tuple[bool, int, int]] = []

    def tell(row: dict[str, Any], done: int, total: int) -> None:
        told.append((row["passed"], done, total))

    rows = run(suite, nano, path, tell=tell, traces=traces)

    assert [row["passed"] for row in rows] == [True, False, True] * 2
    assert told[-1] == (True, 6, 6)
    first, second = rows[1]["questions"]
    assert (first["passed"], second["passed"]) == (True, False)
    assert second["checks"][0]["why"] == "it lacks 'no such word'"
    assert rows[0]["usage"]["output_tokens"] > 0
    assert rows[0]["questions"][0]["calls"]
    assert read_rows(path) == [{"v": 1, **row} for row in rows]
    assert len(list(traces.iterdir())) == 6
    assert all(Trace.load(one).answer for one in traces.iterdir())

    found = as_json(suite, rows)
    assert found["scores"][0]["accuracy"] == pytest.approx(0.75)
    assert {one["group"]: one["nano/default"] for one in found["groups"]} == {
        **{"": 1.0, "reading": 1.0, "small talk": 0.0}
    }
    assert [one["task"] for one in found["wrong"]] == ["talk"]
    assert [report.name for report, _ in sections(suite, rows)] == ["scores", "groups", "misses"]
    assert "What was wrong" in as_page(suite, rows)


@pytest.mark.slow
def test_only_what_is_missing_is_asked(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """A task that changed, a new one and a new setting; what is whole is not asked, nor loaded."""
    path = tmp_path / "r.jsonl"
    run(suite_of(tasks=[ERROR, FILES]), nano, path)
    load = Kept(nano)
    with ResultsFile(path) as results:
        run_suite(suite_of(tasks=[ERROR, FILES]), results, load)
    assert load.loaded == []

    other = {**ERROR, "checks": [{"contains": "never"}]}
    suite = suite_of(
        tasks=[other, FILES, TALK], settings=[{}, {"name": "short", "max_tokens": 200}]
    )
    told: list[tuple[str, str]] = []
    with ResultsFile(path) as results:
        run_suite(
            suite, results, load, tell=lambda row, *_: told.append((row["task"], row["setting"]))
        )
        rows = current_rows(suite, results.rows.values())
    assert load.loaded == ["nano"]
    assert sorted(told) == [
        *(("error", "default"), ("error", "short"), ("files", "short")),
        *(("talk", "default"), ("talk", "short")),
    ]
    assert {key_of(row) for row in rows} == {job.key for job in jobs_of(suite)}


def test_groups_are_those_of_now(suite_of: Make) -> None:
    """A task that was given another group keeps its attempts, which count in that group."""
    before, after = (suite_of(tasks=[{**FILES, "group": group}]) for group in ("old", "new"))
    (job,) = jobs_of(before)
    row = {"task": FILES["id"], "model": "nano", "setting": "default", "repeat": 0}
    (found,) = current_rows(after, [{**row, "group": "old", "cell": job.cell}])
    assert found == {**row, "group": "new", "cell": job.cell}


@pytest.mark.slow
def test_attempts_at_once(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """Several at once on one engine give what one after the other does."""
    suite = suite_of(tasks=[ERROR, TALK, FILES], repeats=2)
    alone, together = (
        {key_of(row): [q["answer"] for q in row["questions"]] for row in rows}
        for rows in (
            run(suite, nano, tmp_path / "alone"),
            run(suite, nano, tmp_path / "together", parallel=3),
        )
    )

    assert alone == together


def edit(old: str, new: str) -> list[Any]:
    return calls(("edit_file", {"path": "app.log", "old": old, "new": new}))


def scripted(server: OpenAIServer) -> RemoteEngine:
    return RemoteEngine(server.url, model="m")


def test_ctrl_c_keeps_what_was_under_way(
    suite_of: Make, nano: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that run come to their end and into the results; no other begins."""
    pending, completed = iter([KeyboardInterrupt()]), interrupts.completed

    def interrupted(futures: Any) -> Any:
        if (interrupt := next(pending, None)) is not None:
            raise interrupt
        return completed(futures)

    monkeypatch.setattr(interrupts, "completed", interrupted)
    suite = suite_of(tasks=[ERROR], repeats=6)
    with ResultsFile(tmp_path / "r.jsonl") as results:
        with pytest.raises(KeyboardInterrupt):
            run_suite(suite, results, lambda _: nano, parallel=2)
        assert sorted(row["repeat"] for row in results.rows.values()) == [0, 1]
    assert len(read_rows(tmp_path / "r.jsonl")) == 2


def test_files_that_change(suite_of: Make, tmp_path: Path) -> None:
    """What writes gets a copy of the folder: it is checked, and the folder is as it was."""
    task = {"id": "fix", "question": "Replace up by down.", "tools": ["edit"]}
    task["files"] = {"sub/new.txt": "hello"}
    checks: list[Any] = [{"changed": ["app.log"]}, {"files": {"app.log": {"contains": "down"}}}]
    task["checks"] = [
        *checks,
        {"called": "edit_file"},
        {"files": {"sub/new.txt": {"equals": "hello"}}},
    ]
    suite = suite_of(tasks=[task], repeats=2, k=[1, 2])
    script = [edit("INFO up", "INFO down"), text("Done."), text("I will not.")]
    with openai_server(*script) as server:
        rows = run(suite, scripted(server), tmp_path / "r.jsonl")

    assert [row["passed"] for row in rows] == [True, False]
    whys = [c.get("why") for c in rows[1]["questions"][0]["checks"]]
    assert whys[0] == "not changed: app.log"
    assert (tmp_path / "logs" / "app.log").read_text().startswith("INFO up")
    assert as_json(suite, rows)["scores"][0]["pass_at"] == {1: 0.5, 2: 1.0}


def test_our_failures_are_made_again(suite_of: Make, tmp_path: Path) -> None:
    """A server that breaks off is an error, counted as neither right nor wrong, and asked again."""
    suite = suite_of(tasks=[{**FILES, "checks": [{"contains": "app.log"}]}])
    with openai_server(*[400] * 3) as server:
        rows = run(suite, scripted(server), tmp_path / "r.jsonl")
    assert [row["status"] for row in rows] == ["error"]
    assert rows[0]["error"]
    scores = as_json(suite, rows)["scores"][0]
    assert (scores["errors"], scores["accuracy"]) == (1, None)
    assert [report.name for report, _ in sections(suite, rows)] == ["scores", "errors"]

    with openai_server(text("app.log")) as server:
        rows = run(suite, scripted(server), tmp_path / "r.jsonl")
    assert [row["status"] for row in rows] == ["ok"]
    assert rows[0]["passed"]


def test_a_judge_decides(suite_of: Make, tmp_path: Path) -> None:
    """The judge is asked with rubric, question and answer; its reason is kept."""
    task = {"id": "j", "question": "Say hello.", "checks": [{"judge": "It greets."}]}
    suite = suite_of(tasks=[task], repeats=2, judge="judge-model", dir=None)
    verdicts = [json.dumps({"reason": f"because {n}", "meets_criterion": not n}) for n in (0, 1)]
    with (
        openai_server(text("Hello!"), text("No.")) as server,
        openai_server(*[text(v) for v in verdicts]) as judge,
        ResultsFile(tmp_path / "r.jsonl") as results,
    ):
        engines = {"nano": scripted(server), "judge-model": scripted(judge)}
        run_suite(suite, results, lambda model: engines[model.name])
        rows = list(results.rows.values())

    assert [row["passed"] for row in rows] == [True, False]
    assert rows[1]["questions"][0]["checks"] == [
        {"check": "judge", "passed": False, "why": "because 1"}
    ]
    asked = json.dumps(judge.requests[0])
    assert all(part in asked for part in ("It greets.", "Say hello.", "Hello!"))


def test_seeds_differ_by_repeat(suite_of: Make, tmp_path: Path) -> None:
    """Each repeat has the next seed, with the setting's temperature."""
    suite = suite_of(
        tasks=[{"id": "a", "question": "Hi", "checks": [{"lacks": "x"}]}],
        settings=[{"temperature": 0.7, "seed": 10}],
        repeats=3,
    )
    with openai_server(*[text("a")] * 3) as server:
        run(suite, scripted(server), tmp_path / "r.jsonl")

    assert [body["seed"] for body in server.requests] == [10, 11, 12]
    assert {body["temperature"] for body in server.requests} == {0.7}


@pytest.mark.slow
def test_an_attempt_leaves_no_pages_and_one_run_in_its_trace(
    suite_of: Make, nano: Engine, tmp_path: Path
) -> None:
    """Its session is closed at once; where it is made again the trace is the last one's."""
    suite = suite_of(tasks=[ERROR])
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            with ResultsFile(tmp_path / "r.jsonl", fresh=True) as results:
                run_suite(suite, results, lambda _: nano, traces=tmp_path)
        left = [sequence for sequence in nano.core.scheduler.sequences if sequence.tokens]
    finally:
        gc.enable()
    (trace,) = tmp_path.glob("error-*.jsonl")

    assert left == []
    assert len(Trace.load(trace).runs) == 1


def test_a_schema_that_is_none(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """It is named before anything is asked; a reference that leads nowhere fails its attempt."""
    task = {**ERROR, "checks": [{"schema": {"type": "numbr"}}]}
    with pytest.raises(SettingError, match=r"task error: a check has an invalid schema: 'numbr'"):
        run(suite_of(tasks=[task]), nano, tmp_path / "r.jsonl")

    task["checks"] = [{"schema": {"$ref": "#/$defs/missing"}}]
    with openai_server(text("7")) as server:
        suite = suite_of(tasks=[task], models=[server.url])
        (row,) = run(suite, RemoteEngine(server.url), tmp_path / "r.jsonl")
    assert (row["status"], "the schema is unusable" in row["error"]) == ("error", True)


def test_a_folder_file_that_is_none(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """It is an error of the attempt that names the file."""
    (tmp_path / "bad.toml").write_text('talk = "none"')
    (row,) = run(suite_of(tasks=[{**ERROR, "dir": "bad.toml"}]), nano, tmp_path / "r.jsonl")
    assert (row["status"], "bad.toml: not a file with a folder" in row["error"]) == ("error", True)


# --- the file of results


def test_a_torn_line_is_cut_off(suite_of: Make, nano: Engine, tmp_path: Path) -> None:
    """What a killed eval left of its last line goes; whole rows stay."""
    path = tmp_path / "r.jsonl"
    rows = run(suite_of(tasks=[ERROR, FILES]), nano, path)
    whole = path.read_bytes()
    first = whole.splitlines(keepends=True)[0]
    # A power failure may store a file's length before its text.
    for torn in (first[:1], first[:5], first[: len(first) // 2], b"\0" * 7):
        path.write_bytes(whole + torn)
        assert len(read_rows(path)) == 2
        with ResultsFile(path) as results:
            assert list(results.rows) == [key_of(row) for row in rows]
        assert path.read_bytes() == whole


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    """What is no file of results is not written to; two writers are one too many."""
    row = {"task": [], "model": "m", "setting": "s", "repeat": 0, "v": 1}
    files = {"a": b"mine\n", "b": b"mine", "c": b'{"x": 1}\n', "d": b"[" * 100_000 + b"\n"}
    files |= {"e": json.dumps(row).encode() + b"\n"}
    files |= {"f": json.dumps({**row, "task": "t"}).encode() + b"\n"}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SettingError, match="name another"):
            ResultsFile(tmp_path / name)
        assert (tmp_path / name).read_bytes() == content
    with pytest.raises(SettingError, match="cannot write the results"):
        ResultsFile(tmp_path)
    with (
        ResultsFile(tmp_path / "r"),
        pytest.raises(SettingError, match="another eval is writing to it"),
    ):
        ResultsFile(tmp_path / "r")


@pytest.mark.slow
def test_a_killed_eval_goes_on(tmp_path: Path) -> None:
    """kill -9 in its middle: every attempt is there once at the end, and none was made twice."""
    (tmp_path / "app.log").write_text("ERROR disk full\n")
    tasks = [
        {"id": str(n), "question": "What's the error?", "checks": [{"contains": "disk"}]}
        for n in range(COUNT)
    ]
    path = tmp_path / "s.results.jsonl"
    command = [sys.executable, "-m", "triplepoint", "eval", "s.json"]
    with openai_server(*[[0.02, *text("disk full")] for _ in range(2 * COUNT)]) as server:
        suite = {"dir": ".", "tasks": tasks, "models": [{"name": "m", "model": server.url}]}
        (tmp_path / "s.json").write_text(json.dumps(suite))
        child = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end and (not path.exists() or path.read_bytes().count(b"\n") < 3):
            time.sleep(0.005)
        child.kill()
        child.wait()
        assert 3 <= len(read_rows(path)) < COUNT
        done = subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, check=True)

    lines = path.read_text().splitlines()
    assert [json.loads(line)["task"] for line in lines] == [str(n) for n in range(COUNT)]
    assert json.loads(done.stdout)["scores"][0]["attempts"] == COUNT
    assert COUNT <= len(server.requests) <= COUNT + 1
