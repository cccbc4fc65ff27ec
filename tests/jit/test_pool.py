"""The thread pool: the same results with any number of threads, stops, wakes and ends."""

from __future__ import annotations

import ctypes
import gc
import threading
import time

import numpy as np
import pytest
from helpers.native_ops import (
    COUNT,
    NEIGHBORS,
    SPIN,
    VISIT,
    MakePool,
    neighbors_reference,
)

from triplepoint.errors import EngineError
from triplepoint.jit import pool_block
from triplepoint.jit.compile import Library
from triplepoint.jit.pool import Pool, aligned
from triplepoint.jit.tape import DYNAMIC, REPLICATED, STATIC, CompiledTape, PerThread, Tape

THREADS = pytest.mark.parametrize("threads", [1, 2, 3, 4])


def _ring(library: Library, pool: Pool, size: int, steps: int, mode: int) -> tuple:
    """A tape on which each step needs what the step before wrote anywhere."""
    a, b = (aligned(size, np.int64) for _ in range(2))
    units = np.array([size], np.int64)
    tape = Tape("ring", pool.threads)
    for step in range(steps):
        args = [a, b, size] if step % 2 == 0 else [b, a, size]
        tape.op("step", NEIGHBORS, args, units, mode=mode, chunk=3)
    return tape.finish(library, pool), a, b if steps % 2 else a


def _run_tape(tape: CompiledTape) -> int:
    """Run to the end; how many calls it took."""
    at, calls = 0, 0
    while at < len(tape):
        at = tape.run(at)
        calls += 1
    return calls


def _long(library: Library, pool: Pool, ops: int, loops: int) -> CompiledTape:
    """A tape of `ops` ops of about `loops` ns each."""
    tape = Tape("long", pool.threads)
    sinks = PerThread([aligned(8, np.int64) for _ in range(pool.threads)])
    for _ in range(ops):
        tape.op("spin", SPIN, [np.array([loops]), sinks], np.array([1]), mode=REPLICATED)
    return tape.finish(library, pool)


# --- work is shared out


