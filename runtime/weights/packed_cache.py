"""A cache on disk of packed weights: the next load maps them and packs nothing.

One file (`packed_file.py`) is what `WeightLoader.pack_all` makes of one model for one layout of
panels. It says of which model it is, which code packed it and into which layout, and is used only
if all of that is as it must be. Copies are mapped read-only and shared: processes that use the same
one have it in memory once.

Unless a caller says otherwise, a copy is kept where that costs nothing that matters: of weights
that take long enough to pack, written while nothing else runs, on a disk that has room, and by a
file system that has it in memory on large pages (decode from small ones is slower). Weights that
memory has no room for are packed into the file itself, and read from it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...arguments import open_regular, user_folder
from ...errors import ModelError
from ...jit.compile import source_hash
from ...jit.kernels import grids, grids8, head_bound, mathlib, panels, panels_k, panels_small
from ...jit.pool import Pool
from ..files import make_folder
from ..gguf.file import GGUFFile
from ..memory import HUGE_PAGE, Arena, available_bytes, on_wanted_pages
from . import loader, packing
from .idle_writer import IdleWriter
from .loader import WeightLoader
from .packed_file import (
    Progress,
    RefusedCopyError,
    cannot,
    check_pieces,
    map_file,
    pack_into_file,
    read_header,
    write_file,
)

STALE_S = 3600.0  # an unfinished file that nobody wrote to for so long was left by a killed process
SAMPLE = 512  # bytes of each tensor
SMALL = 256 << 20  # bytes of packed weights that are packed in 0.2 s, and so not kept unasked
MAX_BYTES = 32 << 30  # of all copies, when one is kept unasked
FREE_BYTES, FREE_SHARE = 4 << 30, 0.1  # of the disk, that it leaves free at least
UNUSED = getattr(os, "O_NOATIME", 0)  # a look at what a copy is does not count as use
SLOW = (
    "the model's weights (%.1f GB) exceed the memory that this process may use (%.1f GB), so each "
    "token reads from the disk"
)
log = logging.getLogger("triplepoint.machine")
SUFFIX = ".packed"
# What the kernels that pack are made by.
PACKING = (panels, panels_k, panels_small, grids, grids8, head_bound, mathlib)
CALLERS = (loader, packing)  # and these say what is packed where


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a packed copy: the model, the layout and the code that it is made from.

    Attributes:
        parts: for each file of the model its size, its time of change in ns, and the hash of
            samples of it; then the hash of samples of each tensor.
        layout: how panels are laid out for a CPU target: lanes, and how bytes are stored.
        packing: hash of the code that packs.
        contents: hash of the list of matrices, with their places and sizes.
        nbytes: size of the data.
    """

    parts: list[list[Any]]
    layout: str
    packing: str
    contents: str
    nbytes: int

    @classmethod
    def of(cls, weights: WeightLoader) -> Identity:
        """Return the identity of the requested `weights`."""
        target, gguf = weights.library.target, weights.gguf
        matrices = [
            [m.sources, m.format.name, m.rows, m.depth, m.units, m.fused, m.experts,
             *([m.before, m.whole] if m.whole else [])]
            for m in weights.wanted
        ]  # fmt: skip
        return cls(
            [
                *([f.status.st_size, f.status.st_mtime_ns, f.sampled()] for f in gguf.files),
                [_sampled_tensors(gguf)],
            ],
            f"{target.lanes} lanes, {'signed' if target.signed_bytes else 'unsigned'} bytes",
            _code(),
            hashlib.sha256(json.dumps(matrices).encode()).hexdigest(),
            weights.arena_bytes,
        )

    def file_name(self, model: Path) -> str:
        """Return the copy's file name: the same for the same model and layout."""
        digest = hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()
        return f"{model.stem[:80]}-{digest[:16]}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class PackedCopy:
    """A packed copy on disk.

    Attributes:
        path, nbytes: where it is, and its size.
        model: path of the model that it was made from.
        layout: which CPU targets can use it.
    """

    path: Path
    nbytes: int
    model: str
    layout: str

    def check(self) -> None:
        """Read the whole copy; raise RefusedCopyError if a byte differs from what was written."""
        with open_regular(self.path) as file:
            header = read_header(file.fileno(), self.path)
            check_pieces(file.fileno(), self.path, header, range(len(header["crc"])))

    def remove(self) -> None:
        """Delete the copy from disk; processes that have it mapped keep it until they end."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class CacheStatus:
    """The result of `pack_or_map`.

    Attributes:
        copy: the copy on disk, or that will be; mapped: whether the weights are mapped from it.
        refused: why one that was there could not be used, if so.
    """

    copy: PackedCopy
    mapped: bool
    refused: str | None = None


def pack_or_map(
    weights: WeightLoader,
    pool: Pool,
    progress: Progress | None = None,
    folder: Path | None = None,
    *,
    keep: bool | None = True,
) -> tuple[Arena, CacheStatus | None]:
    """Map the weights from their packed copy; pack them and write one if none is usable.

    keep: None: only where that costs nothing that matters, and later; False: neither.

    Raises:
        ModelError: a copy that is needed cannot be written, for lack of room or otherwise.
    """
    nbytes, available = weights.arena_bytes, available_bytes(drop_files=True)
    exceeds = nbytes > available
    if keep is False or (keep is None and nbytes < SMALL and not exceeds):
        return weights.pack_all(pool, progress), None
    folder = folder or default_folder()
    identity, model = Identity.of(weights), weights.gguf.path
    weights.gguf.check_unchanged()
    path, fields, name = folder / identity.file_name(model), asdict(identity), str(model.resolve())
    arena, refused = _mapped(path, fields)
    if exceeds:
        log.warning(SLOW, nbytes / 1e9, available / 1e9)
    if exceeds and arena is None:
        _make_room(folder, nbytes, path, "make room there, or run a smaller model")
        pack_into_file(path, fields, name, lambda file: weights.pack_all(pool, progress, file))
        _remove_superseded(folder, path, identity, model)
        arena = map_file(path, fields)
    if arena is not None:
        weights.place(arena)
        if not (keep or exceeds or on_wanted_pages(arena.bytes)):
            return weights.pack_all(pool, progress), None
        if progress:
            progress(1.0)
        _note_use(path)
        return arena, CacheStatus(_described(path, model, identity), True, refused)

    def write(arena: Arena, progress: Progress | None) -> None:
        write_file(path, fields, name, arena, progress)
        _remove_superseded(folder, path, identity, model)

    if keep:
        _make_room(folder, nbytes, path)
        arena = weights.pack_all(pool, (lambda n: progress(n / 2)) if progress else None)
        write(arena, (lambda n: progress(0.5 + n / 2)) if progress else None)
    else:
        arena = weights.pack_all(pool, progress)
        if refused:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        later = functools.partial(write, arena)
        IdleWriter(lambda progress: write_alone(folder, path, nbytes, lambda: later(progress)))
    return arena, CacheStatus(_described(path, model, identity), False, refused)


def _mapped(path: Path, identity: dict[str, Any]) -> tuple[Arena | None, str | None]:
    """Map the copy at `path`; return None if there is none, and why if it was refused."""
    try:
        return map_file(path, identity), None
    except FileNotFoundError:
        return None, None
    except RefusedCopyError as error:
        return None, str(error)
    except OSError as error:
        return None, f"cannot read the packed copy {path}: {error.strerror}"


def copies(folder: Path | None = None) -> list[PackedCopy]:
    """List the packed copies in a folder, sorted by file name, damaged ones included."""
    found = []
    for path in sorted((folder or default_folder()).glob(f"*{SUFFIX}")):
        model = layout = "?"
        with contextlib.suppress(OSError, RefusedCopyError), open_regular(path, UNUSED) as file:
            header = read_header(file.fileno(), path)
            model, layout = str(header["model"]), str(header["identity"]["layout"])
        with contextlib.suppress(OSError):
            found.append(PackedCopy(path, path.stat().st_size, model, layout))
    return found


def default_folder() -> Path:
    """Return the default folder of packed copies."""
    return user_folder("cache") / "packed"


# --- which model, which code


@functools.cache
def _code() -> str:
    digest = hashlib.sha256(source_hash(*PACKING).encode())
    for module in CALLERS:
        digest.update(Path(module.__file__ or "").read_bytes())
    return digest.hexdigest()


def _sampled_tensors(gguf: GGUFFile) -> str:
    """Return the SHA-256 of bytes from the middle of every tensor: editors change whole tensors,
    and archives may set one time for all."""
    digest = hashlib.sha256()
    for name in gguf.tensors:
        data = gguf.data(name)
        digest.update(data[len(data) // 2 :][:SAMPLE].tobytes())
    return digest.hexdigest()


def _described(path: Path, model: Path, identity: Identity) -> PackedCopy:
    # Another process that packs the same may have removed it, and will put its own there.
    nbytes = _size(path) or identity.nbytes
    return PackedCopy(path, nbytes, str(model.resolve()), identity.layout)


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# --- room for it


def _make_room(
    folder: Path, nbytes: int, path: Path, remedy: str = "load without keeping it"
) -> None:
    """Create the folder, remove what killed processes left, and check that a copy fits."""
    try:
        make_folder(folder)
        for partial in folder.glob(".*.partial"):
            with contextlib.suppress(FileNotFoundError):  # who writes it has just finished it
                if time.time() - partial.stat().st_mtime > STALE_S:
                    partial.unlink()
        free = shutil.disk_usage(folder).free + _size(path)
    except OSError as error:
        raise cannot(path, error) from error
    if nbytes + (1 << 24) > free:
        sizes = f"{nbytes / 1e6:,.1f} MB, {folder} has {free / 1e6:,.1f} MB free"
        raise ModelError(f"the packed copy needs {sizes}; {remedy}")


def write_alone(folder: Path, path: Path, nbytes: int, write: Callable[[], None]) -> None:
    """Call `write` for a copy kept by default, unless another process writes one.

    Copies go first that were unused longest, down to MAX_BYTES. None is written if the disk would
    be too full, or its file system does not keep it in memory on large pages.
    """
    _make_room(folder, nbytes, path)
    with _only_one(folder) as alone:
        if not alone or path.exists():
            return
        disk, left = shutil.disk_usage(folder), MAX_BYTES - nbytes
        if disk.free - nbytes < max(FREE_BYTES, FREE_SHARE * disk.total) or left < 0:
            return
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            for _ in range(2):  # each by itself, as `write_file` does
                probe.write(bytes(HUGE_PAGE))
            mapped = mmap.mmap(probe.fileno(), 0, access=mmap.ACCESS_READ)
            if not on_wanted_pages(Arena.of(mapped, 0, 2 * HUGE_PAGE).take(2 * HUGE_PAGE)):
                return
        others = [(old.stat(), old) for old in folder.glob(f"*{SUFFIX}")]
        for status, old in sorted(others, key=lambda other: -other[0].st_atime):
            left -= status.st_size
            if left < 0:
                old.unlink(missing_ok=True)
        write()


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    """Yield whether no other process is in such a block."""
    try:
        import fcntl
    except ImportError:  # Windows: then two write the same
        yield True
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _note_use(path: Path) -> None:
    """Note in the file's time of access that the copy was used."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


def _remove_superseded(folder: Path, path: Path, identity: Identity, model: Path) -> None:
    """Remove copies of the same model's file that no load can use again."""
    for old in folder.glob(f"*{SUFFIX}"):
        if old == path:
            continue
        with contextlib.suppress(OSError, RefusedCopyError), open_regular(old, UNUSED) as file:
            header = read_header(file.fileno(), old)
            same = {k: header["identity"].get(k) for k in ("parts", "packing")}
            ours = header["model"] == str(model.resolve())
            if ours and same != {"parts": identity.parts, "packing": identity.packing}:
                old.unlink()
