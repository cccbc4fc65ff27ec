"""Documents beside a workspace: read as if they lay in it, never written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from triplepoint import ToolError
from triplepoint.tools import EditTools, FileTools, FindTools, Workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "a.log").write_text("ERROR in the folder\n")
    (tmp_path / "work" / "z.txt").write_text("last\n")
    return tmp_path / "work"


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    """The folder with one document, whose file is closed again and has no name."""
    workspace = Workspace(folder)
    with tempfile.TemporaryFile() as file:
        file.write(b"first\nERROR that was piped\n")
        file.flush()
        assert workspace.attach("stdin.txt", file, "standard input") == "stdin.txt"
    return workspace


def test_it_is_read_searched_and_found(workspace: Workspace, folder: Path) -> None:
    """By every tool that looks, in the order of names; the folder itself stays as it is."""
    tools = FileTools(workspace)

    assert tools.list_dir() == "a.log\nstdin.txt\nsub/\nz.txt"
    assert tools.read_file("stdin.txt", start=2) == "2\tERROR that was piped"
    assert tools.read_file("./stdin.txt") == "1\tfirst\n2\tERROR that was piped"  # from its start
    both = tools.search("error")
    assert both.splitlines()[0].startswith("a.log:1:")
    assert both.splitlines()[1].startswith("stdin.txt:2:")
    assert tools.search("error", "stdin.txt").startswith("stdin.txt:2:")
    assert "stdin.txt" in FindTools(workspace).find("*.txt")
    assert "stdin.txt" not in tools.list_dir("sub")
    with pytest.raises(ToolError, match=r"not a folder: stdin\.txt"):
        tools.list_dir("stdin.txt")
    assert sorted(path.name for path in folder.iterdir()) == ["a.log", "sub", "z.txt"]


def test_a_long_one_comes_in_pages(folder: Path) -> None:
    """Two readers of one document do not move each other."""
    workspace = Workspace(folder)
    path = folder.parent / "long.log"
    path.write_text("".join(f"line {n} {'x' * 300}\n" for n in range(1, 2001)))
    with path.open("rb") as file:
        workspace.attach("long.log", file)
    tools = FileTools(workspace)

    page = tools.read_file("long.log")
    assert "of 2000 not shown; read on with start=" in page
    assert tools.read_file("long.log", start=1999, end=1999).startswith("1999\tline 1999 ")
    with workspace.open("long.log") as one, workspace.open("long.log") as other:
        assert one.read(6) == other.read(6) == b"line 1"
        assert len(one.read()) == path.stat().st_size - 6


def test_it_cannot_be_changed(workspace: Workspace, folder: Path) -> None:
    """Neither written, edited, moved nor deleted, and nothing is put in its place."""
    tools = EditTools(workspace)
    (folder / "b.txt").write_text("b\n")

    for change in (
        lambda: tools.write_file("stdin.txt", "x"),
        lambda: tools.edit_file("stdin.txt", "first", "x"),
        lambda: tools.move("stdin.txt", "c.txt"),
        lambda: tools.move("b.txt", "stdin.txt"),
        lambda: tools.delete("stdin.txt"),
    ):
        with pytest.raises(ToolError, match="was attached to the question: it can only be read"):
            change()
    assert not (folder / "stdin.txt").exists()


def test_names_are_not_taken_twice(workspace: Workspace, folder: Path, tmp_path: Path) -> None:
    """Not from a file of the folder, nor from a link that leads out, nor from another document."""
    (folder / "link.log").symlink_to(tmp_path / "outside.log")
    (tmp_path / "outside.log").write_text("one\n")
    with (tmp_path / "outside.log").open("rb") as file:
        assert workspace.attach("a.log", file) == "a-2.log"
        assert workspace.attach("a.log", file) == "a-3.log"
        assert workspace.attach("link.log", file, "/there/link.log") == "link-2.log"
        assert workspace.attach(".hidden", file) == ".hidden"
        assert workspace.attach("plain", file, taken=lambda name: name == "plain") == "plain-2"
        for name in ("..", "/etc/passwd", "sub/x", ".", ""):
            with pytest.raises(ToolError):
                workspace.attach(name, file)


def test_what_is_attached_again_is_new(workspace: Workspace) -> None:
    """From the same place, under the same name."""
    with tempfile.TemporaryFile() as file:
        file.write(b"second\n")
        file.flush()
        assert workspace.attach("stdin.txt", file, "standard input") == "stdin.txt"

    assert FileTools(workspace).read_file("stdin.txt") == "1\tsecond"
    assert workspace.attached == {"stdin.txt": "standard input"}
