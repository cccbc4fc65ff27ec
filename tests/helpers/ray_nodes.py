"""A Ray cluster of several nodes on one machine, with token authentication, for tests.

Each node is a raylet of its own, as `ray start` makes it. All its processes carry a mark in their
environment: by it they are found, killed, and known to be gone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_MARK = "TRIPLEPOINT_TEST_CLUSTER"


class Cluster:
    """A head without cores, and nodes.

    Attributes:
        env: of drivers.
        nodes: processes of each node, the head's first.
    """

    def __init__(self, folder: Path, cores: int, nodes: int) -> None:
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._folder = folder
        self.env = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.nodes: list[set[int]] = []
        self._seen: set[int] = set()
        head = ("--head", "--port", self.address.rpartition(":")[2], "--num-cpus", "0")
        folder.mkdir()
        self._start(*head, "--temp-dir", str(folder), "--include-dashboard", "false")
        for _ in range(nodes):
            self._start("--address", self.address, "--num-cpus", str(cores))

    def _start(self, *arguments: str) -> None:
        name, _, value = self._mark.partition("=")
        before = self.processes()
        common = ("--memory", "3000000000", "--object-store-memory", "100000000")
        ports = ("--min-worker-port", "0", "--max-worker-port", "0")
        with (self._folder.parent / "ray.log").open("a") as log:
            call = [sys.executable, "-m", "ray.scripts.scripts", "start", *arguments, *common]
            subprocess.run(
                [*call, *ports, "--disable-usage-stats", "--node-ip-address", "127.0.0.1"],
                env=self.env | {name: value},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
                timeout=120,
            )
        self.nodes.append(self.processes() - before)

    def processes(self) -> set[int]:
        """All that belong to it."""
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.add(int(path.name))
        # Some write their title over their environment: they are children of others, at first.
        self._seen |= found | _children(found)
        return found | {pid for pid in self._seen if _is_ray(pid)}

    def actors(self, name: bytes = b"EngineActor") -> list[int]:
        """Processes of actors, in order of their age."""
        found = []
        for pid in sorted(self.processes()):
            with contextlib.suppress(OSError):
                if name in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def lose_node(self, number: int) -> None:
        """Kill a node with all that runs on it."""
        _kill(self.nodes[number] | _children(self.nodes[number]))

    def close(self) -> None:
        """End all of it; an AssertionError where something is left."""
        until = time.monotonic() + 20
        while left := self.processes():
            assert time.monotonic() < until, f"Ray processes are left: {left}"
            _kill(left)
            time.sleep(0.1)


def _children(parents: set[int]) -> set[int]:
    """Processes below these."""
    parent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parent[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {pid for pid, up in parent.items() if up in parents | found} - found:
        found |= more
    return found


def _is_ray(pid: int) -> bool:
    """Whether it runs, and is one of Ray's; a zombie has no command line."""
    try:
        return b"ray" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def ray_cluster(folder: Path, cores: int = 1, nodes: int = 2) -> Iterator[Cluster]:
    """A running cluster; nothing of it is left behind."""
    cluster = Cluster.__new__(Cluster)
    try:
        cluster.__init__(folder, cores, nodes)
        yield cluster
    finally:
        cluster.close()
