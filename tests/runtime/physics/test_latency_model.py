"""What a pass will take: parts by hand, and figures found again in times made from them."""

from __future__ import annotations

import dataclasses

import pytest

from triplepoint.runtime.physics.calibration_fit import Sample, fit
from triplepoint.runtime.physics.costs import ModelCost, pass_cost, predict
from triplepoint.runtime.physics.latency_model import Efficiency, Passes, estimate, shared_s
from triplepoint.runtime.physics.machine import MachineProfile

MODEL = ModelCost(
    layers=4,
    heads=8,
    head_dim=64,
    body_weights=40_000_000,
    head_weights=10_000_000,
    body_bytes=22_500_000,
    head_bytes=5_625_000,
    kv_bytes=4096.0,
    quantized=True,
    kv_heads=4,
)
MACHINE = MachineProfile(
    cpu="",
    cores=2,
    target="avx2",
    threads=2,
    caches={"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20},
    read_gbps={"L1": 400.0, "L2": 200.0, "L3": 80.0, "DRAM": 20.0},
    int8_gops=500.0,
    fp32_gflops=125.0,
    bf16_gflops=250.0,
    barrier_s=1e-7,
)
PASSES = Passes(chunk=512, tile=16, decode_barriers=20, prefill_barriers=40)
IDEAL = Efficiency(1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def test_one_token_by_hand() -> None:
    """22.5 MB of weights at 20 GB/s beside 80 MFLOP at 500 GOP/s: nearly the reading alone."""
    found = estimate(MODEL, MACHINE, IDEAL, PASSES, 1, 0)
    read, multiply = 22.5e6 / 20e9, 80e6 / 500e9

    assert found.products_s == pytest.approx((read**6 + multiply**6) ** (1 / 6))
    assert found.head_s == pytest.approx(found.products_s / 4)
    cached, attention = 2 * 4096 / 20e9, 4 * 4 * 8 * 64 / 250e9  # one read, one written
    assert found.attention_s == pytest.approx(cached + attention)
    assert (found.rows_s, found.dispatch_s) == (0, 0)
    assert found.seconds == found.products_s + found.head_s + found.attention_s
    assert found.seen.bound == "memory"


def test_shares_and_costs_are_added() -> None:
    """Half the bandwidth takes twice the time; barriers, rows and waiting come on top."""
    reached = dataclasses.replace(
        IDEAL, read=0.5, decode_rows_s=2e-4, decode_barrier_s=1e-6, waiting=0.1, row_s=9.0
    )
    found, ideal = (estimate(MODEL, MACHINE, e, PASSES, 1, 0) for e in (reached, IDEAL))

    assert found.products_s == pytest.approx(2 * ideal.products_s, rel=0.01)
    assert found.rows_s == 2e-4
    assert found.dispatch_s == pytest.approx(20e-6 + 0.1 * found.kernel_s)
    assert found.least == ideal.least == predict(pass_cost(MODEL, 1, 0, 1, 20, 1), MODEL, MACHINE)


def test_unpacking_costs_as_some_tokens() -> None:
    """Where arithmetic counts, a pass takes as long as one of some more tokens would without."""
    reached = dataclasses.replace(IDEAL, extra_tokens=6.0, products=1e-3)
    plain = dataclasses.replace(IDEAL, products=1e-3)
    for tokens in (2, 7, 100):
        found = estimate(MODEL, MACHINE, reached, PASSES, tokens, 0)
        more = estimate(MODEL, MACHINE, plain, PASSES, tokens + 6, 0)
        assert found.products_s == pytest.approx(more.products_s)
        assert found.attained is not None
        assert found.attained.compute_s > 1000 * found.least.compute_s
    alone = (estimate(MODEL, MACHINE, e, PASSES, 1, 0) for e in (reached, plain))
    assert len({found.products_s for found in alone}) == 1


def test_unpacking_of_experts() -> None:
    """Only experts that are read are unpacked, each once, however few tokens it has."""
    model = dataclasses.replace(
        MODEL, expert_weights=8_000, expert_bytes=4_500, experts=8, experts_used=2
    )
    counts = (pass_cost(model, 4, 0, 0, 0, 4, experts_read=n).unpacked for n in (0.0, 8.0, 32.0))
    assert list(counts) == [40_000_000, 40_002_000, 40_008_000]
    assert pass_cost(model, 1, 0, 1, 0, 1).unpacked == 0


def test_a_long_prompt_is_its_passes() -> None:
    """1,025 tokens are three passes, as alike as can be, with logits once."""
    reached = dataclasses.replace(
        IDEAL, row_s=1e-6, decode_rows_s=1e-6, barrier_s=1e-6, decode_barrier_s=1e-6
    )
    found = estimate(MODEL, MACHINE, reached, PASSES, 1025, 100)
    parts = [estimate(MODEL, MACHINE, reached, PASSES, n, at) for n, at in
             ((352, 100), (352, 452), (321, 804))]  # fmt: skip

    assert found.tokens == 1025
    assert found.head_s == pytest.approx(parts[2].head_s)
    assert found.attention_s == pytest.approx(sum(p.attention_s for p in parts))
    assert found.products_s == pytest.approx(sum(p.products_s for p in parts))
    assert found.dispatch_s == pytest.approx(120e-6)
    assert found.tokens_per_s == pytest.approx(1025 / found.seconds)


def test_tiny_passes_are_dispatch_bound() -> None:
    """A model that fits L2, with dear barriers: waiting takes more than reading or arithmetic."""
    tiny = dataclasses.replace(
        MODEL, body_weights=40_000, body_bytes=22_500, head_weights=10_000, head_bytes=5_600
    )
    found = estimate(tiny, MACHINE, Efficiency(barrier_s=2e-6), PASSES, 4, 0)
    assert found.seen.bound == "dispatch"
    assert (
        estimate(tiny, MACHINE, Efficiency(barrier_s=2e-6), PASSES, 512, 0).seen.bound == "compute"
    )


def test_sequences_in_a_batch() -> None:
    """Eight sequences share the weights; each has a cache of its own."""
    one, eight = (estimate(MODEL, MACHINE, IDEAL, PASSES, 1, 1000, batch=n) for n in (1, 8))

    assert eight.tokens == 8
    assert eight.products_s < 2 * one.products_s
    assert eight.attention_s == pytest.approx(8 * one.attention_s)


def sample(reached: Efficiency, tokens: int, start: int) -> Sample:
    """A pass that takes just as long as expected."""
    found = estimate(MODEL, MACHINE, reached, PASSES, tokens, start)
    parts = {
        "products": found.products_s,
        "head": found.head_s,
        "attention": found.attention_s,
        "rows": found.rows_s,
    }
    return Sample(tokens, start, parts, found.seconds, MACHINE)


def test_fit_finds_the_figures_again() -> None:
    """Times made with known figures give these figures, each within a few per cent."""
    known = Efficiency(
        read=0.8,
        attention_read=0.6,
        products=0.7,
        attention=0.5,
        extra_tokens=8.0,
        row_s=2e-6,
        decode_rows_s=5e-6,
        barrier_s=1e-6,
        decode_barrier_s=5e-7,
        waiting=0.02,
    )
    points = [(1, 4), (1, 8192), (4, 0), (16, 0), (128, 8192), (256, 0)]
    found = fit(MODEL, PASSES, [[sample(known, *point)] for point in points])

    for field in dataclasses.fields(Efficiency):
        name = field.name
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=0.12), name
    for tokens, start in ((1, 1000), (16, 100), (512, 2000), (2048, 0)):
        again = estimate(MODEL, MACHINE, found, PASSES, tokens, start).seconds
        assert again == pytest.approx(sample(known, tokens, start).wall_s, rel=0.05)


def test_units_that_do_not_come_out_even() -> None:
    """Two threads take 4/3 of the ideal time for three units, as long as one for a single one."""

    def alone_s(threads: int) -> float:
        return 12.0 / threads

    assert shared_s(alone_s, 1, 2) == shared_s(alone_s, 1, 16) == 12.0
    assert shared_s(alone_s, 3, 2) == pytest.approx(8.0)
    assert shared_s(alone_s, 8, 2) == pytest.approx(6.0)
    assert shared_s(alone_s, 8, 16) == pytest.approx(1.5)
    # One thread draws all that the memory gives: a lone unit costs nothing more.
    assert shared_s(lambda _: 6.0, 1, 2) == 6.0
