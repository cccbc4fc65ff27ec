"""The jail: what it opens, what it refuses, and with which words."""

from __future__ import annotations

import gc
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.refusals import refusal

from triplepoint.tools import Entry, Workspace
from triplepoint.tools import workspace as workspace_module
from triplepoint.tools.rooted_fs import HidingFS


def read(workspace: Workspace, path: str) -> bytes:
    with workspace.open(path) as file:
        return file.read()


def test_files_inside_are_opened(workspace: Workspace, root: Path) -> None:
    """A regular file at any depth gives its bytes."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "é.txt").write_bytes(b"deep")

    assert read(workspace, "a/b/é.txt") == b"deep"
    assert read(workspace, "./a//b/./é.txt") == b"deep"
    assert stat.S_ISDIR(workspace.stat("a").st_mode)
    assert refusal(lambda: workspace.stat("b")) == "no such file or folder: b"


def test_what_is_not_a_file(workspace: Workspace, root: Path) -> None:
    """Missing files, folders and files used as folders are told apart."""
    (root / "logs").mkdir()
    (root / "a.txt").touch()

    assert refusal(lambda: workspace.open("no.txt")) == "no such file: no.txt"
    assert refusal(lambda: workspace.open("no/x")) == "no such file: no/x"
    assert refusal(lambda: workspace.open("a.txt/x")) == "no such file: a.txt/x"
    assert refusal(lambda: workspace.open("logs")) == "not a file: logs is a folder"
    assert refusal(lambda: workspace.open(".")) == "not a file: . is a folder"
    assert refusal(lambda: workspace.listdir("a.txt")) == "not a folder: a.txt is a file"
    assert refusal(lambda: workspace.listdir("a.txt/x")) == "no such folder: a.txt/x"
    assert refusal(lambda: workspace.listdir("no")) == "no such folder: no"
    assert refusal(lambda: list(workspace.walk("no"))) == "no such folder: no"
    assert refusal(lambda: workspace.open("x" * 5000)) == "no such file: " + "x" * 200 + "…"


def test_symlinks_that_leave(
    workspace: Workspace,
    root: Path,
    tmp_path: Path,
    watch: Callable[..., Callable[[], bytes]],
) -> None:
    """A symlink that leads out is refused on every call, absolute, relative or by a chain."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("CANARY")
    (root / "absolute").symlink_to(outside / "secret")
    (root / "relative").symlink_to("../outside/secret")
    (root / "chain").symlink_to("relative")
    (root / "folder").symlink_to(outside)
    (root / "up").symlink_to("..")
    (root / "proc").symlink_to("/proc/self/root")
    seen = watch(outside, outside / "secret")

    reasons = ("outside the workspace: ", "symlink not followed: ")
    for path in ("absolute", "relative", "chain", "folder/secret", "up/outside/secret", "proc/etc"):
        for call in (workspace.open, workspace.stat, workspace.listdir):
            assert refusal(lambda call=call, path=path: call(path)).startswith(reasons)
    for path in ("folder", "up", "proc"):
        assert refusal(lambda path=path: workspace.listdir(path)).startswith(reasons)
        assert refusal(lambda path=path: list(workspace.walk(path))).startswith(reasons)
    assert list(workspace.walk()) == []
    assert seen() == b""


def test_symlinks_to_nothing(workspace: Workspace, root: Path) -> None:
    """A listing shows them, so they are told from names that are not there; a loop is a loop."""
    (root / "gone").symlink_to("nothing/here")
    (root / "round").symlink_to("round")
    (root / "to").symlink_to("gone")

    assert [entry.name for entry in workspace.listdir().entries] == ["gone", "round", "to"]
    if workspace.resolver == "openat2":
        says = " (the link {} leads to nothing)"
        gone = says.format("gone")
        assert refusal(lambda: workspace.open("gone")) == "no such file: gone" + gone
        assert refusal(lambda: workspace.open("gone/x/y")) == "no such file: gone/x/y" + gone
        assert refusal(lambda: workspace.listdir("gone")) == "no such folder: gone" + gone
        assert refusal(lambda: workspace.stat("to")).endswith(says.format("to"))
    for name in ("round", "round/x"):
        assert refusal(lambda name=name: workspace.open(name)).startswith("symlink not followed: ")


