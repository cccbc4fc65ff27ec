"""Elastic passes: the same results, whoever takes part, and nobody waits for who has no core."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from helpers.native_ops import COUNT, NEIGHBORS, SPIN, VISIT, MakePool, neighbors_reference

from triplepoint.jit import pool_block
from triplepoint.jit.compile import Library
from triplepoint.jit.pool import Pool, aligned
from triplepoint.jit.tape import DYNAMIC, REPLICATED, STATIC, CompiledTape, PerThread, Tape

THREADS = pytest.mark.parametrize("threads", [2, 3, 4])


def _elastic(make_pool: MakePool, threads: int, yield_after: int | None = None) -> Pool:
    pool = make_pool(threads)
    pool.elastic = True
    if yield_after is not None:
        pool._block[pool_block.YIELD_AFTER] = yield_after
    return pool


def _ring(
    library: Library, pool: Pool, steps: int, mode: int, size: int = 37
) -> tuple[CompiledTape, np.ndarray, np.ndarray]:
    """A tape on which each step needs what the step before wrote anywhere."""
    a, b = (aligned(size, np.int64) for _ in range(2))
    tape, units = Tape("ring", pool.threads, elastic=True), np.array([size], np.int64)
    for step in range(steps):
        args = [a, b, size] if step % 2 == 0 else [b, a, size]
        tape.op("step", NEIGHBORS, args, units, mode=mode, chunk=3)
    return tape.finish(library, pool), a, b if steps % 2 else a


def _run_tape(tape: CompiledTape, at: int = 0) -> None:
    """Run to the end, in however many time slices."""
    while at < len(tape):
        at = tape.run(at)


@THREADS
@pytest.mark.parametrize("yield_after", [None, 0], ids=["seldom", "always"])
@pytest.mark.parametrize("mode", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_results_do_not_depend_on_threads(
    library: Library, make_pool: MakePool, threads: int, mode: int, yield_after: int | None
) -> None:
    """101 steps of a ring come out as in numpy; so they do when threads rest after every piece."""
    pool = _elastic(make_pool, threads, yield_after)
    tape, start, end = _ring(library, pool, 101, mode)
    with np.errstate(over="ignore"):
        want = neighbors_reference(np.arange(37), 101)
    for turn in range(30):
        pool.set_active(2 + turn % (threads - 1))
        start[:] = np.arange(37)
        _run_tape(tape)
        assert np.array_equal(end, want)
    assert tape.times.passes == 30


@pytest.mark.slow
@THREADS
def test_passes_of_both_kinds_follow_each_other(
    library: Library, make_pool: MakePool, threads: int
) -> None:
    """Who comes late from a pass of one kind takes its part in the next one of the other kind."""
    pool = _elastic(make_pool, threads, 0)
    tape, start, end = _ring(library, pool, 9, STATIC)
    with np.errstate(over="ignore"):
        want = neighbors_reference(np.arange(37), 9)
    for turn in range(600):
        pool.elastic = turn % 3 != 0
        pool.set_active(1 + turn % threads)
        start[:] = np.arange(37)
        _run_tape(tape)
        assert np.array_equal(end, want)


@THREADS
def test_a_run_goes_on_as_it_began(library: Library, make_pool: MakePool, threads: int) -> None:
    """A time slice ends between two sections, and another setting meanwhile changes nothing."""
    pool = _elastic(make_pool, threads)
    pool._slice = 0
    tape, start, end = _ring(library, pool, 25, DYNAMIC)
    start[:] = np.arange(37)
    at = calls = 0
    while at < len(tape):
        at, calls, pool.elastic = tape.run(at), calls + 1, calls % 2 == 0

    assert calls == 25
    assert np.array_equal(end, neighbors_reference(np.arange(37), 25))


def test_stop_ends_a_pass(library: Library, make_pool: MakePool) -> None:
    """At the end of the section, whose successor is returned."""
    pool = _elastic(make_pool, 2)
    tape, _, _ = _ring(library, pool, 5, STATIC)
    pool.stop()
    assert tape.run() == 1
    pool.clear_stop()
    _run_tape(tape, 1)
    assert tape.times.passes == 1


@THREADS
def test_what_each_would_do_is_done_once(
    library: Library, make_pool: MakePool, threads: int
) -> None:
    """By one thread, in the first one's memory, where those find it who need it; scratch is own."""
    pool = _elastic(make_pool, threads)
    mine, seen = ([aligned(8, np.int64) for _ in range(threads)] for _ in range(2))
    tape = Tape("replicated", threads, elastic=True)
    common, scratch = PerThread(mine), PerThread(seen, scratch=True)
    tape.op("count", COUNT, [common], np.array([7]), mode=REPLICATED, barrier=False)
    tape.op("count", COUNT, [common], np.array([2]), mode=REPLICATED, barrier=False)
    tape.op("visit", COUNT, [scratch], np.array([40]))
    native = tape.finish(library, pool)
    for _ in range(10):
        _run_tape(native)

    assert mine[0][:2].tolist() == [20, 90]
    assert [one[:2].tolist() for one in mine[1:]] == [[0, 0]] * (threads - 1)
    assert sum(int(one[1]) for one in seen) == 400


