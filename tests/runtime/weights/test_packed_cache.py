"""Packed copies: written once, mapped from then on, and never used when they are not right."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint import Engine
from triplepoint.errors import ModelError
from triplepoint.jit.compile import Library
from triplepoint.jit.kernels import panels
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.memory import HUGE_PAGE, Arena
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
    return np.concatenate([m.panels for m in matrices]), kept


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
