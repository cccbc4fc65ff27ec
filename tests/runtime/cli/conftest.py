"""Running the command line as a user does: as a process of its own."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.fake_hub import FakeHub
from helpers.fork_server import ForkServer
from helpers.notices import without_notices
from helpers.openai_server import openai_server
from helpers.processes import plain_environment
from helpers.terminal import Terminal

import triplepoint as package
from triplepoint.runtime.cli import main
from triplepoint.traces import Trace
from triplepoint.traces.events import (
    AnyEvent,
    MessageEvent,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)

COMMAND = [sys.executable, "-m", "triplepoint"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose state folder is empty; caches are the user's, to save compiling."""
    plain = plain_environment("TRIPLEPOINT", "NO_COLOR")
    return plain | {"XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONWARNINGS": "error"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Runs commands in forks of one warm process."""
    warm = ForkServer(tmp_path_factory.mktemp("server"))
    yield warm
    warm.close()


@pytest.fixture
def triplepoint(env: dict[str, str], tmp_path: Path, server: ForkServer) -> Run:
    """Run ``triplepoint ARGS`` with pipes; gives status, stdout and stderr without notices."""

    def run(
        *args: object, stdin: str = "", more: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = server.run([*map(str, args)], stdin, env | dict(more or {}), tmp_path, 300)
        done.stderr = without_notices(done.stderr)
        return done

    return run


@pytest.fixture
def on_terminal(env: dict[str, str], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run ``triplepoint ARGS`` on a pseudo-terminal; gives the status and all that it showed."""

    def run(*args: object, more: Mapping[str, str] | None = None) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, *map(str, args)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=env | {"TERM": "xterm-256color", "COLUMNS": "120"} | dict(more or {}),
            cwd=tmp_path,
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # Linux says so when the other end has closed
                break
            if not data:
                break
            shown += data
        os.close(ours)
        return process.wait(60), shown.decode()

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recorded run of one tool call, with a hostile file name in it."""
    phase = {"predicted": "compute", "observed": "compute", "wall_s": 0.01, "turn": 1}
    events: list[AnyEvent] = [
        RunStart(model=ModelRecord(name="nano", sha256="00" * 32), target="avx2", kv="bf16"),
        MessageEvent(role="user", content="What's the error in app.log?", turn=1),
        PhaseEvent.model_validate(
            phase
            | {"phase": "prefill", "tokens": 3, "kv_before": 0, "kv_after": 3}
            | {"token_ids": [1, 2, 3]}
        ),
        ToolEvent(
            name="read_file",
            arguments={"path": "a\x1b[2J.log"},
            result="1\tERROR disk full\n2\t\x1b]52;c;eA==\x07",
            turn=1,
        ),
        TurnEnd(turn=1, answer="disk\x1b[31m full"),
        RunEnd(status="answered", answer="disk\x1b[31m full"),
    ]
    with Trace.to_file(tmp_path / "run.jsonl") as trace:
        for event in events:
            trace.write(event)
    return tmp_path / "run.jsonl"


NANO = Path(package.__file__).parent / "runtime" / "nano" / "nano.gguf"


@pytest.fixture(scope="session")
def nano() -> Path:
    """The embedded model's file."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    return NANO


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to ask about."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "app.log").write_text("INFO start\nERROR db: connection refused\nINFO stop\n")
    (folder / "notes.txt").write_text("call the plumber\nbuy milk\n")
    return folder


@pytest.fixture
def more(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    """The environment that leads to a module's `hub`, and to a cache and settings of the test's."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "HF_TOKEN": "",
        "HF_HUB_OFFLINE": "",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "TRIPLEPOINT_MODEL": "",
    }


@pytest.fixture
def command(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process, with `more`; its status, stdout and stderr."""
    for name, value in more.items():
        monkeypatch.setenv(name, value)

    def run(*args: str) -> tuple[int, str, str]:
        capfd.readouterr()
        status = main(args)
        shown = capfd.readouterr()
        return int(status), shown.out, without_notices(shown.err)

    return run


@pytest.fixture
def in_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Callable[..., tuple[int, str, str]]]:
    """Run a verb in this process and an empty folder; gives status, stdout and stderr."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run(verb: str, *args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main([verb, *map(str, args)])
        shown = capsys.readouterr()
        return status, shown.out, without_notices(shown.err)

    return lambda verb: partial(run, verb)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\n")
    return tmp_path / "work"


@pytest.fixture
def chat(env: dict[str, str], work: Path) -> Iterator[Any]:
    """Starts a chat with a server of the given answers; ends it in any case."""
    opened: list[Any] = []

    def start(*answers: Any, term: str = "dumb", args: tuple[str, ...] = ()) -> Terminal:
        server = openai_server(*answers)
        url = server.__enter__().url
        opened.append(server)
        command = [*COMMAND, "chat", "-m", url, "--dir", str(work), "--harness", "off", *args]
        terminal = Terminal(command, env=env | {"TERM": term}, cwd=work)
        opened.append(terminal)
        terminal.wait_for("/exit ends it")
        terminal.wait_for("? ")
        return terminal

    yield start
    for one in reversed(opened):
        one.__exit__(None, None, None)
