"""No acknowledged line is lost: kill -9 at random moments, and full disks."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from triplepoint.errors import TraceError
from triplepoint.traces import Trace, TraceWriter
from triplepoint.traces.events import SealedEvent, ToolEvent

KILLS = 48
MANY_KILLS = 1000
FULL_DISKS = 100

# Forks a writer, lets it run for a moment, kills it; says how many writes had returned by then.
KILLER = """
import os, random, signal, sys, time
from triplepoint.traces import TraceWriter
from triplepoint.traces.events import ToolEvent

LARGE = int(sys.argv[4])
path, kills, chance = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
for k in range(kills):
    seed = chance.random()
    reads, writes = os.pipe()
    if not (child := os.fork()):
        sizes = random.Random(seed)
        writer = TraceWriter(f"{path}.{k}", run="r")
        n = 0
        while True:
            # Now and then a line of megabytes: only a long write can be cut by a kill. Each text
            # is its own, with what a terminal would obey in it, and comes twice: the second time
            # its hash stands for it.
            size = sizes.choice([0, 10, 1000, 4000, 70_000, LARGE])
            text = f"{n // 2}\\x1b]52;c;ZXZpbA==\\x07\\x9b2J\\u2028\\x00" + "x" * size * (n % 8 < 6)
            writer.write(ToolEvent(name="t", arguments={"n": n}, result=text))
            os.write(writes, b".")
            n += 1
    os.close(writes)
    acknowledged = len(os.read(reads, 1))
    time.sleep(chance.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reads, 65536):
        acknowledged += len(more)
    print(acknowledged, flush=True)
"""

# Fills a disk (or runs into a size limit) and goes on when there is room again.
FILLER = """
import os, resource, signal, sys
from triplepoint.errors import TraceError
from triplepoint.traces import TraceWriter
from triplepoint.traces.events import ToolEvent

path, limit, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = TraceWriter(path, run="r")
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
acknowledged = failures = 0
for room in range(3):
    while True:
        try:
            writer.write(ToolEvent(name=f"{acknowledged}", result="x" * size, result_sha256="-"))
        except TraceError as error:
            failures += 1
            assert "File too large" in str(error), error
            break
        acknowledged += 1
    # A little more room, enough for the mark perhaps, but not for the next line.
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit + 60 * (room + 1), resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write(ToolEvent(name="after", result_sha256="-"))
print(acknowledged, failures)
"""


def python(code: str, *args: object) -> str:
    """Run a child and give its output."""
    command = [sys.executable, "-c", code, *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Many disks that fill up: each time a random number of bytes fits, and lines of random lengths.
MANY_FILLS = """
import random, resource, signal, sys
from triplepoint.errors import TraceError
from triplepoint.traces import TraceWriter
from triplepoint.traces.events import ToolEvent

