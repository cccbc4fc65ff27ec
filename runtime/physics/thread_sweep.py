"""A sweep of this machine's limits by number of threads."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...jit.compile import Library
from ...jit.cores import plan, usable_cpus
from ...jit.pool import Pool
from .machine import (
    MachineProfile,
    cpu_name,
    load_fields,
    measure,
    now,
    profile_folder,
    save_fields,
    usable_cores,
)
from .topology import Topology, topology

VERSION = 1
SECONDS = 16.0  # after which no further number of threads is begun
_MAX_COUNTS = 8  # numbers of threads


@dataclasses.dataclass(frozen=True, slots=True)
class ThreadSweep:
    """Machine profiles by number of threads."""

    machine: str
    """Identifier of the measured machine: see `machine_id`."""
    date: str
    topology: Topology
    profiles: tuple[MachineProfile, ...]
    """The limits for each number of threads, with the spread of their repeats."""
    left_out: tuple[int, ...] = ()
    """Numbers of threads for which there was no time."""


def thread_counts(physical: int, usable: int, ends: Iterable[int] = ()) -> list[int]:
    """Return the thread counts to sweep: 1, 2, 4, …, physical cores, one more, all cores.

    ends: counts that are always among them, where another kind of core or another cache begins.
    """
    fixed = {1, physical, usable, *ends}
    found = set(fixed)
    found |= {2**n for n in range(1, usable.bit_length()) if 2**n <= usable}
    if usable > physical:
        found.add(physical + 1)
    inner = sorted(found - fixed)
    return sorted({*fixed, *inner[: max(0, _MAX_COUNTS - max(3, len(fixed)))]})


def sweep(
    library: Library,
    counts: Sequence[int] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ThreadSweep:
    """Measure the machine's limits for each number of threads: half a second each, at most 20 s."""
    seen = topology()
    strong = min(plan(usable_cpus(), "decode").counts[-1], seen.usable)
    ends = {strong, max(1, strong // seen.domains)}
    todo = list(counts or thread_counts(seen.physical, seen.usable, ends))
    started, found = clock(), []
    while todo and (not found or clock() - started < SECONDS):
        with Pool(library, todo.pop(0)) as pool:
            found.append(measure(library, pool))
    at_work = topology()  # the clock rate right after work, not of a sleeping core
    return ThreadSweep(
        machine=machine_id(library),
        date=now(),
        topology=at_work,
        profiles=tuple(found),
        left_out=tuple(todo),
    )


def machine_id(library: Library) -> str:
    """Return an identifier, in hex, of this host, its CPU, cores and feature set."""
    key = f"{platform.node()}|{cpu_name()}|{usable_cores()}|{library.target}|{VERSION}"
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def save(found: ThreadSweep, folder: Path | None = None) -> None:
    """Save a sweep to the user's cache; errors are ignored."""
    save_fields(_path(found.machine, folder), found)


def load(library: Library, folder: Path | None = None) -> ThreadSweep | None:
    """Load this machine's sweep; None if there is none, or it is not readable."""
    return load_fields(_path(machine_id(library), folder), _of_fields)


def _of_fields(fields: dict[str, Any]) -> ThreadSweep:
    seen = fields["topology"]
    seen |= {name: tuple(seen[name]) for name in ("mhz", "huge_page_bytes")}
    fields |= {"topology": Topology(**seen), "left_out": tuple(fields["left_out"])}
    fields["profiles"] = tuple(MachineProfile(**profile) for profile in fields["profiles"])
    return ThreadSweep(**fields)


def _path(machine: str, folder: Path | None) -> Path:
    return (folder or profile_folder()) / f"threads-{machine}.json"
