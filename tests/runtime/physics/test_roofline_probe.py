"""The limits that are measured beside a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from triplepoint.jit.compile import Library, ObjectCache, default_folder
from triplepoint.jit.kernels import microbench
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.physics.machine import DRAM_BYTES, LEVELS, PEAK_UNITS
from triplepoint.runtime.physics.roofline_probe import RooflineProbe


@pytest.fixture(scope="module")
def limits() -> Iterator[RooflineProbe]:
    """The probes for this machine's best target, with two threads."""
    library = Library(detect(), ObjectCache(default_folder()))
    pool = Pool(library, 2)
    yield RooflineProbe(library, pool)
    pool.close()


def test_a_sample_has_every_limit(limits: RooflineProbe) -> None:
    """Each level and peak has a rate, and the sample says of what."""
    found = limits.sample()

    assert limits.samples[-1] is found
    assert set(found.read_gbps) == set(LEVELS)
    assert min(found.read_gbps.values()) > 0
    assert min(found.int8_gops, found.fp32_gflops, found.bf16_gflops) > 0
    assert 0 < found.barrier_s < 1
    assert (found.target, found.threads) == (str(detect()), 2)


def test_probes_do_the_work_that_they_are_credited_with(limits: RooflineProbe) -> None:
    """Bytes and operations of a run are those of its ops: each unit once, by one thread."""
    target = detect()
    for level, read in limits._reads.items():
        assert read.work % (len(read.tape) * 4096) == 0
        per_op = read.work / len(read.tape)
        caches = limits.samples[-1].caches if limits.samples else limits.sample().caches
        if level in ("L1", "L2"):
            assert per_op <= caches[level] * 2, "does not fit the caches of two cores"
        if level == "DRAM":
            assert per_op >= DRAM_BYTES
    assert limits._peaks["int8"].work == 2 * PEAK_UNITS * microbench.operations("int8", target)
    barriers = limits._barrier()
    assert barriers.work == len(barriers.tape)


def test_reading_reads_what_is_there(limits: RooflineProbe) -> None:
    """The read probe's checksum depends on its data: it cannot have been left out."""
    limits._reads["L1"].rate()
    before = [sink.copy() for sink in limits._sinks.buffers]
    limits._arena._bytes[8] ^= 0xFF
    limits._reads["L1"].rate()
    limits._arena._bytes[8] ^= 0xFF

    assert any(not np.array_equal(a, b) for a, b in zip(before, limits._sinks.buffers, strict=True))


def test_nothing_is_kept_on_disk(
    limits: RooflineProbe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sample is of now: no cached profile is read or written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    limits.sample()

    assert list(tmp_path.rglob("*.json")) == []
