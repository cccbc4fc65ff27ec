"""The cost model, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest

from triplepoint.runtime.physics.costs import (
    AttentionLayers,
    Bound,
    LayerParts,
    ModelCost,
    Part,
    PassCost,
    Prediction,
    decode_cost,
    layer_cost,
    mixed_cost,
    part_cost,
    pass_cost,
    predict,
)
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.physics.observation import observe

MODEL = ModelCost(
    layers=2,
    heads=4,
    head_dim=8,
    body_weights=1000,
    head_weights=300,
    body_bytes=560,
    head_bytes=170,
    kv_bytes=64.0,
    quantized=True,
)
MACHINE = MachineProfile(
    cpu="",
    cores=2,
    target="avx2",
    threads=1,
    caches={"L1": 1000, "L2": 10_000, "L3": 100_000},
    read_gbps={"L1": 400.0, "L2": 200.0, "L3": 80.0, "DRAM": 20.0},
    int8_gops=500.0,
    fp32_gflops=125.0,
    bf16_gflops=250.0,
    barrier_s=1e-6,
)


def test_a_prefill_by_hand() -> None:
    """5 tokens after 10, logits for the last: they see 11, 12, 13, 14 and 15 positions."""
    cost = pass_cost(MODEL, 5, 10, 1, barriers=7, tile=16)

    assert cost.linear_flops == 2 * (5 * 1000 + 1 * 300)
    assert cost.attention_flops == 4 * 2 * 4 * 8 * (11 + 12 + 13 + 14 + 15)
    assert cost.flops == cost.linear_flops + cost.attention_flops
    assert cost.weight_bytes == 560 + 170
    assert cost.kv_read_bytes == 64 * 13  # one tile: each position once, 13 on average
    assert (cost.kv_again_bytes, cost.kv_write_bytes) == (0, 64 * 5)
    assert cost.bytes == cost.weight_bytes + cost.kv_read_bytes + cost.kv_write_bytes
    assert cost.barriers == 7


def test_tiles_read_the_cache_again() -> None:
    """20 tokens in tiles of 16 are two reads of the cache, the second one from near at hand."""
    one, two = (pass_cost(MODEL, n, 0, 1, 0, tile=16) for n in (16, 20))

    assert (one.kv_read_bytes, one.kv_again_bytes) == (64 * 8.5, 0)
    assert (two.kv_read_bytes, two.kv_again_bytes) == (64 * 10.5, 64 * 10.5)
    first = dataclasses.replace(two, kv_again_bytes=0.0)
    again = [predict(c, MODEL, MACHINE).memory_s for c in (two, first)]
    assert again[0] - again[1] == pytest.approx(64 * 10.5 / 400e9)  # 336 bytes a layer: in L1


def test_without_logits() -> None:
    """A chunk in the middle of a prompt does not touch the output head."""
    cost = pass_cost(MODEL, 3, 0, 0, 0, 16)

    assert cost.linear_flops == 2 * 3 * 1000
    assert cost.weight_bytes == 560


@pytest.mark.parametrize("passes", [0, 1, 2, 9])
def test_decode_is_its_passes(passes: int) -> None:
    """The closed form of a decode is the sum of its passes of one token."""
    total = PassCost()
    for n in range(passes):
        total += pass_cost(MODEL, 1, 20 + n, 1, barriers=3, tile=16)

    assert decode_cost(MODEL, 20, passes, 3) == total


def test_chunks_add_up() -> None:
    """FLOPs of a prompt do not depend on its chunks; weights are read once a chunk."""
    whole = pass_cost(MODEL, 30, 0, 1, 5, tile=64)
    parts = pass_cost(MODEL, 10, 0, 0, 5, 64) + pass_cost(MODEL, 20, 10, 1, 5, 64)

    assert parts.flops == whole.flops
    assert parts.weight_bytes == whole.weight_bytes + 560
    assert parts.barriers == 2 * whole.barriers


def test_prediction_by_hand() -> None:
    """Each least time is its count over the machine's limit."""
    cost = PassCost(1e9, 5e8, 4e6, 1e6, 300)
    seen = predict(cost, MODEL, MACHINE)

    assert seen.compute_s == pytest.approx(1e9 / 500e9 + 5e8 / 250e9)
    assert seen.level == "DRAM"
    assert seen.memory_s == pytest.approx(5e6 / 20e9)
    assert seen.dispatch_s == pytest.approx(300e-6)
    assert seen.bound == "compute"
    assert seen.limit_s == seen.compute_s


def test_float_weights_run_in_float() -> None:
    """Weights that are not quantized are validated against the float32 peak."""
    cost = PassCost(1e9)
    floats = dataclasses.replace(MODEL, quantized=False)
    assert predict(cost, floats, MACHINE).compute_s == pytest.approx(1e9 / 125e9)


