"""Files of ours: who may write them, and that they are never half there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from triplepoint.runtime.files import write_file


@pytest.fixture(autouse=True)
def open_to_all() -> Iterator[None]:
    """The umask of some containers: nothing is taken away."""
    old = os.umask(0)
    yield
    os.umask(old)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_whatever_the_umask(tmp_path: Path) -> None:
    """A file is 0600 and the folders that are made for it 0700; those that were there stay."""
    tmp_path.chmod(0o750)
    write_file(tmp_path / "a" / "b" / "state.json", "{}")

    assert _mode(tmp_path / "a" / "b" / "state.json") == 0o600
    assert (_mode(tmp_path / "a" / "b"), _mode(tmp_path / "a")) == (0o700, 0o700)
    assert _mode(tmp_path) == 0o750


def test_a_file_that_anybody_could_write_is_so_no_more(tmp_path: Path) -> None:
    """What an earlier version left open is closed when it is written again."""
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(0o666)

    write_file(path, "new")

    assert (path.read_text(), _mode(path)) == ("new", 0o600)


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    """A text that cannot be written leaves the old file, and no other."""
    path = tmp_path / "state.json"
    write_file(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_file(path, "\ud800")

    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]
    assert path.read_text() == "old"