def test_symlinks_that_stay(workspace: Workspace, root: Path) -> None:
    """openat2 follows a symlink that stays inside; the walk refuses and says so."""
    (root / "logs").mkdir()
    (root / "logs" / "a").write_bytes(b"text")
    (root / "link").symlink_to("logs/a")
    (root / "folder").symlink_to("logs")
    (root / "logs" / "back").symlink_to("../logs/a")

    if workspace.resolver == "openat2":
        assert read(workspace, "link") == b"text"
        assert read(workspace, "folder/a") == b"text"
        assert read(workspace, "logs/back") == b"text"
        assert workspace.listdir("folder") == workspace.listdir("logs")
    else:
        assert refusal(lambda: workspace.open("link")) == "symlink not followed: link"
        assert refusal(lambda: workspace.open("folder/a")) == "symlink not followed: folder/a"
        assert refusal(lambda: workspace.listdir("folder")) == "symlink not followed: folder"


def test_symlink_loops_end(workspace: Workspace, root: Path) -> None:
    """A loop is an error on open, and the walk does not enter it."""
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "self").symlink_to(".")
    (root / "sub").mkdir()
    (root / "sub" / "up").symlink_to("..")
    (root / "sub" / "file").touch()

    assert refusal(lambda: workspace.open("a")) == "symlink not followed: a"
    assert list(workspace.walk()) == ["sub/file"]


