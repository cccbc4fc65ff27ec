"""Line endings: those of the file stay, whatever a model writes."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, Workspace


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"x\ny\nz\n", "x\r\ny", "x\r\nNEW", b"x\nNEW\nz\n"),
        (b"x\ny\nz\n", "y", "y\r\nw", b"x\ny\nw\nz\n"),
        (b"x\ny\nz\n", "y\r\n", "a\r\nb\r\n", b"x\na\nb\nz\n"),
        (b"x\ny\nz\n", "y\r", "w\r", b"x\nw\nz\n"),
        (b"x\r\ny\r\nz\r\n", "x\r\ny", "x\r\nNEW", b"x\r\nNEW\r\nz\r\n"),
        (b"x\r\ny\r\nz\r\n", "y", "a\nb\r\nc", b"x\r\na\r\nb\r\nc\r\nz\r\n"),
        (b"x\r\ny\r\nz\r\n", "y\r", "w", b"x\r\nw\r\nz\r\n"),
        (b"x\r\ny\r\nz\r\n", "\ny", "", b"x\r\nz\r\n"),
        (b"x\r\ny\nz\r\n", "x\r\ny\r\n", "X\nY\n", b"X\r\nY\r\nz\r\n"),
        (b"10%\r50%\r100%\n", "50%\r100%", "75%\r100%", b"10%\r75%\r100%\n"),
        (b"one\rtwo\r", "one\rtwo\r", "1", b"1"),
        (b"no end", "end", "line\r\nend\r\n", b"no line\r\nend\r\n"),
    ],
)
def test_an_edit(workspace: Workspace, before: bytes, old: str, new: str, after: bytes) -> None:
    """Either kind of line ending finds the other, and what is written is the file's kind."""
    file = workspace.root / "f"
    file.write_bytes(before)
    EditTools(workspace).edit_file("f", old, new)
    assert file.read_bytes() == after


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"x\ny\n", "a\r\nb\r\n", b"a\nb\n"),
        (b"x\r\ny\r\n", "a\nb\r\nc\n", b"a\r\nb\r\nc\r\n"),
        (b"x\ny\r\n", "a\nb\r\n", b"a\nb\r\n"),
        (b"x", "a\r\nb\r\n", b"a\r\nb\r\n"),
        (None, "a\r\nb\r\n", b"a\r\nb\r\n"),
    ],
)
def test_a_file_that_is_replaced(
    workspace: Workspace, before: bytes | None, content: str, after: bytes
) -> None:
    """A file of one kind keeps it; where there is none, or both, the text is as it was given."""
    file = workspace.root / "f"
    if before is not None:
        file.write_bytes(before)
    EditTools(workspace).write_file("f", content)
    assert file.read_bytes() == after


def test_only_other_line_endings_are_no_edit(workspace: Workspace) -> None:
    """It is not reported as an edit: nothing would change."""
    (workspace.root / "f").write_bytes(b"x\ny\n")
    with pytest.raises(ToolError, match="differ only in line endings"):
        EditTools(workspace).edit_file("f", "x\ny", "x\r\ny")


def test_what_is_like_it_is_named(workspace: Workspace) -> None:
    """A line that is there is not reported as different in spaces because of its line ending."""
    (workspace.root / "f").write_bytes(b"total = 1\nrest = 2\n")
    with pytest.raises(ToolError, match="line 2 differs: 'rest = 2'"):
        EditTools(workspace).edit_file("f", "total = 1\r\nrest = 3\r\n", "x")


WORDS = st.sampled_from(["", "a", "b", "a b", "é", "\t", "xx"])
ENDINGS = st.sampled_from(["\n", "\r\n"])
TEXTS = st.lists(st.tuples(WORDS, ENDINGS), min_size=1, max_size=6)


def joined(lines: list[tuple[str, str]]) -> str:
    return "".join(word + end for word, end in lines)


def kinds(data: bytes) -> set[bytes]:
    return set(re.findall(rb"\r?\n", data))


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.data(), TEXTS, ENDINGS, st.booleans())
def test_no_edit_mixes_line_endings(
    lines: list[tuple[str, str]],
    data: st.DataObject,
    new_lines: list[tuple[str, str]],
    end: str,
    uniform: bool,
) -> None:
    """Untouched lines keep theirs; a file of one kind stays one of that kind."""
    lines = [(f"{n}{word}", end if uniform else own) for n, (word, own) in enumerate(lines)]
    text, new = joined(lines), joined(new_lines)
    start = data.draw(st.integers(0, len(text) - 1))
    stop = data.draw(st.integers(start + 1, len(text)))
    old = text[start:stop]
    if data.draw(st.booleans()):
        old = old.replace("\r\n", "\n")
    elif data.draw(st.booleans()):
        old = re.sub("\r?\n", "\r\n", old)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "f")
        file.write_bytes(text.encode())
        with Workspace(folder) as workspace:
            try:
                EditTools(workspace).edit_file("f", old, new)
            except ToolError:
                assert file.read_bytes() == text.encode()
                return
        after = file.read_bytes()
    assert b"\r\r" not in after
    if uniform:
        assert kinds(after) <= {end.encode()}
    # What is before the first and behind the last touched line is there, byte for byte.
    whole = [word + end for word, end in lines]
    first = len(joined(lines[: text[:start].count("\n")]))
    assert after.startswith(text[:first].encode())
    touched = text[: max(stop, start + 1)].count("\n") + 1
    assert after.endswith("".join(whole[touched:]).encode())


@settings(max_examples=80, deadline=None)
@given(TEXTS, st.data())
def test_what_read_file_shows_can_be_edited(
    lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    """A line as it is shown is found, in files of either kind or both."""
    lines = [(f"line {n} {word}", end) for n, (word, end) in enumerate(lines)]
    number = data.draw(st.integers(1, len(lines)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "f").write_bytes(joined(lines).encode())
        with Workspace(folder) as workspace:
            shown = FileTools(workspace).read_file("f", number, number).split("\t", 1)[1]
            EditTools(workspace).edit_file("f", shown, "other")
        lines[number - 1] = ("other", lines[number - 1][1])
        assert Path(folder, "f").read_bytes() == joined(lines).encode()
