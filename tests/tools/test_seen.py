"""A file that was changed since a conversation saw it is not written over by it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools
from triplepoint.tools.seen import seeing, shown_whole


@pytest.fixture
def read(root: Path) -> FileTools:
    return FileTools(root)


@pytest.fixture
def edit(root: Path) -> EditTools:
    """In a workspace of its own, as an agent's often is."""
    return EditTools(root)


def test_a_change_of_others_is_not_written_over(
    root: Path, read: FileTools, edit: EditTools
) -> None:
    """The result says what to do; after that the file can be written, more than once."""
    (root / "a.txt").write_text("one\n")
    with seeing({}):
        read.read_file("a.txt")
        (root / "a.txt").write_text("one\nby the user\n")
        with pytest.raises(ToolError) as caught:
            edit.write_file("a.txt", "two\n")

        assert str(caught.value) == (
            "a.txt has changed since you last read or wrote it, so nothing was written; "
            "read it again"
        )
        assert (root / "a.txt").read_text() == "one\nby the user\n"
        read.read_file("a.txt", end=1)
        edit.write_file("a.txt", "two\nby the user\n")
        edit.write_file("a.txt", "three\nby the user\n")
    assert (root / "a.txt").read_text() == "three\nby the user\n"


def test_what_the_model_wrote_it_has_seen(root: Path, edit: EditTools) -> None:
    """Nobody is asked about what would be refused; the same text written anew is no change."""
    write = next(iter(edit))
    with seeing({}) as seen:
        edit.write_file("a.txt", "one\n")
        (root / "a.txt").unlink()
        (root / "a.txt").write_text("one\n")
        edit.write_file("a.txt", "two\n")
    (root / "a.txt").write_text("by the user\n")
    with seeing(seen), pytest.raises(ToolError, match="since you last read or wrote it"):
        write.preview({"path": "a.txt", "content": "three\n"})


def test_an_edit_is_no_look_at_the_rest(root: Path, read: FileTools, edit: EditTools) -> None:
    """It tells the model nothing of what others changed in the same file."""
    (root / "a.txt").write_text("one\ntwo\n")
    with seeing({}):
        read.read_file("a.txt")
        edit.edit_file("a.txt", "one", "1")
        edit.write_file("a.txt", "1\n2\n")
        (root / "a.txt").write_text("1\n2\nby the user\n")
        edit.edit_file("a.txt", "2", "zwei")
        with pytest.raises(ToolError, match="has changed"):
            edit.write_file("a.txt", "1\nzwei\n")


def test_what_was_never_read_is_replaced(root: Path, edit: EditTools) -> None:
    """By a person's own program, in which nothing is seen, and where there is no tool to read."""
    (root / "a.txt").write_text("old\n")
    with seeing({}):
        assert edit.write_file("a.txt", "new\n").startswith("replaced a.txt")
    (root / "a.txt").write_text("old\n")
    assert edit.write_file("a.txt", "new\n").startswith("replaced a.txt")


LONG = "".join(f"line {n}\n" for n in range(1, 9))


@pytest.mark.parametrize(
    ("new", "instead"),
    [
        (LONG.replace("line 4", "LINE 4"), '{"old": "line 4", "new": "LINE 4"}'),
        (LONG + "line 9\n", '{"old": "line 8", "new": "line 8\\nline 9"}'),
        (LONG.replace("line 4\n", ""), '{"old": "line 3\\nline 4", "new": "line 3"}'),
        (LONG.removeprefix("line 1\n"), '{"old": "line 1\\nline 2", "new": "line 2"}'),
        (LONG.removesuffix("\n"), "or change one piece of it with edit_file"),
        ("another text\n" + LONG[:28], "or change one piece of it with edit_file"),
    ],
)
def test_what_a_model_never_read_is_not_replaced(
    root: Path, read: FileTools, edit: EditTools, new: str, instead: str
) -> None:
    """The refusal shows how the file begins, and the edit that would do; once read, it is."""
    (root / "a.txt").write_text(LONG)
    write = next(iter(edit))
    with seeing({}, lambda _: True):
        for call in (
            edit.write_file,
            lambda path, content: write.preview({"path": path, "content": content}),
        ):
            with pytest.raises(ToolError) as caught:
                call("a.txt", new)
            told = str(caught.value)
            assert told.startswith("a.txt exists and was never read here, so nothing was written")
            assert instead in told
            assert told.endswith(
                "It has 8 lines, the first:\n"
                + "".join(f"{n}\tline {n}\n" for n in range(1, 6)).rstrip()
            )
        assert (root / "a.txt").read_text() == LONG
        read.read_file("a.txt")
        assert edit.write_file("a.txt", new).startswith("replaced")
    assert (root / "a.txt").read_text() == new


def test_what_needs_no_reading(root: Path, edit: EditTools) -> None:
    """A new file, an empty one, and one that the conversation wrote; what may not be read is not
    shown either."""
    (root / "empty.txt").write_text("")
    (root / "secret.txt").write_text("token=1\n")
    with seeing({}, lambda path: path != "secret.txt"):
        for name, text in (("new.txt", "a\n"), ("empty.txt", "b\n"), ("new.txt", "c\n")):
            edit.write_file(name, text)
        with pytest.raises(ToolError, match="write to another file") as caught:
            edit.write_file("secret.txt", "x\n")
    assert "token" not in str(caught.value)


def test_what_a_result_shows_whole(root: Path, read: FileTools) -> None:
    """All of its lines, with their numbers; an excerpt, or another text, is not the file."""
    (root / "a.txt").write_text("one\ntwo\n")
    workspace = read.workspace
    (known,) = shown_whole(workspace, "a.txt", read.read_file("a.txt")).items()
    assert known == (str(root / "a.txt"), hashlib.sha256(b"one\ntwo\n").hexdigest())
    for part in (read.read_file("a.txt", start=2), "1\tone\n2\tother", ""):
        assert shown_whole(workspace, "a.txt", part) == {}
    assert shown_whole(workspace, "missing.txt", "1\tone") == {}


def test_a_file_is_known_by_any_of_its_names(root: Path, read: FileTools, edit: EditTools) -> None:
    """Through a symlink, another workspace, and after a move, also of its folder."""
    (root / "docs").mkdir()
    (root / "docs/a.txt").write_text("one\n")
    (root / "link.txt").symlink_to("docs/a.txt")
    with seeing({}):
        read.read_file("link.txt")
        edit.move("docs", "papers")
        edit.move("papers/a.txt", "papers/b.txt")
        (root / "papers/b.txt").write_text("by the user\n")
        with pytest.raises(ToolError, match="has changed"):
            EditTools(root / "papers").write_file("b.txt", "two\n")


def test_no_file_is_too_large_to_be_read(root: Path, read: FileTools) -> None:
    """One that no tool can change is not read a second time, and not noted."""
    (root / "large.log").write_bytes(b"line\n" * 2**21)
    with seeing({}) as seen:
        read.read_file("large.log", end=1)
    assert list(seen.values()) == [""]


def test_lines_of_another_text_are_added_at_the_end(
    root: Path, read: FileTools, edit: EditTools
) -> None:
    """The refusal shows the edit that adds them; to replace all of it, the call is made again."""
    (root / "a.txt").write_text(LONG)
    add = '; to add it at the end, call edit_file with {"old": "line 8", "new": "line 8\\nline 9"}'
    with seeing({}, lambda _: True):
        for begin in ("a.txt exists and was never read here", "nothing was written"):
            with pytest.raises(ToolError, match=begin) as caught:
                edit.write_file("a.txt", "line 9\n")
            assert add in str(caught.value)
            read.read_file("a.txt")
        assert edit.write_file("a.txt", "line 9\n").startswith("replaced")


def test_the_same_text_is_not_written_again(root: Path, edit: EditTools) -> None:
    """A model that repeats itself is told so; a program may write what is there."""
    with seeing({}, lambda _: True):
        edit.write_file("a.txt", "a\n")
        with pytest.raises(ToolError, match="exactly this text already"):
            edit.write_file("a.txt", "a\n")
    assert edit.write_file("a.txt", "a\n").startswith("replaced")
