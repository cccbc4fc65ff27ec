"""Names that are swapped while the tools read: a file, a folder above it, a folder moved out.

A child process exchanges two names as fast as it can; the tools read through them all the while.
No answer may hold a byte from outside, in any of the many orders that happen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, FindTools

CANARY = "CANARY-91bc"
SECONDS = 1.5  # of swapping for each case and resolver

# Swaps argv[1] and argv[2] until it is told to stop, then prints how often.
SWAPPER = """
import ctypes, os, select, sys
one, two = (os.fsencode(name) for name in sys.argv[1:3])
libc = ctypes.CDLL(None, use_errno=True)
exchange = getattr(libc, "renameat2", None)
here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
def swap():
    if exchange is None or exchange(here, one, here, two, flag):
        os.rename(one, one + b".swap")
        os.rename(two, one)
        os.rename(one + b".swap", two)
swap()
print("ready", flush=True)
count = 1
while count % 64 or not select.select([sys.stdin], [], [], 0)[0]:
    swap()
    count += 1
print(count, flush=True)
"""


@contextmanager
def swapping(one: Path, two: Path) -> Iterator[list[int]]:
    """Swap the two names in another process; the list holds the number of swaps afterwards."""
    command = [sys.executable, "-c", SWAPPER, str(one), str(two)]
    swaps: list[int] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        try:
            yield swaps
        finally:
            child.stdin.close()
            swaps.append(int(child.stdout.readline() or 0))


def leaf(root: Path, outside: Path) -> tuple[Path, Path, str]:
    """A file and a symlink to the secret take turns under one name."""
    (root / "name").write_text("inside\n")
    (root / "link").symlink_to(outside / "name")
    return root / "name", root / "link", "name"


def parent(root: Path, outside: Path) -> tuple[Path, Path, str]:
    """A folder in the middle of the path and a symlink to the folder outside take turns."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "name").write_text("inside\n")
    (root / "a" / "link").symlink_to(outside)
    return root / "a" / "b", root / "a" / "link", "a/b/name"


def top(root: Path, outside: Path) -> tuple[Path, Path, str]:
    """The first folder of the path and a relative symlink out take turns."""
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "name").write_text("inside\n")
    (outside / "b").mkdir()
    (outside / "b" / "name").write_text(f"{CANARY}\n")
    (root / "link").symlink_to("../outside")
    return root / "a", root / "link", "a/b/name"


def moved_out(root: Path, outside: Path) -> tuple[Path, Path, str]:
    """A folder whose symlink climbs with `..` is moved out and back: there `..` is outside."""
    (root / "name").write_text("inside\n")
    for place in (root, outside):
        (place / "a").mkdir()
        (place / "a" / "up").symlink_to("../name")
    return root / "a", outside / "a", "a/up"


@pytest.mark.slow
@pytest.mark.parametrize("case", [leaf, parent, top, moved_out])
def test_no_escape_while_names_are_swapped(
    files: FileTools, root: Path, tmp_path: Path, case: type
) -> None:
    """Each answer is from inside or a clean refusal; both do occur."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "name").write_text(f"{CANARY}\n")
    (outside / CANARY).touch()
    one, two, path = case(root, outside)
    folder = path.rpartition("/")[0] or "."

    read = refused = 0
    with swapping(one, two) as swaps:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for call in (
                lambda: files.read_file(path),
                lambda: files.list_dir(folder),
                lambda: files.search("inside", path),
                lambda: files.search(CANARY),
            ):
                try:
                    answer = call()
                except ToolError as error:
                    refused += 1
                    answer = str(error)
                else:
                    read += "inside" in answer
                assert CANARY not in answer

    print(f"\n{swaps[0]:,} swaps, {read:,} answers from inside, {refused:,} refusals, 0 escapes")
    assert swaps[0] > 1
    assert read or refused


def test_a_link_that_is_replaced_while_it_is_looked_at(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a link and the reading of it, another file may take its name."""
    (root / "a").write_text("hit\n")
    (root / "link").symlink_to("a")

    def readlink(path: object, **_: object) -> str:
        raise OSError(22, "Invalid argument", path)

    monkeypatch.setattr(os, "readlink", readlink)
    assert files.search("hit").startswith("a:1:hit")
    assert files.search("hit", "a") == "a:1:hit"
    assert FindTools(files.workspace).find("a").split("\n")[0] == "a"
    assert files.read_file("a") == "1\thit"


@pytest.mark.slow
def test_tools_beside_renames_and_deletes(files: FileTools, root: Path) -> None:
    """Each answer is a result or a ToolError, whatever another program does to the names."""
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.is_set():
            number += 1
            one, two = root / f"d{number % 3}", root / f"e{number % 2}"
            for act in (
                lambda one=one: one.mkdir(),
                lambda one=one: (one / "f").write_text("hit\n"),
                lambda one=one: (root / "link").symlink_to(one.name),
                lambda two=two: (root / "link").rename(two),
                lambda one=one: (root / "link").symlink_to(f"{one.name}/f"),
                lambda: (root / "link").unlink(),
                lambda: (root / "link").write_text("hit\n"),
                lambda one=one: (one / "f").unlink(),
                lambda one=one: one.rmdir(),
                lambda two=two: two.unlink(),
                lambda: (root / "link").unlink(),
            ):
                try:
                    act()
                except OSError:
                    continue

    find, edit = FindTools(files.workspace), EditTools(files.workspace)
    other = threading.Thread(target=change)
    other.start()
    answers = 0
    try:
        end = time.monotonic() + 2 * SECONDS
        while time.monotonic() < end:
            for call in (
                lambda: files.search("hit"),
                lambda: files.search("hit", "link"),
                lambda: files.list_dir("d0"),
                lambda: files.read_file("link"),
                lambda: find.find("f"),
                lambda: edit.edit_file("link", "hit", "hit hit"),
                lambda: edit.write_file("d1/f", "hit\n"),
                lambda: edit.move("link", "d0/g"),
                lambda: edit.delete("d2"),
            ):
                try:
                    answers += bool(call())
                except ToolError:
                    continue
    finally:
        done.set()
        other.join()
    assert answers