def test_special_files(workspace: Workspace, root: Path) -> None:
    """A FIFO without a writer does not block; sockets and devices are refused unopened."""
    os.mkfifo(root / "pipe")
    os.mknod(root / "socket", stat.S_IFSOCK | 0o600)
    names = ["pipe", "socket"]
    if os.geteuid() == 0:
        os.mknod(root / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        names.append("zero")

    for name in names:
        assert refusal(lambda name=name: workspace.open(name)) == f"not a regular file: {name}"
        assert refusal(lambda name=name: workspace.listdir(name)).startswith("not a folder")
    assert list(workspace.walk()) == []


def test_a_fifo_that_takes_the_place_of_a_file(workspace: Workspace, root: Path) -> None:
    """The check before the open may be outrun: the open itself does not block, and is checked."""
    (root / "a").touch()
    os.mkfifo(root / "pipe")
    before = workspace.stat("a")
    inner = workspace._rooted

    class Raced:
        """Says what was there before the swap."""

        def stat(self, path: str) -> os.stat_result:
            return before

        def open(self, path: str, flags: int) -> int:
            return inner.open("pipe", flags)

        def folder(self, path: str) -> int:
            return inner.folder(path)

    workspace._rooted = HidingFS(Raced())

    assert refusal(lambda: workspace.open("a")) == "not a regular file: a"


def test_listing(workspace: Workspace, root: Path) -> None:
    """Entries come in bytes order with what they are; `first` keeps the smallest and counts all."""
    for name in ("b", "B", "é", ".hidden"):
        (root / name).touch()
    (root / "a").mkdir()
    (root / "toa").symlink_to("a")
    (root / "out").symlink_to("/")

    names = [entry.name for entry in workspace.listdir().entries]
    assert names == [".hidden", "B", "a", "b", "out", "toa", "é"]
    few = workspace.listdir(first=3)
    assert few.entries == [Entry(".hidden", False), Entry("B", False), Entry("a", True)]
    assert few.total == 7
    folders = {entry.name for entry in workspace.listdir().entries if entry.is_folder}
    assert folders == ({"a", "toa"} if workspace.resolver == "openat2" else {"a"})


def test_walk_order(workspace: Workspace, root: Path) -> None:
    """Files come in bytes order of their whole paths; skipped folders are not entered."""
    for path in ("a/x", "a-b", "a.txt", "a/c/d", "B/x", "node_modules/x", "z/node_modules/x"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()

    every = list(workspace.walk())
    assert every == sorted(every, key=os.fsencode)
    assert len(every) == 7
    some = list(workspace.walk(skip=["node_modules"]))
    assert some == ["B/x", "a-b", "a.txt", "a/c/d", "a/x"]
    assert list(workspace.walk("a")) == ["a/c/d", "a/x"]
    assert list(workspace.walk("node_modules", skip=["node_modules"])) == ["node_modules/x"]


def test_walk_depth(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders too deep are not entered but named."""
    monkeypatch.setattr(workspace_module, "MAX_DEPTH", 3)
    (root / "a/b/c/d/e").mkdir(parents=True)
    (root / "a/b/c/file").touch()
    (root / "a/b/c/d/file").touch()

    missed: list[str] = []
    assert list(workspace.walk(missed=missed)) == ["a/b/c/file"]
    assert missed == ["a/b/c/d"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(workspace: Workspace, root: Path) -> None:
    """Missing permissions are told as such."""
    (root / "a").touch(mode=0)
    (root / "d").mkdir(mode=0)

    assert refusal(lambda: workspace.open("a")) == "no permission to read: a"
    assert refusal(lambda: workspace.listdir("d")) == "no permission to read: d"


def test_the_folder_is_held_not_its_name(workspace: Workspace, root: Path) -> None:
    """When another folder takes the root's name, the workspace stays what it was."""
    (root / "a").write_bytes(b"ours")
    root.rename(root.with_name("moved"))
    root.mkdir()
    (root / "a").write_bytes(b"theirs")

    assert read(workspace, "a") == b"ours"


def test_root_must_be_a_folder(tmp_path: Path, resolver: str) -> None:
    """A root that is missing or a file is refused at once."""
    (tmp_path / "file").touch()

    missing = refusal(lambda: Workspace(tmp_path / "no", resolver=resolver))
    assert missing == f"no such folder: {tmp_path / 'no'}"
    wrong = refusal(lambda: Workspace(tmp_path / "file", resolver=resolver))
    assert wrong == f"not a folder: {tmp_path / 'file'} is a file"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_no_descriptor_is_left_open(workspace: Workspace, root: Path) -> None:
    """Successes, refusals and walks that are not finished give everything back."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").touch()
    (root / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")

    gc.collect()  # what other tests left must not go away meanwhile
    before = os.listdir("/proc/self/fd")
    for _ in range(50):
        read(workspace, "a/b/f")
        next(workspace.walk())
        workspace.listdir("a")
        for path in ("out", "pipe", "a", "no", "a/b/f/x", "a/no/x"):
            refusal(lambda path=path: workspace.open(path))
            refusal(lambda path=path: workspace.listdir(path + "/no"))

    assert os.listdir("/proc/self/fd") == before


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_magic_links(resolver: str) -> None:
    """With /proc/self as the workspace, its links to everything else stay shut."""
    with Workspace("/proc/self", resolver=resolver) as workspace:
        reasons = ("outside the workspace: ", "symlink not followed: ")
        for path in ("root/etc/passwd", "cwd", "exe", "fd/0", "ns/mnt"):
            assert refusal(lambda path=path: workspace.open(path)).startswith(reasons)
        assert b"python" in read(workspace, "cmdline")


def test_closed_workspace(root: Path, resolver: str) -> None:
    """After close() nothing is opened, and closing again is fine."""
    workspace = Workspace(root, resolver=resolver)
    workspace.close()
    workspace.close()

    assert refusal(lambda: workspace.listdir()) == "the workspace is closed"
