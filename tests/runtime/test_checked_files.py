"""Files that are whole or not there, and checked when they are read."""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from triplepoint.runtime import checked_files


def test_two_threads_write_one_file(tmp_path: Path) -> None:
    """Whoever is last, it is whole."""
    path, data = tmp_path / "x.kv", bytes(100_000)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: checked_files.write(path, data), range(40)))
    assert set(found) == {hashlib.sha256(data).hexdigest()}
    assert [one.name for one in tmp_path.iterdir()] == ["x.kv"]


@pytest.mark.parametrize(
    ("name", "age_s", "goes"),
    [
        (".a.kv.12.0123abcd", 4000, True),
        (".a.kv.12.0123abcd", 10, False),  # its process may still be writing
        (".b.kv.12.0123abcd", 4000, False),
        (".a.kv.12.0123abcde", 4000, False),
        ("a.kv.12.0123abcd", 4000, False),
        (".a.kv", 4000, False),
    ],
)
def test_what_a_killed_process_was_writing(
    tmp_path: Path, name: str, age_s: int, goes: bool
) -> None:
    """It goes after an hour, by the whole name that it would have got."""
    path = tmp_path / name
    path.write_text("x")
    now = path.stat().st_mtime
    os.utime(path, (now - age_s, now - age_s))
    checked_files.sweep_unfinished(path, re.compile(r"a\.kv"))
    assert path.exists() is not goes


def test_a_mapped_file_is_checked(tmp_path: Path) -> None:
    """Its size and its bytes; what is written into the mapping does not reach the file."""
    path = tmp_path / "x"
    digest = checked_files.write(path, b"12345678")
    data = checked_files.map_bytes(path, 8, digest)
    data[0] = 0
    assert path.read_bytes() == b"12345678"
    with pytest.raises(ValueError, match="has 8 bytes instead of 9"):
        checked_files.map_bytes(path, 9, digest)
    with pytest.raises(ValueError, match="is damaged"):
        checked_files.map_bytes(path, 8, "0" * 64)
    with pytest.raises(ValueError, match="is missing"):
        checked_files.map_bytes(tmp_path / "y", 8, digest)
