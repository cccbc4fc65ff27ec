"""Workers of this process: agents on one engine, and servers, of which one goes away."""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import DROP, openai_server, text

import triplepoint
from triplepoint import (
    Agent,
    Engine,
    FleetError,
    RemoteEngine,
    RowError,
    SettingError,
    Trace,
    TraceError,
)
from triplepoint.runtime.fleet import answering, workers
from triplepoint.runtime.fleet.answering import Recipe
from triplepoint.runtime.fleet.api import Fleet, parse_target, parse_until, run_map
from triplepoint.runtime.fleet.dispatch import Limits
from triplepoint.runtime.fleet.mapping import MapReport, MapRun
from triplepoint.runtime.fleet.results import Results
from triplepoint.runtime.fleet.rows import make_rows
from triplepoint.runtime.fleet.workers import Event, ServerWorker, Work

QUESTIONS = ("What's the error in app.log?", "Which files are in this folder?")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model, loaded once."""
    with Engine.load("nano", context=1024) as engine:
        yield engine


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Folders of which each has an error of its own."""
    made = [tmp_path / f"f{n}" for n in range(3)]
    for number, path in enumerate(made):
        path.mkdir()
        (path / "app.log").write_text(f"INFO start\nERROR disk {number} is full\nINFO stop\n")
    return made


def factory(engine: Any, row: dict[str, Any]) -> Agent:
    return Agent(engine, workspace=row["dir"], max_tokens=200)


def test_agents_together_answer_as_one_alone(
    engine: Engine, folders: list[Path], tmp_path: Path
) -> None:
    """Eight rows at once: each its own folder's answer, its trace under its name, in order."""
    rows = [{"question": q, "dir": str(f), "n": [q]} for f in folders for q in QUESTIONS]
    path = tmp_path / "r.jsonl"
    results = triplepoint.map_rows(factory, rows, to="local:4", engine=engine, results=path)

    assert [(one["question"], one["dir"], one["n"]) for one in results] == [
        (row["question"], row["dir"], row["n"]) for row in rows
    ]
    for one in results:
        with Agent(engine, workspace=one["dir"], max_tokens=200, trace=False) as alone:
            expected = alone.run(one["question"])
        assert (one["status"], one["answer"]) == ("answered", expected.answer)
        assert one["usage"]["generated"] == expected.usage.output_tokens
        trace = Trace.load(tmp_path / one["trace"])
        assert trace.answer == one["answer"]
    again = triplepoint.map_rows(factory, rows, engine=engine, results=path)
    assert again == results


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
@pytest.mark.parametrize("make", [Recipe(max_tokens=2), factory])
def test_folders_are_closed(
    make: Any, engine: Engine, folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rows do not run out of descriptors, also where the garbage collector comes late."""
    monkeypatch.setattr(answering, "_COLLECT_EVERY", 4)
    results, poison = Results(None), Results(None)
    rows = make_rows(("", {"question": f"Hi {n}", "dir": str(folders[0])}) for n in range(12))
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        fleet = Fleet(parse_target("local:1"), engine=engine)
        run_map(rows, make, fleet, results=results, poison=poison, traces=None)
        after = len(os.listdir("/proc/self/fd"))
    finally:
        gc.enable()

    assert len(results) == 12
    assert after < before + 5


def test_rows_are_what_an_agent_is_made_of(engine: Engine, folders: list[Path]) -> None:
    """A schema, a folder that is not there, tools without a folder: each row gets its own."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    rows = make_rows(
        [
            ("", {"question": "How many?", "dir": str(folders[0]), "schema": schema}),
            ("", {"question": "Hello", "dir": str(folders[0] / "missing")}),
            ("", {"question": "Hello", "tools": ["edit"]}),
            ("", {"question": "Hello", "model": "other"}),
        ]
    )
    results, poison = Results(None), Results(None)
    fleet = Fleet(parse_target("local:2"), engine=engine)
    report = run_map(rows, Recipe(max_steps=2), fleet, results=results, poison=poison, traces=None)
    found = list(results)

    assert (report.failed, report.aside, len(found)) == (3, 0, 4)
    assert found[0]["status"] in ("answered", "limit")
    if found[0]["status"] == "answered":
        assert isinstance(found[0]["output"]["n"], int)
    assert "no such folder" in found[1]["error"]
    assert "need a folder" in found[2]["error"]
    assert "a local engine has only one" in found[3]["error"]


def test_a_model_that_cannot_be_loaded_ends_the_run() -> None:
    """It is not told a thousand times, once for each row."""
    with pytest.raises(triplepoint.ModelError, match="no such model"):
        triplepoint.map_rows(factory, ["Hello"], model="missing.gguf")


