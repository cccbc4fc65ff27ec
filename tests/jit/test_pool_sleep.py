"""Threads of a pool that sleep: who does, who is woken, and who is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from helpers.native_ops import COUNT, MakePool

from triplepoint.jit import pool_block
from triplepoint.jit.compile import Library
from triplepoint.jit.pool import Pool, aligned
from triplepoint.jit.tape import REPLICATED, CompiledTape, PerThread, Tape


def _counting(library: Library, pool: Pool) -> tuple[list[np.ndarray], CompiledTape]:
    """A tape on which each thread counts its passes, and where."""
    mine = [aligned(8, np.int64) for _ in range(pool.threads)]
    tape = Tape("count", pool.threads)
    tape.op("count", COUNT, [PerThread(mine)], np.array([1]), mode=REPLICATED)
    return mine, tape.finish(library, pool)


def _until(condition: Callable[[], bool]) -> bool:
    """Wait for what another thread will do; a busy machine may take its time."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(1e-3)
    return condition()


def test_who_is_left_out_sleeps(library: Library, make_pool: MakePool) -> None:
    """A worker that has no part in many passes parks at most once more, and runs when asked to."""
    pool = make_pool(3)
    pool.set_spin(1.0, 0)
    mine = [aligned(8, np.int64) for _ in range(3)]
    tape = Tape("count", 3)
    tape.op("count", COUNT, [PerThread(mine)], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    native.run()
    pool.set_active(2)
    for _ in range(50):
        native.run()
    parked = int(pool._block[pool_block.ACTIVE_EPOCH_PARKED])
    assert _until(lambda: pool._block[pool_block.ACTIVE_EPOCH_PARKED] == 1), parked
    before = pool.parks
    for _ in range(50):
        native.run()
    assert pool._block[pool_block.ACTIVE_EPOCH_PARKED] == 1
    assert pool.parks - before <= 51, "only the other worker waits for passes"
    pool.set_active(3)
    native.run()
    assert [m[0] for m in mine] == [102, 102, 2]


def test_workers_that_sleep_can_be_waited_for(library: Library, make_pool: MakePool) -> None:
    """They are awake then, or it is said that they are not; awake ones are not waited for."""
    pool = make_pool(2)
    pool.set_spin(1e-3, 0.2)
    assert pool.await_workers(0.0) is not pool.parked
    assert _until(lambda: pool.parked)
    assert pool.await_workers(60.0)
    assert not pool.parked
    assert pool.await_workers(0.0)


def test_a_pass_of_the_caller_alone_wakes_nobody(library: Library, make_pool: MakePool) -> None:
    """Workers that were left out, and those that wait for a pass, sleep on; then all run again."""
    pool = make_pool(3)
    pool.set_spin(1e-3, 1e-5)
    mine = [aligned(8, np.int64) for _ in range(3)]
    tape = Tape("count", 3)
    tape.op("count", COUNT, [PerThread(mine)], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)
    native.run()
    pool.set_active(2)
    native.run()
    for _ in range(20):
        assert _until(lambda: pool._block[pool_block.ACTIVE_EPOCH_PARKED] == 1)
        assert _until(lambda: pool._block[pool_block.START_PARKED] == 1)
        before = pool.parks
        pool.set_active(1)
        native.run()
        pool.set_active(2)
        assert (
            pool._block[pool_block.ACTIVE_EPOCH_PARKED],
            pool._block[pool_block.START_PARKED],
        ) == (
            1,
            1,
        )
        assert pool.parks == before
        native.run()
    pool.set_active(3)
    native.run()
    assert [m[0] for m in mine] == [43, 23, 2]


def test_woken_workers_spin(library: Library, make_pool: MakePool) -> None:
    """Rousing wakes workers without a pass: when none comes they park again."""
    pool = make_pool(2)
    pool.set_spin(0, 1e-5)
    mine = [aligned(8, np.int64) for _ in range(2)]
    tape = Tape("count", 2)
    tape.op("count", COUNT, [PerThread(mine)], np.array([1]), mode=REPLICATED)
    native = tape.finish(library, pool)

    def asleep() -> bool:
        return pool._block[pool_block.START_PARKED] == 1

    for n in range(20):
        assert _until(asleep)
        before = pool.parks
        pool.wake()
        assert _until(lambda before=before: pool.parks == before + 1), "it woke and parked again"
        native.run()
        assert [m[0] for m in mine] == [n + 1] * 2
    pool.close()
    pool.wake()
