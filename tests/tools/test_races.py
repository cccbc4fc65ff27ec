"""Names that are swapped while the tools read: a file, a folder above it, a folder moved out.

A child process exchanges two names as fast as it can; the tools read through them all the while.
No answer may hold a byte from outside, in any of the many orders that happen.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import FileTools

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
