"""A map on a real Ray cluster: a head and two nodes, with tokens, while all of it is being killed.

TRIPLEPOINT_FLEET_ROWS=2000 asks more rows, with more cores and kills; by hand, it takes minutes.
TRIPLEPOINT_FLEET_TIMELINE=FILE writes when rows were done and what was killed, as JSON.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.pages import ROOT, read
from helpers.ray_nodes import Cluster, ray_cluster

import triplepoint
from triplepoint import Agent, FleetError, SettingError, Trace
from triplepoint.arguments import pip_install
from triplepoint.runtime.fleet.answering import Outcome, Recipe
from triplepoint.runtime.fleet.api import Fleet, parse_target, run_map
from triplepoint.runtime.fleet.dispatch import Task, WorkerState
from triplepoint.runtime.fleet.results import Results
from triplepoint.runtime.fleet.rows import make_rows
from triplepoint.runtime.fleet.workers import Event, Post, Work

ROWS = int(os.environ.get("TRIPLEPOINT_FLEET_ROWS", "60"))
MANY = ROWS > 200
KILL_EVERY_S = 4.0 if MANY else 1.0
QUESTIONS = ("What's the error in app.log?", "Which files are in this folder?", "Hello")
needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="the fleet extra (ray) is not installed"
)


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed, the error says how to."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingError, match=re.escape(pip_install("fleet"))):
        triplepoint.map_rows(lambda engine, row: Agent(engine), ["Hello"], to="auto")


@needs_ray
def test_a_cluster_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its address is still known, the error comes at once, not when Ray gives up."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(FleetError, match=f"cluster 'auto': .*:{port}: .*ray start --head"):
        triplepoint.map_rows(lambda engine, row: Agent(engine), ["Hello"], to="auto")


def test_threads_among_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what an engine asks of the cluster, as with -t; nonsense is refused."""
    asked: list[Any] = []

    def agent(engine: Any, row: dict[str, Any]) -> Agent:
        return Agent(engine)

    def pool(*_: Any, threads: int | None, **__: Any) -> None:
        asked.append(threads)
        raise FleetError("no cluster")

    monkeypatch.setattr("triplepoint.runtime.fleet.ray_cluster.RayPool", pool)
    with pytest.raises(FleetError, match="no cluster"):
        triplepoint.map_rows(agent, ["q"], to="auto", options={"threads": 2})
    assert asked == [2]
    with pytest.raises(SettingError, match="threads must be a whole number"):
        triplepoint.map_rows(agent, ["q"], to="auto", options={"threads": "2"})


def test_paths_are_those_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Actors run in other folders: what is relative for the driver is absolute for them, and the
    keys of rows, by which a run goes on, are as they were."""
    monkeypatch.chdir(tmp_path)
    for name in ("here.gguf", "row.gguf", "nano"):
        (tmp_path / name).touch()
    given = [
        ("", {"question": "q", "dir": "logs", "model": "row.gguf"}),
        ("", {"question": "q", "model": "nano"}),
    ]
    made: list[Work] = []
    models: list[str | None] = []

    class Pool(FakePool):
        def __init__(
            self, address: str, slots: int, work: Work, *, model: str | None, **_: Any
        ) -> None:
            super().__init__(slots, work)
            made.append(work)
            models.append(model)

    monkeypatch.setattr("triplepoint.runtime.fleet.ray_cluster.RayPool", Pool)
    results, poison = Results(None), Results(None)
    run_map(
        make_rows(given),
        Recipe(dir="files", policy="policy.toml"),
        Fleet(parse_target("auto"), "here.gguf"),
        results=results,
        poison=poison,
        traces=None,
    )

    assert models == [str(tmp_path / "here.gguf")]
    recipe = made[0].make
    assert isinstance(recipe, Recipe)
    assert recipe.dir == str(tmp_path / "files")
    assert recipe.policy == str(tmp_path / "policy.toml")
    first, second = results
    assert (first["answer"], second["answer"]) == (
        f"{tmp_path / 'logs'} {tmp_path / 'row.gguf'}",
        "None nano",
    )
    assert first["dir"] == "logs"
    assert [one["key"] for one in results] == [row.key for row in make_rows(given)]


class FakePool:
    """One worker, whose answer to a row is the folder that it would read, and the model."""

    def __init__(self, slots: int, work: Work) -> None:
        self.workers = [self]
        self.state = WorkerState("ray/1", slots)
        self.ready, self.gone = True, False
        self._post: Post

    def start(self, post: Post) -> None:
        self._post = post

    def give(self, task: Task) -> None:
        answer = f"{task.row.dir} {task.row.model}"
        self._post(Event("ended", self, task, Outcome("answered", answer)))

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Sockets of Ray need a short path."""
    with tempfile.TemporaryDirectory(prefix="tp") as folder:  # noqa: SIM117 - this order
        with ray_cluster(Path(folder) / "ray", cores=2 if MANY else 1) as cluster:
            yield cluster


