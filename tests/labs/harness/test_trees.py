"""`trees`: folders are the same everywhere; what is downloaded is what was pinned."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from labs.harness import trees
from labs.harness.trees import Distribution, Part


@pytest.mark.parametrize("name", trees.FOLDERS)
def test_own_trees_are_the_same_every_time(name: str) -> None:
    """The bytes depend on nothing but the seed."""
    assert trees.digest(trees.files_of(name)) == trees.digest(trees.files_of(name))


def test_own_trees_have_several_sizes() -> None:
    """From some lines to 20,000, with a packed log, a build folder and what leaves it out."""
    lines = {
        f"{name}/{path}": data.count(b"\n")
        for name in trees.FOLDERS
        for path, data in trees.files_of(name).items()
    }

    assert lines["pi/todo.txt"] == 4
    assert lines["shop/nginx/access.log"] == 20_000
    assert {"shop/app/checkout.log.1.gz", "kanban/dist/board.js", "kanban/.gitignore"} <= {*lines}


def test_a_tree_is_built_once(tmp_path: Path) -> None:
    """The second time its folder is used; a copy may be changed without it."""
    folder = trees.build("pi", tmp_path)
    stamp = folder.stat().st_mtime_ns

    assert folder.name == "pi"
    assert trees.build("pi", tmp_path) == folder
    assert folder.stat().st_mtime_ns == stamp
    copy = trees.copied(folder, tmp_path / "copy")
    (copy / "todo.txt").unlink()
    assert (folder / "todo.txt").exists()


def _pinned(
    monkeypatch: pytest.MonkeyPatch, room: Path, file: str, data: bytes, *parts: Part
) -> None:
    (room / "downloads").mkdir(exist_ok=True)
    (room / "downloads" / file).write_bytes(data)
    pin = Distribution("1", file, trees._digest(data))
    monkeypatch.setitem(trees.DISTRIBUTIONS, file, pin)
    monkeypatch.setitem(trees.PACKAGE_TREES, "made", parts)


def test_parts_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is taken from below a folder, at its new place."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for name in ("p/data/a.csv", "p/data/sub/b.csv", "p/data/c.bin", "p/code.py"):
            wheel.writestr(name, name)
    part = Part("x.whl", "p/data", "tables", take=("*.csv",), leave=("sub/*",))
    _pinned(monkeypatch, tmp_path, "x.whl", packed.getvalue(), part)

    assert trees.files_of("made", tmp_path) == {"tables/a.csv": b"p/data/a.csv"}


def test_links_of_an_archive_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree holds plain files, and none outside of it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as source:
        link = tarfile.TarInfo("p/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        source.addfile(link)
        for name in ("p/a.txt", "p/../../out.txt"):
            plain = tarfile.TarInfo(name)
            plain.size = 2
            source.addfile(plain, io.BytesIO(b"a\n"))
    _pinned(monkeypatch, tmp_path, "x.tar.gz", packed.getvalue(), Part("x.tar.gz", "p"))

    with pytest.raises(OSError, match="leads outside"):
        trees.build("made", tmp_path)
    assert sorted(trees.files_of("made", tmp_path)) == ["../../out.txt", "a.txt"]


def test_another_file_than_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not used."""
    _pinned(monkeypatch, tmp_path, "x.whl", b"as pinned", Part("x.whl", "p"))
    (tmp_path / "downloads" / "x.whl").write_bytes(b"another")

    with pytest.raises(OSError, match="not the file that is pinned"):
        trees.build("made", tmp_path)
    with pytest.raises(OSError, match="needs a folder"):
        trees.files_of("made")
