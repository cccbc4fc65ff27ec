"""Packed copies: written once, mapped from then on, and never used when they are not right."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from types import FrameType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.own_cache import own_cache

from triplepoint import Engine
from triplepoint.errors import ModelError
from triplepoint.jit.compile import Library
from triplepoint.jit.kernels import head_bound, panels
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.cgroups import folders
from triplepoint.runtime.config import PACKED
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.memory import HUGE_PAGE, Arena
from triplepoint.runtime.synthetic.write import synthetic_path
from triplepoint.runtime.weights import loader, packed_cache, packed_file, packing
from triplepoint.runtime.weights.loader import WeightLoader
from triplepoint.runtime.weights.packed_cache import CacheStatus, copies, pack_or_map
from triplepoint.runtime.weights.packed_file import RefusedCopyError

MakeModel = Callable[[str], Path]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    tiny.write_tiny(path, "q8_0")
    return path


def load(model: Path, pool: Pool, folder: Path) -> tuple[np.ndarray, CacheStatus]:
    """The packed bytes of two of the model's matrices, and what became of the copy."""
    weights = WeightLoader(open_gguf(model), Library(detect()))
    matrices = [
        weights.matrix("blk.0.attn_q.weight", 192, 96),
        weights.gate_up("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", 160, 96),
    ]
    _, kept = pack_or_map(weights, pool, None, folder)
    assert kept is not None
    return np.concatenate([m.panels for m in matrices]), kept


def load_unasked(model: Path, pool: Pool, folder: Path) -> tuple[np.ndarray, CacheStatus | None]:
    """The packed bytes where nobody says whether a copy is to be kept, and what became of it."""
    weights = WeightLoader(open_gguf(model), Library(detect()))
    matrix = weights.matrix("blk.0.attn_q.weight", 192, 96)
    _, kept = pack_or_map(weights, pool, None, folder, keep=None)
    return matrix.panels, kept


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """As on a disk with room and large pages, for weights of any size: what is left to write."""
    todo: list[Callable[[], None]] = []
    monkeypatch.setattr(
        packed_cache, "IdleWriter", lambda write: todo.append(lambda: write(lambda _: None))
    )
    monkeypatch.setattr(packed_cache, "SMALL", 0)
    monkeypatch.setattr(packed_cache, "on_wanted_pages", lambda _: True)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(packed_cache.shutil, "disk_usage", lambda _: usage(10**11, 0, 5 * 10**10))
    return todo


def test_written_then_mapped(model: Path, pool: Pool, tmp_path: Path) -> None:
    """The second load finds what the first one packed; nothing else is left in the folder."""
    folder = tmp_path / "packed"
    packed, first = load(model, pool, folder)
    mapped, second = load(model, pool, folder)

    assert np.array_equal(packed, mapped)
    assert (first.mapped, first.refused, second.mapped, second.refused) == (False, None, True, None)
    assert second.copy == first.copy
    assert copies(folder) == [first.copy]
    assert first.copy.nbytes == first.copy.path.stat().st_size
    assert first.copy.model == str(model.resolve())
    assert first.copy.layout.startswith(f"{detect().lanes} lanes")
    first.copy.check()
    assert [p.name for p in folder.iterdir()] == [first.copy.path.name]
    first.copy.remove()
    assert copies(folder) == []