path, disks, chance = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for k in range(disks):
    writer = TraceWriter(f"{path}.{k}", run="r")
    room = chance.randrange(1, 60_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    acknowledged = failures = 0
    while failures < 3:
        text = f"{acknowledged}\\x1b[2J" + "x" * chance.choice([0, 10, 300, 5000])
        try:
            writer.write(ToolEvent(name="t", result=text))
            acknowledged += 1
        except TraceError:
            failures += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.close()
    print(acknowledged)
"""


def raw_control_bytes(data: bytes) -> set[int]:
    """Bytes of a file that a terminal would obey: all but the newline and printable ASCII."""
    return set(data) - {0x0A, *range(0x20, 0x7F)}


def check_and_append(path: Path, acknowledged: int) -> bool:
    """All acknowledged lines are there, one tail at most is torn, the next append is intact."""
    assert raw_control_bytes(path.read_bytes()) == set()
    before = Trace.load(path)
    names = len(before.tools)
    # The kill may fall between a write and its acknowledgement.
    assert acknowledged <= names <= acknowledged + 1
    assert [event.seq for event in before.events] == list(range(names))

    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="after the kill"))

    after = Trace.load(path)
    sealed = [event for event in after.events if isinstance(event, SealedEvent)]
    assert after.torn is None
    assert len(after.tools) == names + 1
    assert len(sealed) == (before.torn is not None)
    return before.torn is not None


@pytest.mark.parametrize(
    ("kills", "large"),
    [(KILLS, 3_000_000), pytest.param(MANY_KILLS, 300_000, marks=pytest.mark.exhaustive)],
)
def test_kill_9_loses_no_acknowledged_line(tmp_path: Path, kills: int, large: int) -> None:
    """Killed at a random moment, a writer leaves every line whose write had returned."""
    seed = random.randrange(1 << 30)
    counts = [int(x) for x in python(KILLER, tmp_path / "t", kills, seed, large).split()]
    assert len(counts) == kills

    torn = [check_and_append(tmp_path / f"t.{k}", count) for k, count in enumerate(counts)]

    print(f"seed {seed}: {kills} kills, {sum(counts)} lines, {sum(torn)} torn tails")


def test_a_hundred_full_disks_lose_no_acknowledged_line(tmp_path: Path) -> None:
    """Wherever the room ends, what was acknowledged reads back, and the next append is intact."""
    seed = random.randrange(1 << 30)
    counts = [int(x) for x in python(MANY_FILLS, tmp_path / "t", FULL_DISKS, seed).split()]
    assert len(counts) == FULL_DISKS

    torn = [check_filled(tmp_path / f"t.{k}", count) for k, count in enumerate(counts)]

    print(f"seed {seed}: {FULL_DISKS} full disks, {sum(counts)} lines, {sum(torn)} torn tails")


def test_a_line_that_lacks_only_its_newline_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the room ends before the newline, the line does not read as one that was written."""
    path, write = tmp_path / "t.jsonl", os.write

    def short(fd: int, data: bytes) -> int:
        if data == b"\n":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:-1])

    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="first"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(TraceError, match="No space left"):
                writer.write(ToolEvent(name="refused"))
        assert [tool.name for tool in Trace.load(path).tools] == ["first"]
        writer.write(ToolEvent(name="after"))

    assert [tool.name for tool in Trace.load(path).tools] == ["first", "after"]


@pytest.mark.parametrize("whole", [0, 2])
def test_a_trace_that_may_be_lost_continues_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """`on_loss` hears of it once; the file has what was written, and is gone if that is nothing."""
    path, lost = tmp_path / "t.jsonl", []
    write, room = os.write, [whole]

    def full(descriptor: int, data: bytes) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    with Trace.to_file(path) as trace, monkeypatch.context() as patch:
        trace.on_loss = lost.append
        patch.setattr(os, "write", full)
        for number in range(4):
            trace.write(ToolEvent(name=str(number)))

    assert [event.seq for event in trace.events] == [0, 1, 2, 3]
    assert [str(error) for error in lost] == [
        f"cannot write the trace {path}: No space left on device"
    ]
    assert trace.path == (path if whole else None)
    assert path.exists() == bool(whole)
    if whole:
        assert [tool.name for tool in Trace.load(path).tools] == ["0", "1"]


@pytest.mark.parametrize("room", [0, 100], ids=["empty", "torn"])
def test_a_file_without_a_line_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """On a full disk a run that was refused leaves nothing; a file that was there stays."""
    write = os.write

    def short(fd: int, data: bytes) -> int:
        if os.fstat(fd).st_size >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:room])

    (tmp_path / "there.jsonl").touch()
    for name in ("new.jsonl", "there.jsonl"):
        with TraceWriter(tmp_path / name) as writer, monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(TraceError, match="No space left"):
                writer.write(ToolEvent(name="refused"))
    assert [path.name for path in tmp_path.iterdir()] == ["there.jsonl"]

    with TraceWriter(tmp_path / "new.jsonl") as writer:  # there is room again before it is closed
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(TraceError, match="No space left"):
                writer.write(ToolEvent(name="refused"))
        writer.write(ToolEvent(name="after"))
    assert [tool.name for tool in Trace.load(tmp_path / "new.jsonl").tools] == ["after"]