def test_errors_of_a_factory(engine: Engine) -> None:
    """A bug is tried again and set aside; what is no agent is an error at once."""

    def broken(engine: Any, row: dict[str, Any]) -> Any:
        return row["missing"] if row["question"] == "a" else None

    one, aside = triplepoint.map_rows(broken, ["a", "b"], engine=engine, attempts=2)
    assert (aside["status"], aside["error"]) == ("poison", "KeyError: 'missing'")
    assert "must return an Agent, not NoneType" in one["error"]


def test_a_factory_that_exits_ends_its_row_alone(engine: Engine) -> None:
    """Its thread ends with nobody to hear of it: the run waited for that row for ever."""

    def leaves(engine: Any, row: dict[str, Any]) -> Any:
        if row["question"] == "a":
            sys.exit("enough")
        return Agent(engine, max_tokens=4)

    one, aside = triplepoint.map_rows(leaves, ["a", "b"], engine=engine, attempts=1)
    assert (aside["status"], aside["error"]) == ("poison", "SystemExit: enough")
    assert one["status"] in ("answered", "limit")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are given up soon."""
    monkeypatch.setattr(workers, "_FIRST_PAUSE", 0.02)


def remote(engine: Any, row: dict[str, Any]) -> Agent:
    assert isinstance(engine, RemoteEngine)
    return Agent(engine)


@pytest.mark.slow
def test_two_servers_of_which_one_dies(quick: None) -> None:
    """Its rows go to the other one; none is lost, none is answered twice."""
    reports: list[MapReport] = []
    with ExitStack() as stack:
        good = stack.enter_context(openai_server(*[text("Yes.")] * 40))
        dying = stack.enter_context(openai_server(text("Yes."), text("Yes."), *[503] * 90))
        fleet = Fleet(parse_target(f"{good.url},{dying.url}", 2), patience_s=0.3)
        results, poison = Results(None), Results(None)
        rows = make_rows(("", {"question": f"q{n}"}) for n in range(30))
        report = run_map(
            rows,
            remote,
            fleet,
            results=results,
            poison=poison,
            traces=None,
            on_progress=reports.append,
        )

    assert (report.answered, report.aside) == (30, 0)
    assert [one["row"] for one in results] == list(range(1, 31))
    by = [one["worker"] for one in results]
    assert by.count(good.url) >= 26
    assert {one["usage"]["prompt"] for one in results} == {20}
    assert any("503" in note or "busy" in note for note in report.notes)


def test_a_row_whose_connection_is_always_closed(quick: None) -> None:
    """A server that still says what it has is there: each try counts."""
    with openai_server(*[DROP] * 9) as server:
        rows = make_rows([("", {"question": "q"})])
        results, poison = Results(None), Results(None)
        fleet = Fleet(parse_target(server.url, 1))
        limits = Limits(2, pause_s=0.01)
        run_map(rows, remote, fleet, results=results, poison=poison, traces=None, limits=limits)

    (aside,) = poison
    assert "closed the connection" in aside["error"]
    assert aside["attempt"] == 2


def test_a_row_that_its_server_goes_away_with(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set aside some time, and the run ends; the other row is answered."""
    monkeypatch.setattr(answering, "why_silent", lambda _: "away")

    class Script(list[Any]):
        def pop(self, _: Any = -1) -> Any:
            return DROP if "bad" in str(server.requests[-1]) else text("Yes.")

    with openai_server() as server:
        server.answers = Script([0])
        rows = make_rows(("", {"question": q}) for q in ("bad", "good"))
        results, poison = Results(None), Results(None)
        fleet = Fleet(parse_target(server.url, 1))
        limits = Limits(2, deaths=2)
        run_map(rows, remote, fleet, results=results, poison=poison, traces=None, limits=limits)

    assert [one["question"] for one in results] == ["good"]
    (aside,) = poison
    assert "its server went away 3 times while it worked on this row" in aside["error"]


