"""A tape: a forward pass as a flat list of native ops.

Built once, at load. An op is a kernel, its argument block, the number of work units (read
when it is run, so it may follow the tokens of the pass), how the units are shared out, and
whether the threads meet at a barrier afterwards.

    STATIC   each thread takes one contiguous range: a sequential stream of weights for each
    DYNAMIC  the same ranges, in chunks from their front; who has done takes from the others' backs,
             so that a slowed core does less
    REPLICATED  every thread does all units, into its own memory: for little work, cheaper than a
             barrier
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from .compile import Library, Spec
from .elastic_executor import MAX_GROUPS
from .pool import Pool, aligned
from .pool_block import (
    A_UNITS,
    AHEAD_SLOTS,
    COUNTER_SLOTS,
    DYNAMIC,
    G_COUNTERS,
    GROUP_BYTES,
    OP_ARGS,
    OP_ARGS_STRIDE,
    REPLICATED,
    STATIC,
)


@dataclass(frozen=True, slots=True)
class PerThread:
    """An argument with one buffer for each thread.

    scratch: contents last for one op; else later ops of the thread read what earlier ones wrote.
    """

    buffers: Sequence[np.ndarray]
    scratch: bool = False


@dataclass(slots=True)
class Op:
    """One kernel on the tape, before compilation."""

    name: str
    """Name of what it computes, e.g. ``blk.3.attn_q``."""
    kernel: Spec
    args: Sequence[Any]
    units: np.ndarray
    """Number of work units: int64 [1], read when the op runs."""
    mode: int = STATIC
    chunk: int = 1
    """How threads divide the units; `chunk`: units taken at a time (DYNAMIC)."""
    barrier: bool = True
    """Whether the threads meet at a barrier after the op."""
    unit_bytes: int = 0
    """Bytes of the first argument that each unit reads, contiguous in unit order; 0: unknown."""


class Tape:
    """A list of ops in run order, which `finish` compiles.

    elastic: whether runs may continue without descheduled threads (`elastic_executor.py`): it is
    enough that one thread runs the replicated ops, and others may be called for any share of
    their units.
    """

    def __init__(self, name: str, threads: int, *, elastic: bool = False) -> None:
        self.name, self.elastic = name, elastic
        self.threads = threads
        self.ops: list[Op] = []
        self._prefix = ""

    def op(
        self,
        name: str,
        kernel: Spec,
        args: Sequence[Any],
        units: np.ndarray,
        *,
        mode: int = STATIC,
        chunk: int = 1,
        barrier: bool = True,
        unit_bytes: int = 0,
    ) -> None:
        """Append one op. units: int64 [1], read when it runs; unit_bytes: see `Op`."""
        full = self._prefix + name
        self.ops.append(Op(full, kernel, args, units, mode, chunk, barrier, unit_bytes))

    @contextlib.contextmanager
    def part(self, prefix: str) -> Iterator[None]:
        """Prefix the names of ops that are added inside with `prefix`."""
        old, self._prefix = self._prefix, self._prefix + prefix
        yield
        self._prefix = old

    def finish(self, library: Library, pool: Pool) -> CompiledTape:
        """Compile and load missing kernels, and write the native op records."""
        self.ops[-1].barrier = True  # a pass ends when all threads have ended
        library.load([op.kernel for op in self.ops])
        return CompiledTape(self, library, pool)


class TapeTimes:
    """Time of one caller's runs of a tape, by thread and op, since `reset`."""

    def __init__(self, threads: int, ops: int, cycles_per_second: float) -> None:
        # Room for each thread's sums on lines of its own.
        self.stats = aligned((threads, _round_up(ops, 4), 2), np.int64)
        """int64 [threads, ops, 2], cycles of work and of waiting."""
        self.buffer = self.stats.ctypes.data, self.stats.strides[0]
        self._ops, self._rate = ops, cycles_per_second
        self.passes = self.active_threads = 0
        """Number of completed runs, and the sum of the active threads of each."""

    def reset(self) -> None:
        """Set all sums to zero."""
        self.stats[:] = 0
        self.passes = self.active_threads = 0

    def sums(self, kinds: np.ndarray) -> list[float]:
        """Return the seconds of all threads since `reset`, summed by kind.

        kinds: float64 [kinds, values of `stats`], 1 for what counts.
        """
        return (kinds @ self.stats.reshape(-1) / self._rate).tolist()

    def work_seconds(self) -> np.ndarray:
        """Return the time inside kernels since `reset`: float64 [threads, ops], in seconds."""
        return self.stats[:, : self._ops, 0] / self._rate

    def wait_seconds(self) -> np.ndarray:
        """Return the barrier time after each op since `reset`: float64 [threads, ops], in seconds.

        The barrier that ends a pass or a time slice counts for thread 0 only.
        """
        return self.stats[:, : self._ops, 1] / self._rate


