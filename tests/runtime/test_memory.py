"""Memory for weights and KV cache: where it lies, and on which pages."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from helpers.groups import system

from triplepoint.runtime import memory
from triplepoint.runtime.memory import HUGE_PAGE, Arena, available_bytes

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_bytes(data: np.ndarray) -> int:
    """Bytes of the mapping that holds `data` which lie on large pages."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= data.ctypes.data < end
        elif inside and first == "AnonHugePages:":
            return int(rest[0]) << 10
    return 0


def test_an_arena_hands_out_zeroed_lines() -> None:
    """Parts start on cache lines, do not overlap, and hold zeros."""
    arena = Arena(10_000)
    first, second = arena.take(100), arena.take(1000)
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0
    assert second.ctypes.data >= first.ctypes.data + 100
    assert not first.any()
    assert not second.any()
    first[:] = 7
    assert not second.any()


@pytest.mark.skipif(
    not THP.exists() or "[never]" in THP.read_text(), reason="this system has no large pages"
)
def test_touched_memory_lies_on_large_pages() -> None:
    """Most of a big block that was written lies on 2 MiB pages: decode is about 10 % faster so."""
    arena = Arena(64 << 20, huge_pages=True)
    data = arena.take(64 << 20)
    data[::4096] = 1
    assert huge_bytes(data) >= (64 << 20) // 2 - HUGE_PAGE


@pytest.mark.parametrize("wanted", [True, False])
def test_a_mapped_file_is_asked_for_large_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    """As memory without a file is; where the system refuses, the file is mapped all the same."""
    asked: list[int] = []

    class Mapped(mmap.mmap):
        def madvise(self, option: int, *_: int) -> None:
            asked.append(option)
            raise OSError(22, "Invalid argument")

    path = tmp_path / "data"
    path.write_bytes(bytes(range(256)) * 64)
    monkeypatch.setattr(memory, "_advised", [wanted])
    with path.open("rb") as file:
        arena = Arena.of(Mapped(file.fileno(), 0, access=mmap.ACCESS_READ), 4096, 8192)
    assert asked == [mmap.MADV_HUGEPAGE if wanted else mmap.MADV_NOHUGEPAGE]
    assert bytes(arena.take(3)) == b"\0\1\2"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 8_192_000_000),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, 8_192_000_000),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/b/memory.current": "70", "a/memory.max": "1000",
                       "a/memory.current": "300", "a/memory.stat": "file 9\ninactive_file 100\n"},
         800),
        ("3:cpu,memory:/c\n1:pids:/\n", {"memory/c/memory.limit_in_bytes": "1000",
                                         "memory/c/memory.usage_in_bytes": "1200"}, 0),
    ],
    ids=["no groups", "no limit", "version 2, the group above", "version 1, over its limit"],
)  # fmt: skip
def test_available_memory_knows_its_group(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int
) -> None:
    """What the system has to give, or what is left of the narrowest group if that is less."""
    assert available_bytes(*system(tmp_path, groups, files)) == expected


def test_pages_of_files_can_be_dropped(tmp_path: Path) -> None:
    """What files have in memory is room for what is read from a file itself."""
    stat = "inactive_file 100\nactive_file 150\n"
    files = {"memory.max": "1000", "memory.current": "700", "memory.stat": stat}
    where = system(tmp_path, "0::/\n", files)
    assert (available_bytes(*where), available_bytes(*where, drop_files=True)) == (400, 550)


@pytest.mark.parametrize(
    ("fields", "wanted", "found"),
    [
        ("FilePmdMapped: 4096 kB\n", True, True),
        ("FilePmdMapped: 2048 kB\n", True, False),
        ("FilePmdMapped: 2048 kB\n", False, True),
        ("FilePmdMapped: 0 kB\nShmemPmdMapped: 4096 kB\n", True, True),
        ("Rss: 4096 kB\n", True, True),
    ],
)
def test_pages_of_a_mapped_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, wanted: bool, found: bool
) -> None:
    """The mapping's own entry counts; where large pages are no gain, any will do."""
    data = np.zeros(2 * HUGE_PAGE + 7, np.uint8)
    at, end = data.ctypes.data, data.ctypes.data + len(data)
    other = "Rss: 2048 kB\nFilePmdMapped: 2048 kB\n"
    (tmp_path / "self").mkdir()
    (tmp_path / "self/smaps").write_text(
        f"0-{at:x} r--s 0 08:01 1 /a\n{other}{at:x}-{end:x} r--s 0 08:01 2 /b b\n{fields}"
        f"{end:x}-ffffffffffff r--s 0 08:01 3\n{other}"
    )
    monkeypatch.setattr(memory, "_advised", [wanted])
    assert memory.on_wanted_pages(data, tmp_path) is found
    assert memory.on_wanted_pages(data, tmp_path / "none")


def test_available_memory_of_this_machine() -> None:
    """Here it is some, and no more than is installed."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < available_bytes() <= installed