def test_through_the_engine(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine gives the same logits from a copy, which it maps shared and read-only."""
    monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
    found: list[np.ndarray] = []
    for keep, mapped in ((False, None), (True, False), (True, True)):
        heard: list[float] = []
        with Engine.load(
            model, threads=1, context=64, cache_packed_weights=keep, progress=heard.append
        ) as engine:
            assert (
                engine.loaded.packed_cache.mapped if engine.loaded.packed_cache else None
            ) is mapped
            session = engine.session()
            session.prefill([1, 2, 3, 4, 5])
            found.append(session.logits.copy())
            assert heard[-1] == 1.0
            assert heard == sorted(heard)
            if mapped and sys.platform.startswith("linux"):
                assert engine.loaded.packed_cache is not None
                lines = Path("/proc/self/maps").read_text().splitlines()
                (line,) = [
                    x for x in lines if x.endswith(engine.loaded.packed_cache.copy.path.name)
                ]
                assert line.split()[1] == "r--s"

    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


# --- copies that nobody asked for


def test_kept_unasked(
    model: Path, pool: Pool, tmp_path: Path, unasked: list[Callable[[], None]]
) -> None:
    """The first load leaves the writing for later; the next one maps what was written."""
    folder = tmp_path / "packed"
    packed, first = load_unasked(model, pool, folder)
    assert first is not None
    assert not first.mapped
    assert not first.copy.path.exists()
    (write,) = unasked
    write()
    mapped, second = load_unasked(model, pool, folder)
    assert second is not None
    assert second.mapped
    assert len(unasked) == 1
    assert second.copy.path == first.copy.path
    assert np.array_equal(packed, mapped)

    _cut(first.copy.path)
    _, third = load_unasked(model, pool, folder)
    assert third is not None
    assert third.refused is not None
    unasked[-1]()
    third.copy.check()


def test_small_weights_are_not_kept(model: Path, pool: Pool, tmp_path: Path) -> None:
    """Nothing is written or looked for: packing them again takes no time."""
    assert load_unasked(model, pool, tmp_path / "packed")[1] is None
    assert not (tmp_path / "packed").exists()


def test_small_pages_are_not_used(
    model: Path,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unasked: list[Callable[[], None]],
) -> None:
    """Decode from them is slower: no copy is written, and one that is there is not used.

    Who asks for it maps it all the same.
    """
    folder = tmp_path / "packed"
    with monkeypatch.context() as patched:
        patched.setattr(packed_cache, "on_wanted_pages", lambda _: False)
        load_unasked(model, pool, folder)
        unasked.pop()()
    assert [*folder.iterdir()] == []

    packed, _ = load_unasked(model, pool, folder)
    unasked.pop()()
    monkeypatch.setattr(packed_cache, "on_wanted_pages", lambda _: False)
    again, kept = load_unasked(model, pool, folder)
    assert kept is None
    assert unasked == []
    assert np.array_equal(packed, again)
    load(model, pool, folder)
    assert load(model, pool, folder)[1].mapped


@pytest.mark.parametrize("free", [5 * 10**8, 9 * 10**9])
def test_a_full_disk_is_left_alone(
    model: Path,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unasked: list[Callable[[], None]],
    free: int,
) -> None:
    """A tenth of the disk, and 4 GiB, stay free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(packed_cache.shutil, "disk_usage", lambda _: usage(10**11, 0, free))
    load_unasked(model, pool, tmp_path)
    unasked.pop()()
    assert copies(tmp_path) == []


def test_copies_that_are_unused_go_first(
    model: Path,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unasked: list[Callable[[], None]],
) -> None:
    """All copies together are bounded; being mapped counts as use, and leaves the file as it is."""
    folder, kept = tmp_path / "packed", dict[str, Path]()
    for n, name in enumerate("abc"):
        path = tmp_path / f"{name}.gguf"
        tiny.write_tiny(path, "q8_0", n + 2)
        _, status = load_unasked(path, pool, folder)
        unasked.pop()()
        assert status is not None
        kept[name] = status.copy.path
        os.utime(kept[name], (1000 + n, kept[name].stat().st_mtime))
    written = kept["a"].stat().st_mtime_ns
    load_unasked(tmp_path / "a.gguf", pool, folder)
    assert kept["a"].stat().st_mtime_ns == written
    monkeypatch.setattr(packed_cache, "MAX_BYTES", 3 * kept["a"].stat().st_size)
    load_unasked(model, pool, folder)
    unasked.pop()()
    assert not kept["b"].exists()
    assert kept["a"].exists()
    assert kept["c"].exists()
    assert len(copies(folder)) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="no flock")
def test_one_process_writes(
    model: Path, pool: Pool, tmp_path: Path, unasked: list[Callable[[], None]]
) -> None:
    """Of two that pack the same at once one writes it, and none what is there."""
    load_unasked(model, pool, tmp_path)
    load_unasked(model, pool, tmp_path)
    with packed_cache._only_one(tmp_path) as alone:
        assert alone
        unasked[0]()
    assert copies(tmp_path) == []
    unasked[0]()
    (copy,) = copies(tmp_path)
    inode = copy.path.stat().st_ino
    unasked[1]()
    assert copy.path.stat().st_ino == inode


