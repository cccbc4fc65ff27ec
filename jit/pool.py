"""A pool of native threads that runs tapes; `executor.py` is its native side.

The workers are Python threads that make one call into native code and stay there without the GIL
until the pool is closed, so no thread API of ours is needed on any system.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arguments import Closing, ProcessBound
from ..errors import CompileError, EngineError
from ..interrupts import held
from . import executor, pool_block
from .compile import Library, spec
from .cores import order, usable_cpus
from .elastic_executor import MAX_THREADS

SLICE_S = 0.05  # a pass comes up for air this often, so that Python sees Ctrl-C within 200 ms
SPIN_BARRIER_S = 200e-6  # far longer than any wait among threads that all have a core
SPIN_IDLE_S = 300e-6  # between two decode steps Python needs less than this
READ_AHEAD = 32 << 10  # bytes that a thread at a barrier asks for of what it reads next, at most
YIELD_AFTER_S = 400e-6  # in an elastic pass a thread offers its core as often as this
ELASTIC_SLICE_NS = 100_000  # the shortest slice that Linux grants
# Numbers of sched_setattr and sched_getattr, for which C libraries have no functions.
_SCHEDULING_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
_ATTRIBUTES, _RUNTIME = 56, 24  # bytes of struct sched_attr, and where its sched_runtime is


def aligned(shape: int | tuple[int, ...], dtype: Any, alignment: int = 64) -> np.ndarray:
    """Return a zeroed array that starts at a multiple of `alignment` bytes."""
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    size = count * np.dtype(dtype).itemsize
    raw = np.zeros(size + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size].view(dtype).reshape(shape)


def _c_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        raise CompileError("the thread pool needs pthreads: Windows is not supported yet")
    return ctypes.CDLL(None)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class Pool(ProcessBound, Closing):
    """A pool of `threads` native threads, the calling one among them, that runs tapes."""

    def __init__(self, library: Library, threads: int) -> None:
        assert 1 <= threads <= MAX_THREADS, threads
        self.threads = threads
        self.elastic = False
        """Whether passes continue without descheduled threads, if their tape allows it."""
        self.closed = False
        self.forked = False
        """Whether the pool's threads belong to the process that this one was forked from."""
        self.abandoned: Callable[[], bool] = bool
        """Returns, after a fork, whether a thread that only the parent has was using the pool."""
        self._block = aligned(pool_block.POOL_SLOTS, np.int64)
        self._slots = self._block.data  # a number of its own at a third of numpy's price
        # pthread_mutex_t and pthread_cond_t are at most 64 bytes wherever there are pthreads.
        self._locks = aligned((2, 16), np.int64)
        self._c = _c_library()
        self._library = library  # it owns the code that the threads run
        native = _native(library)
        self._run, self._run_elastic, self._worker, self._shutdown, self._wake, self.cycles = native
        self._address = self._block.ctypes.data
        block = self._block
        self.active = block[pool_block.THREADS] = block[pool_block.ACTIVE] = threads
        """Number of threads that run passes: see `set_active`."""
        self._start_c_library()
        self.cycles_per_second = clock_rate(library)
        block[pool_block.SPIN_BARRIER] = int(SPIN_BARRIER_S * self.cycles_per_second)
        block[pool_block.SPIN_IDLE] = int(SPIN_IDLE_S * self.cycles_per_second)
        block[pool_block.YIELD_AFTER] = int(YIELD_AFTER_S * self.cycles_per_second)
        block[pool_block.READ_AHEAD] = READ_AHEAD
        self._slice = int(SLICE_S * self.cycles_per_second)
        self._workers: list[threading.Thread] = []
        self.worker_ids: list[int] = []
        """The system's thread ids of the workers; the first `active` - 1 of them run passes."""
        # A daemon thread must not run on into memory that the interpreter has freed.
        owned = (block, self._locks, library)
        self._close = weakref.finalize(self, _shut_down, owned, self._workers, self._shutdown)
        self._start_workers()
        self._pin()
        _pools.add(self)

    def _start_workers(self) -> None:
        for tid in range(1, self.threads):
            worker = threading.Thread(
                target=self._worker,
                args=(self._address, tid),
                name=f"triplepoint-{tid}",
                daemon=True,
            )
            try:
                with held():  # one that runs, and is not known, would not be waited for
                    worker.start()
                    self._workers.append(worker)
                    self.worker_ids.append(worker.native_id or 0)
            except RuntimeError as error:
                self.close()
                raise EngineError(
                    f"only {tid} of {self.threads} threads could be started ({error}); ask for "
                    "fewer threads, or raise the limit on processes"
                ) from None

    def _start_c_library(self) -> None:
        block, c = self._block, self._c
        mutex, cond = self._locks[0].ctypes.data, self._locks[1].ctypes.data
        if c.pthread_mutex_init(ctypes.c_void_p(mutex), None):
            raise CompileError("pthread_mutex_init failed")
        if c.pthread_cond_init(ctypes.c_void_p(cond), None):
            raise CompileError("pthread_cond_init failed")
        block[pool_block.MUTEX], block[pool_block.COND] = mutex, cond
        for slot, name in (
            (pool_block.LOCK_FN, "pthread_mutex_lock"),
            (pool_block.UNLOCK_FN, "pthread_mutex_unlock"),
            (pool_block.WAIT_FN, "pthread_cond_wait"),
            (pool_block.BROADCAST_FN, "pthread_cond_broadcast"),
            (pool_block.YIELD_FN, "sched_yield"),
        ):
            block[slot] = _address(getattr(c, name))

    def _pin(self) -> None:
        """Pin each worker to a core of its own; leave the calling thread, which is the caller's.

        Left alone, two threads that meet every few microseconds can end up on one core for good
        when the other is busy: each ran too recently for the scheduler to move it. A pass then took
        25 times as long.
        """
        self._cores: list[int] = []  # of each worker
        self.arranges = self._filled = False
        """Whether the CPUs have several domains, so that `arrange` makes a difference."""
        self._worker_cores: frozenset[int] = frozenset()  # CPUs that the caller leaves to them
        if not hasattr(os, "sched_setaffinity"):
            return
        cpus = usable_cpus()
        if not 1 < self.threads <= len(cpus):
            return
        self._orders = order(cpus)[1 : self.threads], order(cpus, fill=True)[1 : self.threads]
        self.arranges = self._orders[0] != self._orders[1]
        self._cores = list(self._orders[0])
        self._core_of = {cpu.number: cpu.core for cpu in cpus}
        self._weak = frozenset(cpu.number for cpu in cpus if not cpu.strong)
        self._current_core = self._c.sched_getcpu
        try:
            for worker in range(self.threads - 1):
                self._pin_worker(worker)
        except OSError:  # a sandbox may forbid it
            self._unpin()
        self._reserve()

    def _pin_worker(self, worker: int) -> None:
        if tid := self.worker_ids[worker]:
            os.sched_setaffinity(tid, {self._cores[worker]})

    def _unpin(self) -> None:
        """Let the scheduler choose the workers' cores."""
        self._cores, self._worker_cores = [], frozenset()
        with contextlib.suppress(OSError):
            for tid in self.worker_ids:
                os.sched_setaffinity(tid, os.sched_getaffinity(0))

    def arrange(self, *, fill: bool) -> None:
        """Pin the workers domain by domain or spread over domains (`cores.py`), between passes."""
        if fill != self._filled and self._cores and self.arranges:
            self._filled, self._cores = fill, list(self._orders[fill])
            try:
                for worker in range(self.threads - 1):
                    self._pin_worker(worker)
            except OSError:  # the cores that are allowed have changed
                self._unpin()
            self._reserve()

    def _reserve(self) -> None:
        """Keep the caller off the cores of the workers that run, and off weak ones."""
        if self._cores:
            running = self._cores[: self.active - 1]
            busy = {self._core_of[cpu] for cpu in running}
            left = {cpu for cpu, core in self._core_of.items() if core not in busy} - self._weak
            self._worker_cores = frozenset(self._core_of.keys() - left if left else running)

    def swap_cores(self, worker: int, other: int) -> None:
        """Swap the cores of two workers; call it between passes."""
        if self._cores and worker != other:
            self._cores[worker], self._cores[other] = self._cores[other], self._cores[worker]
            try:
                self._pin_worker(worker)
                self._pin_worker(other)
            except OSError:  # the cores that are allowed have changed
                self._unpin()

    def _leave_worker_core(self) -> None:
        """Move the calling thread off a worker's core, then restore its affinity."""
        allowed = os.sched_getaffinity(0)
        if allowed - self._worker_cores:
            os.sched_setaffinity(0, allowed - self._worker_cores)
            os.sched_setaffinity(0, allowed)

    def set_active(self, count: int) -> None:
        """Set how many threads run from the next pass on; 1 <= count <= threads."""
        assert 1 <= count <= self.threads, (count, self.threads)
        self.active = self._slots[pool_block.ACTIVE] = count
        self._reserve()

    def set_elastic(self, on: bool) -> None:
        """Set whether passes continue without descheduled threads (`elastic_executor.py`).

        Its threads, the caller among them, ask for short time slices meanwhile: to offer the core
        costs what is left of a slice (Linux from 6.18 on), which is 1.4 ms and more as it stands.
        """
        if on != self.elastic:
            self.elastic = on
            for tid in (0, *self.worker_ids):
                request_slice(tid, ELASTIC_SLICE_NS if on else 0)

    def set_spin(self, barrier_s: float, idle_s: float) -> None:
        """Set how long a thread spins at a barrier, and between passes, before it parks."""
        self._block[pool_block.SPIN_BARRIER] = int(barrier_s * self.cycles_per_second)
        self._block[pool_block.SPIN_IDLE] = int(idle_s * self.cycles_per_second)

    @property
    def parks(self) -> int:
        """Number of times that a worker parked between passes, since none came while it spun."""
        return self._slots[pool_block.PARKS]

    def wake(self) -> None:
        """Wake the parked workers before a pass that is about to come.

        Between passes only, as with `run`: in the midst of one, its threads would not come.
        """
        if self._slots[pool_block.START_PARKED] and not self.closed:
            self._wake(self._address)

    @property
    def parked(self) -> bool:
        """Whether any worker sleeps until the next pass."""
        return self._slots[pool_block.START_PARKED] != 0

    def await_workers(self, patience_s: float) -> bool:
        """Wake the parked workers; return whether all had a core again within `patience_s`.

        A worker that was woken may still have to wait: where another process runs on its core the
        system may let that finish its slice first, which is some milliseconds.
        """
        self.wake()
        until = time.perf_counter() + patience_s
        while self.parked:
            if time.perf_counter() >= until:
                return False
        return True

    def run(self, ops: int, count: int, start: int, stats: int, stride: int) -> int:
        """Run `count` ops from op `start` for at most about SLICE_S; return the next op's index.

        ops: address of int64 [count, 8]; stats: address of int64 [threads, stride / 16, 2], cycles
        of work and of waiting, added to. Plain addresses: this is called for every token.

        Raises:
            EngineError: the pool is closed; its workers would never come to the barrier.
        """
        self._before_run()
        return self._run(self._address, ops, count, start, self._slice, stats, stride)

    def run_elastic(
        self, ops: int, groups: int, count: int, start: int, stats: int, stride: int
    ) -> int:
        """Run a tape of groups as an elastic pass, as `run` runs ops.

        groups: address of int64 [count, 8].
        """
        self._before_run()
        table = ops, groups, count, start
        return self._run_elastic(self._address, *table, self._slice, stats, stride)

    def check_open(self) -> None:
        """Raise EngineError if the pool is closed or belongs to the parent of a fork."""
        if self.closed:
            why = "was loaded before this process was forked" if self.forked else "is closed"
            raise EngineError(f"the engine {why}; load the model again")

    def _before_run(self) -> None:
        self.check_open()
        if self._worker_cores and self._current_core() in self._worker_cores:
            self._leave_worker_core()

    def stop(self) -> None:
        """Stop the running pass at its next barrier; any thread may call this."""
        self._slots[pool_block.STOP] = 1

    @property
    def stopped(self) -> bool:
        return self._slots[pool_block.STOP] != 0

    def clear_stop(self) -> None:
        self._slots[pool_block.STOP] = 0

    def close(self) -> None:
        """Shut the workers down; the pool cannot run again."""
        self.closed = True
        self._close()

    def leave_to_parent(self) -> None:
        """Detach a forked child from the pool: it has no workers, and nothing to shut down."""
        if not self.closed and (self.threads > 1 or self.abandoned()):
            self.closed = self.forked = True
        self._close.detach()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in _pools:
        pool.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def request_slice(tid: int, nanoseconds: int) -> bool:
    """Request time slices of that length for a thread (0: the default); return whether granted.

    Linux takes it from 6.12 on, and ignores it before.
    """
    numbers = _SCHEDULING_CALLS.get(os.uname().machine)
    if sys.platform != "linux" or numbers is None:
        return False
    set_, get = numbers
    call, attributes = ctypes.CDLL(None).syscall, (ctypes.c_uint8 * _ATTRIBUTES)()
    if call(get, tid, attributes, _ATTRIBUTES, 0):
        return False
    ctypes.c_uint64.from_buffer(attributes, _RUNTIME).value = nanoseconds
    return call(set_, tid, attributes, 0) == 0


