"""Kernels alone: what is laid, what it is credited with, and the shares that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from helpers.tiers import quick

from labs.bench import kernel_times
from labs.bench.kernel_times import KERNELS, KernelCase, KernelResult, _Bench
from triplepoint.errors import EngineError
from triplepoint.jit.compile import Library, ObjectCache, default_folder
from triplepoint.jit.kernels.panels import FORMATS
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.physics.machine import MachineProfile, run_tape

LIMITS = MachineProfile(
    cpu="a CPU",
    cores=2,
    target="avx2",
    threads=2,
    caches={"L1": 1 << 15, "L2": 1 << 20, "L3": 1 << 24},
    read_gbps={"L1": 400.0, "L2": 200.0, "L3": 100.0, "DRAM": 50.0},
    int8_gops=1000.0,
    fp32_gflops=100.0,
    bf16_gflops=200.0,
    barrier_s=1e-6,
)


@pytest.fixture(scope="module")
def bench() -> Iterator[_Bench]:
    """A bench of small shapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_times, "SHAPES", ((64, 512),))
        patch.setattr(kernel_times, "EXPERTS", 16)
        patch.setattr(kernel_times, "EXPERT_DEPTH", 256)
        patch.setattr(kernel_times, "POSITIONS", ((1, 40), (20, 300)))
        library = Library(detect(), ObjectCache(default_folder()))
        pool = Pool(library, 2)
        bench = _Bench(library, pool)
        bench.stream_bytes = 1 << 20
        yield bench
        pool.close()


def result(work: KernelCase, seconds: tuple[float, ...], level: str = "DRAM") -> KernelResult:
    """A result with the same limits around each repetition."""
    return KernelResult("avx2", 2, work, level, seconds, (LIMITS,) * len(seconds))


def test_the_share_is_of_the_limit_that_takes_longest() -> None:
    """Operations at their peak and bytes at their level's rate: the larger time is the limit."""
    work = KernelCase(
        "gemm", "q4_0", "", 1, 0, operations=1e9, nbytes=1e8, peak="int8"
    )  # 1 and 2 ms

    found = result(work, (4e-3, 5e-3, 8e-3))

    assert found.bound == "DRAM"
    assert found.shares == pytest.approx([0.5, 0.4, 0.25])
    assert (found.share, found.median) == (pytest.approx(0.4), 5e-3)
    assert (found.gops, found.gbps) == (pytest.approx(200), pytest.approx(20))
    assert result(work, (4e-3,), "L1").bound == "int8"
    slow = result(replace(work, peak="fp32"), (20e-3,))
    assert (slow.bound, slow.share) == ("fp32", pytest.approx(0.5))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_only_the_kernel_is_played(kernel: str, bench: _Bench) -> None:
    """Each case's ops are all of that kernel, and as many as it says."""
    seen = []
    for built in getattr(bench, kernel)():
        sources = {op.kernel.source.name for op in built.ops}
        expected = {
            "gemm": {"gemm_quant", "gemm_amx", "gemm_float"},
            "experts": {"gemm_experts", "route", "group"},
            "attention": {"attention"},
            "prepare": {"prepare", "arrange"},
            "rope": {"rope_store"},
            "argmax": {"argmax_part", "argmax_final"},
        }[kernel]
        assert sources <= expected
        mains = {"experts": "gemm_experts", "argmax": "argmax_part", "prepare": "prepare"}
        main = mains.get(kernel)
        assert sum(main in (None, op.kernel.source.name) for op in built.ops) == built.times
        assert built.work.kernel == kernel
        assert built.work.nbytes > 0
        seen.append((built.work.variant, built.work.tokens, built.work.depth))

    assert len(seen) == len(set(seen)) > 0


# One of each kind of panel, and of float in it: the bench fills all with the same bytes.
QUICK = ("f32", "f16", "bf16", "q4_0", "mxfp4", "nvfp4", "q4_k", "iq4_xs", "iq3_s")


