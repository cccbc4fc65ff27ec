"""This machine's measured limits: read bandwidth by cache level, arithmetic peaks, barrier cost.

A quick profile takes well under a second and is kept in the user's cache, by machine, target and
thread count, with its date. Every figure is the best of a few repeats: a limit, not an average.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...arguments import read_own, user_folder
from ...jit.compile import Library, spec
from ...jit.kernels import microbench
from ...jit.pool import Pool, aligned, smt_place
from ...jit.tape import PerThread, Tape
from ...jit.targets import cpuinfo
from ..cgroups import cpu_quota
from ..files import write_file
from ..memory import Arena, available_bytes

VERSION = 6
SAMPLES = 3  # times that the limits are measured before they are believed for good
DRAM_BYTES = 256 << 20
MEMORY_SHARE = 8  # of the free memory: a block that is to lie beyond the caches is one of so many
SYSTEM = Path("/sys/devices/system/cpu")
LEVELS = ("L1", "L2", "L3", "DRAM")


@dataclass(frozen=True)
class MachineProfile:
    """What one machine can do with `threads` threads on one target.

    Attributes:
        cpu, cores: model name and cores that this process may use.
        caches: bytes by level: L1 and L2 of one core, L3 as shared.
        read_gbps: read bandwidth in 10^9 bytes/s by level, all threads together.
        int8_gops, bf16_gflops, fp32_gflops: arithmetic peaks, 10^9 operations/s.
        w8a8_gops: the int8 peak of 8-bit weights; 0: it was not measured.
        barrier_s: one barrier with an empty op, seconds.
        date: when it was measured last.
        spread: by probe, how far the slowest repeat was from the best one, 0 for not at all.
        samples: times that it was measured; each figure is the best of them.
    """

    cpu: str
    cores: int
    target: str
    threads: int
    caches: dict[str, int]
    read_gbps: dict[str, float]
    int8_gops: float
    fp32_gflops: float
    bf16_gflops: float
    barrier_s: float
    date: str = ""
    version: int = VERSION
    spread: dict[str, float] = field(default_factory=dict)
    samples: int = 1
    w8a8_gops: float = 0.0

    def level_of(self, nbytes: float) -> str:
        """The nearest level that holds `nbytes` shared out over the threads."""
        for level in ("L1", "L2"):
            if nbytes <= 0.8 * self.caches.get(level, 0) * self.threads:
                return level
        return "L3" if nbytes <= 0.8 * self.caches.get("L3", 0) else "DRAM"

    def bandwidth(self, level: str) -> float:
        """Bytes per second that can be read from `level`."""
        return self.read_gbps.get(level, self.read_gbps["DRAM"]) * 1e9

    @property
    def ridge(self) -> float:
        """FLOPs a byte from which on the fastest products, not DRAM, are the limit."""
        return max(self.int8_gops, self.bf16_gflops, self.fp32_gflops) / self.read_gbps["DRAM"]

    def merged(self, other: MachineProfile) -> MachineProfile:
        """The better of each figure: a limit is not lowered by a busy neighbor."""
        return dataclasses.replace(
            other,
            read_gbps={
                level: max(rate, self.read_gbps.get(level, 0.0))
                for level, rate in other.read_gbps.items()
            },
            int8_gops=max(self.int8_gops, other.int8_gops),
            w8a8_gops=max(self.w8a8_gops, other.w8a8_gops),
            fp32_gflops=max(self.fp32_gflops, other.fp32_gflops),
            bf16_gflops=max(self.bf16_gflops, other.bf16_gflops),
            barrier_s=min(self.barrier_s, other.barrier_s),
            samples=self.samples + other.samples,
        )

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def cpu_name() -> str:
    """The CPU's model name as the system gives it."""
    return cpuinfo("model name", "Hardware") or platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may run on, or as many as its container has time for."""
    allowed = hasattr(os, "sched_getaffinity")
    return _within_quota(len(os.sched_getaffinity(0)) if allowed else os.cpu_count() or 1)


def _within_quota(cores: int) -> int:
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def physical_cores() -> int:
    """Usable cores without their SMT siblings: what compute-bound work wants."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if usable is None:
        return usable_cores()
    return _within_quota(sum(not smt_place(core, usable) for core in usable))


def cache_sizes() -> dict[str, int]:
    """Bytes of L1 data, L2 and L3 as core 0 sees them; common sizes where the system tells none."""
    sizes = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
    return sizes | {level: size for level, size, _ in _caches(0)}


