"""Runs and chats on a full disk."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("verb", ["run", "chat"])
def test_a_run_without_room_for_its_trace_leaves_none(
    triplepoint: Run, nano: Path, folder: Path, env: dict[str, str], verb: str
) -> None:
    """The run goes on and says why no trace is written; `last` is the run before it."""
    assert triplepoint("run", "Which files are here?", "--dir", folder).returncode == 0
    limit = "import resource as r, runpy, signal, sys; sys.argv[0] = 'triplepoint'; "
    limit += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); r.setrlimit(r.RLIMIT_FSIZE, (9, 9)); "
    limit += "runpy.run_module('triplepoint', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit, verb, *(["-"] * (verb == "run")), "--dir", str(folder)],
        input="hello\n",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0
    assert "?" in done.stdout or done.stdout.strip()
    notice, *_, statistics = done.stderr.splitlines()
    assert re.fullmatch(
        r"triplepoint: no trace is written \(set XDG_STATE_HOME to another folder\): cannot write "
        r"the trace \S+: File too large",
        notice,
    )
    assert "trace" not in statistics
    shown = triplepoint("replay", "last")
    assert "Which files are here?" in shown.stdout
    traces = Path(env["XDG_STATE_HOME"]) / "triplepoint" / "traces"
    (traces / "20990101-000000-000-aaaaaa.jsonl").touch()  # of a run that was killed at its start
    assert triplepoint("replay", "last").stdout == shown.stdout


@pytest.mark.slow
def test_a_conversation_that_cannot_be_saved(
    nano: Path, folder: Path, tmp_path: Path, env: dict
) -> None:
    """On a full disk /save names the file, and leaves none that the next try would stop at."""
    target = tmp_path / "chat.md"
    limit = "import resource as r, runpy, signal, sys; sys.argv[0] = 'triplepoint'; "
    limit += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); r.setrlimit(r.RLIMIT_FSIZE, (9, 9)); "
    limit += "import triplepoint.traces.append_log as a; a.AppendLog.append = lambda *_: None; "
    limit += "runpy.run_module('triplepoint', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", limit, "chat", "--dir", str(folder), "-q"],
        input=f"Hello!\n/save {target}\n/save {tmp_path}/none/chat.md\n",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stderr.splitlines() == [
        f"triplepoint: error: cannot write {target}: File too large",
        f"triplepoint: error: cannot write {tmp_path}/none/chat.md: No such file or directory",
    ]
    assert not target.exists()