@THREADS
@pytest.mark.parametrize("mode", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_results_do_not_depend_on_threads(
    library: Library, make_pool: MakePool, threads: int, mode: int
) -> None:
    """Threads meet after every op: 101 steps of a ring come out as in numpy, however shared."""
    tape, start, end = _ring(library, make_pool(threads), 37, 101, mode)
    with np.errstate(over="ignore"):
        want = neighbors_reference(np.arange(37), 101)
    for _ in range(20):
        start[:] = np.arange(37)
        _run_tape(tape)
        assert np.array_equal(end, want)


@THREADS
@pytest.mark.parametrize("units", [0, 1, 3, 4, 37])
def test_static_gives_each_thread_one_range(
    library: Library, make_pool: MakePool, threads: int, units: int
) -> None:
    """Every unit is done once; thread t's range lies before thread t + 1's."""
    pool = make_pool(threads)
    times, who = aligned(64, np.int64), aligned(64, np.int64)
    tape = Tape("static", threads)
    tape.op("visit", VISIT, [times, who], np.array([units]), mode=STATIC)
    _run_tape(tape.finish(library, pool))

    assert times.tolist() == [1] * units + [0] * (64 - units)
    assert (np.diff(who[:units]) >= 0).all()
    if units >= threads:
        sizes = np.bincount(who[:units], minlength=threads)
        assert sizes.max() - sizes.min() <= 1


@THREADS
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_dynamic_does_each_unit_once(
    library: Library, make_pool: MakePool, threads: int, chunk: int
) -> None:
    """Chunks are handed out once each, also when one is larger than all the work."""
    pool = make_pool(threads)
    times, who = aligned(64, np.int64), aligned(64, np.int64)
    tape = Tape("dynamic", threads)
    for _ in range(5):
        tape.op("visit", VISIT, [times, who], np.array([50]), mode=DYNAMIC, chunk=chunk)
    native = tape.finish(library, pool)
    for _ in range(3):
        _run_tape(native)

    assert times.tolist() == [15] * 50 + [0] * 14


def test_dynamic_takes_over_from_a_busy_thread(library: Library, make_pool: MakePool) -> None:
    """While one thread is kept busy, the other does the rest of both ranges, each from its end."""
    pool = make_pool(2)
    times, who = aligned(64, np.int64), aligned(64, np.int64)
    loops, sinks = np.array([[50_000_000], [0]]), aligned((2, 8), np.int64)
    one = np.array([1])
    tape = Tape("busy", 2)
    args = [PerThread(list(loops)), PerThread(list(sinks))]
    tape.op("spin", SPIN, args, one, mode=REPLICATED, barrier=False)
    tape.op("visit", VISIT, [times, who], np.array([40]), mode=DYNAMIC, chunk=3)
    native = tape.finish(library, pool)
    taken = 0
    for _ in range(10):  # on a machine with other work the second thread may come late
        times[:], who[:] = 0, -1
        _run_tape(native)
        assert times.tolist() == [1] * 40 + [0] * 24
        mine, theirs = who[:20].tolist(), who[20:40].tolist()
        assert mine == sorted(mine)  # its owner from the front, the other from the back
        taken = max(taken, sum(mine))
        assert set(theirs) <= {0, 1}
    assert taken >= 17


@THREADS
def test_each_does_all_units(library: Library, make_pool: MakePool, threads: int) -> None:
    """Every thread does every unit, with arguments of its own, in one call."""
    pool = make_pool(threads)
    mine = [aligned(8, np.int64) for _ in range(threads)]
    tape = Tape("each", threads)
    tape.op("count", COUNT, [PerThread(mine)], np.array([7]), mode=REPLICATED, barrier=False)
    tape.op("count", COUNT, [PerThread(mine)], np.array([2]), mode=REPLICATED)
    _run_tape(tape.finish(library, pool))

    assert [m[:2].tolist() for m in mine] == [[2, 9]] * threads


def test_units_are_read_when_played(library: Library, make_pool: MakePool) -> None:
    """A pass with fewer tokens is the same tape with another number in it."""
    pool = make_pool(2)
    times, who, units = aligned(64, np.int64), aligned(64, np.int64), np.array([5])
    tape = Tape("visit", 2)
    tape.op("visit", VISIT, [times, who], units)
    native = tape.finish(library, pool)
    for n in (5, 0, 2):
        units[0] = n
        _run_tape(native)

    assert times[:6].tolist() == [2, 2, 1, 1, 1, 0]


# --- threads come and go


def test_active_threads(library: Library, make_pool: MakePool) -> None:
    """Between passes any number of threads can be set to run; the others stay out of it.

    With no spinning at all, threads sleep and wake late: a thread that wakes for an old pass must
    not join the next one.
    """
    pool = make_pool(4)
    pool.set_spin(0, 0)
    mine = [aligned(8, np.int64) for _ in range(4)]
    tape = Tape("count", 4)
    for _ in range(2):
        tape.op("count", COUNT, [PerThread(mine)], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    want = np.zeros(4, int)
    for n in range(1500):
        pool.set_active(1 + n % 4)
        if n % 7 == 0:
            pool.wake()
        at = 0
        while at < len(native):  # a pass that waits long for a core comes back in between
            at = native.run(at)
        want[: pool.active] += 2
        assert [m[0] for m in mine] == want.tolist(), n


def test_active_has_bounds(make_pool: MakePool) -> None:
    """More threads than there are, or none, is our bug."""
    pool = make_pool(2)
    for wrong in (0, 3):
        with pytest.raises(AssertionError):
            pool.set_active(wrong)


@pytest.mark.parametrize("spin", [0.0, 1e-4])
def test_sleeping_threads_wake(library: Library, make_pool: MakePool, spin: float) -> None:
    """Threads that have parked between passes, or at a barrier, are woken every time."""
    pool = make_pool(3)
    pool.set_spin(spin, spin)
    tape, start, end = _ring(library, pool, 12, 21, STATIC)
    with np.errstate(over="ignore"):
        want = neighbors_reference(np.arange(12), 21)
    for n in range(60):
        if n % 10 == 0:
            time.sleep(0.01)  # long past the time that a thread spins
        start[:] = np.arange(12)
        _run_tape(tape)
        assert np.array_equal(end, want)


def test_nothing_is_written_after_a_pass(library: Library, make_pool: MakePool) -> None:
    """When run returns, no thread touches the tape's memory any more: it may be freed.

    The other thread has long been asleep at the last barrier when the first one leaves.
    """
    pool = make_pool(2)
    pool.set_spin(0, 0)
    loops = PerThread([np.array([200_000]), np.array([1])])
    sinks = PerThread([aligned(8, np.int64) for _ in range(2)])
    tape = Tape("late", 2)
    tape.op("spin", SPIN, [loops, sinks], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    for _ in range(50):
        native.run()
        at_return = native.times.stats.copy()
        time.sleep(0.002)
        assert np.array_equal(native.times.stats, at_return)


def test_close_ends_the_threads(library: Library) -> None:
    """After close the threads are gone; running on is an error and not a hang."""
    pool = Pool(library, 3)
    tape, *_ = _ring(library, pool, 8, 3, STATIC)
    _run_tape(tape)
    assert all(worker.is_alive() for worker in pool._workers)
    pool.close()
    pool.close()

    assert not any(worker.is_alive() for worker in pool._workers)
    with pytest.raises(EngineError, match="closed"):
        tape.run()


@pytest.mark.slow
def test_a_forgotten_pool_ends_its_threads(library: Library) -> None:
    """A pool that nobody refers to any more does not leave threads behind."""
    pool = Pool(library, 3)
    workers = pool._workers
    del pool
    gc.collect()

    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.slow
def test_two_pools_side_by_side(library: Library, make_pool: MakePool) -> None:
    """Pools in two threads of Python at once do not disturb each other."""
    failures: list[str] = []

    def work(threads: int) -> None:
        tape, start, end = _ring(library, make_pool(threads), 16, 51, DYNAMIC)
        with np.errstate(over="ignore"):
            want = neighbors_reference(np.arange(16), 51)
        for n in range(50):
            start[:] = np.arange(16)
            _run_tape(tape)
            if not np.array_equal(end, want):
                failures.append(f"{threads} threads, round {n}")

    both = [threading.Thread(target=work, args=(n,)) for n in (2, 3)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(60)

    assert not any(thread.is_alive() for thread in both)
    assert not failures


# --- a pass comes up for air, and can be stopped


def test_a_long_pass_returns_now_and_then(library: Library, make_pool: MakePool) -> None:
    """After its time slice run returns, and goes on where it was: the result is the same."""
    pool = make_pool(2)
    sinks = [aligned(8, np.int64) for _ in range(2)]
    tape = Tape("long", 2)
    for _ in range(30):
        args = [np.array([5_000_000]), PerThread(sinks)]
        tape.op("spin", SPIN, args, np.array([1]), mode=REPLICATED)
    tape.op("count", COUNT, [PerThread(sinks)], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    calls = _run_tape(native)

    assert calls > 1
    assert native.times.passes == 1
    assert np.array_equal(sinks[0], sinks[1])  # both threads left and came back at the same ops


@THREADS
def test_stop_from_another_thread(library: Library, make_pool: MakePool, threads: int) -> None:
    """A pass of many seconds ends soon after stop(), and the pool can run again at once."""
    pool = make_pool(threads)
    tape = _long(library, pool, 1000, 10_000_000)
    timer = threading.Timer(0.03, pool.stop)
    timer.start()
    started = time.perf_counter()
    at = 0
    while at < len(tape) and not pool.stopped:
        at = tape.run(at)
    took = time.perf_counter() - started
    timer.join()

    assert pool.stopped
    assert 0 < at < len(tape)
    assert took < 2.0  # the promise is 0.2 s; a busy machine may be late
    pool.clear_stop()
    ring, start, end = _ring(library, pool, 9, 11, STATIC)
    start[:] = np.arange(9)
    _run_tape(ring)
    assert np.array_equal(end, neighbors_reference(np.arange(9), 11))


def test_who_wakes_late_from_a_stopped_pass(library: Library, make_pool: MakePool) -> None:
    """A worker that slept through the next pass, too, does no more of the one that was stopped."""
    pool, ops = make_pool(2), 4
    pool.set_spin(0.0, 60.0)  # at a barrier it sleeps at once
    asleep, wake_up = threading.Event(), threading.Event()
    caller = threading.get_ident()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def sleep_on(_: int, mutex: int) -> int:
        pool._c.pthread_mutex_unlock(ctypes.c_void_p(mutex))
        if threading.get_ident() != caller:
            asleep.set()
            wake_up.wait(60)
        return pool._c.pthread_mutex_lock(ctypes.c_void_p(mutex))

    two, loops = np.full(1, 2, np.int64), [np.full(1, n, np.int64) for n in (300_000_000, 1)]
    sinks, mine = ([np.zeros(8, np.int64) for _ in range(2)] for _ in range(2))
    stopped, alone = Tape("stopped", 2), Tape("alone", 2)
    stopped.op("spin", SPIN, [PerThread(loops), PerThread(sinks)], two)  # the caller comes last
    for n in range(ops):
        stopped.op(f"count {n}", COUNT, [PerThread(mine)], two)
        alone.op(f"spin {n}", SPIN, [loops[1], sinks[0]], two)
    first, following = (tape.finish(library, pool) for tape in (stopped, alone))
    _run_tape(following)  # before it the worker waited as it was made to, and could sleep there
    usual = pool._block[pool_block.WAIT_FN]
    pool._block[pool_block.WAIT_FN] = ctypes.cast(sleep_on, ctypes.c_void_p).value

    for _ in range(50):  # a worker that had no core for so long comes last
        pool.stop()
        assert first.run() == 1
        pool.clear_stop()
        if asleep.wait(0.5):
            break
    assert asleep.is_set(), "the worker came to the barrier before the caller"
    pool.set_active(1)
    _run_tape(following)
    pool._block[pool_block.WAIT_FN] = usual
    wake_up.set()
    pool.set_active(2)
    _run_tape(following)
    assert not np.array(mine).any()


def test_stop_before_a_pass(library: Library, make_pool: MakePool) -> None:
    """A stop that came early ends the pass at its first barrier."""
    pool = make_pool(2)
    tape, *_ = _ring(library, pool, 8, 10, STATIC)
    pool.stop()

    assert tape.run() == 1
    assert tape.times.passes == 0
    pool.clear_stop()
    assert _run_tape(tape) == 1


def test_play_releases_the_gil(library: Library, make_pool: MakePool) -> None:
    """While a pass runs, other threads of Python run too."""
    pool = make_pool(1)
    tape = _long(library, pool, 20, 3_000_000)
    ticks = []
    over = threading.Event()

    def tick() -> None:
        while not over.is_set():
            ticks.append(tape.times.passes)
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    _run_tape(tape)
    over.set()
    thread.join()

    assert ticks.count(0) > 3


# --- stamps


def test_stamps_add_up(library: Library, make_pool: MakePool) -> None:
    """Work and waiting of each thread fill its pass; whoever has less to do waits for the other."""
    pool = make_pool(2)
    loops = PerThread([np.array([400_000]), np.array([40_000])])
    sinks = PerThread([aligned(8, np.int64) for _ in range(2)])
    tape = Tape("stamps", 2)
    for _ in range(60):
        tape.op("spin", SPIN, [loops, sinks], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    longer: list[bool] = []
    while sum(longer) < 2:  # another process may hold up either thread in one of them
        assert len(longer) < 50
        native.times.reset()
        started = time.perf_counter()
        _run_tape(native)
        wall = time.perf_counter() - started
        work, wait = native.times.work_seconds(), native.times.wait_seconds()

        assert work.shape == wait.shape == (2, 60)
        assert (work > 0).all()
        assert (wait >= 0).all()
        assert ((work + wait).sum(1) <= wall * 1.01).all()
        longer.append(bool(wait[1].sum() > wait[0].sum()))


def test_stamps_are_sums_until_reset(library: Library, make_pool: MakePool) -> None:
    """Passes add to the sums; reset starts anew."""
    pool = make_pool(1)
    native = _long(library, pool, 3, 100_000)
    _run_tape(native)
    one = native.times.work_seconds().sum()
    _run_tape(native)

    assert native.times.work_seconds().sum() > one
    assert native.times.passes == 2
    native.times.reset()
    assert native.times.passes == 0
    assert not native.times.stats.any()


def test_the_clock_runs_at_its_rate(make_pool: MakePool) -> None:
    """Seconds by the pool's clock are seconds."""
    pool = make_pool(1)
    t0, c0 = time.perf_counter(), pool.cycles()
    time.sleep(0.05)
    c1, t1 = pool.cycles(), time.perf_counter()

    assert (c1 - c0) / pool.cycles_per_second == pytest.approx(t1 - t0, rel=0.05)


def test_aligned() -> None:
    """Arrays start where asked, zeroed, with their shape and type."""
    for shape in (1, 7, (3, 5)):
        array = aligned(shape, np.float32, 128)
        assert array.ctypes.data % 128 == 0
        assert array.dtype == np.float32
        assert array.shape == ((shape,) if isinstance(shape, int) else shape)
        assert not array.any()
