"""The results file: durable, no row twice, torn lines dropped, sorted whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from triplepoint import RowError
from triplepoint.runtime.fleet import results as results_module
from triplepoint.runtime.fleet.results import Results


def result(key: str, status: str = "answered", row: int = 1) -> dict[str, Any]:
    return {"row": row, "key": key, "status": status, "usage": {"prompt": 5}, "seconds": 0.5}


def keys(path: Path) -> list[str]:
    return [json.loads(line)["key"] for line in path.read_text().splitlines()]


def test_what_was_written_is_there_again(tmp_path: Path) -> None:
    """With its status and sums; a second result of a row is dropped."""
    path = tmp_path / "r.jsonl"
    results = Results(path)
    results.add([result("a"), result("b", "error"), result("a")])
    results.add([result("a"), result("c")])
    results.close()

    again = Results(path)
    assert again.done == {"a": "answered", "b": "error", "c": "answered"}
    assert (again.numbers, again.counts["answered"]) == ({"prompt": 15, "seconds": 1.5}, 2)
    assert [one["key"] for one in again] == ["a", "b", "c"]
    again.close()


@pytest.mark.parametrize("torn", [1, 8, 40])
def test_a_torn_last_line_is_dropped(torn: int, tmp_path: Path) -> None:
    """The next result follows the last whole line."""
    path = tmp_path / "r.jsonl"
    whole = json.dumps(result("a")) + "\n"
    path.write_text(whole + json.dumps(result("b"))[:torn])
    results = Results(path)

    assert list(results.done) == ["a"]
    results.add([result("c")])
    assert keys(path) == ["a", "c"]
    results.close()


def test_a_line_that_lacks_its_end_alone_is_whole(tmp_path: Path) -> None:
    """It counts, and gets its end."""
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(result("a")))
    results = Results(path)
    results.add([result("b")])

    assert keys(path) == ["a", "b"]
    results.close()


@pytest.mark.parametrize(
    "text", ["no results", "no results\n", '{"question": "x"}', '{"row": 1}\n{"row": 2}\n']
)
def test_another_file_is_left_as_it_is(text: str, tmp_path: Path) -> None:
    """A wrong -o does not cost a file."""
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(RowError, match="line 1 is not a result"):
        Results(path)

    assert path.read_text() == text


def test_one_writer(tmp_path: Path) -> None:
    """A second run on the same file is refused while the first goes on."""
    first = Results(tmp_path / "r.jsonl")
    with pytest.raises(RowError, match="another run is writing to it"):
        Results(tmp_path / "r.jsonl")
    first.close()
    Results(tmp_path / "r.jsonl").close()


def test_a_file_that_is_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run sorts between the second's opening and its claim: the second is refused, as
    what it wrote would be in a file without a name."""
    path = tmp_path / "r.jsonl"
    first = Results(path)
    first.add([result("b"), result("a")])
    claim = results_module.claim

    def late(descriptor: int) -> bool:
        monkeypatch.setattr(results_module, "claim", claim)
        first.sort({"a": 0, "b": 1})
        return claim(descriptor)

    monkeypatch.setattr(results_module, "claim", late)
    with pytest.raises(RowError, match="another run is writing to it"):
        Results(path)
    first.close()

    assert keys(path) == ["a", "b"]


def test_zeros_at_the_end_are_dropped(tmp_path: Path) -> None:
    """Some file systems leave them after a power failure; a file of nothing else is not ours."""
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(result("a")) + "\n" + "\0" * 300)
    results = Results(path)
    results.add([result("b")])
    results.close()

    assert keys(path) == ["a", "b"]
    path.write_bytes(b"\0" * 300)
    with pytest.raises(RowError, match="line 1 is not a result"):
        Results(path)
    assert path.stat().st_size == 300


@pytest.mark.parametrize("in_memory", [False, True])
def test_order_and_forgetting(in_memory: bool, tmp_path: Path) -> None:
    """Sorted by rows; what failed goes; the file can still be added to, and keeps its mode."""
    path = None if in_memory else tmp_path / "r.jsonl"
    results = Results(path)
    results.add([result("c"), result("a", "error"), result("b")])
    if path is not None:
        os.chmod(path, 0o640)
    results.sort({"a": 0, "b": 1, "c": 2})
    assert [one["key"] for one in results] == ["a", "b", "c"]
    assert results.forget_failed() == 1
    results.add([result("d")])

    assert [one["key"] for one in results] == ["b", "c", "d"]
    if path is not None:
        assert keys(path) == ["b", "c", "d"]
        assert path.stat().st_mode & 0o777 == 0o640
        assert os.listdir(tmp_path) == ["r.jsonl"]
    results.close()


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be synced is not there; the error names the file."""
    path = tmp_path / "r.jsonl"
    results = Results(path)
    results.add([result("a")])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space") as refused:
            results.add([result("b")])
        assert refused.value.filename == str(path)
    assert keys(path) == ["a"]
    results.add([result("b")])
    assert keys(path) == ["a", "b"]
    results.close()


def test_a_device_is_no_results_file() -> None:
    """What cannot be read again is refused."""
    with pytest.raises(RowError, match="not a regular file"):
        Results(Path("/dev/null"))


def test_a_disk_that_is_full_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file cannot be opened, so no row is asked in vain; what it held is as it was."""
    path = tmp_path / "r.jsonl"
    with contextlib.closing(Results(path)) as results:
        results.add([result("a")])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left .*r\.jsonl"):
        Results(path)

    assert path.read_bytes() == before