def test_a_trace_that_cannot_be_written_is_not_the_rows_fault(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full now may not be so later: the row is tried again."""
    wrote = Agent.trace_to
    full = [True]

    def trace_to(agent: Agent, where: Any) -> None:
        if full:
            full.clear()
            raise TraceError("no space is left")
        wrote(agent, where)

    monkeypatch.setattr(Agent, "trace_to", trace_to)
    results = Results(None)
    run_map(
        make_rows([("", {"question": "Hello"})]),
        Recipe(max_tokens=2),
        Fleet(parse_target("local:1"), engine=engine),
        results=results,
        poison=Results(None),
        traces=None,
    )

    (one,) = results
    assert one["attempt"] == 2
    assert "no space" not in one.get("error", "")


@pytest.mark.slow
def test_no_server_is_left(quick: None) -> None:
    """An error says so; what was answered is in the results."""
    with openai_server(text("Yes."), *[503] * 90) as server:
        fleet = Fleet(parse_target(server.url, 1), patience_s=0.2)
        results, poison = Results(None), Results(None)
        rows = make_rows(("", {"question": f"q{n}"}) for n in range(3))
        with pytest.raises(FleetError, match=r"2 rows without a result.*has taken no row"):
            run_map(rows, remote, fleet, results=results, poison=poison, traces=None)

    assert len(results) == 1


def test_an_answer_does_not_end_patience(quick: None) -> None:
    """A server refuses a row while it answers another: its patience began then, not at boot."""
    there = threading.Event()

    class Probed(ServerWorker):
        def _engine_of(self, model: str | None) -> RemoteEngine:
            if model == "probe":
                self._away_since = 0.0  # as of a row that was answered meanwhile
                if not there.is_set():
                    there.set()
                    return RemoteEngine("http://127.0.0.1:9/v1", model="x", tries=1)
            return super()._engine_of(model)

    with openai_server(text("Yes.")) as server:
        worker = Probed(server.url, 1, Work(remote))
        events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        worker.start(events.put)
        try:
            assert events.get(timeout=30).what == "ready"
        finally:
            worker.close()


@pytest.mark.slow
def test_a_first_row_that_takes_longer_than_patience(quick: None) -> None:
    """A proxy ends it with 504 then: patience begins with that, and the others are answered."""
    delayed = threading.Event()

    class Slow(ServerWorker):
        def _engine_of(self, model: str | None) -> RemoteEngine:
            if model != "probe" and not delayed.is_set():
                delayed.set()
                time.sleep(1.7)
            return super()._engine_of(model)

    with openai_server(503, 503, *[text("Yes.")] * 9) as server:
        worker = Slow(server.url, 1, Work(remote), patience_s=1.5)
        rows = make_rows(("", {"question": f"q{n}"}) for n in range(3))
        results, poison = Results(None), Results(None)
        report = MapRun(rows, Work(remote), results, poison).run([worker])

    assert (report.answered, report.left) == (3, 0)


@pytest.mark.slow
def test_a_busy_server_is_waited_for_while_it_works(quick: None) -> None:
    """It refuses a second row for longer than patience is, and works on the first all the time."""
    with openai_server([1.5, *text("Yes.")], *[503] * 200) as server:
        fleet = Fleet(parse_target(server.url, 2), patience_s=0.2)
        results, poison = Results(None), Results(None)
        rows = make_rows(("", {"question": f"q{n}"}) for n in range(2))
        with pytest.raises(FleetError, match="1 row without a result"):
            run_map(rows, remote, fleet, results=results, poison=poison, traces=None)

    assert [one["answer"] for one in results] == ["Yes."]


def test_a_server_that_is_not_there(quick: None) -> None:
    """The run ends when patience does."""
    with openai_server() as server:
        url = server.url
    fleet = Fleet(parse_target(url, 1), patience_s=0.1)
    results, poison = Results(None), Results(None)
    with pytest.raises(FleetError, match="no workers are left; 1 row without"):
        run_map(
            make_rows([("", {"question": "q"})]),
            remote,
            fleet,
            results=results,
            poison=poison,
            traces=None,
        )


def test_traces_are_found_from_the_results(
    engine: Engine, folders: list[Path], tmp_path: Path
) -> None:
    """Wherever their folder is, beside the results or below."""
    path = tmp_path / "out" / "r.jsonl"
    path.parent.mkdir()
    rows = [{"question": QUESTIONS[0], "dir": str(folders[0])}]
    to = {"to": "local:1", "engine": engine, "results": path}
    for traces in (tmp_path / "logs" / "run1", path.parent / "deep" / "below"):
        path.unlink(missing_ok=True)
        (one,) = triplepoint.map_rows(factory, rows, traces=traces, **to)
        assert Trace.load(path.parent / one["trace"]).answer == one["answer"]


def test_two_runs_with_one_folder_of_traces(engine: Engine, tmp_path: Path) -> None:
    """The same rows with other settings: the second run leaves the traces of the first."""
    answers: list[str] = []
    for number, limit in enumerate((3, 9)):

        def limited(engine: Any, row: dict[str, Any], limit: int = limit) -> Agent:
            return Agent(engine, max_tokens=limit)

        path = tmp_path / f"r{number}.jsonl"
        (one,) = triplepoint.map_rows(
            limited, ["Hello"], engine=engine, results=path, traces=tmp_path / "t"
        )
        answers.append(one["trace"])

    assert len(set(answers)) == len(list((tmp_path / "t").iterdir())) == 2
    assert all((tmp_path / name).is_file() for name in answers)


def test_a_folder_of_traces_that_is_none(engine: Engine, tmp_path: Path) -> None:
    """It is an error before a row is asked, not one of each row."""
    path = tmp_path / "file"
    path.touch()
    for traces in (path, path / "below"):
        with pytest.raises(SettingError, match="folder"):
            triplepoint.map_rows(factory, ["q"], engine=engine, traces=traces)


def test_a_key_that_is_refused_ends_it_at_once(quick: None) -> None:
    """With what the server said, not after a minute as a silent server."""
    with openai_server() as server:
        server.models = 401
        fleet = Fleet(parse_target(f"{server.url}/", 1), patience_s=60)
        results, poison = Results(None), Results(None)
        rows = make_rows([("", {"question": "q"})])
        with pytest.raises(FleetError, match=r"no workers are left.*HTTP 401.*Is the key"):
            run_map(rows, remote, fleet, results=results, poison=poison, traces=None)


def test_a_client_that_cannot_be_made(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that httpx does not know ends the run at once, with the reason."""
    monkeypatch.setenv("ALL_PROXY", "gopher://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    fleet = Fleet(parse_target("http://gpu-box:11435", 1), patience_s=60)
    results, poison = Results(None), Results(None)
    rows = make_rows([("", {"question": "q"})])
    with pytest.raises(FleetError, match=r"no workers are left.*proxy .*cannot be used .*gopher"):
        run_map(rows, remote, fleet, results=results, poison=poison, traces=None)


def test_a_request_that_a_server_refuses_is_the_rows_fault(quick: None) -> None:
    """The server answers others: the row is set aside after its tries."""
    with openai_server(400, 400, text("Yes.")) as server:
        fleet = Fleet(parse_target(server.url, 1))
        results, poison = Results(None), Results(None)
        run_map(
            make_rows([("", {"question": "q"}), ("", {"question": "r"})]),
            remote,
            fleet,
            results=results,
            poison=poison,
            traces=None,
            limits=Limits(1),
        )

    assert len(poison) + len(results) == 2
    assert len(poison) == 2 or "Yes." in [one["answer"] for one in results]


@pytest.mark.parametrize(
    ("to", "kind", "slots"),
    [
        ("local", "local", 4),
        ("local:12", "local", 12),
        ("http://a,https://b:1/v1", "http", 4),
        ("auto", "ray", 4),
        ("ray://host:10001", "ray", 4),
    ],
)
def test_targets(to: str, kind: str, slots: int) -> None:
    """Where rows can go."""
    target = parse_target(to)
    assert (target.kind, target.slots) == (kind, slots)
    assert parse_target(to.partition(":12")[0], 7).slots == 7


@pytest.mark.parametrize("to", ["", "local:0", "nowhere", "http://", "ray:/x", 3, "local:2:3"])
def test_no_targets(to: Any) -> None:
    """What is none is told with what there is."""
    with pytest.raises(SettingError, match=r"local:N|server URL"):
        parse_target(to)


def test_times() -> None:
    """From now, of the clock, of a day."""
    now = time.time()
    assert parse_until("30m") == pytest.approx(now + 1800, abs=1)
    assert 0 < parse_until("18:00") - now <= 86400 + 3600
    assert time.localtime(parse_until("2030-01-02T03:04"))[:5] == (2030, 1, 2, 3, 4)
    with pytest.raises(ValueError, match="tomorrow"):
        parse_until("tomorrow")


def test_arguments_of_map(engine: Engine, tmp_path: Path) -> None:
    """What makes no sense is refused before anything is asked."""
    bad_settings: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"order": "up"}, SettingError),
        ({"max_cost": 1.0}, SettingError),
        ({"price": {"gold": 1}}, SettingError),
        ({"attempts": 0}, SettingError),
        ({"engine": engine, "to": "auto"}, SettingError),
        ({"options": {"gold": 1}}, SettingError),
        ({"engine": engine, "model": "nano"}, SettingError),
        ({"engine": engine, "options": {"threads": 1}}, SettingError),
        ({"to": "http://127.0.0.1:9", "options": {"threads": 1}}, SettingError),
        ({"results": tmp_path / "missing" / "r.jsonl"}, RowError),
        ({"results": "."}, RowError),
    ]
    for given, error in bad_settings:
        with pytest.raises(error):
            triplepoint.map_rows(factory, ["q"], **given)
    bad_rows: list[Any] = [
        [3],
        {"question": "q"},
        tmp_path / "missing.jsonl",
        7,
        [{"question": ""}],
    ]
    for bad in bad_rows:
        with pytest.raises(RowError):
            triplepoint.map_rows(factory, bad, engine=engine)
