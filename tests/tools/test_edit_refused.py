"""write_file and edit_file: what they refuse, and what is said of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, Workspace


@pytest.fixture
def edit(workspace: Workspace) -> EditTools:
    return EditTools(workspace)


@pytest.mark.parametrize(
    ("text", "old", "message"),
    [
        (
            "def f():\n\treturn 1\n",
            "def f():\n    return 1",
            "line 2 differs in spaces: '\\treturn 1'",
        ),
        ("def f():\n\treturn 1\n", "    return 1\n", "line 2 differs in spaces: '\\treturn 1'"),
        ("def f(): \n", "def f():  ", "line 1 differs in spaces: 'def f(): '"),
        ("one\ntwo\nfour\n", "two\nthree\n", "line 3 differs: 'four'"),
        ("one\ntwo", "two\n", "the file ends with line 2, without a line end"),
        ("one\ntwo\n", "two\nthree\n", "the file ends with line 2"),
        ("x" * 1001, "x", "more than 1000 times, at lines 1, 1, 1, 1, 1 and more"),
    ],
)
def test_what_differs_is_told(
    root: Path, edit: EditTools, text: str, old: str, message: str
) -> None:
    """A line that looks the same is of no help: where the text of the file is another one is."""
    (root / "f").write_text(text)

    with pytest.raises(ToolError) as caught:
        edit.edit_file("f", old, "new")
    assert message in str(caught.value)


def test_no_file_is_made_that_cannot_be_changed_again(root: Path, edit: EditTools) -> None:
    """A NUL would make it binary to every tool."""
    (root / "a.txt").write_text("one\n")

    with pytest.raises(ToolError, match="the content holds a NUL character"):
        edit.write_file("new.txt", "a\0b")
    with pytest.raises(ToolError, match="new holds a NUL character"):
        edit.edit_file("a.txt", "one", "a\0b")
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "one\n"


def test_text_in_utf_16_is_read_and_not_changed(root: Path, edit: EditTools) -> None:
    """The message says what the file is; it stays as it is."""
    data = "one line\r\n".encode("utf-16")
    (root / "redirected.log").write_bytes(data)

    assert "1\tone line" in FileTools(edit.workspace).read_file("redirected.log")
    for change in (
        lambda: edit.edit_file("redirected.log", "one", "x"),
        lambda: edit.write_file("redirected.log", "x"),
    ):
        with pytest.raises(ToolError, match=r"redirected\.log is text in UTF-16"):
            change()
    assert (root / "redirected.log").read_bytes() == data