@THREADS
@pytest.mark.parametrize("units", [(64, 32, 32), (8, 8), (37, 37), (24, 8), (1, 1), (0, 0)])
def test_ops_without_a_barrier_stay_on_one_thread(
    library: Library, make_pool: MakePool, threads: int, units: tuple[int, ...]
) -> None:
    """Each unit is done once, and who does a share of one op does that of the following ones."""
    pool = _elastic(make_pool, threads)
    tape, whose = Tape("chain", threads, elastic=True), []
    for n, count in enumerate(units, 1):
        times, who = aligned(64, np.int64), aligned(64, np.int64)
        whose.append((count, times, who))
        tape.op("visit", VISIT, [times, who], np.array([count]), barrier=n == len(units))
    native = tape.finish(library, pool)
    for turn in range(1, 11):
        _run_tape(native)
        for count, times, who in whose:
            assert times.tolist() == [turn] * count + [0] * (64 - count)
            (last, _, by), at = whose[-1], np.arange(count)
            if count == last or (last % threads == 0 and count % threads == 0):
                assert np.array_equal(who[:count], by[at * last // max(1, count)])


def test_a_thread_without_a_core_is_not_waited_for(library: Library, make_pool: MakePool) -> None:
    """The caller does all passes alone while the worker rests, and it returns to a later one."""
    pool = _elastic(make_pool, 2)
    tape, start, end = _ring(library, pool, 101, DYNAMIC)
    away, back = threading.Event(), threading.Event()
    caller = threading.get_ident()

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def yield_core() -> int:
        if threading.get_ident() != caller and not back.is_set():
            away.set()
            back.wait()
        return 0

    usual = pool._block[pool_block.YIELD_FN]
    pool._block[pool_block.YIELD_FN] = ctypes.cast(yield_core, ctypes.c_void_p).value
    pool._block[pool_block.YIELD_AFTER] = 0
    with np.errstate(over="ignore"):
        want = neighbors_reference(np.arange(37), 101)
    try:
        for _ in range(10_000):  # until the worker has come to one of them
            start[:] = np.arange(37)
            _run_tape(tape)
            assert np.array_equal(end, want)
            if away.is_set():
                break
        assert away.is_set()
        tape.times.reset()
        for _ in range(20):
            start[:] = np.arange(37)
            _run_tape(tape)
            assert np.array_equal(end, want)
        assert tape.times.work_seconds()[1].sum() == 0
    finally:
        back.set()
        pool._block[pool_block.YIELD_FN] = usual
    for _ in range(200):
        start[:] = np.arange(37)
        _run_tape(tape)
        assert np.array_equal(end, want)


def test_a_preempted_thread_leaves_the_rest_to_others(
    library: Library, make_pool: MakePool
) -> None:
    """While one thread is held up in a piece, the other takes all that is left of both ranges."""
    pool = _elastic(make_pool, 2)
    times, who = aligned(64, np.int64), aligned(64, np.int64)
    loops, sinks = np.array([30_000_000]), [aligned(8, np.int64) for _ in range(2)]
    tape = Tape("busy", 2, elastic=True)
    tape.op(
        "spin", SPIN, [loops, PerThread(sinks, True)], np.array([1]), barrier=False, mode=DYNAMIC
    )
    tape.op("visit", VISIT, [times, who], np.array([64]), mode=DYNAMIC)
    _run_tape(tape.finish(library, pool))

    assert times.tolist() == [1] * 64