class CompiledTape:
    """A compiled tape: native op records for the threads of a pool."""

    def __init__(self, tape: Tape, library: Library, pool: Pool) -> None:
        self.name = tape.name
        self.pool = pool
        self.names = [op.name for op in tape.ops]
        self.barriers = sum(op.barrier for op in tape.ops)
        self._keep: list[Any] = [library]  # it owns the code that the records point to
        self._ops = tape.ops if tape.elastic else None
        self._elastic: ElasticTape | None = None  # made when it is first needed
        self._running: ElasticTape | None = None  # what a run that was interrupted is a run of
        self.records = aligned((len(tape.ops), 8), np.int64)
        shared = [op.mode == DYNAMIC for op in tape.ops]
        counters = aligned((max(1, sum(shared)), tape.threads, COUNTER_SLOTS), np.int64)
        offsets = np.maximum(np.cumsum(shared) - 1, 0) * counters.strides[0]
        args, located = _argument_blocks(tape.ops, tape.threads)
        ahead, meets = _read_ahead(tape.ops)
        self._keep += [args, counters, ahead, [(op.args, op.units) for op in tape.ops]]
        first_counter = _address(counters)
        rows = zip(tape.ops, located, offsets.tolist(), meets, strict=True)
        self.records[:] = [
            (library.address(op.kernel), *where, _address(op.units), op.mode, op.chunk, meet,
             first_counter + offset)
            for op, where, offset, meet in rows
        ]  # fmt: skip
        self._threads = tape.threads
        self._at = (self.records.ctypes.data, len(tape.ops))
        self.times = self.account()
        """Times of runs for which no other `TapeTimes` is given."""

    def account(self) -> TapeTimes:
        """Return a new `TapeTimes` for this tape."""
        return TapeTimes(self._threads, len(self), self.pool.cycles_per_second)

    def run(self, start: int = 0, times: TapeTimes | None = None) -> int:
        """Run from op `start` to the end or the slice's end; return the next op or `len(self)`."""
        records, count = self._at
        times, pool = times or self.times, self.pool
        if start == 0:
            elastic = pool.elastic and self._ops is not None and pool.active > 1
            self._running = self._as_elastic() if elastic else None
        if self._running is not None:
            following = self._running.run(pool, start, *times.buffer)
        else:
            following = pool.run(records, count, start, *times.buffer)
        if following == count:
            times.passes += 1
            times.active_threads += pool.active
        return following

    def _as_elastic(self) -> ElasticTape:
        if self._elastic is None:
            assert self._ops is not None, self.name
            self._elastic = ElasticTape(self._ops, self.records, self._threads)
        return self._elastic

    def __len__(self) -> int:
        return len(self.names)


