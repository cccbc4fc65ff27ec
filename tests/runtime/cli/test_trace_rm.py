"""`triplepoint trace rm`, the limit of kept traces, and where a trace may be written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def traces(tmp_path: Path, recorded: Path) -> Path:
    """The state folder's traces: four of ours, the first the oldest."""
    folder = tmp_path / "state" / "triplepoint" / "traces"
    folder.mkdir(parents=True)
    for number in range(4):
        path = folder / f"2026010{number}-000000-000-abcdef.jsonl"
        shutil.copy(recorded, path)
        os.utime(path, (1e9 + number, 1e9 + number))
    return folder


def _days(folder: Path) -> str:
    return "".join(path.name[7] for path in sorted(folder.glob("*.jsonl")))


def test_by_name_age_or_all(triplepoint: Run, traces: Path, recorded: Path) -> None:
    """What goes is listed; without a terminal to ask on, only with --yes."""
    asked = triplepoint("trace", "rm", "20260101")
    assert (asked.returncode, _days(traces)) == (2, "0123")
    assert "20260101-000000" in asked.stdout
    assert "--yes removes without asking" in asked.stderr

    again = os.path.relpath(traces / "20260101-000000-000-abcdef.jsonl", recorded.parent)
    done = triplepoint("trace", "rm", "-y", "20260101", again, "last", "20260103", "--json")
    assert (done.returncode, _days(traces)) == (0, "02")
    assert json.loads(done.stdout)["freed"] == 2 * recorded.stat().st_size
    os.utime(traces / "20260102-000000-000-abcdef.jsonl")
    assert triplepoint("trace", "rm", "--older-than", "1d", "-y").returncode == 0
    assert _days(traces) == "2"
    assert triplepoint("trace", "rm", recorded, "-y").returncode == 0
    assert not recorded.exists()
    assert triplepoint("trace", "rm", "--all", "-y").returncode == 0
    assert _days(traces) == ""
    assert "no such traces in" in triplepoint("trace", "rm", "--all").stdout


def test_what_stays(triplepoint: Run, traces: Path, tmp_path: Path) -> None:
    """One that is being written, the library, what is no trace, and what is not there."""
    (tmp_path / "notes.txt").write_text("mine\n")
    with Trace.to_file(traces / "20260103-000000-000-abcdef.jsonl"):
        done = triplepoint("trace", "rm", "--all", "-y")
    assert (done.returncode, _days(traces)) == (1, "3")
    assert "is being written by another run" in done.stderr

    done = triplepoint("trace", "rm", "./notes.txt", "-y")
    assert (done.returncode, (tmp_path / "notes.txt").exists()) == (1, True)
    assert "is not a trace" in done.stderr
    assert triplepoint("trace", "rm", "2025", "-y").returncode == 3
    assert triplepoint("trace", "rm", "20260103", "--all").returncode == 2

    (tmp_path / "checkout" / "examples" / "incident").mkdir(parents=True)
    (tmp_path / "checkout" / "examples" / "runs").mkdir()
    kept = tmp_path / "checkout" / "examples" / "runs" / "mine.jsonl"
    shutil.copy(next(traces.glob("20260103*")), kept)
    done = triplepoint("trace", "rm", kept, "-y")
    assert (done.returncode, kept.exists()) == (3, True)
    assert "a recorded example" in done.stderr


@pytest.mark.slow
def test_the_oldest_go_when_there_are_too_many(
    triplepoint: Run, nano: Path, folder: Path, traces: Path, recorded: Path
) -> None:
    """When a run begins; it is said on stderr how many, and how to allow more."""
    shutil.copy(recorded, traces / "0-mine.jsonl")
    os.utime(traces / "0-mine.jsonl", (1, 1))
    size = recorded.stat().st_size
    ask = ("run", "Which files are here?", "--dir", folder, "-q")
    done = triplepoint(*ask, more={"TRIPLEPOINT_TRACE_LIMIT": str(3 * size)})
    assert done.returncode == 0, done.stderr
    left = sorted(path.name[:8] for path in traces.iterdir())
    assert left[:3] == ["0-mine.j", "20260102", "20260103"]
    assert len(left) == 4
    assert "removed the oldest 2 traces" in done.stderr
    assert "TRIPLEPOINT_TRACE_LIMIT=SIZE" in done.stderr

    done = triplepoint(*ask, more={"TRIPLEPOINT_TRACE_LIMIT": "much"})
    assert done.returncode == 3
    assert "TRIPLEPOINT_TRACE_LIMIT is 'much'" in done.stderr
    done = triplepoint(*ask, more={"TRIPLEPOINT_TRACE_LIMIT": "off"})
    assert (done.returncode, len(list(traces.iterdir()))) == (0, 5)
    assert "removed" not in done.stderr


def test_no_folder_is_made_for_a_trace(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """A slip in the path is told before the model is loaded."""
    done = triplepoint("run", "x", "--trace", tmp_path / "nope" / "x" / "y.jsonl")

    assert done.returncode == 3
    assert f"there is no folder {tmp_path / 'nope' / 'x'}" in done.stderr
    assert not (tmp_path / "nope").exists()


def test_options_of_cache_in_any_order(triplepoint: Run, tmp_path: Path) -> None:
    """What is to be removed may be named behind an option, too."""
    for kind in ("synthetic", "machine"):
        (tmp_path / "cache" / "triplepoint" / kind).mkdir(parents=True)
    caches = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    done = triplepoint("doctor", "cache", "clean", "-y", "synthetic", more=caches)
    assert done.returncode == 0, done.stderr
    done = triplepoint("doctor", "cache", "clean", "machine", "-y", more=caches)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "cache" / "triplepoint").iterdir())
    done = triplepoint("doctor", "cache", "clean", "-y", "traces")
    assert "remove them with: triplepoint trace rm" in done.stderr
    assert triplepoint("doctor", "cache", "clean", "-y", "--nope", "traces").returncode == 2


def test_a_refusal_removes_nothing(triplepoint: Run, tmp_path: Path) -> None:
    """And does not say that it did."""
    path = tmp_path / "foreign.jsonl"
    path.write_text("no trace\n")
    done = triplepoint("trace", "rm", path, "--yes")
    assert done.returncode == 1
    assert "is not a trace" in done.stderr
    assert "removed" not in done.stdout
    assert path.exists()