def _caches(core: int) -> Iterator[tuple[str, int, str]]:
    """Level, bytes and cores of each cache that a core has for its data."""
    for index in (SYSTEM / f"cpu{core}" / "cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            kind, level, text, cores = (
                (index / name).read_text().strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
            if kind != "Instruction":
                unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
                yield f"L{level}", int(text.rstrip("KM")) * unit, cores


def beyond_caches(least: int = DRAM_BYTES) -> int:
    """Bytes of which every L3 of the usable cores holds a small part, as far as memory allows."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    found = {at: size for n in usable for level, size, at in _caches(n) if level == "L3"}
    all_l3 = sum(found.values()) or cache_sizes()["L3"]
    return max(least, min(4 * all_l3, available_bytes() // MEMORY_SHARE))


def resident_sizes(caches: Mapping[str, int], threads: int) -> dict[str, int]:
    """Bytes of data that lie in each level when all threads read them."""
    return {
        "L1": caches["L1"] // 2 * threads,
        "L2": caches["L2"] // 2 * threads,
        # Beyond all L2 together, and at most half of L3, which others may share.
        "L3": max(caches["L2"] * threads * 2, min(caches["L3"] // 2, 32 << 20)),
        "DRAM": beyond_caches(),
    }


def profile(library: Library, pool: Pool, folder: Path | None = None) -> MachineProfile:
    """This machine's limits: kept ones once they have been measured often enough.

    A neighbor may have been busy the first time, so the first few calls measure again and keep the
    best of each figure.
    """
    path = _path(library, pool, folder)
    kept = _read(path)
    if kept is not None and kept.samples >= SAMPLES:
        return kept
    best = measure(library, pool)
    if kept is not None:
        best = kept.merged(best)
    save_fields(path, best.as_dict())
    return best


def known(target: str, threads: int, folder: Path | None = None) -> MachineProfile | None:
    """The limits that were measured with so many threads on `target`; None if none were."""
    return _read(_path_of(target, threads, folder))


def save_fields(path: Path, fields: Mapping[str, object]) -> None:
    """Write what was measured, whole or not; where that cannot be done it is measured again."""
    with contextlib.suppress(OSError):
        write_file(path, json.dumps(fields, indent=1))


def profile_folder() -> Path:
    return user_folder("cache") / "machine"


def _path(library: Library, pool: Pool, folder: Path | None) -> Path:
    return _path_of(str(library.target), pool.threads, folder)


def _path_of(target: str, threads: int, folder: Path | None) -> Path:
    key = f"{platform.node()}|{cpu_name()}|{usable_cores()}|{target}|{threads}|{VERSION}"
    name = f"{target}-{threads}t-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    return (folder or profile_folder()) / name


def _read(path: Path) -> MachineProfile | None:
    try:
        return MachineProfile(**json.loads(read_own(path)))
    except (OSError, ValueError, TypeError):
        return None  # absent, damaged or of another version: measured again


def measure(library: Library, pool: Pool, repeats: int = 4) -> MachineProfile:
    """Measure with all of the pool's threads; about half a second."""
    probes = _Probes(library, pool, repeats)
    caches = cache_sizes()
    threads = pool.threads
    resident = resident_sizes(caches, threads)
    arena = Arena(resident["DRAM"])
    data = arena.take(resident["DRAM"])
    data[::4096] = 1
    read = {level: probes.read(data[:size]) for level, size in resident.items()}
    has_bf16 = library.target.bf16 != "none"
    fp32 = probes.peak("fp32")
    return MachineProfile(
        cpu=cpu_name(),
        cores=usable_cores(),
        target=library.target.name,
        threads=threads,
        caches=caches,
        read_gbps={level: round(value / 1e9, 2) for level, value in read.items()},
        int8_gops=round(probes.peak("int8") / 1e9, 1),
        fp32_gflops=round(fp32 / 1e9, 1),
        bf16_gflops=round((probes.peak("bf16") if has_bf16 else fp32) / 1e9, 1),
        barrier_s=probes.barrier(),
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        spread={name: round(value, 3) for name, value in probes.spread.items()},
    )


class _Probes:
    """Runs the probe kernels on the pool."""

    def __init__(self, library: Library, pool: Pool, repeats: int) -> None:
        self.library, self.pool, self.repeats = library, pool, repeats
        self.spread: dict[str, float] = {}
        self.sinks = PerThread([aligned(64, np.uint8) for _ in range(pool.threads)])

    def _best(self, name: str, tape: Tape) -> float:
        """Least seconds that one run took."""
        native = tape.finish(self.library, self.pool)
        seconds = []
        for _ in range(self.repeats + 1):
            started, at = time.perf_counter(), 0
            while at < len(native):
                at = native.run(at)
            seconds.append(time.perf_counter() - started)
        best = min(seconds[1:])
        self.spread[name] = max(seconds[1:]) / best - 1
        return best

    def read(self, data: np.ndarray) -> float:
        """Bytes per second over `data`, each thread its own part, read again and again."""
        unit = 4096
        units = np.array([len(data) // unit], np.int64)
        rounds = max(1, (32 << 20) // len(data))
        tape = Tape("read", self.pool.threads)
        for n in range(rounds):
            last = n == rounds - 1
            args = [data, self.sinks, unit]
            tape.op("read", spec(microbench.read), args, units, barrier=last)
        return rounds * int(units[0]) * unit / self._best(f"read {len(data) >> 10} KiB", tape)

    def peak(self, peak: microbench.Peak) -> float:
        """Operations per second, registers only."""
        operands = microbench.operands(self.library.target.lanes)
        units = np.array([4000 * self.pool.threads], np.int64)
        tape = Tape("peak", self.pool.threads)
        tape.op(peak, spec(microbench.multiply, peak=peak), [operands, self.sinks], units)
        work = int(units[0]) * microbench.operations(peak, self.library.target)
        return work / self._best(peak, tape)

    def barrier(self) -> float:
        """Seconds of one op that does nothing, its barrier included."""
        tape = Tape("barrier", self.pool.threads)
        units = np.array([self.pool.threads], np.int64)
        for _ in range(500):
            tape.op("noop", spec(microbench.noop), [self.sinks], units)
        return self._best("barrier", tape) / 500