def test_the_level_is_that_of_one_pass() -> None:
    """Ten passes over weights that fit in L2 are read from L2, however many bytes that makes."""
    cost = PassCost(weight_bytes=70_000.0)
    assert predict(cost, MODEL, MACHINE, passes=10).level == "L2"
    assert predict(cost, MODEL, MACHINE).level == "L3"
    assert predict(cost, MODEL, MACHINE, passes=10).memory_s == pytest.approx(70_000 / 200e9)


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        ((3, 2, 1), "compute"),
        ((1, 3, 2), "memory"),
        ((1, 2, 3), "dispatch"),
        ((0, 0, 0), "compute"),
    ],
)
def test_the_largest_names_the_bound(times: tuple[float, float, float], bound: Bound) -> None:
    """Whatever takes longest is the bound."""
    assert Prediction(*times, level="L2").bound == bound
    assert Prediction(*times, level="L2").limit_s == max(times)


def test_observation_by_hand() -> None:
    """Shares of the wall time that the limits would have needed, and what was not in kernels."""
    seen = observe(Prediction(0.002, 0.005, 0.001, "L3"), wall_s=0.010, kernel_s=0.009)

    assert (seen.mfu, seen.mbu) == pytest.approx((0.2, 0.5))
    assert seen.dispatch_share == pytest.approx(0.1)
    assert seen.bound == "memory"
    assert seen.limit_share == pytest.approx(0.5)
    # Of the 9 ms in kernels the parts follow each resource as the squares of 2 and 5.
    assert seen.shares["compute"] == pytest.approx(0.9 * 4 / 29)
    assert seen.shares["memory"] == pytest.approx(0.9 * 25 / 29)
    assert sum(seen.shares.values()) == pytest.approx(1.0)


def test_rates_that_kernels_reach_name_the_bound() -> None:
    """Arithmetic that reaches half of its limit is waited for, though reading is nearer to its."""
    least = Prediction(0.004, 0.005, 0.0, "DRAM")
    attained = Prediction(0.008, 0.006, 0.0, "DRAM")

    assert observe(least, 0.010, 0.010).bound == "memory"
    seen = observe(least, 0.010, 0.010, attained)
    assert seen.bound == "compute"
    assert (seen.mfu, seen.mbu, seen.limit_share) == pytest.approx((0.4, 0.5, 0.4))
    assert seen.shares["compute"] == pytest.approx(64 / 100)


def test_a_layer_is_its_part_of_a_pass() -> None:
    """Two layers of a dense model share a pass's counts; the output head is nobody's."""
    model = ModelCost(2, 4, 64, 1000, 500, 600, 300, 32.0, quantized=True)
    layers = [LayerParts(500, 300, width=4 * 64, kv_bytes=16.0, kv_own=16.0)] * 2
    whole = pass_cost(model, 8, 16, 1, 10, 4)
    one = layer_cost(model, layers, 1, whole, 1, 0, 8, 16)

    assert one.linear_flops == 2 * 8 * 500
    assert one.attention_flops == whole.attention_flops / 2
    assert (one.weight_bytes, one.barriers) == (300, 5)
    assert one.kv_write_bytes == 8 * 16


def test_layers_that_are_not_alike() -> None:
    """A state is its layer's alone, and so are keys and values; a window bounds what is read."""
    layers = [
        LayerParts(500, 300, state_bytes=4000, state_flops=7000),
        LayerParts(500, 300, width=256, kv_bytes=16.0, kv_own=16.0),
        LayerParts(500, 300, width=256, kv_bytes=16.0, window=10),
    ]
    attention = (AttentionLayers(1, 256, 16.0, 0), AttentionLayers(1, 256, 16.0, 10))
    model = ModelCost(
        3, 4, 64, 1500, 500, 900, 300, 16.0, quantized=True,
        attention=attention, state_bytes=4000, state_flops=7000, windows=(10,),
    )  # fmt: skip
    whole = pass_cost(model, 1, 99, 1, 9, 1)
    state, all_, window = (layer_cost(model, layers, n, whole, 1, 0, 1, 99) for n in range(3))

    assert (state.state_bytes, all_.state_bytes, window.state_bytes) == (8000, 0, 0)
    assert (state.kv_read_bytes, all_.kv_read_bytes, window.kv_read_bytes) == (0, 1600, 160)
    assert (state.kv_write_bytes, all_.kv_write_bytes, window.kv_write_bytes) == (0, 16, 0)
    assert state.attention_flops == 7000
    assert (all_.attention_flops, window.attention_flops) == (4 * 256 * 100, 4 * 256 * 10)


def test_tokens_that_choose_alike_touch_fewer_experts() -> None:
    """With no spread all take the same experts; with all of it each chooses by itself."""
    mixture = dataclasses.replace(MODEL, experts=8, experts_used=2, expert_bytes=800)
    alike, own = (dataclasses.replace(mixture, expert_diversity=s) for s in (0.0, 1.0))

    assert alike.expected_experts(50) == pytest.approx(2 * 2)
    assert own.expected_experts(3) == pytest.approx(2 * 8 * (1 - 0.75**3))
    assert own.expected_experts(1) == alike.expected_experts(1)


