"""Whether, where and how privately `run` and `chat` write a trace; what the config file sets."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUESTION = "Which files are here?"


@pytest.fixture
def traces(env: dict[str, str]) -> Path:
    """The default folder of traces."""
    return Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces"


@pytest.fixture
def configured(tmp_path: Path, env: dict[str, str]) -> Callable[[str], None]:
    """Writes the config file of the test."""
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")

    def write(text: str) -> None:
        path = tmp_path / "config" / "triplepoint" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def test_no_trace(
    triplepoint: Run, nano: Path, folder: Path, traces: Path, configured: Callable[[str], None]
) -> None:
    """The option and the config file: nothing is written, and nothing named; --trace wins."""
    done = triplepoint("run", QUESTION, "--dir", folder, "--trace", "off")
    assert done.returncode == 0
    assert "trace" not in done.stderr
    configured("trace = false\n")
    found = json.loads(triplepoint("run", QUESTION, "--dir", folder, "--json").stdout)
    assert (found["status"], found["trace"]) == ("answered", None)
    assert len(found["phases"]) == 4
    chat = triplepoint("chat", "--dir", folder, stdin=f"{QUESTION}\n/trace\n/fork\nHello!\n")
    assert chat.returncode == 0, chat.stderr
    assert "dispatch-bound" in chat.stdout
    assert "trace" not in chat.stderr
    assert not traces.exists()

    named = folder.parent / "t.jsonl"
    assert triplepoint("run", "Hello!", "-q", "--trace", named).returncode == 0
    assert Trace.load(named).answer
    configured("trace = true\n")
    assert triplepoint("run", "Hello!", "-q").returncode == 0
    assert len(list(traces.iterdir())) == 1


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_an_unwritable_state_folder_stops_nothing(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path, verb: str
) -> None:
    """A notice says that no trace is written and why; the answer comes."""
    (tmp_path / "file").write_text("no folder")
    more = {"XDG_STATE_HOME": str(tmp_path / "file" / "state")}
    words = ["-"] * (verb == "run")
    done = triplepoint(verb, *words, "--dir", folder, "-q", stdin=f"{QUESTION}\n", more=more)

    assert done.returncode == 0
    assert "app.log" in done.stdout
    notice = "triplepoint: no trace is written (set XDG_STATE_HOME to another folder): "
    assert done.stderr.startswith(f"{notice}{tmp_path}/file/state")
    assert "Not a directory" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_old_traces_go_when_a_run_begins(
    triplepoint: Run, nano: Path, recorded: Path, traces: Path, configured: Callable[[str], None]
) -> None:
    """Those of the default folder that are past the age in the config file."""
    traces.mkdir(parents=True)
    elsewhere = recorded.with_name("20260101-000000-000-aaaaaa.jsonl")
    old, young = (traces / f"20260101-000000-000-{n}aaaaa.jsonl" for n in (1, 2))
    for path, days in ((old, 31), (young, 29), (elsewhere, 99)):
        path.write_bytes(recorded.read_bytes())
        os.utime(path, (0, time.time() - days * 86_400))
    configured("trace_keep_days = 30\n")
    done = triplepoint("run", "Hello!", "-q", "--trace", elsewhere.with_name("t.jsonl"))
    assert (done.returncode, old.exists()) == (0, True)
    done = triplepoint("run", "Hello!", "-q")

    assert (done.returncode, done.stderr) == (0, "")
    assert not old.exists()
    assert young.exists()
    assert elsewhere.exists()
    configured('trace_keep_bytes = "1kB"\n')
    done = triplepoint("run", "Hello!", "-q")
    assert "trace_keep_bytes in config.toml" in done.stderr
    assert len(list(traces.iterdir())) == 1


def test_the_config_file_is_what_options_leave_open(
    triplepoint: Run, nano: Path, folder: Path, configured: Callable[[str], None]
) -> None:
    """Each key reaches the run, unless its option is given; one that is too large says its line."""
    configured('kv = "f32"\nthreads = 1\ntemperature = 0.5\ntools = ["find"]\n')
    ask = ("run", "Hello!", "--dir", folder, "--json", "--max-tokens", 4)
    run = json.loads(triplepoint(*ask).stdout)["run"]
    assert (run["kv"], run["threads"]) == ("f32", 1)
    assert run["config"]["sampling"]["temperature"] == 0.5
    assert "find" in [tool["function"]["name"] for tool in run["tools"]]
    run = json.loads(triplepoint(*ask, "--kv", "q8", "--temp", 0, "--tools", "none").stdout)["run"]
    assert (run["kv"], run["threads"]) == ("q8", 1)
    assert run["config"]["sampling"]["temperature"] == 0
    assert len(run["tools"]) == 3
    configured("\nthreads = 256\n")
    assert "256 threads do not fit" in triplepoint(*ask).stderr


def test_what_is_made_of_traces_is_as_private(
    triplepoint: Run, recorded: Path, tmp_path: Path
) -> None:
    """Pages, pictures, exports and databases have mode 0600, also where their path is given."""
    pytest.importorskip("duckdb")
    before = os.umask(0)
    try:
        for words in (
            "view run.jsonl",
            "view run.jsonl -o named.html",
            "show run.jsonl --svg run.svg",
            "export run.jsonl --format perfetto -o run.json",
            "export run.jsonl --format parquet -o run.parquet",
            "ingest run.jsonl -o run.duckdb",
            "report run.duckdb --html report.html",
        ):
            done = triplepoint("trace", *words.split())
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)
    made = [path for path in tmp_path.iterdir() if path.suffix and path != recorded]
    assert len(made) == 7
    assert [path.name for path in made if stat.S_IMODE(path.stat().st_mode) != 0o600] == []