def check_filled(path: Path, acknowledged: int) -> bool:
    """As `check_and_append`; the number of a line that was refused is not used again."""
    if not acknowledged:
        assert not path.exists()
        return False
    assert raw_control_bytes(path.read_bytes()) == set()
    before = Trace.load(path)
    assert [t.result.split("\x1b")[0] for t in before.tools] == [*map(str, range(acknowledged))]
    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="after"))
    after = Trace.load(path)
    assert after.torn is None
    assert [t.name for t in after.tools] == ["t"] * acknowledged + ["after"]
    return before.torn is not None


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2000, 2003, 2100, 2200, 40_000, 40_007])
@pytest.mark.parametrize("size", [1, 300])
def test_a_size_limit_loses_no_acknowledged_line(tmp_path: Path, limit: int, size: int) -> None:
    """A write cut short by the limit is an error; with room again, the trace goes on whole."""
    path = tmp_path / "t.jsonl"
    acknowledged, failures = map(int, python(FILLER, path, limit, size).split())
    assert failures == 3

    trace = Trace.load(path)

    names = [tool.name for tool in trace.tools]
    assert names == [*map(str, range(acknowledged)), "after"]
    assert trace.torn is None
    sealed = [event for event in trace.events if isinstance(event, SealedEvent)]
    assert len(sealed) <= failures


def test_a_full_disk_loses_no_acknowledged_line(tmp_path: Path) -> None:
    """On a file system that fills up, the same; the error names the file and the reason."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        path = disk / "t.jsonl"
        acknowledged = 0
        with TraceWriter(path) as writer:
            while True:
                try:
                    writer.write(ToolEvent(name=f"{acknowledged}", result="x" * 3000))
                except TraceError as error:
                    assert "t.jsonl: No space left on device" in str(error)  # noqa: PT017
                    break
                acknowledged += 1
            full = Trace.load(path)
            assert [tool.name for tool in full.tools] == [*map(str, range(acknowledged))]
            subprocess.run(["mount", "-o", "remount,size=512k", str(disk)], check=True)
            writer.write(ToolEvent(name="after"))

        trace = Trace.load(path)
        assert [tool.name for tool in trace.tools] == [*map(str, range(acknowledged)), "after"]
        sealed = [event for event in trace.events if isinstance(event, SealedEvent)]
        assert len(sealed) == (full.torn is not None)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_every_cut_of_a_file_reads_and_goes_on(tmp_path: Path) -> None:
    """Cut at any byte, a trace reads up to the cut and takes the next event."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        for i in range(3):
            writer.write(ToolEvent(name=f"{i}", arguments={"a": {"b": [1]}}))
    data = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == 0x0A]

    for cut in range(ends[0], len(data)):
        with path.open("r+b") as file:
            file.truncate(0)
            file.write(data[:cut])
        whole = sum(end <= cut + 1 for end in ends)  # a newline alone may be missing

        assert len(Trace.load(path).tools) == whole
        with TraceWriter(path) as writer:
            writer.write(ToolEvent(name="next"))
        assert [tool.name for tool in Trace.load(path).tools] == [*map(str, range(whole)), "next"]


def test_acknowledged_means_on_the_file(tmp_path: Path) -> None:
    """Another process sees the line as soon as `write` returns: nothing waits in a buffer."""
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        writer.write(ToolEvent(name="t"))
        seen = subprocess.run(["cat", tmp_path / "t.jsonl"], capture_output=True, check=True).stdout

        assert json.loads(seen)["name"] == "t"
        assert os.path.getsize(tmp_path / "t.jsonl") == len(seen)
