"""The machine's profile: measured, kept, merged, read back."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triplepoint.jit.compile import Library
from triplepoint.jit.kernels import microbench
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.physics import machine
from triplepoint.runtime.physics.machine import (
    DRAM_BYTES,
    LEVELS,
    PEAK_UNITS,
    MachineProfile,
    RooflineProbe,
    best_of,
    cache_sizes,
    cpu_name,
    physical_cores,
    profile,
    usable_cores,
)

BY_HAND = MachineProfile(
    cpu="a CPU",
    cores=4,
    target="avx2",
    threads=2,
    caches={"L1": 32_000, "L2": 1_000_000, "L3": 16_000_000},
    read_gbps={"L1": 400.0, "L2": 200.0, "L3": 80.0, "DRAM": 30.0},
    int8_gops=500.0,
    fp32_gflops=125.0,
    bf16_gflops=250.0,
    barrier_s=1e-6,
)


@pytest.fixture(scope="module")
def measured(library: Library, pool: Pool) -> MachineProfile:
    return machine.measure(library, pool, repeats=2)


def test_measured_figures_make_sense(measured: MachineProfile, library: Library) -> None:
    """Every limit is a positive number, for the machine, target and threads that were asked."""
    assert (measured.target, measured.threads) == (library.target.name, 2)
    assert set(measured.read_gbps) == set(LEVELS)
    figures = [*measured.read_gbps.values(), measured.int8_gops, measured.fp32_gflops]
    figures += [measured.bf16_gflops, measured.barrier_s]
    assert all(math.isfinite(figure) and figure > 0 for figure in figures)
    assert measured.barrier_s < 1.0
    assert measured.cpu == cpu_name()
    assert measured.samples == 1
    assert all(spread >= 0 for spread in measured.spread.values())


def test_kept_and_read_back(
    library: Library, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A profile is measured as often as is asked for, then taken from the file as it is."""
    monkeypatch.setattr(machine, "SAMPLES", 2)
    monkeypatch.setattr(machine, "DOUBTFUL_SAMPLES", 2)  # however busy this machine is
    first = profile(library, pool, tmp_path)
    (path,) = tmp_path.glob("*.json")
    assert first.samples == 1
    second = profile(library, pool, tmp_path)
    kept = path.read_bytes()

    assert second.samples == 2
    assert second.int8_gops >= first.int8_gops
    assert second.barrier_s <= first.barrier_s
    assert profile(library, pool, tmp_path) == second
    assert path.read_bytes() == kept
    assert not [p for p in tmp_path.iterdir() if p != path]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b'{"cpu": 3}', b"\xff\xfe", b'{"unknown": 1}']
)
def test_a_damaged_file_is_measured_again(
    measured: MachineProfile,
    library: Library,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: bytes,
) -> None:
    """Whatever stands in the file, it is replaced by a fresh profile."""
    monkeypatch.setattr(machine, "measure", lambda *_: measured)  # the measuring itself is above
    profile(library, pool, tmp_path)
    (path,) = tmp_path.glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(damage)

    assert profile(library, pool, tmp_path) == measured
    assert path.read_bytes() == whole


