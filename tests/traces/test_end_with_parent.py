"""Processes of a pool whose parent is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

POOLS = {
    "ProcessPoolExecutor": "ProcessPoolExecutor(2, spawn, initializer=end_with_parent)",
    "Pool": "spawn.Pool(2, end_with_parent)",
}
PROGRAM = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from triplepoint.traces.end_with_parent import end_with_parent

def pid(_):
    time.sleep(0.2)
    return os.getpid()

if __name__ == "__main__":
    spawn = get_context("spawn")
    with POOL as pool:
        print(*set(pool.map(pid, range(8), chunksize=1)), flush=True)
        time.sleep(60)
"""


def runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", POOLS)
def test_a_killed_parent_leaves_none(kind: str, tmp_path: Path) -> None:
    """They end soon after kill -9 of what started them, also while they wait for work."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("POOL", POOLS[kind]))
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(word) for word in parent.stdout.readline().split()]
        assert children
        parent.kill()
    until = time.monotonic() + 20
    while left := [one for one in children if runs(one)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
