"""write_file, edit_file, move, delete: exact, atomic, inside, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, Policy, Workspace
from triplepoint.tools.paths import TRASH
from triplepoint.tools.workspace import MAX_DEPTH


@pytest.fixture
def edit(workspace: Workspace) -> EditTools:
    return EditTools(workspace)


def left_over(root: Path) -> list[str]:
    """Temporary files that should be gone."""
    return [str(p) for p in root.rglob("*.tmp")]


# --- write_file


def test_a_file_is_made_with_its_folders(root: Path, edit: EditTools) -> None:
    """A new file has the text and the usual permissions."""
    said = edit.write_file("a/b/new.txt", "one\ntwo\n")

    assert said == "wrote a/b/new.txt: 2 lines, 8 bytes"
    assert (root / "a/b/new.txt").read_bytes() == b"one\ntwo\n"
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((root / "a/b/new.txt").stat().st_mode) == 0o666 & ~mask
    assert left_over(root) == []


def test_a_file_is_replaced_with_its_mode_and_line_ends(root: Path, edit: EditTools) -> None:
    """What was executable stays so, CRLF stays CRLF, and a byte order mark stays."""
    file = root / "run.bat"
    file.write_bytes(b"\xef\xbb\xbfold\r\nlines\r\n")
    file.chmod(0o750)

    assert edit.write_file("run.bat", "new\nlines\n").startswith("replaced run.bat")

    assert file.read_bytes() == b"\xef\xbb\xbfnew\r\nlines\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


def test_what_is_no_text_is_not_replaced(root: Path, edit: EditTools) -> None:
    """A binary file, or one in another encoding, is refused and stays as it is."""
    (root / "image.png").write_bytes(b"\x89PNG\0\0")
    (root / "latin.txt").write_bytes(
        "naïve prose that goes on in plain letters ".encode("latin-1") * 30
    )

    with pytest.raises(ToolError, match="binary file"):
        edit.write_file("image.png", "x")
    with pytest.raises(ToolError, match="not valid UTF-8 at byte 2"):
        edit.edit_file("latin.txt", "na", "x")
    assert (root / "image.png").read_bytes() == b"\x89PNG\0\0"


# --- edit_file


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\nb\nc\n", "b", "B", b"a\nB\nc\n"),
        (b"a\nb\nc\n", "a\nb\n", "x\n", b"x\nc\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\n", "\nb", "", b"a\r\n"),
        (b"a\r\nb\nc\r\nd\n", "b\nc\n", "x\ny\n", b"a\r\nx\r\ny\r\nd\n"),
        (b"no end", "end", "line end\n", b"no line end\n"),
        (b"\xef\xbb\xbfx = 1\n", "x = 1", "x = 2", b"\xef\xbb\xbfx = 2\n"),
        ("ä😀b".encode(), "😀", "\\1", "ä\\1b".encode()),
        (b"a.b a+b", "a+b", "c", b"a.b c"),
    ],
)
def test_one_text_is_replaced(
    root: Path, edit: EditTools, before: bytes, old: str, new: str, after: bytes
) -> None:
    """Everything else stays byte for byte; new lines end as those around them."""
    (root / "f").write_bytes(before)
    (root / "f").chmod(0o640)

    edit.edit_file("f", old, new)

    assert (root / "f").read_bytes() == after
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o640
    assert left_over(root) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x", "y", "the text is in f 3 times, at lines 1, 2, 4; give more"),
        ("missing entirely", "y", "no such text in f$"),
        ("total = comptue(values)", "y", "no such text in f; line 3 is like it: total = compute"),
        ("3\ttotal = compute(values)", "y", "leave out the line numbers"),
        ("", "y", "old is empty"),
        ("x", "x", "nothing would change"),
    ],
)
def test_what_is_not_there_once_is_refused(
    root: Path, edit: EditTools, old: str, new: str, message: str
) -> None:
    """The refusal says where the places are, or what is like it; the file is as it was."""
    text = "x\nx\n  total = compute(values)\nx\n"
    (root / "f").write_text(text)

    with pytest.raises(ToolError, match=message):
        edit.edit_file("f", old, new)
    assert (root / "f").read_text() == text


def test_what_is_like_a_text_is_found_at_once(root: Path, edit: EditTools) -> None:
    """Also among thousands of long lines that are much alike."""
    rng = np.random.default_rng(1)
    lines = ["".join(row) for row in rng.choice(["a", "b"], (5000, 198))]
    lines[4000] = "total = compute(values, of=these)"
    (root / "f").write_text("\n".join(lines))
    began = time.process_time()
    for old, message in (
        ("total = comptue(values, of=these)", "line 4001"),
        ("ab" * 99, "no such"),
    ):
        with pytest.raises(ToolError, match=message):
            edit.edit_file("f", old, "y")
    assert time.process_time() - began < 10


def test_overlapping_places_are_two(root: Path, edit: EditTools) -> None:
    """aa is in aaa twice: which one is meant cannot be known."""
    (root / "f").write_text("aaa")

    with pytest.raises(ToolError, match="2 times"):
        edit.edit_file("f", "aa", "b")


def test_a_file_that_changes_meanwhile_is_not_overwritten(
    root: Path, edit: EditTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between read and rename another program has written: its text stays."""
    (root / "f").write_text("a\nb\n")
    real = os.fsync

    def other(descriptor: int) -> None:
        (root / "f").write_text("another program's text\n")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", other)
    with pytest.raises(ToolError, match="has changed since it was read"):
        edit.edit_file("f", "b", "c")

    assert (root / "f").read_text() == "another program's text\n"
    assert left_over(root) == []


