"""Traces that are let go: the oldest of ours, never one being written or named by a person."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.errors import TraceError
from triplepoint.traces import Trace, find
from triplepoint.traces.events import ToolEvent
from triplepoint.traces.retention import LIMIT, MAX_BYTES, Removed, enforce, limit, remove


def _trace(folder: Path, number: int, name: str = "") -> Path:
    """A trace of some 400 bytes; the lower its number, the older it is."""
    path = folder / (name or f"20260101-00000{number}-000-00000{number}.jsonl")
    with Trace.to_file(path) as trace:
        trace.write(ToolEvent(name="x", result="y" * 200))
    os.utime(path, (1e9 + number, 1e9 + number))
    return path


def test_the_oldest_go_first(tmp_path: Path) -> None:
    """As many as it takes, and no more."""
    paths = [_trace(tmp_path, number) for number in range(5)]
    sizes = [path.stat().st_size for path in paths]

    assert enforce(tmp_path, sum(sizes)) == Removed(0, 0)
    assert enforce(tmp_path, sum(sizes[2:]) + 1) == Removed(2, sum(sizes[:2]))
    assert sorted(tmp_path.iterdir()) == paths[2:]
    assert enforce(tmp_path / "none", 0) == Removed(0, 0)


def test_the_expired_go_however_few(tmp_path: Path) -> None:
    """By when they were last written, without a word; one in use, a named and a recent one stay."""
    paths = [_trace(tmp_path, number) for number in range(3)]
    named = _trace(tmp_path, 3, "mine.jsonl")
    os.utime(paths[2])
    with Trace.to_file(paths[1]) as trace:
        trace.write(ToolEvent(name="x"))
        os.utime(paths[1], (1, 1))
        assert enforce(tmp_path, None) == Removed(0, 0)
        assert enforce(tmp_path, None, 1) == Removed(0, 0)
    assert sorted(tmp_path.iterdir()) == [*paths[1:], named]
    assert enforce(tmp_path, 0, 1).count == 1  # the recent one, for its size
    assert [*tmp_path.iterdir()] == [named]


def test_one_that_goes_meanwhile_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another process removes while the folder is read is not there."""
    paths = [_trace(tmp_path, number) for number in range(3)]
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    kind = Path.is_file

    def is_file(path: Path) -> bool:
        found = kind(path)
        if path == paths[1]:
            path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", is_file)

    assert find.files(tmp_path) == [paths[2], paths[0]]
    assert find.files(tmp_path / "none") == []


def test_what_stays(tmp_path: Path) -> None:
    """One that is being written, one that a person named, a link, and what is no trace."""
    named = _trace(tmp_path, 0, "before.jsonl")
    linked = tmp_path / "20260101-000000-000-aaaaaa.jsonl"
    (tmp_path / "elsewhere").mkdir()
    linked.symlink_to(_trace(tmp_path / "elsewhere", 1))
    other = tmp_path / "20260101-000000-000-bbbbbb.jsonl"
    other.write_text("not a trace\n")
    running = tmp_path / "20260101-000000-000-cccccc.jsonl"
    ended = _trace(tmp_path, 3)
    with Trace.to_file(running) as trace:
        trace.write(ToolEvent(name="x"))
        os.utime(running, (1, 1))
        assert enforce(tmp_path, 0).count == 1
        for path in (running, other, tmp_path, tmp_path / "none.jsonl"):
            with pytest.raises(TraceError, match=path.name):
                remove(path)
    assert not ended.exists()
    assert {named, linked, other, running} < set(tmp_path.iterdir())
    assert enforce(tmp_path, 0).count == 1  # it has ended meanwhile
    assert not running.exists()


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("", MAX_BYTES),
        ("off", None),
        ("0", 0),
        ("500MB", 500_000_000),
        ("2 GB", 2 * 10**9),
        ("1.5g", 1_500_000_000),
        ("800 kb", 800_000),
        ("123", 123),
        ("12000000000", 12 * 10**9),
    ],
)
def test_the_limit(text: str, most: int | None) -> None:
    """A size, or off."""
    assert limit({LIMIT: text}) == most
    assert limit({}) == MAX_BYTES
    assert limit({}, default=text or "1GB") == most
    assert limit({LIMIT: "1kB"}, default="off") == 1000


@pytest.mark.parametrize("text", ["much", "-1", "1e9", "1 PB", "nan", "١GB x"])
def test_what_is_no_limit(text: str) -> None:
    """Is said, with what would be."""
    with pytest.raises(TraceError, match=f"{LIMIT} is .*give a size such as 500MB"):
        limit({LIMIT: text})