def test_nowhere_to_keep_it(
    measured: MachineProfile,
    library: Library,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a folder to write to the profile is measured each time."""
    monkeypatch.setattr(machine, "measure", lambda *_: measured)
    (tmp_path / "file").write_text("")
    assert profile(library, pool, tmp_path / "file" / "machine") == measured


def test_profiles_of_other_settings_are_apart(
    measured: MachineProfile, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of threads is another profile."""
    monkeypatch.setattr(machine, "measure", lambda *_: measured)
    for threads in (1, 3):
        pool = Pool(library, threads)
        profile(library, pool, tmp_path)
        pool.close()
    assert len(list(tmp_path.glob("*.json"))) == 2


def test_round_trip_through_json() -> None:
    """A profile survives being written down."""
    assert MachineProfile(**json.loads(json.dumps(BY_HAND.as_dict()))) == BY_HAND


def test_merged_takes_the_better_of_each() -> None:
    """A busy neighbor lowers no limit: the higher rates, the shorter barrier, both counted."""
    other = dataclasses.replace(
        BY_HAND,
        read_gbps={"L1": 300.0, "L2": 210.0, "L3": 81.0, "DRAM": 10.0},
        int8_gops=400.0,
        fp32_gflops=130.0,
        barrier_s=2e-6,
        date="later",
    )
    both = BY_HAND.merged(other)

    assert both.read_gbps == {"L1": 400.0, "L2": 210.0, "L3": 81.0, "DRAM": 30.0}
    assert (both.int8_gops, both.fp32_gflops, both.bf16_gflops) == (500.0, 130.0, 250.0)
    assert both.barrier_s == 1e-6
    assert both.samples == 2
    assert both.date == "later"


def disturbed(spread: float, run_delay: float, **changes: Any) -> MachineProfile:
    """Limits of which one was measured so."""
    shares = {"spread": {"int8": spread}, "run_delay": {"int8": run_delay}}
    return dataclasses.replace(BY_HAND, **shares, **changes)


@pytest.mark.parametrize(
    ("spread", "run_delay", "doubtful"),
    [(0.9, 0.09, False), (1.1, 0.0, True), (0.0, 0.11, True), (14.0, 0.6, True)],
)
def test_a_disturbed_figure_is_not_believed(
    spread: float, run_delay: float, doubtful: bool
) -> None:
    """Repeats more than twice apart, or no core for more than a tenth of the time."""
    found = disturbed(spread, run_delay)
    assert found.doubtful is doubtful
    assert not BY_HAND.doubtful
    quiet = disturbed(0.1, 0.0, int8_gops=400.0)
    assert [a.merged(b).doubtful for a, b in ((found, quiet), (quiet, found))] == [False, False]
    apart = disturbed(9.0, 0.0).merged(disturbed(0.0, 0.9))
    assert apart.doubtful, "neither measurement was quiet"


def test_a_disturbed_set_of_runs_is_measured_again() -> None:
    """Until one is quiet, a few times at most; the best run counts, and the quietest set."""

    def measured(times: list[float], delays: list[float]) -> tuple[float, float, float]:
        runs, shares = iter(times), iter(delays)
        return best_of(lambda: next(runs), 2, lambda: lambda: next(shares))

    assert measured([9, 2, 3], [0.0]) == (2, 0.5, 0.0)
    assert measured([9, 2, 8, 9, 3, 3], [0.0, 0.02]) == (2, 0.0, 0.02)
    assert measured([9, 2, 2, 9, 4, 5], [0.5, 0.02]) == (2, 0.25, 0.02)
    assert measured([9, 2, 50] * 4, [0.0, 0.3, 0.0, 0.9]) == (2, 24.0, 0.0)


def test_doubtful_limits_are_measured_again(
    library: Library,
    pool: Pool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By later runs until one is quiet; each of them says so, and there is an end to it."""
    caplog.set_level("INFO", "triplepoint.machine")
    monkeypatch.setattr(machine, "SAMPLES", 2)
    monkeypatch.setattr(machine, "DOUBTFUL_SAMPLES", 4)
    now = disturbed(14.0, 0.6)
    monkeypatch.setattr(machine, "measure", lambda *_: now)
    found = [profile(library, pool, tmp_path) for _ in range(6)]
    assert [(one.samples, one.doubtful) for one in found[2:]] == [(3, True), *[(4, True)] * 3]
    first, *later = caplog.messages
    assert first.startswith("measuring this machine's limits")
    assert len(later) == 3
    assert all("limits were measured on a busy machine; measuring again" in one for one in later)

    monkeypatch.setattr(machine, "DOUBTFUL_SAMPLES", 9)
    now = disturbed(0.2, 0.0, int8_gops=900.0)
    assert not profile(library, pool, tmp_path).doubtful
    assert profile(library, pool, tmp_path).samples == 5
    assert len(caplog.messages) == 5


@pytest.mark.parametrize(
    ("nbytes", "level"),
    [
        (0, "L1"),
        (51_200, "L1"),  # 0.8 of two threads' 32,000
        (51_201, "L2"),
        (1_600_000, "L2"),
        (1_600_001, "L3"),
        (12_800_000, "L3"),  # 0.8 of the one that all share
        (12_800_001, "DRAM"),
        (10**12, "DRAM"),
    ],
)
def test_level_of(nbytes: float, level: str) -> None:
    """The nearest level that holds the bytes, L1 and L2 once for each thread."""
    assert BY_HAND.level_of(nbytes) == level


def test_level_without_an_l3() -> None:
    """A machine that tells of no L3 reads from memory."""
    assert dataclasses.replace(BY_HAND, caches={"L1": 1000}).level_of(5000) == "DRAM"


def test_bandwidth() -> None:
    """Bytes a second by level; an unknown level is as slow as memory."""
    assert BY_HAND.bandwidth("L2") == 200e9
    assert BY_HAND.bandwidth("L4") == 30e9


def test_what_the_system_tells() -> None:
    """Cores, caches and a name, whatever the system."""
    assert 1 <= physical_cores() <= usable_cores()
    sizes = cache_sizes()
    assert 4 << 10 <= sizes["L1"] <= sizes["L2"]
    assert sizes["L3"] > 0
    assert cpu_name()


@pytest.mark.parametrize(
    ("usable", "free", "nbytes"),
    [
        ({0, 1}, 64 << 30, 4 * (300 << 20)),  # both share one
        ({0, 1, 2}, 64 << 30, 4 * (332 << 20)),  # the third has one of its own
        ({0, 1, 2}, 4 << 30, 512 << 20),  # no more than a share of the memory
        ({0, 1, 2}, 1 << 30, 256 << 20),  # but as much as other machines take
        ({7}, 64 << 30, 4 * (300 << 20)),  # one that tells of none: as core 0
    ],
)
def test_what_lies_beyond_the_caches(
    usable: set[int], free: int, nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every L3 of the usable cores counts once; what users are shown is that of core 0."""
    for core, size, cores in ((0, "300M", "0-1"), (1, "300M", "0-1"), (2, "32768K", "2")):
        for level, of_level in ((1, "48K"), (3, size)):
            folder = tmp_path / f"cpu{core}" / "cache" / f"index{level}"
            folder.mkdir(parents=True)
            texts = {"type": "Unified", "level": level, "size": of_level, "shared_cpu_list": cores}
            for name, text in texts.items():
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "SYSTEM", tmp_path)
    monkeypatch.setattr(machine, "available_bytes", lambda: free)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: usable)

    assert machine.beyond_caches() == nbytes
    assert machine.resident_sizes(cache_sizes(), 2)["DRAM"] == nbytes
    assert cache_sizes() == {"L1": 48 << 10, "L2": 1 << 20, "L3": 300 << 20}


# --- again and again


@pytest.fixture(scope="module")
def limits(library: Library, pool: Pool) -> RooflineProbe:
    """The probes, loaded for many samples."""
    return RooflineProbe(library, pool)


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
