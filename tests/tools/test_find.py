"""find: files by the pattern of their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import FindTools, Workspace
from triplepoint.tools import find as find_module


@pytest.fixture
def find(root: Path, workspace: Workspace) -> FindTools:
    for name in ("a.py", "b.md", "sub/c.py", "sub/deep/d.py", ".git/x.py", "sub/e.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return FindTools(workspace)


def test_a_name_is_found_at_any_depth(find: FindTools) -> None:
    """Without a slash the pattern is for the name; folders like .git are left out."""
    assert find.find("*.py").split("\n") == ["a.py", "sub/c.py", "sub/deep/d.py"]


def test_a_path_is_matched_below_the_folder(find: FindTools) -> None:
    """With a slash it is for the path, seen from the folder that was named."""
    assert find.find("sub/*.py") == "sub/c.py"
    assert find.find("deep/*", "sub") == "sub/deep/d.py"
    assert find.find("*.rs") == "No files found."
    assert find.find("./sub/*.py") == "sub/c.py"
    assert find.find("./*.py") == "a.py"
    assert find.find(".//**/*.py", "sub").split("\n") == ["sub/c.py", "sub/deep/d.py"]


def test_a_name_that_is_not_utf8(root: Path, find: FindTools) -> None:
    """It is found like others, and shown with a sign for what cannot be read."""
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.md")).touch()

    assert find.find("*.md").split("\n") == ["b.md", r"caf\udce9.md"]


def test_many_files_are_cut_and_said(root: Path, find: FindTools) -> None:
    """Past 200 files the rest is left out, and the result says so."""
    for number in range(201):
        (root / f"n{number}.log").touch()

    lines = find.find("*.log").split("\n")

    assert len(lines) == 201
    assert lines[-1] == "[cut: more than 200 files; narrow the pattern or the path]"


def test_nothing_outside_is_found(root: Path, find: FindTools) -> None:
    """A symlink out of the workspace is not followed, and a path out is refused."""
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "secret.py").write_text("x")
    (root / "link").symlink_to(root.parent / "outside")

    assert "secret" not in find.find("*.py")
    with pytest.raises(ToolError, match="outside the workspace"):
        find.find("*", "../outside")


def test_it_only_reads(find: FindTools) -> None:
    """Its effect is declared."""
    assert [(tool.name, tool.effect) for tool in find] == [("find", "read")]


def test_a_tree_without_end_is_left_in_time(
    find: FindTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the time is up no further folder is entered, and it is said."""
    monkeypatch.setattr(find_module, "MAX_SECONDS", -1.0)

    assert find.find("*.py").split("\n") == [
        "a.py",
        "[cut: the search stopped after -1 seconds; narrow the path]",
    ]
