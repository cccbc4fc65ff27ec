"""What control groups allow: the least of a group and of all above it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.groups import system

from triplepoint.runtime.cgroups import cpu_quota
from triplepoint.runtime.memory import installed_bytes
from triplepoint.runtime.physics import machine


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, None),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, 1.5),
        ("0::/a\n", {"a/cpu.max": "400000 100000\n", "cpu.max": "200000 100000\n"}, 2.0),
        ("4:cpu,cpuacct:/c\n1:memory:/\n", {"cpu/c/cpu.cfs_quota_us": "50000\n",
                                            "cpu/c/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("4:cpu:/c\n", {"cpu/c/cpu.cfs_quota_us": "-1\n", "cpu/c/cpu.cfs_period_us": "100000"},
         None),
        ("0::/a\n", {"a/cpu.max": "nonsense"}, None),
    ],
)  # fmt: skip
def test_a_quota(
    tmp_path: Path, groups: str, files: dict[str, str], expected: float | None
) -> None:
    """In cores; none where there is no limit, or what stands there is none."""
    assert cpu_quota(*system(tmp_path, groups, files)) == expected


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (2.0, 2), (1.5, 2), (0.1, 1), (64.0, 8)])
def test_as_many_threads_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, cores: int
) -> None:
    """A container with two cores' time on a machine of eight gets two threads."""
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)

    assert machine.usable_cores() == cores
    assert machine.physical_cores() <= cores


def test_a_containers_memory(tmp_path: Path) -> None:
    """What is installed, or the limit of the container."""
    free = system(tmp_path / "free", "", {})
    held = system(tmp_path / "held", "0::/a\n", {"a/memory.max": "4096000"})

    assert installed_bytes(*free) > 1 << 28
    assert installed_bytes(*held) == 4_096_000


def test_address_space_is_limited(tmp_path: Path) -> None:
    """What `ulimit -v` leaves counts as available, and what needs more is refused by name."""
    code = """
import resource
from triplepoint.runtime import memory
from triplepoint.runtime.cgroups import address_space_left, require_address_space
assert address_space_left() is None
resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, resource.RLIM_INFINITY))
left = address_space_left()
assert 1_000_000_000 < left < 2_000_000_000, left
assert memory.available_bytes() <= left
require_address_space(left // 2, "m")
require_address_space(2_000_000_000, "big.gguf")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "ModelError: big.gguf needs about 2,000 MB of address space" in done.stderr
