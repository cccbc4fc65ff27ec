"""All tests run passes on arrays with a closed page behind them: see `helpers/fence.py`."""

from __future__ import annotations

import os
import signal

import numpy as np
from helpers.pools import pool_of

from triplepoint.jit import pool
from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import microbench
from triplepoint.jit.tape import PerThread, Tape


def test_arrays_end_at_a_closed_page() -> None:
    """An array can be used to its last byte; a kernel that reads on is killed."""
    with pool_of(1) as (library, threads):
        unit = 16 * library.target.lanes
        data, sink = pool.aligned((3, unit), np.uint8), PerThread([pool.aligned(64, np.uint8)])
        assert data.shape == (3, unit)
        assert data.ctypes.data % 64 == 0
        assert not data.any()
        units = np.array([3], np.int64)
        tape = Tape("read", 1)
        tape.op("read", spec(microbench.read), [data, sink, unit], units)
        native = tape.finish(library, threads)
        assert native.run(0) == len(native)

        child = os.fork()
        if not child:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            units[0] = 4
            native.run(0)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGSEGV
