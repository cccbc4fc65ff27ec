"""Changes that the system does not allow: nothing is changed, and nothing left behind."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, Workspace
from triplepoint.tools.atomic_changes import place
from triplepoint.tools.paths import TRASH

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def edit(workspace: Workspace) -> EditTools:
    return EditTools(workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everything")
def test_a_write_protected_file_stays(root: Path, edit: EditTools) -> None:
    """Its folder alone would let another one take its name."""
    (root / "a.txt").write_text("one\n")
    (root / "a.txt").chmod(0o444)
    for change in (
        lambda: edit.write_file("a.txt", "two\n"),
        lambda: edit.edit_file("a.txt", "one", "two"),
    ):
        with pytest.raises(ToolError, match=r"^no permission to write: a\.txt$"):
            change()
    assert (root / "a.txt").read_text() == "one\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everything")
@pytest.mark.parametrize("before", [[], ["20260101-000000-abcd/b"]])
def test_a_delete_that_fails_leaves_no_folders(
    root: Path, edit: EditTools, before: list[str]
) -> None:
    """The trash is as it was."""
    (root / "closed" / "in").mkdir(parents=True)
    (root / "closed").chmod(0o555)
    for name in before:
        (root / TRASH / name).mkdir(parents=True)
    was = sorted(root.rglob("*"))
    with pytest.raises(ToolError, match=r"^no permission to move: closed/in$"):
        edit.delete("closed/in")
    (root / "closed").chmod(0o755)
    assert sorted(root.rglob("*")) == was


@pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no second file system to move to")
def test_a_move_to_another_file_system(root: Path, workspace: Workspace) -> None:
    """As to a mount in the workspace: no rename leads there, and the error says why."""
    (root / "a").touch()
    with TemporaryDirectory(dir=SHARED_MEMORY) as other, Workspace(other) as elsewhere:
        if os.stat(other).st_dev == root.stat().st_dev:
            pytest.skip("temporary files are on the second file system")
        with (
            place(workspace, "a") as here,
            place(elsewhere, "b") as there,
            pytest.raises(ToolError, match=r"^cannot move a: b is on another file system$"),
        ):
            here.rename_to(there)
    assert (root / "a").exists()