_starved: list[Any] = []
"""Memory that workers use which did not exit in time: their code, and the words they poll."""


def _shut_down(owned: tuple[Any, ...], workers: list[threading.Thread], shutdown: Any) -> None:
    block = owned[0]
    block[pool_block.SHUTDOWN] = 1
    shutdown(block.ctypes.data)
    for worker in workers:
        worker.join(timeout=5)
    if any(worker.is_alive() for worker in workers):
        _starved.append(owned)


def _native(library: Library) -> tuple[Any, ...]:
    library.load([spec(executor.EXECUTOR)])
    size = ctypes.c_int64
    at = ctypes.c_void_p
    kinds = {
        "tp_run": ctypes.CFUNCTYPE(size, at, at, size, size, size, at, size),
        "tp_run_elastic": ctypes.CFUNCTYPE(size, at, at, at, size, size, size, at, size),
        "tp_worker": ctypes.CFUNCTYPE(None, at, size),
        "tp_shutdown": ctypes.CFUNCTYPE(None, at),
        "tp_wake": ctypes.CFUNCTYPE(None, at),
        "tp_cycles": ctypes.CFUNCTYPE(size),
    }
    run, *rest = executor.FUNCTIONS
    addresses = [library.address(spec(executor.EXECUTOR))]
    addresses += [library.symbol_address(spec(executor.EXECUTOR), name) for name in rest]
    names = (run, *rest)
    return tuple(kinds[n](address) for n, address in zip(names, addresses, strict=True))


@functools.lru_cache(maxsize=1)  # no more: a library holds the code of all its kernels
def clock_rate(library: Library) -> float:
    """Measure the rate of the executor's clock in cycles a second, over milliseconds."""
    cycles = _native(library)[-1]
    best = 0.0
    for _ in range(3):
        t0, c0 = time.perf_counter(), cycles()
        while time.perf_counter() - t0 < 0.001:
            pass
        c1, t1 = cycles(), time.perf_counter()
        # The cycles are taken inside the time: whoever interrupts makes the rate too low.
        best = max(best, (c1 - c0) / (t1 - t0))
    return best