@pytest.mark.parametrize("name", quick(FORMATS, *QUICK))
def test_a_gemm_reads_weights_of_its_own_and_computes(bench: _Bench, name: str) -> None:
    """Every format: each op has other panels, the counts are right, and numbers come out."""
    form = FORMATS[name]
    built = bench._gemm(form, 64, 512, 13)

    panels = [op.args[0] for op in built.ops]
    starts = sorted(p.ctypes.data for p in panels)
    assert len(starts) == built.times > 1
    assert min(np.diff(starts)) >= panels[0].nbytes
    assert sum(p.nbytes for p in panels) <= bench.stream_bytes
    assert built.work.operations == 2 * 64 * 512 * 13
    weights = 64 // 2 * form.panel_bytes(512 // form.block, 1)
    assert built.work.nbytes == weights + 4 * 13 * (64 + 512)
    out = built.ops[0].args[2]
    out[:] = np.nan
    run_tape(bench._tape(built.ops))
    assert np.isfinite(out[:13, :64]).all(), form.name
    assert np.abs(out[:13, :64]).min() > 0


@pytest.mark.parametrize("tokens", [1, 13])
def test_experts_are_chosen_anew_each_time(
    tokens: int, bench: _Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each routing has scores of its own, and the products of what it chose come out."""
    monkeypatch.setattr(bench, "stream_bytes", 8 << 20)
    built = bench._experts(FORMATS["q4_0"], tokens)

    products = [op for op in built.ops if op.kernel.source.name == "gemm_experts"]
    routes = [op for op in built.ops if op.kernel.source.name == "route"]
    assert len(products) == len(routes) == built.times > 1
    assert len({op.args[0].ctypes.data for op in routes}) == built.times
    assert built.work.operations == 2 * (2 * 768 * 256) * tokens * 8
    size = 2 * 768 * 256 // 2 * 18 / 16
    least, most = 8 * size, min(16, 8 * tokens) * size
    assert least <= built.work.nbytes - 4 * tokens * (256 + 8 * 768) <= most
    out = products[-1].args[2]
    out[:] = np.nan
    run_tape(bench._tape(built.ops))
    assert np.isfinite(out[: tokens * 8, :768]).all()


@pytest.mark.slow
def test_attention_reads_a_cache_that_was_written(bench: _Bench) -> None:
    """Counts are those of causal attention, and the output is a mean of values as a model has them:
    normally distributed, which no other bytes of a cache would be."""
    for built in bench.attention():
        tokens, before = built.work.tokens, built.work.depth
        seen = sum(before + n + 1 for n in range(tokens))
        assert built.work.operations == pytest.approx(4 * 16 * 128 * seen)
        key_and_value = {"f32": 4 * 256, "bf16": 2 * 256, "q8": 256 + 2 * (4 + 1)}
        key_and_value["k16v8"] = 256 + 128 + 2
        cache = (before + tokens) * 8 * key_and_value[built.work.variant]
        assert built.work.nbytes == pytest.approx(cache + 8 * tokens * 16 * 128)
        out = built.ops[0].args[4]
        assert isinstance(out, np.ndarray)
        run_tape(bench._tape(built.ops))
        assert np.isfinite(out).all()
        assert 0 < np.abs(out[:tokens]).max() < 6


def test_a_measurement_has_its_repetitions(bench: _Bench) -> None:
    """One time, and the limits around it, for each repetition."""
    (built,) = bench.argmax()

    found = bench.measure(built, 3)

    assert len(found.seconds) == len(found.limits) == len(found.shares) == 3
    assert 0 < found.median < 1
    assert (found.target, found.threads) == (str(detect()), 2)
    assert found.level in ("L1", "L2", "L3")


def test_an_unknown_kernel_is_an_error() -> None:
    """The message names those that are known."""
    with pytest.raises(EngineError, match=r"'gem'; known: gemm, experts"):
        list(kernel_times.run(detect(), kernels=["argmax", "gem"]))
