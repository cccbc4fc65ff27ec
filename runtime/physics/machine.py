"""This machine's measured limits: read bandwidth by cache level, arithmetic peaks, barrier cost.

A quick profile takes well under a second and is kept in the user's cache, by machine, target and
thread count, with its date. Every figure is the best of a few repeats: a limit, not an average.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...arguments import read_own, user_folder
from ...errors import SettingError
from ...jit.compile import Library, spec
from ...jit.cores import usable_cpus
from ...jit.kernels import microbench
from ...jit.pool import Pool, aligned
from ...jit.tape import CompiledTape, PerThread, Tape
from ...jit.targets import cpuinfo, masked_to
from ...traces.events import CONTENDED
from ..cgroups import cpu_quota
from ..files import write_file
from ..memory import Arena, available_bytes
from .run_delay import RunDelay

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")

VERSION = 7
SAMPLES = 3  # times that the limits are measured before they are believed for good
DOUBTFUL_SAMPLES = 12  # the same while other work disturbs them: some machines are never quiet
MAX_SPREAD = 2.0  # slowest repeat over the best one; a figure with more is not believed
DOUBT = "limits were measured on a busy machine"
RUNS, SETS = 3, 4  # of a probe in one sample: the best counts; sets of them, if disturbed
READ_UNIT = 4096  # bytes of one unit of the read probe
MIN_READ = 32 << 20  # bytes that a read probe reads in one run at least
PEAK_UNITS = 4000  # units of the multiply probe for each thread
BARRIERS = 500
MAX_THREADS = 256
DRAM_BYTES = 256 << 20
MEMORY_SHARE = 8  # of the free memory: a block that is to lie beyond the caches is one of so many
SYSTEM = Path("/sys/devices/system/cpu")
LEVELS = ("L1", "L2", "L3", "DRAM")
log = logging.getLogger("triplepoint.machine")


@dataclass(frozen=True)
class MachineProfile:
    """The measured limits of a machine with `threads` threads on one target."""

    cpu: str
    cores: int
    """CPU model name, and number of cores that this process may use."""
    target: str
    threads: int
    caches: dict[str, int]
    """Bytes by level: L1 and L2 of one core, the shared L3."""
    read_gbps: dict[str, float]
    """Read bandwidth in 10^9 bytes/s by level, all threads together."""
    int8_gops: float
    fp32_gflops: float
    bf16_gflops: float
    """Arithmetic peaks of int8, float32 and bf16, 10^9 operations/s."""
    barrier_s: float
    """Seconds of one barrier with an empty op."""
    date: str = ""
    """When it was measured last."""
    version: int = VERSION
    spread: dict[str, float] = field(default_factory=dict)
    """By probe, how far the slowest repeat was from the best one; 0: not at all."""
    samples: int = 1
    """Number of measurements; each figure is the best of them."""
    w8a8_gops: float = 0.0
    """The int8 peak with 8-bit weights; 0: not measured."""
    run_delay: dict[str, float] = field(default_factory=dict)
    """By probe, the share of the time that a thread was runnable without a core."""

    @cached_property
    def doubtful(self) -> bool:
        """Whether other load disturbed all measurements of some figure."""
        return any(self._doubt_of(name) > 1 for name in {**self.spread, **self.run_delay})

    def _doubt_of(self, probe: str) -> float:
        return _doubt(self.spread.get(probe, 0.0), self.run_delay.get(probe, 0.0))

    def level_of(self, nbytes: float) -> str:
        """Return the nearest level that holds `nbytes` spread over the threads."""
        for level in ("L1", "L2"):
            if nbytes <= 0.8 * self.caches.get(level, 0) * self.threads:
                return level
        return "L3" if nbytes <= 0.8 * self.caches.get("L3", 0) else "DRAM"

    def bandwidth(self, level: str) -> float:
        """Return the read bandwidth of `level`, in bytes a second."""
        return self.read_gbps.get(level, self.read_gbps["DRAM"]) * 1e9

    def merged(self, other: MachineProfile) -> MachineProfile:
        """Merge two profiles, the better of each figure: other load does not lower a limit."""
        names = {**self.spread, **other.spread}
        quieter = {name: min(self, other, key=lambda one: one._doubt_of(name)) for name in names}
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
            spread={name: one.spread.get(name, 0.0) for name, one in quieter.items()},
            run_delay={name: one.run_delay.get(name, 0.0) for name, one in quieter.items()},
        )

    def as_dict(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def cpu_name() -> str:
    """Return the CPU's model name as the system reports it, and the feature set of its mask.

    So limits and calibrations of a masked CPU are not those of the whole one.
    """
    name = cpuinfo("model name", "Hardware") or platform.processor() or platform.machine()
    mask = masked_to()
    return name if mask is None else f"{name} (as {mask})"


def usable_cores() -> int:
    """Return the cores that this process may use, limited by its container's quota."""
    allowed = hasattr(os, "sched_getaffinity")
    return _within_quota(len(os.sched_getaffinity(0)) if allowed else os.cpu_count() or 1)


