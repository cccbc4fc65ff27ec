"""The file format of a packed copy: write, check and map it.

    magic, length of the header (8 bytes), header (JSON), SHA-256 of all that, data from a multiple
    of 2 MiB on

The header says what the data are (`identity`, see `packed_cache.py`), and has a CRC-32 for each
2 MiB of them. A file is written under a temporary name, synced and renamed: one that is there is
whole.

Each 2 MiB are written at once, from a multiple of 2 MiB on: a file system that has large folios in
its page cache (ext4 of Linux 6.18) then keeps each on one large page, and maps it as one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import os
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from ...arguments import open_regular
from ...errors import ModelError
from ..gguf.mapped_file_guard import MappedFileGuard
from ..memory import HUGE_PAGE, Arena

MAGIC = b"TPPACKED"
VERSION = 2
PIECE = HUGE_PAGE  # bytes of data that have one CRC, and are written at once
WHOLE = 32  # pieces up to which all are checked when a file is mapped
SAMPLED = 8  # pieces that are checked of a larger one
SYNCED = 8  # pieces that are written before they are synced
MAX_HEADER = 1 << 26

Progress = Callable[[float], None]
Fields = dict[str, Any]


class RefusedCopyError(ModelError):
    """A packed copy cannot be used; the message names it and gives the reason."""


def map_file(path: Path, identity: Fields) -> Arena:
    """Map and share the data of the copy at `path`, if it matches `identity`.

    A small file is checked whole, a larger one by samples: other ones each time, so that mapping
    takes the same time whatever the size.

    Raises:
        OSError: there is none, or it cannot be read.
        RefusedCopyError: it is damaged, or of something else.
    """
    with open_regular(path) as file:
        descriptor = file.fileno()
        if hasattr(os, "getuid") and os.fstat(descriptor).st_uid not in (os.getuid(), 0):
            raise RefusedCopyError(f"the packed copy {path} belongs to another user")
        header = read_header(descriptor, path)
        if header["identity"] != identity:
            different = [k for k, v in identity.items() if header["identity"].get(k) != v]
            what = ", ".join(different)
            raise RefusedCopyError(f"the packed copy {path} is for something else ({what})")
        count = len(header["crc"])
        some = {0, count - 1, *random.sample(range(count), min(count, SAMPLED))}
        check_pieces(descriptor, path, header, range(count) if count <= WHOLE else sorted(some))
        held = MappedFileGuard(path, descriptor, "packed copy")
        mapped = held.map()
    arena = Arena.of(mapped, header["offset"], identity["nbytes"])
    arena.check = held.check
    return arena


def read_header(descriptor: int, path: Path) -> Fields:
    """Read and check the header of an open copy; RefusedCopyError gives the fault."""

    def refuse(why: str) -> RefusedCopyError:
        return RefusedCopyError(f"the packed copy {path} is damaged: {why}")

    size = os.fstat(descriptor).st_size
    head = os.pread(descriptor, 16, 0)
    if len(head) < 16 or head[:8] != MAGIC:
        raise refuse("it does not start like a packed copy")
    (length,) = struct.unpack("<Q", head[8:])
    if not 0 < length <= min(MAX_HEADER, size):
        raise refuse(f"a header of {length} bytes")
    text = os.pread(descriptor, length, 16)
    if os.pread(descriptor, 32, 16 + length) != hashlib.sha256(head + text).digest():
        raise refuse("its header was changed")
    header = json.loads(text)  # as we wrote it: the hash says so
    if header.get("version") != VERSION:
        raise RefusedCopyError(f"the packed copy {path} has version {header.get('version')}")
    if size != header["offset"] + header["identity"]["nbytes"]:
        raise refuse(f"{size} bytes, not {header['offset'] + header['identity']['nbytes']}")
    return header


def check_pieces(descriptor: int, path: Path, header: Fields, pieces: Iterable[int]) -> None:
    """Check the CRCs of these pieces of the data; raise RefusedCopyError if one differs."""
    for n in pieces:
        at, end = n * PIECE, min((n + 1) * PIECE, header["identity"]["nbytes"])
        data = os.pread(descriptor, end - at, header["offset"] + at)
        if zlib.crc32(data) != header["crc"][n]:
            where = f"bytes {at:,} to {end:,} of its data were changed"
            raise RefusedCopyError(f"the packed copy {path} is damaged: {where}")


def write_file(
    path: Path, identity: Fields, model: str, arena: Arena, progress: Progress | None
) -> None:
    """Write a packed copy: the used part of `arena`, of the file `model`; `progress` gets 0 to 1.

    Raises:
        ModelError: it cannot be written; nothing is left of it then.
    """
    data = memoryview(arena.bytes)  # pyright: ignore[reportArgumentType]: numpy's has a buffer
    with _finished(path, identity, model) as (file, header):
        file.seek(header["offset"])
        for n in range(len(header["crc"])):
            piece = data[n * PIECE : (n + 1) * PIECE]
            header["crc"][n] = zlib.crc32(piece)
            while piece:
                piece = piece[file.write(piece) :]
            if progress and n % 8 == 0:
                progress(n / len(header["crc"]))
            if n % SYNCED == SYNCED - 1:  # so that the last one is short
                os.fsync(file.fileno())
    if progress:
        progress(1.0)


def pack_into_file(
    path: Path, identity: Fields, model: str, pack: Callable[[Arena], object]
) -> None:
    """Write a packed copy that memory has no room for: `pack` fills an arena that is the file.

    Raises:
        ModelError: it cannot be written; nothing is left of it then.
    """
    with _finished(path, identity, model) as (file, header):
        end = header["offset"] + identity["nbytes"]
        # A disk that is full is an error here; from the mapping it would be a signal.
        reserve = getattr(os, "posix_fallocate", None) or (lambda file, _, n: os.truncate(file, n))
        reserve(file.fileno(), 0, end)
        mapped = mmap.mmap(file.fileno(), end)
        pack(Arena.of(mapped, header["offset"], identity["nbytes"]))
        mapped.flush()
        for n in range(len(header["crc"])):
            at = header["offset"] + n * PIECE
            header["crc"][n] = zlib.crc32(os.pread(file.fileno(), min(PIECE, end - at), at))


@contextlib.contextmanager
def _finished(path: Path, identity: Fields, model: str) -> Iterator[tuple[io.FileIO, Fields]]:
    """Open a file for the data of a packed copy; write the header, sync and rename it at the end.

    The block fills in the header's CRCs.
    """
    count = -(-identity["nbytes"] // PIECE)
    header: Fields = {
        "version": VERSION,
        "model": model,
        "identity": identity,
        "offset": 0,
        "crc": [0xFFFFFFFF] * count,  # as long as what will stand there, or longer
    }
    header["offset"] = -(-(len(json.dumps(header)) + 128) // HUGE_PAGE) * HUGE_PAGE
    temporary = None
    try:
        # A damaged copy of the same name goes first: there may be no room for both.
        path.unlink(missing_ok=True)
        descriptor, temporary = tempfile.mkstemp(".partial", f".{path.stem}.", path.parent)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            yield file, header
            text = json.dumps(header).encode()
            head = MAGIC + struct.pack("<Q", len(text))
            assert len(head) + len(text) + 32 <= header["offset"]
            file.seek(0)
            file.write(head + text + hashlib.sha256(head + text).digest())
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot(path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def cannot(path: Path, error: OSError) -> ModelError:
    """Return the ModelError for a copy at `path` that cannot be written."""
    why = error.strerror or error
    return ModelError(f"cannot keep the packed copy {path}: {why}; load without keeping it")
