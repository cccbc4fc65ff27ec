"""This machine's limits, measured again and again beside what is validated against them.

A limit that was measured an hour ago says little on a machine with neighbors: a peak moves within
minutes. `RooflineProbe` keeps its probes loaded, so one `sample` takes a few hundredths of a second
and can stand before and after everything that is timed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ...jit.compile import Library, spec
from ...jit.kernels import microbench
from ...jit.pool import Pool, aligned
from ...jit.tape import CompiledTape, PerThread, Tape
from ..memory import Arena
from .machine import MachineProfile, cache_sizes, cpu_name, resident_sizes, usable_cores

RUNS = 3  # times that a probe is run in one sample; the best of them counts
READ_UNIT = 4096  # bytes of one unit of the read probe
READ_LEAST = 32 << 20  # bytes that a read probe reads in one run at least
PEAK_UNITS = 4000  # units of the multiply probe for each thread
BARRIERS = 500


@dataclass(frozen=True, slots=True)
class _Probe:
    """A tape and the work of one run: bytes, operations or barriers."""

    tape: CompiledTape
    work: float

    def rate(self) -> float:
        """Work per second of the best of a few runs; the first only warms up."""
        return self.work / min([run_tape(self.tape) for _ in range(RUNS + 1)][1:])


def run_tape(tape: CompiledTape) -> float:
    """Seconds that a tape takes from its start to its end."""
    started, at = time.perf_counter(), 0
    while at < len(tape):
        at = tape.run(at)
    return time.perf_counter() - started


class RooflineProbe:
    """Probes for read bandwidth, arithmetic peaks and barriers on a pool's threads.

    Attributes:
        samples: every sample taken so far.
    """

    def __init__(self, library: Library, pool: Pool) -> None:
        self._library, self._pool = library, pool
        self._cpu, self._cores, self._caches = cpu_name(), usable_cores(), cache_sizes()
        self._sinks = PerThread([aligned(64, np.uint8) for _ in range(pool.threads)])
        sizes = resident_sizes(self._caches, pool.threads)
        self._arena = Arena(max(sizes.values()))
        data = self._arena.take(max(sizes.values()))
        data[::READ_UNIT] = 1  # a page that was never written may be one shared page of zeros
        self._reads = {level: self._read(data[:size]) for level, size in sizes.items()}
        peaks: list[microbench.Peak] = ["int8", "w8a8", "fp32"]
        if library.target.bf16 != "none":
            peaks.append("bf16")
        self._peaks = {peak: self._peak(peak) for peak in peaks}
        self._barrier_s = 1.0 / self._barrier().rate()  # no share is of it: once is enough
        self.samples: list[MachineProfile] = []

    def sample(self) -> MachineProfile:
        """The limits now. The caches hold the probes' data afterwards."""
        # DRAM last: the smaller levels are then measured on caches that no sweep has just filled.
        read = {level: one.rate() / 1e9 for level, one in self._reads.items()}
        peak = {name: one.rate() / 1e9 for name, one in self._peaks.items()}
        found = MachineProfile(
            cpu=self._cpu,
            cores=self._cores,
            target=self._library.target.name,
            threads=self._pool.threads,
            caches=self._caches,
            read_gbps=read,
            int8_gops=peak["int8"],
            w8a8_gops=peak["w8a8"],
            fp32_gflops=peak["fp32"],
            bf16_gflops=peak.get("bf16", peak["fp32"]),
            barrier_s=self._barrier_s,
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        self.samples.append(found)
        return found

    def _finish(self, tape: Tape) -> CompiledTape:
        return tape.finish(self._library, self._pool)

    def _read(self, data: np.ndarray) -> _Probe:
        """Read `data`, each thread its own part, until READ_LEAST bytes were read."""
        units = np.array([len(data) // READ_UNIT], np.int64)
        rounds = max(1, READ_LEAST // len(data))
        tape = Tape("read", self._pool.threads)
        for n in range(rounds):
            args = [data, self._sinks, READ_UNIT]
            tape.op("read", spec(microbench.read), args, units, barrier=n == rounds - 1)
        return _Probe(self._finish(tape), rounds * int(units[0]) * READ_UNIT)

    def _peak(self, peak: microbench.Peak) -> _Probe:
        lanes = self._library.target.lanes
        operands = microbench.operands(lanes)
        units = np.array([PEAK_UNITS * self._pool.threads], np.int64)
        tape = Tape("peak", self._pool.threads)
        tape.op(peak, spec(microbench.multiply, peak=peak), [operands, self._sinks], units)
        return _Probe(
            self._finish(tape), int(units[0]) * microbench.operations(peak, self._library.target)
        )

    def _barrier(self) -> _Probe:
        tape = Tape("barrier", self._pool.threads)
        units = np.array([self._pool.threads], np.int64)
        for _ in range(BARRIERS):
            tape.op("noop", spec(microbench.noop), [self._sinks], units)
        return _Probe(self._finish(tape), BARRIERS)