def _within_quota(cores: int) -> int:
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def physical_cores() -> int:
    """Return usable cores without their SMT siblings, for compute-bound work."""
    return _within_quota(sum(not cpu.sibling for cpu in usable_cpus()))


def pool_size(threads: int | None) -> int:
    """Return a pool's thread count: `threads`, at most one per usable core; None: physical cores.

    Threads without a core of their own wait for each other at every barrier.

    Raises:
        SettingError: `threads` is no number from 1 to 256.
    """
    if threads is None:
        return physical_cores()
    if not (type(threads) is int and 1 <= threads <= MAX_THREADS):
        raise SettingError(f"threads must be from 1 to {MAX_THREADS}, not {threads!r}")
    if threads <= (cores := usable_cores()):
        return threads
    log.warning("%s threads do not fit %s usable cores; using %s", threads, cores, cores)
    return cores


def cache_sizes() -> dict[str, int]:
    """Return the bytes of core 0's L1 data, L2 and L3; typical sizes if the system gives none."""
    sizes = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
    return sizes | {level: size for level, size, _ in _caches(0)}


def _caches(core: int) -> Iterator[tuple[str, int, str]]:
    """Return level, bytes and cores of each data cache of a core."""
    for index in (SYSTEM / f"cpu{core}" / "cache").glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            kind, level, text, cores = (
                (index / name).read_text().strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
            if kind != "Instruction":
                unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
                yield f"L{level}", int(text.rstrip("KM")) * unit, cores


def beyond_caches(min_bytes: int = DRAM_BYTES) -> int:
    """Return a size far above every L3 of the usable cores, as far as memory allows."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    found = {at: size for n in usable for level, size, at in _caches(n) if level == "L3"}
    all_l3 = sum(found.values()) or cache_sizes()["L3"]
    return max(min_bytes, min(4 * all_l3, available_bytes() // MEMORY_SHARE))


def resident_sizes(caches: Mapping[str, int], threads: int) -> dict[str, int]:
    """Return the bytes of data that fit in each level when all threads read them."""
    return {
        "L1": caches["L1"] // 2 * threads,
        "L2": caches["L2"] // 2 * threads,
        # Beyond all L2 together, and at most half of L3, which others may share.
        "L3": max(caches["L2"] * threads * 2, min(caches["L3"] // 2, 32 << 20)),
        "DRAM": beyond_caches(),
    }


def profile(library: Library, pool: Pool, folder: Path | None = None) -> MachineProfile:
    """Return this machine's limits: saved ones, if measured often enough, else measured now.

    The first few calls measure, and more of them while other work disturbs the figures; the best of
    each is kept.
    """
    path = _path(str(library.target), pool.threads, folder)
    saved = _read(path)
    if saved is None:
        log.info("measuring this machine's limits (kept for later runs, about 1 s) …")
    elif saved.samples >= (DOUBTFUL_SAMPLES if saved.doubtful else SAMPLES):
        return saved
    elif saved.doubtful:
        log.info("%s; measuring again (about 1 s) …", DOUBT)
    best = measure(library, pool)
    if saved is not None:
        best = saved.merged(best)
    save_fields(path, best)
    return best


def known(target: str, threads: int, folder: Path | None = None) -> MachineProfile | None:
    """Return the saved limits for `threads` threads on `target`; None if there are none."""
    return _read(_path(target, threads, folder))


def save_fields(path: Path, found: DataclassInstance) -> None:
    """Save the fields of a measurement atomically; errors are ignored: it is measured again."""
    with contextlib.suppress(OSError):
        write_file(path, json.dumps(dataclasses.asdict(found), indent=1))


def now() -> str:
    """Return the current UTC time, as the date of a measurement."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def profile_folder() -> Path:
    return user_folder("cache") / "machine"


def _path(target: str, threads: int, folder: Path | None) -> Path:
    key = f"{platform.node()}|{cpu_name()}|{usable_cores()}|{target}|{threads}|{VERSION}"
    name = f"{target}-{threads}t-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    return (folder or profile_folder()) / name


def load_fields(path: Path, make: Callable[[dict[str, Any]], T | None]) -> T | None:
    """Load an object from a file of its fields; None if it is not readable."""
    try:
        return make(json.loads(read_own(path)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # absent, damaged or of another version


def _read(path: Path) -> MachineProfile | None:
    return load_fields(path, lambda fields: MachineProfile(**fields))


def measure(library: Library, pool: Pool, repeats: int = 4) -> MachineProfile:
    """Measure the machine's limits with all of the pool's threads: about half a second."""
    return RooflineProbe(library, pool, ("int8", "fp32")).sample(repeats)


def run_tape(tape: CompiledTape) -> float:
    """Run a tape from start to end; return its seconds."""
    started, at = time.perf_counter(), 0
    while at < len(tape):
        at = tape.run(at)
    return time.perf_counter() - started


def best_of(
    run: Callable[[], float], repeats: int, watch: Callable[[], Callable[[], float | None]]
) -> tuple[float, float, float]:
    """Return the best run's seconds, and spread and run delay of the quietest set of runs.

    A set is `repeats` runs after one that only warms up. One that other work disturbed is measured
    again, `SETS` in all at most.

    Args:
        run: does the work and returns the seconds that it took.
        watch: called before a set; returns a function that gives the run delay after it, a share.
    """
    best, quietest = math.inf, (math.inf, math.inf)
    for _ in range(SETS):
        run_delay = watch()
        seconds = [run() for _ in range(repeats + 1)][1:]
        best = min(best, *seconds)
        found = max(seconds) / min(seconds) - 1, run_delay() or 0.0
        quietest = min(quietest, found, key=lambda pair: _doubt(*pair))
        if _doubt(*quietest) <= 1:
            break
    return best, *quietest


def _doubt(spread: float, run_delay: float) -> float:
    """Return how far a figure was disturbed; above 1 it is not reliable."""
    return max((1 + spread) / MAX_SPREAD, run_delay / CONTENDED)


@dataclass(frozen=True, slots=True)
class Probe:
    """A tape and the work of one run: bytes, operations or barriers."""

    tape: CompiledTape
    work: float
    workers: Sequence[int]

    def rate(self, repeats: int = RUNS) -> tuple[float, float, float]:
        """Return work per second of the best run, its spread and its run delay; see `best_of`."""
        best, spread, run_delay = best_of(
            lambda: run_tape(self.tape), repeats, lambda: RunDelay(self.workers).share
        )
        return self.work / best, spread, run_delay


class RooflineProbe:
    """Probes for read bandwidth, arithmetic peaks and barriers on a pool's threads.

    A limit that was measured an hour ago says little on a machine with neighbors: a peak moves
    within minutes. The probes stay loaded, so that a sample takes a few hundredths of a second and
    can stand before and after everything that is timed.
    """

    def __init__(
        self,
        library: Library,
        pool: Pool,
        peaks: Sequence[microbench.Peak] = ("int8", "w8a8", "fp32"),
    ) -> None:
        self.samples: list[MachineProfile] = []
        """Every sample taken so far."""
        self._library, self._pool = library, pool
        self._cpu, self._cores, self._caches = cpu_name(), usable_cores(), cache_sizes()
        self._sinks = PerThread([aligned(64, np.uint8) for _ in range(pool.threads)])
        sizes = resident_sizes(self._caches, pool.threads)
        self._arena = Arena(max(sizes.values()))
        data = self._arena.take(max(sizes.values()))
        data[::READ_UNIT] = 1  # a page that was never written may be one shared page of zeros
        self._reads = {level: self._read(data[:size]) for level, size in sizes.items()}
        if library.target.bf16 != "none":
            peaks = (*peaks, "bf16")
        self._peaks = {peak: self._peak(peak) for peak in peaks}
        self._barrier_rate = self._barrier().rate()  # no share is of it: once is enough

    def sample(self, repeats: int = RUNS) -> MachineProfile:
        """Measure the limits. The caches hold the probes' data afterwards."""
        # DRAM last: the smaller levels are then measured on caches that no sweep has just filled.
        found = {f"read {level}": one.rate(repeats) for level, one in self._reads.items()}
        found |= {name: one.rate(repeats) for name, one in self._peaks.items()}
        found["barrier"] = self._barrier_rate
        rates = {name: one[0] / 1e9 for name, one in found.items()}
        taken = MachineProfile(
            cpu=self._cpu,
            cores=self._cores,
            target=self._library.target.name,
            threads=self._pool.threads,
            caches=self._caches,
            read_gbps={level: rates[f"read {level}"] for level in self._reads},
            int8_gops=rates["int8"],
            w8a8_gops=rates.get("w8a8", 0.0),
            fp32_gflops=rates["fp32"],
            bf16_gflops=rates.get("bf16", rates["fp32"]),
            barrier_s=1.0 / found["barrier"][0],
            date=now(),
            spread={name: round(one[1], 3) for name, one in found.items()},
            run_delay={name: round(one[2], 3) for name, one in found.items()},
        )
        self.samples.append(taken)
        return taken

    def _finish(self, tape: Tape, work: float) -> Probe:
        return Probe(tape.finish(self._library, self._pool), work, self._pool.worker_ids)

    def _read(self, data: np.ndarray) -> Probe:
        """Read `data`, each thread its own part, until MIN_READ bytes were read."""
        units = np.array([len(data) // READ_UNIT], np.int64)
        rounds = max(1, MIN_READ // len(data))
        tape = Tape("read", self._pool.threads)
        for n in range(rounds):
            args = [data, self._sinks, READ_UNIT]
            tape.op("read", spec(microbench.read), args, units, barrier=n == rounds - 1)
        return self._finish(tape, rounds * int(units[0]) * READ_UNIT)

    def _peak(self, peak: microbench.Peak) -> Probe:
        """Multiply in registers alone."""
        target = self._library.target
        units = np.array([PEAK_UNITS * self._pool.threads], np.int64)
        tape = Tape("peak", self._pool.threads)
        operands = microbench.operands(target.lanes)
        tape.op(peak, spec(microbench.multiply, peak=peak), [operands, self._sinks], units)
        return self._finish(tape, int(units[0]) * microbench.operations(peak, target))

    def _barrier(self) -> Probe:
        """Run ops that do nothing, their barriers included."""
        tape = Tape("barrier", self._pool.threads)
        units = np.array([self._pool.threads], np.int64)
        for _ in range(BARRIERS):
            tape.op("noop", spec(microbench.noop), [self._sinks], units)
        return self._finish(tape, BARRIERS)