def test_more_than_memory(
    model: Path,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Weights that memory has no room for are packed into the file, whatever their size; a line
    says why each token is slow.
    """
    packed, _ = load_unasked(model, pool, tmp_path)
    monkeypatch.setattr(packed_cache, "available_bytes", lambda **_: 1000)
    for _ in range(2):
        mapped, kept = load_unasked(model, pool, tmp_path)
        assert kept is not None
        assert kept.mapped
        kept.copy.check()
        assert np.array_equal(packed, mapped)
    assert [path.name for path in tmp_path.glob(".*")] == []
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].endswith(
        "that this process may use (0.0 GB), so each token reads from the disk"
    )


# --- copies that are not right


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _older(path: Path) -> None:
    """A sound header of another version."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data, 8)
    header = json.loads(data[16 : 16 + length])
    header["version"] += 1
    text = json.dumps(header).encode()
    head = packed_file.MAGIC + struct.pack("<Q", len(text)) + text
    head += packed_file.hashlib.sha256(head).digest()
    path.write_bytes(head + data[len(head) :])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "magic": (lambda path: _flip(path, 3), "does not start like a packed copy"),
    "length": (lambda path: _flip(path, 15), "a header of"),
    "header": (lambda path: _flip(path, 200), "header was changed"),
    "first byte": (lambda path: _flip(path, 2 << 20), "bytes 0 to"),
    "last byte": (lambda path: _flip(path, -1), "were changed"),
    "cut": (_cut, "bytes, not"),
    "empty": (lambda path: path.write_bytes(b""), "does not start like a packed copy"),
    "version": (_older, f"has version {packed_file.VERSION + 1}"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage(model: Path, pool: Pool, tmp_path: Path, what: str) -> None:
    """A damaged copy is named with what is wrong, packed anew, and sound the next time."""
    damage, message = DAMAGE[what]
    packed, first = load(model, pool, tmp_path)
    damage(first.copy.path)
    again, second = load(model, pool, tmp_path)
    _, third = load(model, pool, tmp_path)

    assert not second.mapped
    assert second.refused is not None
    assert str(first.copy.path) in second.refused
    assert message in second.refused
    assert np.array_equal(packed, again)
    assert third.mapped


def test_foreign_copy(model: Path, pool: Pool, tmp_path: Path) -> None:
    """A sound copy of another model under this one's name is refused."""
    folder, other = tmp_path / "packed", tmp_path / "other.gguf"
    tiny.write_tiny(other, "q8_0", 2)
    packed, first = load(model, pool, folder)
    _, theirs = load(other, pool, folder)
    theirs.copy.path.replace(first.copy.path)
    again, second = load(model, pool, folder)

    assert second.refused is not None
    assert "is for something else (parts)" in second.refused
    assert np.array_equal(packed, again)


def test_changed_model(model: Path, pool: Pool, tmp_path: Path) -> None:
    """A model that was written to is packed anew, and the copy of what it was is removed."""
    folder = tmp_path / "packed"
    packed, first = load(model, pool, folder)
    tiny.write_tiny(model, "q8_0", 2)
    os.utime(model, ns=(0, time.time_ns() + 1_000_000))
    again, second = load(model, pool, folder)

    assert not second.mapped
    assert second.refused is None
    assert not np.array_equal(packed, again)
    assert not first.copy.path.exists()
    assert copies(folder) == [second.copy]


def test_any_packing_code_counts() -> None:
    """Every module that lays bytes into panels is in the hash, so that no change is missed.

    That of IQ1 and IQ2 was not: after a change there, copies that it had packed stayed in use.
    """
    kernels, used = f"{panels.__name__.rpartition('.')[0]}.", set[str]()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := frame.f_globals["__name__"]).startswith(kernels):
            used.add(name)

    sys.setprofile(called)
    try:
        for fmt in panels.FORMATS:
            panels.pack.build(detect(), fmt=fmt)
        head_bound.pack_copy.build(detect())
    finally:
        sys.setprofile(None)

    assert used == {module.__name__ for module in packed_cache.PACKING}


def test_another_loader_packs_anew(
    model: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says which bytes are packed where counts as the kernels do."""
    _, first = load(model, pool, tmp_path)
    changed = tmp_path / "loader.py"
    changed.write_bytes(Path(loader.__file__).read_bytes() + b"\n")
    monkeypatch.setattr(packed_cache, "CALLERS", (Mock(__file__=str(changed)), packing))
    packed_cache._code.cache_clear()
    try:
        _, second = load(model, pool, tmp_path)
    finally:
        packed_cache._code.cache_clear()

    assert not second.mapped
    assert second.copy.path != first.copy.path


def test_many_pieces(
    model: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large copy the ends and a few pieces are checked; `check` finds a byte anywhere."""
    monkeypatch.setattr(packed_file, "PIECE", 64)
    monkeypatch.setattr(packed_file, "WHOLE", 8)
    _, first = load(model, pool, tmp_path)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or pread(fd, n, at))
    assert load(model, pool, tmp_path)[1].mapped
    assert read.count(64) <= packed_file.SAMPLED + 2
    monkeypatch.undo()
    monkeypatch.setattr(packed_file, "PIECE", 64)

    _flip(first.copy.path, (first.copy.nbytes + (2 << 20)) // 2)
    with pytest.raises(RefusedCopyError, match=r"damaged: bytes [\d,]+ to"):
        first.copy.check()
    assert copies(tmp_path) == [first.copy]


def test_written_by_large_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 2 MiB of the data are one write from a multiple of 2 MiB on: one page of the cache."""
    arena = Arena(5 << 20)
    arena.take(5 << 20)[:] = 7
    writes: list[tuple[int, int]] = []

    class Noted(io.FileIO):
        def write(self, data: Any) -> int:
            writes.append((self.tell(), len(data)))
            return super().write(data)

    monkeypatch.setattr(os, "fdopen", lambda fd, mode, **_: Noted(fd, mode))
    packed_file.write_file(tmp_path / "a.packed", {"nbytes": 5 << 20}, "model", arena, None)
    monkeypatch.undo()
    *data, head = writes
    assert [at % HUGE_PAGE for at, _ in data] == [0, 0, 0]
    assert [size for _, size in data] == [HUGE_PAGE, HUGE_PAGE, 1 << 20]
    assert head[0] == 0
    mapped = packed_file.map_file(tmp_path / "a.packed", {"nbytes": 5 << 20})
    assert (mapped.take(5 << 20) == 7).all()


# --- several processes at once


def test_a_copy_that_is_removed_at_once(
    model: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who packs the same at the same time removes what is there: the weights are used all the same.

    Loading ended with a FileNotFoundError.
    """
    folder = tmp_path / "packed"
    monkeypatch.setattr(packed_cache, "_remove_superseded", lambda _, path, *__: path.unlink())
    packed, first = load(model, pool, folder)
    monkeypatch.undo()

    assert not first.mapped
    assert not first.copy.path.exists()
    assert first.copy.nbytes > 0
    assert np.array_equal(packed, load(model, pool, folder)[0])


def test_an_unfinished_file_that_goes_meanwhile(model: Path, pool: Pool, tmp_path: Path) -> None:
    """Another process's file may be renamed between the look at the folder and at the file."""
    folder = tmp_path / "packed"
    folder.mkdir()
    (folder / ".other.1.partial").symlink_to(folder / "gone")  # listed, and not there

    assert load(model, pool, folder)[1].copy.path.exists()


SHOWS = """
import re, sys, time
from pathlib import Path

from triplepoint import Engine

with Engine.load(sys.argv[1], threads=1, context=64, cache_packed_weights=True) as engine:
    session = engine.session()
    session.prefill([1, 2, 3])
    name = engine.loaded.packed_cache.copy.path.name
    engine.loaded.weights.bytes[::4096].max()
    print("ready", flush=True)
    input()
    found = Path("/proc/self/smaps").read_text().partition(name)[2]
    print(*re.findall(r"^(?:Rss|Pss|Private_Dirty): +(\\d+) kB$", found, re.M)[:3])
    print("read", flush=True)
    input()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_two_processes_have_it_once(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together the shares of two processes in a copy's memory are one copy, and none is private."""
    cache = own_cache(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    Engine.load(model, threads=1, cache_packed_weights=True).close()
    assert len([*(cache / "packed").iterdir()]) == 1
    command = [sys.executable, "-c", SHOWS, str(model)]
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            for _ in range(2)
        ]
        found: list[list[int]] = []
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in both:
            assert one.stdout is not None
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
            found.append([int(n) for n in one.stdout.readline().split()])
            assert one.stdout.readline() == "read\n"
        for one in both:
            one.communicate("\n", timeout=60)
    (resident, shared, _), (also, other, _) = found
    assert resident == also
    assert resident > 0
    assert abs(shared + other - resident) <= 1  # kB: each is rounded down
    assert [dirty for *_, dirty in found] == [0, 0]


# --- more than memory


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory group of its own, in that of this process."""
    for version, above in folders("memory"):
        limit = {1: "memory.limit_in_bytes", 2: "memory.max"}[version]
        group = above / f"triplepoint-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"no memory group can be made in {above}: {error.strerror}")
        try:
            if not (group / limit).exists():
                pytest.skip(f"{above} gives its groups no memory limit")
            (group / limit).write_text(str(LIMIT))
            yield group
        finally:
            group.rmdir()
        return
    pytest.skip("there are no memory groups here")


LIMIT = 360_000_000  # bytes; Python and the libraries alone take 150 to 200 million
IN_GROUP = """
import os, sys
from pathlib import Path

Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
from triplepoint import Engine

with Engine.load(sys.argv[2], threads=1, context=64) as engine:
    session = engine.session()
    session.prefill([1, 2, 3])
    print(list(session.decode(max_tokens=2)))
"""


@pytest.mark.slow
def test_more_than_the_memory_of_a_group(tmp_path: Path, group: Path) -> None:
    """A model larger than its container's memory runs, and one line says why it is slow.

    The system ended such a process. The tokens are those of a process without a limit.
    """
    path = synthetic_path("synthetic:qwen3-4b:q4_0:layers=6", tmp_path)
    with Engine.load(path, threads=1, context=64) as engine:
        assert engine.loaded.weights.nbytes > LIMIT
        session = engine.session()
        session.prefill([1, 2, 3])
        expected = f"{list(session.decode(max_tokens=2))}\n"
    command = [sys.executable, "-c", IN_GROUP, str(group), str(path)]
    environ = {k: v for k, v in os.environ.items() if k != PACKED}
    environ |= {"XDG_CACHE_HOME": str(own_cache(tmp_path).parent)}
    runs = [
        subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
        for _ in range(2)
    ]
    for ran in runs:
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr.count("exceed the memory that this process may use") == 1
        assert ran.stdout == expected


# --- what cannot be written


def test_no_room(model: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is said before anything is packed, with both sizes."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(packed_cache.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 12345))
    monkeypatch.setattr(WeightLoader, "pack_all", lambda *_: pytest.fail("packed"))
    with pytest.raises(ModelError, match=r"needs \d\.\d MB, .* has \d\.\d MB free"):
        load(model, pool, tmp_path / "packed")


def test_folder_that_cannot_be_written(model: Path, pool: Pool, tmp_path: Path) -> None:
    """A folder that is a file is an error that names the copy and says what to do."""
    (tmp_path / "packed").touch()
    with pytest.raises(ModelError, match=r"cannot keep the packed copy .*load without keeping it"):
        load(model, pool, tmp_path / "packed")


def test_interrupted(
    model: Path, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a copy is written leaves nothing; what a kill left goes when it is old."""
    folder = tmp_path / "packed"

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            load(model, pool, folder)
    assert list(folder.iterdir()) == []
    old, new = folder / ".a.1.partial", folder / ".b.2.partial"
    for partial in (old, new):
        partial.touch()
    os.utime(old, (0, time.time() - 2 * packed_cache.STALE_S))
    _, kept = load(model, pool, folder)
    assert sorted(folder.iterdir()) == sorted([new, kept.copy.path])