class ElasticTape:
    """The ops of a tape, split into the groups of an elastic pass.

    Per-thread buffers, except for scratch, are replaced by the first thread's.
    """

    def __init__(self, ops: Sequence[Op], records: np.ndarray, threads: int) -> None:
        common = [dataclasses.replace(op, args=[_common(a) for a in op.args]) for op in ops]
        self._args, located = _argument_blocks(common, threads)
        self.records = aligned(records.shape, np.int64)
        self.records[:] = records
        self.records[:, [OP_ARGS, OP_ARGS_STRIDE]] = located
        found = list(_groups(ops))
        self._counters = aligned((len(found), threads, COUNTER_SLOTS), np.int64)
        self.groups = aligned((len(found), GROUP_BYTES // 8), np.int64)
        counters = _address(self._counters)
        for n, (first, count, meets) in enumerate(found):
            op, own = ops[first], counters + n * self._counters.strides[0]
            whole, chunk = op.mode == REPLICATED, op.chunk if op.mode == DYNAMIC else 0
            self.groups[n, : G_COUNTERS + 1] = first, count, whole, chunk, meets, own
        self._first = [first for first, _, _ in found] + [len(ops)]
        assert len(found) < MAX_GROUPS, len(found)

    def run(self, pool: Pool, start: int, stats: int, stride: int) -> int:
        """Run from op `start`; return the next op, as `Pool.run` does."""
        group = self._first.index(start)
        tables = _address(self.records), _address(self.groups), len(self.groups)
        return self._first[pool.run_elastic(*tables, group, stats, stride)]


def _read_ahead(ops: Sequence[Op]) -> tuple[np.ndarray, list[int]]:
    """Return what threads read after each barrier, and the `OP_BARRIER` fields of the records."""
    found = aligned((len(ops), AHEAD_SLOTS), np.int64)
    meets, following = [0] * len(ops), None
    for n in range(len(ops) - 1, -1, -1):
        op = ops[n]
        if op.barrier:
            meets[n] = 1
            if following is not None:
                found[n, : A_UNITS + 1] = following
                meets[n] = _address(found) + n * found.strides[0]
        if op.unit_bytes:
            following = _address(op.args[0]), op.unit_bytes, _address(op.units)
        elif op.mode != REPLICATED:
            following = None
    return found, meets


def _groups(ops: Sequence[Op]) -> Iterator[tuple[int, int, bool]]:
    """Group runs of ops: (first op, count, whether threads synchronize afterwards)."""
    first = 0
    for n, op in enumerate(ops):
        following = ops[n + 1] if n + 1 < len(ops) else None
        if following is not None and not op.barrier and op.mode == following.mode != DYNAMIC:
            continue
        # What one has done for all, all wait for; and it must not be done anew while they read it.
        whole = op.mode == REPLICATED or (following is not None and following.mode == REPLICATED)
        yield first, n + 1 - first, op.barrier or whole or following is None
        first = n + 1


def _common(arg: Any) -> Any:
    """Return an argument for an elastic pass; scratch memory stays per thread."""
    return arg.buffers[0] if isinstance(arg, PerThread) and not arg.scratch else arg


def _argument_blocks(ops: Sequence[Op], threads: int) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Build the argument slots of all ops; return them, and where each op's are with its stride."""
    blocks = [_argument_block(op, threads) for op in ops]
    slots = aligned(sum(len(block) for block, _ in blocks), np.int64)
    slots[:] = [value for block, _ in blocks for value in block]
    ends = accumulate((8 * len(block) for block, _ in blocks), initial=_address(slots))
    return slots, [(at, stride) for at, (_, stride) in zip(ends, blocks, strict=False)]


def _argument_block(op: Op, threads: int) -> tuple[list[int], int]:
    """Build an op's argument slots; return them and the stride between threads (0: shared)."""
    assert len(op.args) == len(op.kernel.source.params), (op.name, len(op.args))
    width = _round_up(len(op.args), 8)  # whole cache lines
    own = PerThread in map(type, op.args)
    block: list[int] = []
    for tid in range(threads if own else 1):
        block += [_slot(arg, tid) for arg in op.args]
        block += [0] * (width - len(op.args))
    return block, 8 * width if own else 0


def _slot(arg: Any, tid: int) -> int:
    """Encode one argument as eight bytes; a float takes the lower four."""
    if isinstance(arg, np.ndarray):
        return _address(arg)
    if isinstance(arg, PerThread):
        return _address(arg.buffers[tid])
    if isinstance(arg, float):
        return int.from_bytes(struct.pack("<f", arg), "little")
    return int(arg)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]  # half the time of `ctypes.data`


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


__all__ = [
    "DYNAMIC",
    "REPLICATED",
    "STATIC",
    "CompiledTape",
    "Op",
    "PerThread",
    "Tape",
    "TapeTimes",
]
