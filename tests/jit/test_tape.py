"""Tapes: what is built is what the native side is given."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from helpers.native_ops import COUNT, SPIN, VISIT, fresh_library

from triplepoint.jit.compile import Library, ObjectCache, spec
from triplepoint.jit.pool import Pool, aligned
from triplepoint.jit.simd import F32, I64, F32s, I64s, Kernel, kernel
from triplepoint.jit.tape import REPLICATED, PerThread, Tape
from triplepoint.jit.targets import detect


@kernel
def arguments(k: Kernel, whole: I64, real: F32, numbers: F32s, out: F32s, ids: I64s) -> None:
    """out[tid] = whole + real + numbers[0]; ids[tid] = tid."""
    with k.units():
        out.store(k.tid, whole.to(out.element) + real + numbers.load(0))
        ids.store(k.tid, k.tid)


@pytest.fixture(scope="module")
def library() -> Library:
    return fresh_library()


@pytest.fixture
def pool(library: Library) -> Iterator[Pool]:
    pool = Pool(library, 2)
    yield pool
    pool.close()


def test_every_kind_of_argument(library: Library, pool: Pool) -> None:
    """Integers, floats, arrays, and arrays of which each thread has its own."""
    numbers = [np.array([n], np.float32) for n in (0.25, 0.5)]
    out, ids = aligned(2, np.float32), aligned(2, np.int64)
    tape = Tape("arguments", 2)
    args = [-7, 1.5, PerThread(numbers), out, ids]
    tape.op("arguments", spec(arguments), args, np.array([1]), mode=REPLICATED)
    tape.finish(Library(detect(), ObjectCache(None)), pool).run()

    assert out.tolist() == [-5.25, -5.0]
    assert ids.tolist() == [0, 1]


def test_a_wrong_number_of_arguments_is_refused(library: Library, pool: Pool) -> None:
    """Too few or too many arguments is our bug, named by the op."""
    for args in ([], [aligned(1, np.int64)] * 3):
        tape = Tape("wrong", 2)
        tape.op("visited", VISIT, args, np.array([1]))
        with pytest.raises(AssertionError, match="visited"):
            tape.finish(library, pool)


def test_parts_prefix_names(library: Library, pool: Pool) -> None:
    """Ops are named by the part of the model that they belong to."""
    tape = Tape("names", 2)
    mine = PerThread([aligned(8, np.int64) for _ in range(2)])
    tape.op("first", COUNT, [mine], np.array([1]))
    with tape.part("blk.0."):
        tape.op("q", COUNT, [mine], np.array([1]))
        with tape.part("inner."):
            tape.op("k", COUNT, [mine], np.array([1]))
    tape.op("last", COUNT, [mine], np.array([1]))
    native = tape.finish(library, pool)

    assert native.names == ["first", "blk.0.q", "blk.0.inner.k", "last"]
    assert len(native) == 4


def test_a_pass_ends_with_all_threads(library: Library, pool: Pool) -> None:
    """Barriers are where they were asked for, and always after the last op."""
    tape = Tape("barriers", 2)
    mine = PerThread([aligned(8, np.int64) for _ in range(2)])
    for barrier in (False, True, False):
        tape.op("count", COUNT, [mine], np.array([1]), barrier=barrier)
    native = tape.finish(library, pool)

    assert native.barriers == 2


def test_arguments_stay_alive(library: Library, pool: Pool) -> None:
    """The tape keeps what it points to: nothing else has to."""
    times = aligned(32, np.int64)

    def built() -> Tape:
        tape = Tape("alive", 2)
        for _ in range(50):
            loops, sinks = np.array([10]), [aligned(8, np.int64) for _ in range(2)]
            tape.op("spin", SPIN, [loops, PerThread(sinks)], np.array([1]), mode=REPLICATED)
        tape.op("visit", VISIT, [times, aligned(32, np.int64)], np.array([32]))
        return tape

    native = built().finish(library, pool)
    gc.collect()
    rubbish = [np.full(8, -1, np.int64) for _ in range(2000)]
    following = 0
    while following < len(native):  # on a busy machine its time slice may be over before
        following = native.run(following)

    assert times.tolist() == [1] * 32
    assert all((r == -1).all() for r in rubbish)


def test_playing_from_the_middle(library: Library, pool: Pool) -> None:
    """`run(start)` leaves out the ops before `start`."""
    tape = Tape("middle", 2)
    times = [aligned(4, np.int64) for _ in range(3)]
    for one in times:
        tape.op("visit", VISIT, [one, aligned(4, np.int64)], np.array([4]))
    native = tape.finish(library, pool)

    assert native.run(1) == 3
    assert [int(t.sum()) for t in times] == [0, 4, 4]