class Chaos:
    """Kills an actor every few seconds, until it is closed; knows when what was lost."""

    def __init__(self, cluster: Cluster, most: int) -> None:
        self.killed = 0
        self.events: list[tuple[float, str]] = []
        self._cluster, self._most, self._began = cluster, most, time.time()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(3)
        while self.killed < self._most and not self._end.wait(KILL_EVERY_S):
            if actors := self._cluster.actors():
                os.kill(rng.choice(actors), signal.SIGKILL)
                self.killed += 1
                self.note("worker")

    def note(self, what: str) -> None:
        self.events.append((time.time() - self._began, what))

    def write_timeline(self, path: str, traces: Path) -> None:
        """`events`, and in `rows` the second when the trace of each row was last written."""
        written = sorted(file.stat().st_mtime - self._began for file in traces.rglob("*.jsonl*"))
        Path(path).write_text(json.dumps({"events": self.events, "rows": written}))

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def count(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(path: Path, rows: int, driver: subprocess.Popen[bytes]) -> None:
    """Until there are so many results."""
    until = time.monotonic() + (240 if not MANY else 3600)
    while count(path) < rows:
        assert driver.poll() is None, f"the driver has ended with {driver.returncode}"
        assert time.monotonic() < until, f"{count(path)} rows in that time"
        time.sleep(0.05)


@needs_ray
@pytest.mark.slow
def test_the_command_of_the_page(cluster: Cluster, tmp_path: Path) -> None:
    """The last command of docs/fleet.md, in a folder with the examples, of which one has another
    content than where Ray was started."""
    shutil.copytree(ROOT / "examples" / "tickets", tmp_path / "examples" / "tickets")
    log = tmp_path / "examples" / "tickets" / "north" / "app.log"
    log.write_text("INFO start\nERROR disk 77 is full\nINFO stop\n")
    (line,) = re.findall(r"^ {4}triplepoint (.* --to auto)$", read("docs/fleet.md"), re.MULTILINE)
    command = [sys.executable, "-m", "triplepoint", *shlex.split(line), "-m", "nano", "-t", "1"]
    done = subprocess.run(
        command, env=cluster.env, cwd=tmp_path, capture_output=True, text=True, timeout=240
    )

    assert done.returncode == 0, done.stderr
    assert "3 rows: 3 answered" in done.stdout
    found = [json.loads(line) for line in (tmp_path / "clustered.jsonl").read_text().splitlines()]
    assert "@" in found[0]["worker"]
    assert [one["name"] for one in found if "disk 77 is full" in one["answer"]] == ["north"]


@needs_ray
@pytest.mark.slow
def test_rows_do_not_see_each_other(cluster: Cluster, tmp_path: Path) -> None:
    """Results and traces lie in the folder that actors search: rows alike have equal prompts."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "notes.txt").write_text("the launch code is mango\n")
    rows = [{"question": "Which file mentions mango?", "n": n} for n in range(4)]
    questions = tmp_path / "q.jsonl"
    command = [sys.executable, "-m", "triplepoint", "map", str(questions), "-o", "r.jsonl"]
    command += ["-m", "nano", "-t", "1", "--workers", "1", "--parallel", "1", "--to", "auto"]
    for count in (2, 4):  # those of the second time, beside results and traces
        questions.write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
        done = subprocess.run(
            command, env=cluster.env, cwd=folder, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert len(found) == 4
    assert "mango" in found[0]["answer"]
    assert len({(one["answer"], one["usage"]["prompt"]) for one in found}) == 1


@needs_ray
@pytest.mark.slow
def test_inside_ray_data(cluster: Cluster, tmp_path: Path) -> None:
    """The example with `map_batches` runs."""
    pytest.importorskip("pyarrow", reason="Ray Data needs pyarrow: pip install 'ray[data]'")
    shutil.copytree(ROOT / "examples" / "tickets", tmp_path / "examples" / "tickets")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "ray_data.py"],
        env=cluster.env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [
        f"examples/tickets/{name}" for name in ("cellar", "north", "south")
    ]


@needs_ray
@pytest.mark.slow
def test_a_wrong_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    """One line that says so."""
    (tmp_path / "q.jsonl").write_text('{"question": "Hello"}\n')
    command = [sys.executable, "-m", "triplepoint", "map", "q.jsonl", "-o", "r.jsonl", "-m", "nano"]
    env = cluster.env | {"RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [*command, "--to", "auto"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert done.returncode == 1
    assert "cannot reach the Ray cluster" in done.stderr
    assert "Traceback" not in done.stderr


@needs_ray
@pytest.mark.slow
def test_every_row_is_answered_once(cluster: Cluster, tmp_path: Path) -> None:
    """Workers die, the driver is killed and goes on, a node is lost: each row has one answer, that
    of one engine alone."""
    folders = [tmp_path / f"f{n}" for n in range(5)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "app.log").write_text(f"INFO start\nERROR disk {number} is full\nINFO stop\n")
    pairs = list(itertools.product(QUESTIONS, map(str, folders)))
    rows = [
        {"id": n, "question": pairs[n % len(pairs)][0], "dir": pairs[n % len(pairs)][1]}
        for n in range(ROWS)
    ]
    questions, path = tmp_path / "q.jsonl", tmp_path / "r.jsonl"
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    alone = triplepoint.map_rows(
        lambda engine, row: Agent(engine, workspace=row["dir"]),
        [{"question": question, "dir": folder} for question, folder in pairs],
        model="nano",
    )
    expected = {(one["question"], one["dir"]): (one["status"], one["answer"]) for one in alone}
    command = [sys.executable, "-m", "triplepoint", "map", str(questions), "-o", str(path)]
    command += ["-m", "nano", "-t", "1", "--to", "auto", "--json"]

    def drive() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, env=cluster.env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    began = time.monotonic()
    chaos = Chaos(cluster, ROWS if MANY else 2)
    driver = drive()
    try:
        wait_for(path, ROWS // 3, driver)
        driver.send_signal(signal.SIGKILL)
        chaos.note("driver")
        driver.communicate()
        before = count(path)
        driver = drive()
        wait_for(path, 2 * ROWS // 3, driver)
        cluster.lose_node(2)
        chaos.note("node")
        told, error = driver.communicate(timeout=240 if not MANY else 7200)
    finally:
        chaos.close()
        driver.kill()
        driver.communicate()
    assert driver.returncode == 0, error.decode()
    report = json.loads(told)
    found = [json.loads(line) for line in path.read_text().splitlines()]

    assert [one["id"] for one in found] == list(range(ROWS))
    for one in found:
        assert (one["status"], one["answer"]) == expected[one["question"], one["dir"]]
    assert before <= report["earlier"] + 1
    assert chaos.killed >= 1
    hosts = Counter(one["worker"].partition("@")[2] for one in found)
    assert len(hosts) == 2
    for one in found[:: max(1, ROWS // 20)]:
        assert Trace.load(tmp_path / one["trace"]).answer == one["answer"]
    if wanted := os.environ.get("TRIPLEPOINT_FLEET_TIMELINE"):
        chaos.write_timeline(wanted, tmp_path / "r.traces")
    deaths = sum(one.get("deaths", 0) for one in found)
    print(
        f"\n{ROWS} rows in {time.monotonic() - began:.0f} s, {chaos.killed} workers killed, "
        f"{deaths} rows on them, {report['retries']} repeated by the second driver, by node {hosts}"
    )
