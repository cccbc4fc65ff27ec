"""The cost model against the worked examples of the third seed: a 70B model on one H100."""

from __future__ import annotations

import dataclasses

import pytest

from triplepoint.runtime.physics.costs import ModelCost, PassCost, Prediction, pass_cost, predict
from triplepoint.runtime.physics.machine import MachineProfile

LAYERS, KV_HEADS, HEAD_DIM, FP16 = 80, 8, 128, 2
LLAMA = ModelCost(
    layers=LAYERS,
    heads=64,
    head_dim=HEAD_DIM,
    body_weights=70_000_000_000,  # the seed counts all parameters as matrices, and no output head
    head_weights=0,
    body_bytes=140_000_000_000,
    head_bytes=0,
    kv_bytes=2 * LAYERS * KV_HEADS * HEAD_DIM * FP16,
    quantized=False,
    kv_heads=KV_HEADS,
)
H100 = MachineProfile(
    cpu="H100 SXM",
    cores=132,
    target="",
    threads=132,
    caches={"L1": 256 << 10, "L2": 0, "L3": 50 << 20},
    read_gbps={"DRAM": 3350.0},
    int8_gops=0.0,
    fp32_gflops=989_400.0,  # what the seed calls the FP16 peak
    bf16_gflops=989_400.0,
    barrier_s=0.0,
)


def cost(tokens: int, start: int = 0, batch: int = 1) -> PassCost:
    """Counts of one pass over the model."""
    return pass_cost(LLAMA, tokens, start, tokens, barriers=0, tile=tokens, batch=batch)


def weights_only(found: PassCost) -> PassCost:
    """The seed's first estimates leave attention and the KV cache out."""
    return PassCost(linear_flops=found.linear_flops, weight_bytes=found.weight_bytes)


def least(tokens: int, batch: int = 1) -> Prediction:
    """The least times of such an estimate."""
    return predict(weights_only(cost(tokens, batch=batch)), LLAMA, H100)


def test_the_kv_cache_of_a_prompt() -> None:
    """4,096 tokens have 1.34 GB of keys and values, 4,608 have 1.51 GB; each adds 320 KiB."""
    assert LLAMA.kv_bytes == 327_680
    assert cost(4096).kv_write_bytes == pytest.approx(1.34e9, rel=0.005)
    assert cost(1, 4607).kv_read_bytes == pytest.approx(1.51e9, rel=0.005)
    assert cost(1, 4607).kv_write_bytes == 320 << 10
    assert cost(1, 100_000).kv_read_bytes == pytest.approx(33e9, rel=0.01)


def intensity(found: PassCost) -> float:
    """FLOPs for each byte."""
    return found.flops / found.bytes


def test_prefill_is_compute_bound() -> None:
    """573 TFLOP over 140 GB, about 4,093 FLOP a byte, above the ridge of 295: 0.58 s."""
    found = weights_only(cost(4096))

    assert found.linear_flops == pytest.approx(573e12, rel=0.001)
    assert found.weight_bytes == 140e9
    assert intensity(found) == pytest.approx(4093, rel=0.001)  # 573 / 0.14; unrounded it is 4,096
    assert H100.bf16_gflops / H100.read_gbps["DRAM"] == pytest.approx(295, abs=0.5)
    assert least(4096).bound == "compute"
    assert least(4096).limit_s == pytest.approx(0.58, abs=0.005)
    assert 4096 / least(4096).limit_s == pytest.approx(7000, rel=0.02)


def test_a_short_prompt_is_below_the_ridge() -> None:
    """256 tokens: 256 FLOP a byte, just on the memory's side of the ridge point."""
    assert intensity(weights_only(cost(256))) == 256
    assert least(256).bound == "memory"
    assert least(296).bound == "compute"


def test_decode_is_memory_bound() -> None:
    """140 GFLOP over 140 GB, 1 FLOP a byte: 41.8 ms, 24 tokens/s; with 4-bit weights 10.4 ms."""
    found = weights_only(cost(1))

    assert found.linear_flops == 140e9
    assert intensity(found) == 1
    assert least(1).bound == "memory"
    assert least(1).limit_s == pytest.approx(41.8e-3, rel=0.001)
    assert 1 / least(1).limit_s == pytest.approx(24, abs=0.1)
    four_bits = dataclasses.replace(LLAMA, body_bytes=LLAMA.body_bytes // 4)
    small = weights_only(pass_cost(four_bits, 1, 0, 1, 0, 1))
    assert intensity(small) == 4
    assert predict(small, four_bits, H100).memory_s == pytest.approx(10.4e-3, rel=0.005)


def test_the_cache_adds_its_bytes() -> None:
    """A step at context 4,608 reads 141.5 GB, 1 % more than the weights."""
    found = cost(1, 4607)
    assert found.bytes - found.kv_write_bytes == pytest.approx(141.5e9, rel=0.001)


@pytest.mark.parametrize(
    ("batch", "bound"), [(1, "memory"), (8, "memory"), (128, "memory"), (512, "compute")]
)
def test_batching_moves_up_the_roofline(batch: int, bound: str) -> None:
    """B sequences share one read of the weights: B FLOP a byte, each with a cache of its own."""
    assert intensity(weights_only(cost(1, batch=batch))) == batch
    assert least(1, batch).bound == bound
    assert cost(1, 4607, batch).kv_read_bytes == batch * cost(1, 4607).kv_read_bytes


def test_batches_of_32() -> None:
    """4.48 TFLOP in the same 41.8 ms: 766 tokens/s."""
    assert cost(1, batch=32).linear_flops == 4.48e12
    assert 32 / least(1, 32).limit_s == pytest.approx(766, rel=0.001)


def test_distinct_experts() -> None:
    """Of 128 experts a token takes 8; 2 tokens are expected to touch 15.5, 64 nearly all."""
    mixture = dataclasses.replace(LLAMA, layers=1, experts=128, experts_used=8, expert_bytes=1280)
    found = [mixture.expected_experts(n) for n in (1, 2, 64)]

    assert found[:2] == [pytest.approx(8), pytest.approx(15.5)]
    assert found[2] == pytest.approx(128 * (1 - (120 / 128) ** 64))
    assert mixture.layer_bytes(found[1]) - LLAMA.body_bytes == pytest.approx(155, abs=1e-3)
