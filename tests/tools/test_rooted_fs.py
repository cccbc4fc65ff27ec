"""What a run writes into the folder that it reads is not there for its tools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, FindTools, Workspace


@pytest.mark.parametrize("resolver", ["openat2", "walk"])
def test_hidden_paths_are_not_there(root: Path, resolver: str) -> None:
    """They are not listed, walked, searched, found or opened, nor is what lies below them; names
    that only begin alike are."""
    for name in ("r.jsonl", "r.jsonl.bak", "r.traces/1.jsonl", "r.traces.txt", "sub/r.jsonl"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mango\n")
    with Workspace(root, resolver=resolver) as workspace:
        workspace.hide([root / "r.jsonl", root / "r.traces", root.parent / "elsewhere"])
        workspace.hide([root / "sub" / "r.jsonl"])

        kept = ["r.jsonl.bak", "r.traces.txt"]
        listing = workspace.listdir()
        assert [entry.name for entry in listing.entries] == [*kept, "sub"]
        assert listing.total == 3
        assert list(workspace.walk()) == kept
        assert sorted(workspace.everything()) == [*kept, "sub"]
        tools = FileTools(workspace)
        assert tools.search("mango").count("mango") == 2
        assert FindTools(workspace).find("r*").split() == kept
        for name in ("r.jsonl", "./r.traces/1.jsonl", "sub/r.jsonl"):
            with pytest.raises(ToolError, match="no such file"):
                workspace.open(name)
        for name in ("r.traces", "r.traces/deeper"):
            with pytest.raises(ToolError, match="no such folder"):
                workspace.listdir(name)
        with pytest.raises(ToolError, match="no such file or folder"):
            workspace.stat("r.traces")


def test_hidden_by_way_of_links(root: Path, tmp_path: Path) -> None:
    """The folder may be named through a link, and so may what is hidden."""
    (root / "r.traces").mkdir()
    (root / "kept").touch()
    (tmp_path / "way").symlink_to(root)
    (root / "link").symlink_to("r.traces")
    with Workspace(root) as workspace:
        workspace.hide([tmp_path / "way" / "link"])
        assert [entry.name for entry in workspace.listdir().entries] == ["kept"]


def test_hidden_paths_are_not_changed(root: Path) -> None:
    """Nor is what lies below them or the folder that they are in; what is beside them is."""
    for name in ("sub/r.jsonl", "r.traces/1.jsonl", "other.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("mango\n")
    tools = EditTools(root)
    tools.workspace.hide([root / "sub" / "r.jsonl", root / "r.traces"])
    changes: tuple[Callable[[], object], ...] = (
        lambda: tools.write_file("sub/r.jsonl", "kiwi"),
        lambda: tools.write_file("r.traces/2.jsonl", "kiwi"),
        lambda: tools.edit_file("r.traces/1.jsonl", "mango", "kiwi"),
        lambda: tools.move("sub", "there"),
        lambda: tools.move("other.txt", "r.traces/1.txt"),
        lambda: tools.delete("sub/r.jsonl"),
        lambda: tools.delete("r.traces"),
    )
    for change in changes:
        with pytest.raises(ToolError, match="belongs to the run that asks"):
            change()
    assert (root / "sub" / "r.jsonl").read_text() == "mango\n"
    assert [one.name for one in (root / "r.traces").iterdir()] == ["1.jsonl"]
    tools.write_file("sub/new.txt", "kiwi\n")
    assert (root / "sub" / "new.txt").read_text() == "kiwi\n"
    tools.workspace.close()