def test_a_layer_reads_its_own_experts() -> None:
    """Of a mixture a layer's bytes are those of the experts that it took."""
    model = dataclasses.replace(
        ModelCost(2, 4, 64, 1000, 500, 600, 300, 32.0, quantized=True),
        expert_weights=1600, expert_bytes=1600, experts=8, experts_used=2,
    )  # fmt: skip
    layers = [LayerParts(500, 300, sparse=True, width=4 * 64, kv_bytes=16.0, kv_own=16.0)] * 2
    whole = pass_cost(model, 4, 0, 1, 10, 4, experts_read=5)
    first, second = (layer_cost(model, layers, 0, whole, 1, n, 4, 0) for n in (2, 3))

    assert first.weight_bytes == 300 + 200
    assert second.weight_bytes == 300 + 300
    assert first.linear_flops == 2 * 4 * (500 + 200)


def test_a_dispatch_bound_phase() -> None:
    """Where most of the time is spent waiting, the share of the limit is what was left for work."""
    seen = observe(Prediction(0.001, 0.001, 0.005, "L1"), wall_s=0.010, kernel_s=0.003)

    assert seen.bound == "dispatch"
    assert seen.dispatch_share == pytest.approx(0.7)
    assert seen.limit_share == pytest.approx(0.3)


def test_no_time_at_all() -> None:
    """A phase without passes has no shares, and no division by zero."""
    seen = observe(Prediction(0, 0, 0, "L1"), wall_s=0.0, kernel_s=0.0)
    assert (seen.mfu, seen.mbu, seen.dispatch_share, seen.limit_share) == (0.0, 0.0, 0.0, 0.0)
    assert observe(Prediction(0, 0, 0, "L1"), 1.0, 1.1).dispatch_share == 0.0  # clocks differ a bit


WINDOWED = dataclasses.replace(MODEL, windows=(12,), experts=8, experts_used=2, expert_bytes=800)


@pytest.mark.parametrize("model", [MODEL, WINDOWED])
def test_parts_make_up_a_mixed_pass(model: ModelCost) -> None:
    """What sequences of one pass account for adds up to it; one alone has all of it."""
    joined = Part(1, 700, 1, 512, 2.0), Part(3, 600, 1, 512, 2.0)
    parts = [Part(1, 900, 1), Part(40, 7, 0), Part(5, 300, 5), Part(33, 0, 1), *joined]

    whole = mixed_cost(model, parts, barriers=9, tile=16)
    total = PassCost()
    for at in range(len(parts)):
        total += part_cost(model, parts, at, barriers=9, tile=16)
    for field in dataclasses.fields(PassCost):
        name = field.name
        assert getattr(total, name) == pytest.approx(getattr(whole, name), rel=1e-12), name
    assert whole.weight_bytes == pytest.approx(
        model.layer_bytes(model.expected_experts(83)) + model.head_bytes
    )

    one = mixed_cost(model, [Part(5, 10, 1)], 7, 16)
    assert dataclasses.astuple(one) == pytest.approx(
        dataclasses.astuple(pass_cost(model, 5, 10, 1, 7, 16))
    )
    alike = mixed_cost(model, [Part(5, 10, 1)] * 3, 7, 16)
    assert dataclasses.astuple(alike) == pytest.approx(
        dataclasses.astuple(pass_cost(model, 5, 10, 1, 7, 16, batch=3))
    )


def test_what_is_read_together_by_hand() -> None:
    """Three tokens behind 100, 110 and 120 positions, of which they share 90: 90 + 11 + 21 + 31."""
    parts = [Part(1, start, 1, 90, 3.0) for start in (100, 110, 120)]
    cost = mixed_cost(MODEL, parts, 7, 16)

    assert cost.kv_read_bytes == pytest.approx(64 * (90 + 11 + 21 + 31))
    apart = mixed_cost(MODEL, [part._replace(together=0) for part in parts], 7, 16)
    assert apart.kv_read_bytes == 64 * (101 + 111 + 121)
    assert cost.attention_flops == apart.attention_flops
    assert cost.kv_write_bytes == apart.kv_write_bytes


def test_windows_see_little_of_what_is_shared() -> None:
    """A layer that sees 12 positions reads nothing of the first 90 behind 101, and 3 behind 98."""
    alone, behind = Part(1, 101, 1), Part(1, 101, 1, 90, 2.0)
    assert behind.spared(WINDOWED) == 90 * WINDOWED.kv_bytes / 2 / 2
    assert alone.spared(WINDOWED) == 0
    near = Part(1, 98, 1, 90, 2.0)
    assert near.spared(WINDOWED) == (90 + 3) * WINDOWED.kv_bytes / 2 / 2
