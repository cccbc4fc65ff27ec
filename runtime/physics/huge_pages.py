"""The gain of huge pages on this machine, measured in a few hundredths of a second and saved.

With pages of 2 MiB the system has fewer of them to hand out, and one entry of the address cache
covers 512 times as much. How much that is worth differs: where the system has no large pages, or
has to look for them, it is nothing or less. So both kinds are made, touched and read in turns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...jit.compile import Library, spec
from ...jit.kernels import microbench
from ...jit.pool import Pool, aligned
from ...jit.tape import CompiledTape, PerThread, Tape
from ..memory import Arena
from .machine import load_fields, now, profile_folder, run_tape, save_fields
from .thread_sweep import machine_id

BYTES = 64 << 20  # of each kind
ROUNDS = 9
SAMPLES = 3  # times that it is measured before it is believed for good
FASTER = 1.02  # to read from: what counts as a gain
SLOWER = 0.95  # to read from: what counts as a loss
CHEAPER = 1.5  # to touch for the first time: what counts as a gain
VERSION = 1


@dataclass(frozen=True, slots=True)
class PageGain:
    """The gain of huge pages. Each time is the best of all rounds: other load only adds."""

    read_s: tuple[float, float]
    """Seconds to read a block of memory with huge pages, and with small ones."""
    touch_s: tuple[float, float]
    """Seconds to touch new memory for the first time, with huge pages and with small ones."""
    date: str = ""
    """When it was measured last."""
    samples: int = 1
    """Number of measurements."""
    version: int = VERSION

    @property
    def reading(self) -> float:
        """Speedup of reads with huge pages."""
        return self.read_s[1] / self.read_s[0]

    @property
    def touching(self) -> float:
        """Speedup of the first touch with huge pages."""
        return self.touch_s[1] / self.touch_s[0]

    @property
    def helps(self) -> bool:
        """Whether huge pages are faster to read, or much cheaper to touch and no slower to read."""
        cheaper = self.touching >= CHEAPER and self.reading >= SLOWER
        return self.reading >= FASTER or cheaper

    def merged(self, other: PageGain) -> PageGain:
        """Merge two measurements: the minimum of each time, the sum of the samples."""
        read, touch = (
            (min(a[0], b[0]), min(a[1], b[1]))
            for a, b in ((self.read_s, other.read_s), (self.touch_s, other.touch_s))
        )
        return PageGain(read, touch, other.date, self.samples + other.samples)


def page_gain(library: Library, pool: Pool, folder: Path | None = None) -> PageGain:
    """Return the gain of huge pages here: saved, or measured again the first few times."""
    path = (folder or profile_folder()) / f"pages-{machine_id(library)}.json"
    saved = load_fields(path, _of_fields)
    if saved is not None and saved.samples >= SAMPLES:
        return saved
    found = measure(library, pool)
    if saved is not None:
        found = saved.merged(found)
    save_fields(path, found)
    return found


def _of_fields(fields: dict[str, Any]) -> PageGain | None:
    read, touch = ((float(a), float(b)) for a, b in (fields["read_s"], fields["touch_s"]))
    if fields["version"] != VERSION or min(*read, *touch) <= 0:
        return None
    return PageGain(read, touch, str(fields["date"]), int(fields["samples"]))


def measure(library: Library, pool: Pool) -> PageGain:
    """Measure the gain: allocate, touch and read huge and small pages in turns."""
    touched: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for large in touched:
            touched[large].append(_touch(Arena(BYTES // 8, huge_pages=large)))
    arenas = {large: Arena(BYTES, huge_pages=large) for large in (True, False)}
    tapes = {large: _reading(library, pool, arena) for large, arena in arenas.items()}
    read: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for large, tape in tapes.items():
            read[large].append(run_tape(tape))
    return PageGain(
        read_s=(min(read[True]), min(read[False])),
        touch_s=(min(touched[True]), min(touched[False])),
        date=now(),
    )


def _touch(arena: Arena) -> float:
    data = arena.take(arena.nbytes)
    started = time.perf_counter()
    data[::4096] = 1
    return time.perf_counter() - started


def _reading(library: Library, pool: Pool, arena: Arena) -> CompiledTape:
    _touch(arena)
    sinks = PerThread([aligned(64, np.uint8) for _ in range(pool.threads)])
    tape = Tape("read", pool.threads)
    units = np.array([arena.nbytes // 4096], np.int64)
    tape.op("read", spec(microbench.read), [arena.bytes, sinks, 4096], units)
    return tape.finish(library, pool)
