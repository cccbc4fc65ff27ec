"""The threads of a pool where the system does not give them, or has taken them away."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from helpers.native_ops import NEIGHBORS, MakePool

from triplepoint.errors import EngineError
from triplepoint.jit import pool as pool_module
from triplepoint.jit.compile import Library
from triplepoint.jit.cores import Cpu
from triplepoint.jit.pool import Pool, aligned
from triplepoint.jit.tape import STATIC, CompiledTape, Tape


def _tape(library: Library, pool: Pool) -> CompiledTape:
    """A pass of three steps."""
    a, b = (aligned(64, np.int64) for _ in range(2))
    tape = Tape("ring", pool.threads)
    for args in ([a, b, 64], [b, a, 64], [a, b, 64]):
        tape.op("step", NEIGHBORS, args, np.array([64], np.int64), mode=STATIC, chunk=3)
    return tape.finish(library, pool)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # 3.12
def test_a_fork_says_so(library: Library) -> None:
    """A child has none of the threads: a pass is refused there, and goes on in the parent."""
    pool = Pool(library, 2)
    tape = _tape(library, pool)
    child = os.fork()
    if not child:
        status = 1
        try:
            tape.run()
        except EngineError as error:
            status = 0 if "before this process was forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tape.run()
    pool.close()


def test_threads_that_cannot_be_started(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have been end, and the error says how many there were."""
    before = threading.active_count()
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name == "triplepoint-3":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(EngineError, match="only 3 of 4 threads could be started"):
        Pool(library, 4)

    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no affinity here")
def test_threads_that_may_not_be_pinned(
    library: Library, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run where the scheduler has them, from the start or from a swap on."""
    allowed = os.sched_getaffinity(0)

    def refuses(tid: int, cores: set[int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    later = make_pool(2)
    monkeypatch.setattr(os, "sched_setaffinity", refuses)
    if len(allowed) > 1:
        assert later._cores
        later.swap_cores(0, -1)  # of one worker with itself: the system says no
    pool = make_pool(2)
    assert pool._cores == []
    tape = _tape(library, pool)
    tape.run()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no affinity here")
def test_threads_of_two_ccds(
    library: Library, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers spread over both CCDs or fill the first; the caller leaves their cores to them."""
    # Two CCDs of two cores with two CPUs each, and a weak core.
    cpus = [Cpu(n, n // 4, core=n % 4, domain=n % 4 // 2 * 2) for n in range(8)]
    cpus.append(Cpu(8, strength=0.5, core=8, domain=2))
    pinned: dict[int, set[int]] = {}
    monkeypatch.setattr(pool_module, "usable_cpus", lambda: tuple(cpus))
    monkeypatch.setattr(os, "sched_setaffinity", lambda tid, cores: pinned.update({tid: cores}))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    pool = make_pool(4)
    assert pool.arranges

    assert [pinned[tid] for tid in pool.worker_ids] == [{2}, {1}, {3}]
    assert pool._worker_cores == {1, 2, 3, 5, 6, 7, 8}
    pool.set_active(2)
    pool.arrange(fill=True)
    assert [pinned[tid] for tid in pool.worker_ids] == [{1}, {2}, {3}]
    assert pool._worker_cores == {1, 5, 8}
    pool.arrange(fill=False)
    assert [pinned[tid] for tid in pool.worker_ids] == [{2}, {1}, {3}]
    assert pool._worker_cores == {2, 6, 8}
    tape = _tape(library, pool)
    tape.run()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads have no affinity here")
def test_threads_on_every_sibling(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thread for every CPU the caller has the one that is left, its core shared."""
    cpus = tuple(Cpu(n, n // 2, core=n % 2) for n in range(4))
    monkeypatch.setattr(pool_module, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    pool = make_pool(4)

    assert not pool.arranges
    assert pool._worker_cores == {1, 2, 3}
