"""Text of files: plain, packed, damaged."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from triplepoint.errors import ToolError
from triplepoint.runtime.evidence import reading
from triplepoint.runtime.evidence.reading import Text, Texts, read_text
from triplepoint.tools import Workspace, text


def test_packed_text(tmp_path: Path) -> None:
    """What is packed is read as the text that it holds."""
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(b"one\r\ntwo\n"))
    (tmp_path / "a.log.xz").write_bytes(lzma.compress("ü\nzwei".encode()))

    with Workspace(tmp_path) as workspace:
        assert read_text(workspace, "a.log.gz").lines == ["one", "two"]
        assert read_text(workspace, "a.log.xz").lines == ["ü", "zwei"]


def test_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a module for it, it is text; without one, it is no file that can be read."""

    class Decompressor:
        def __init__(self, max_window_size: int) -> None:
            assert max_window_size == text.MAX_DICTIONARY

        def stream_reader(self, file: IO[bytes], *, read_across_frames: bool) -> IO[bytes]:
            assert read_across_frames
            return io.BytesIO(file.read()[4:])

    (tmp_path / "a.zst").write_bytes(b"(zs)one\ntwo\n")
    with Workspace(tmp_path) as workspace:
        monkeypatch.setitem(
            sys.modules, "zstandard", SimpleNamespace(ZstdDecompressor=Decompressor)
        )
        assert read_text(workspace, "a.zst").lines == ["one", "two"]
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(ToolError, match="no module for"):
            read_text(workspace, "a.zst")


@pytest.mark.parametrize("name", ["bomb.gz", "bomb.xz"])
def test_bombs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No more is unpacked than may be, and the text says that there is more."""
    monkeypatch.setattr(reading, "MAX_UNPACKED", 1 << 20)
    pack = gzip.compress if name.endswith("gz") else lzma.compress
    (tmp_path / name).write_bytes(pack(b"0123456\n" * (1 << 20)))

    with Workspace(tmp_path) as workspace:
        text = read_text(workspace, name)
    assert text.cut
    assert len(text.whole) <= 1 << 20


def test_damaged_and_binary(tmp_path: Path) -> None:
    """What is torn, or no text, is an error of the tools."""
    whole = gzip.compress(bytes(range(32, 127)) * 5000)
    (tmp_path / "torn.gz").write_bytes(whole[:100])
    (tmp_path / "not.xz").write_bytes(b"plain text")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\0\0\0")

    with Workspace(tmp_path) as workspace:
        for name in ("torn.gz", "not.xz", "logo.png", "gone.txt"):
            with pytest.raises(ToolError):
                read_text(workspace, name)


def test_texts_are_kept_while_they_are_the_same(tmp_path: Path) -> None:
    """A changed file is read again, and texts are dropped where they grow too many."""
    file = tmp_path / "a.txt"
    file.write_text("one\n")
    with Workspace(tmp_path) as workspace:
        texts = Texts(workspace)
        first = texts.get("a.txt")
        assert texts.get("a.txt") is first
        file.write_text("two and more\n")
        assert texts.get("a.txt").lines == ["two and more"]


def test_kept_texts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not asked for longest go first."""
    monkeypatch.setattr(reading, "MAX_CACHED", 250)
    for name in "abc":
        (tmp_path / name).write_text(name * 99 + "\n")
    with Workspace(tmp_path) as workspace:
        texts = Texts(workspace)
        first = texts.get("a")
        texts.get("b")
        texts.get("c")
        assert texts.get("a") is not first


def test_part(tmp_path: Path) -> None:
    """Lines by their place in bytes."""
    (tmp_path / "a").write_text("äö\nzwei\ndrei\n")
    with Workspace(tmp_path) as workspace:
        assert Texts(workspace).part("a", 5, 10) == ["zwei", "drei"]
        assert Texts(workspace).part("a", 500, 10) == []


def test_parents() -> None:
    """A line stands under what is less indented, and under its section or heading."""
    text = Text("[mail]\nport = 1\n\nclass A:\n    def f():\n        x = 1\n    y = 2\n## More\nz")
    assert text.parents == [-1, 0, -1, 0, 3, 4, 3, 0, 7]
    assert Text("Version 7.0\n-----------\n\nReleased").parents == [-1, -1, -1, 0]