@pytest.mark.parametrize("change", ["mode", "same size and time"])
def test_any_change_meanwhile_counts(
    root: Path, edit: EditTools, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A file that was made private stays so, and a time that was set back hides nothing."""
    file = root / "f"
    file.write_text("a")
    file.chmod(0o644)
    found = file.stat()
    real = os.fsync

    def other(descriptor: int) -> None:
        if change == "mode":
            file.chmod(0o600)
        else:
            file.write_text("z")
            os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", other)
    with pytest.raises(ToolError, match="has changed since it was read"):
        edit.write_file("f", "b")

    assert file.read_text() == ("a" if change == "mode" else "z")
    assert stat.S_IMODE(file.stat().st_mode) == (0o600 if change == "mode" else 0o644)


def test_what_is_refused_leaves_no_folders(root: Path, edit: EditTools) -> None:
    """Whole or not at all: also the folders on the way to what cannot be made."""
    (root / "d").mkdir()
    (root / "f").write_text("x")

    with pytest.raises(ToolError, match="cannot move d into itself"):
        edit.move("d", "./d/x/y/e")
    with pytest.raises(ToolError, match="too much for one file"):
        edit.write_file("new/folder/f", "x" * (8 * 2**20 + 1))
    for name in ("a" * 256, "ä" * 128):
        with pytest.raises(ToolError, match="the name is too long"):
            edit.write_file(f"new/folder/{name}", "x")
        with pytest.raises(ToolError, match="the name is too long"):
            edit.move("f", f"new/{name}/f")

    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["d", "f"]
    edit.write_file(f"new/{'a' * 255}", "x")


def test_a_reader_sees_the_old_or_the_new_text(root: Path, edit: EditTools) -> None:
    """While a file is rewritten again and again, no reader meets half of it."""
    old, new = "a" * 200_000, "b" * 200_000
    (root / "f").write_text(old)
    torn: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            text = (root / "f").read_text()
            if text not in (old, new):
                torn.append(text[:20])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            edit.write_file("f", new)
            edit.write_file("f", old)
    finally:
        done.set()
        reader.join()

    assert torn == []


# --- move and delete


def test_a_move_overwrites_nothing(root: Path, edit: EditTools) -> None:
    """Files and folders get new names, where these are free."""
    (root / "a").write_text("a")
    (root / "b").write_text("b")
    (root / "d").mkdir()

    assert edit.move("a", "new/a2") == "moved a to new/a2"
    with pytest.raises(ToolError, match="there is something already: b"):
        edit.move("new/a2", "b")
    with pytest.raises(ToolError, match="no such file or folder: gone"):
        edit.move("gone", "x")
    with pytest.raises(ToolError, match="into itself"):
        edit.move("d", "d/e")

    assert (root / "new/a2").read_text() == "a"
    assert (root / "b").read_text() == "b"


def test_what_is_deleted_can_be_had_back(root: Path, edit: EditTools) -> None:
    """A file and a whole folder go to the trash, twice under one name, and move brings one back."""
    (root / "d" / "e").mkdir(parents=True)
    (root / "d" / "e" / "f").write_text("kept")

    said = edit.delete("d")
    (root / "d").write_text("another")
    edit.delete("d")
    kept = said.rpartition(" ")[2]

    assert kept.startswith(TRASH)
    assert not (root / "d").exists()
    edit.move(kept, "d")
    assert (root / "d" / "e" / "f").read_text() == "kept"
    with pytest.raises(ToolError, match="in the trash already"):
        edit.delete(TRASH)
    with pytest.raises(ToolError, match="no such file or folder: gone"):
        edit.delete("gone")


def test_a_deleted_symlink_is_the_link(root: Path, edit: EditTools) -> None:
    """What it leads to stays."""
    (root.parent / "outside").write_text("kept")
    (root / "link").symlink_to(root.parent / "outside")

    edit.delete("link")

    assert (root.parent / "outside").read_text() == "kept"
    assert not (root / "link").is_symlink()


# --- the jail


@pytest.fixture
def outside(root: Path) -> Iterator[Path]:
    """A folder beside the workspace, with links to it inside; it must stay as it is."""
    folder = root.parent / "outside"
    folder.mkdir()
    (folder / "file").write_text("outside")
    (root / "real").mkdir()
    (root / "real" / "file").write_text("inside")
    (root / "dirlink").symlink_to(folder)
    (root / "filelink").symlink_to(folder / "file")
    (root / "inlink").symlink_to("real")
    (root / "dangling").symlink_to(folder / "new")
    (root / ".git").mkdir()
    yield folder
    assert [p.name for p in folder.iterdir()] == ["file"]
    assert (folder / "file").read_text() == "outside"


@pytest.mark.parametrize(
    "path",
    [
        "../outside/file",
        "../outside/new",
        "/etc/passwd",
        "dirlink/file",
        "dirlink/new",
        "filelink",
        "dangling",
        "inlink/file",
        "real/../../outside/file",
        ".git/hooks/pre-commit",
        "sub/.GIT/config",
        ".",
        "",
        "a\0b",
        "real",
    ],
)
def test_nothing_outside_is_changed(root: Path, edit: EditTools, outside: Path, path: str) -> None:
    """Paths out, symlinks (also those that stay inside), and repositories' own files are refused.

    Every one of the four tools says so, in either place of a move.
    """
    with pytest.raises(ToolError):
        edit.write_file(path, "x")
    with pytest.raises(ToolError):
        edit.edit_file(path, "inside", "x")
    with pytest.raises(ToolError):
        edit.move("real/file", path)
    if path not in ("filelink", "dangling", "real"):  # a link is moved itself, and stays inside
        with pytest.raises(ToolError):
            edit.move(path, "moved")
        with pytest.raises(ToolError):
            edit.delete(path)

    assert (root / "real" / "file").read_text() == "inside"
    assert left_over(root) == []


def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    root: Path, edit: EditTools, outside: Path
) -> None:
    """While a parent folder and a link out are exchanged all the time, no write leaves."""
    (root / "swap").mkdir()
    (root / "swap" / "file").write_text("a")
    (root / "other").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            os.rename(root / "swap", root / "aside")
            os.rename(root / "other", root / "swap")
            os.rename(root / "swap", root / "other")
            os.rename(root / "aside", root / "swap")

    swapper = threading.Thread(target=swap)
    swapper.start()
    written = 0
    try:
        while written < 12:
            old, new = ("a", "b") if written % 2 == 0 else ("b", "a")
            with contextlib.suppress(ToolError):
                edit.edit_file("swap/file", old, new)
                written += 1
    finally:
        done.set()
        swapper.join()

    assert (outside / "file").read_text() == "outside"


# --- what a person is shown


def test_a_change_can_be_seen_before_it_is_made(root: Path, edit: EditTools) -> None:
    """The preview is a diff, and leaves the file alone."""
    (root / "f").write_text("a\nb\nc\n")
    write_file, edit_file, *_ = edit

    assert write_file.preview({"path": "new", "content": "x\n"}).endswith("@@ -0,0 +1 @@\n+x")
    shown = edit_file.preview({"path": "f", "old": "b", "new": "B"})
    assert "-b\n+B" in shown
    assert shown.startswith("--- a/f\n+++ b/f")
    with pytest.raises(ToolError, match="no such text"):
        edit_file.preview({"path": "f", "old": "nothing", "new": "B"})
    assert (root / "f").read_text() == "a\nb\nc\n"
    assert {tool.effect for tool in edit} == {"write"}


def test_what_was_saved_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """A person may take minutes over a diff: what changed since is not what was approved."""
    tools = {one.name: one for one in EditTools(tmp_path)}
    path = tmp_path / "plan.txt"
    path.write_text("old\n")
    for name, arguments in (
        ("write_file", {"path": "plan.txt", "content": "model's\n"}),
        ("edit_file", {"path": "plan.txt", "old": "old", "new": "new"}),
    ):
        tools[name].preview(dict(arguments))
        path.write_text("old, and mine\n")
        with pytest.raises(ToolError, match=r"plan.txt was changed while .* read it again"):
            tools[name].call(arguments)
        assert path.read_text() == "old, and mine\n"
        tools[name].preview(dict(arguments))  # asked anew
        tools[name].call(arguments)
        path.write_text("old\n")
    tools["write_file"].preview({"path": "new.txt", "content": "model's\n"})
    (tmp_path / "new.txt").write_text("mine\n")
    with pytest.raises(ToolError, match="changed while"):
        tools["write_file"].call({"path": "new.txt", "content": "model's\n"})


def test_an_access_list_and_attributes_stay(root: Path, edit: EditTools) -> None:
    """Without its list, the bits of the list's mask would be those of the file's group."""
    path = root / "f"
    path.write_text("one\n")
    path.chmod(0o600)
    # 1234 may read and write, the group may not: user::rw-, user:1234:rw-, group::---, mask::rw-
    entries = [(1, 6, -1), (2, 6, 1234), (4, 0, -1), (16, 6, -1), (32, 0, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", acl)
        os.setxattr(path, "user.note", b"mine")
    except (OSError, AttributeError) as error:
        pytest.skip(f"no access lists on this file system: {error}")

    edit.edit_file("f", "one", "two")
    edit.write_file("f", "three\n")

    assert os.getxattr(path, "system.posix_acl_access") == acl
    assert os.getxattr(path, "user.note") == b"mine"
    assert stat.S_IMODE(path.stat().st_mode) == 0o660  # the mask


def test_a_preview_counts_for_one_call(tmp_path: Path) -> None:
    """After a no, or a call that failed, the same call may run without being shown again."""
    path = tmp_path / "a.txt"
    path.write_text("one two\n")
    edit_file = next(one for one in EditTools(tmp_path) if one.name == "edit_file")
    answers = iter(["no", "yes", "always"])
    policy = Policy("ask", ask=lambda _: cast("Any", next(answers)))
    declined = {"path": "a.txt", "old": "one", "new": "1"}
    failed = {"path": "a.txt", "old": "two", "new": "2"}

    assert not policy.decide(edit_file, declined).allowed
    assert policy.decide(edit_file, failed).allowed
    path.write_text("one too\n")
    with pytest.raises(ToolError, match="no such text"):
        edit_file.run(failed)
    for call in ({"path": "a.txt", "old": "too", "new": "two"}, declined, failed):
        assert policy.decide(edit_file, call).allowed
        edit_file.run(call)

    assert path.read_text() == "1 2\n"


@pytest.mark.parametrize("way", ["write_file", "move"])
def test_no_chain_of_thousands_of_folders(root: Path, edit: EditTools, way: str) -> None:
    """Nothing is made where the folders on the way would be too many, and the error says it."""
    (root / "a").write_text("x")
    for depth in (MAX_DEPTH + 1, 1999, 3000, 200_000):
        deep = "d/" * depth + "f"
        with pytest.raises(ToolError, match=rf"too deep: .* is {depth:,} folders .*; 64 are made"):
            edit.write_file(deep, "x") if way == "write_file" else edit.move("a", deep)
    assert [path.name for path in root.iterdir()] == ["a"]

    deep = "d/" * MAX_DEPTH + "f"
    edit.write_file(deep, "x") if way == "write_file" else edit.move("a", deep)
    assert (root / deep).read_text() == "x"


def test_what_lies_deeper_already(root: Path, edit: EditTools) -> None:
    """A folder that others made deeper than that can be written into, and its files deleted."""
    deep = root / ("d/" * (MAX_DEPTH + 9))
    deep.mkdir(parents=True)
    path = "d/" * (MAX_DEPTH + 9) + "f"

    edit.write_file(path, "x")
    assert (deep / "f").read_text() == "x"
    assert "it is kept as" in edit.delete(path)
    assert not (deep / "f").exists()


@pytest.mark.parametrize(
    ("text", "old", "left"),
    [
        ("a\nb\nc\n", "b", "a\nc\n"),
        ("a\r\nb\r\nc\r\n", "b", "a\r\nc\r\n"),
        ("a\nb\nc\n", "a\nb", "c\n"),
        ("a\nb\nc", "c", "a\nb\n"),
        ("a\nb c\n", "c", "a\nb \n"),
        ("a\nb c\n", "b ", "a\nc\n"),
        ("a\nb\n\nc\n", "b\n", "a\n\nc\n"),
    ],
)
def test_a_whole_line_goes_with_its_end(
    root: Path, edit: EditTools, text: str, old: str, left: str
) -> None:
    """Replaced by nothing, no empty line stays in its place."""
    (root / "a.txt").write_bytes(text.encode())
    edit.edit_file("a.txt", old, "")
    assert (root / "a.txt").read_bytes().decode() == left
