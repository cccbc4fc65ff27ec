"""How passes are to be run: choices from profiles made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from triplepoint.jit.cores import ThreadPlan
from triplepoint.jit.targets import TARGETS
from triplepoint.runtime.engine.policy.choices import (
    SPIN_LONG_S,
    TuningInputs,
    at_best,
    by_threads,
    choose_chunk,
    choose_max_single_tile,
    choose_pages,
    choose_spin,
    choose_split,
    choose_threads,
    choose_tile,
    neighbors,
    worth_trying,
)
from triplepoint.runtime.physics.costs import ModelCost
from triplepoint.runtime.physics.huge_pages import PageGain
from triplepoint.runtime.physics.latency_model import Efficiency, Passes, even_part
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.physics.register_tiles import TilePlan, default

WIDE = TARGETS["avx512-vnni"]
PASSES = Passes(chunk=512, tile=16, decode_barriers=140, prefill_barriers=220)


def model(millions: int) -> ModelCost:
    """A dense model with so many weights of half a byte."""
    return ModelCost(
        layers=28,
        heads=16,
        head_dim=64,
        body_weights=millions * 900_000,
        head_weights=millions * 100_000,
        body_bytes=millions * 500_000,
        head_bytes=millions * 60_000,
        kv_bytes=4096.0,
        quantized=True,
        kv_heads=8,
    )


def machine(threads: int, dram: float, barrier_s: float = 1e-7) -> MachineProfile:
    """Cores that bring their arithmetic and caches; a memory that gives `dram` GB/s."""
    return MachineProfile(
        cpu="",
        cores=12,
        target="avx2",
        threads=threads,
        caches={"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
        read_gbps={
            "L1": 400.0 * threads,
            "L2": 200.0 * threads,
            "L3": 80.0 * threads,
            "DRAM": dram,
        },
        int8_gops=1000.0 * threads,
        fp32_gflops=250.0 * threads,
        bf16_gflops=500.0 * threads,
        barrier_s=barrier_s,
    )


def known(millions: int, *machines: MachineProfile) -> TuningInputs:
    by_number = {m.threads: m for m in machines}
    return TuningInputs(model(millions), by_number, Efficiency(), PASSES, WIDE, default(WIDE))


def test_all_threads_where_each_brings_something() -> None:
    """Compute-bound passes want all cores; so does decode while the bus is not full."""
    found = known(600, machine(1, 15), machine(2, 30), machine(12, 60))
    assert choose_threads(found, 512, 0).value == 12
    assert choose_threads(found, 1, 0).value == 12


def test_fewer_threads_where_they_are_faster() -> None:
    """Twelve threads that get in each other's way on the bus lose to four."""
    found = known(600, machine(1, 15), machine(4, 60), machine(12, 45))
    assert choose_threads(found, 512, 0).value == 12
    assert choose_threads(found, 1, 0).value == 4
    assert "4: " in choose_threads(found, 1, 0).why


def test_fewer_threads_where_barriers_cost_more() -> None:
    """A model in the caches, whose barriers on twelve threads take longer than its work."""
    found = known(3, machine(1, 15, 5e-8), machine(12, 60, 4e-6))
    assert choose_threads(found, 1, 0).value == 1
    assert choose_threads(found, 512, 0).value == 12


def test_a_small_difference_is_not_believed() -> None:
    """As fast is not faster: the model errs by some per cent itself."""
    found = known(600, machine(1, 57), machine(2, 60))
    assert choose_threads(found, 1, 0).value == 2
    assert choose_threads(known(600, machine(2, 60)), 1, 0).why.startswith("all; no other")


def test_a_disturbed_sweep_is_mended() -> None:
    """Two threads can read what one did, whatever a busy minute said."""
    before = machine(2, 45, 2e-7)
    found = by_threads(before, [machine(1, 39), machine(2, 23, 1e-7), machine(3, 99)])
    assert sorted(found) == [1, 2]
    assert found[2].read_gbps["DRAM"] == 45
    assert found[2].barrier_s == 1e-7
    assert by_threads(before, [machine(1, 50)])[2].read_gbps["DRAM"] == 50
    assert by_threads(before, []) == {2: before}


def test_what_is_worth_a_trial() -> None:
    """Where nothing else was measured: what the bus alone decides, not what arithmetic does."""
    alone = known(600, machine(2, 30))
    assert worth_trying(alone, 0, 2, 1)
    assert neighbors(alone, 0, 2, 2) == [[1]]
    cached = known(40, machine(2, 30))
    assert not worth_trying(cached, 0, 2, 1), "two cores read their caches twice as fast"
    measured = known(600, machine(1, 15), machine(2, 30))
    assert neighbors(measured, 0, 2, 2) == [], "half the bandwidth: there is no doubt"
    many = known(600, machine(12, 60))
    assert neighbors(many, 0, 12, 12) == [[8, 6, 4, 3, 2, 1]]
    between = known(600, machine(4, 40), machine(12, 60))
    assert neighbors(between, 0, 4, 12) == [[3, 2, 1], [6, 8, 12]]


def test_decode_leaves_weak_cores_out() -> None:
    """Eight P cores and 16 E cores: all for a prompt, P cores for decode, measured or not."""
    hybrid = ThreadPlan(tuple(range(8)), (1, 2, 3, 4, 6, 8))
    unmeasured = dataclasses.replace(known(600, machine(24, 60)), decode=hybrid)
    assert choose_threads(unmeasured, 512, 0).value == 24
    found = choose_threads(unmeasured, 1, 0)
    assert (found.value, found.why) == (8, "the strong cores; no other number was measured")
    assert neighbors(unmeasured, 0, 8, 24) == [[6, 4, 3, 2, 1]]

    profiles = [machine(n, dram) for n, dram in ((1, 15), (4, 58), (8, 60), (24, 70))]
    measured = dataclasses.replace(known(600, *profiles), decode=hybrid)
    assert choose_threads(measured, 512, 0).value == 24
    assert choose_threads(measured, 1, 0).value == 8
    fuller = [machine(1, 15), machine(4, 60), machine(8, 45), machine(24, 45)]
    assert choose_threads(dataclasses.replace(known(600, *fuller), decode=hybrid), 1, 0).value == 4


def test_trials_keep_ccds_even() -> None:
    """On two CCDs decode tries even numbers of threads beside one alone."""
    even = ThreadPlan(tuple(range(12)), (1, 2, 4, 6, 8, 12))
    found = dataclasses.replace(known(600, machine(12, 60)), decode=even)
    assert neighbors(found, 0, 12, 12) == [[8, 6, 4, 2, 1]]


def test_what_dispatch_bounds() -> None:
    """A small model with dear barriers; not a large one."""
    assert known(3, machine(12, 60, 4e-6)).dispatch_bound(1, 0, 12)
    assert not known(600, machine(12, 60)).dispatch_bound(1, 0, 4)


def test_at_best() -> None:
    """Half the cores have half the arithmetic and caches, and may have all of the memory."""
    half = at_best(machine(4, 60), 2)
    assert (half.int8_gops, half.read_gbps["L2"], half.read_gbps["DRAM"]) == (2000, 400, 60)
    assert half.barrier_s == 5e-8


def test_chunks() -> None:
    """A slow memory wants more tokens for each read of the weights; a fast one does not."""
    slow, fast = (choose_chunk(known(600, machine(12, dram)), 4096) for dram in (2, 200))
    assert slow.value > fast.value
    assert fast.value <= 512
    assert "512: " in fast.why


@pytest.mark.parametrize(
    ("tokens", "chunk", "parts"),
    [
        (1, 512, [1]),
        (512, 512, [512]),
        (513, 512, [288, 225]),
        (1096, 512, [384, 384, 328]),
        (1024, 512, [512, 512]),
        (2000, 512, [512, 512, 512, 464]),
        (100, 48, [48, 32, 20]),
        (7, 3, [3, 3, 1]),
    ],
)
def test_passes_alike(tokens: int, chunk: int, parts: list[int]) -> None:
    """As few passes as there must be, none over the chunk, in tiles of 32 where that fits."""
    found = []
    while tokens:
        found.append(even_part(tokens, chunk))
        tokens -= found[-1]
    assert found == parts


def test_spinning() -> None:
    """Long where waking up is a good part of a pass, short where it is not."""
    small, large = (choose_spin(known(n, machine(2, 60))) for n in (3, 600))
    assert small.value == SPIN_LONG_S
    assert large.value < SPIN_LONG_S / 2
    assert "%" in small.why


@pytest.mark.parametrize(
    ("reading", "touching", "helps"),
    [(1.1, 8.0, True), (1.1, 0.5, True), (0.97, 8.0, True), (0.9, 8.0, False), (1.0, 1.0, False)],
)
def test_large_pages(reading: float, touching: float, helps: bool) -> None:
    """Where they are read faster, or are got much cheaper and read about as fast."""
    gain = PageGain(read_s=(1.0, reading), touch_s=(1.0, touching))
    assert choose_pages(gain).value is helps
    better = gain.merged(dataclasses.replace(gain, read_s=(0.5, 2.0)))
    assert better.read_s == (0.5, reading)
    assert better.samples == 2


def shaped(kv_heads: int, *machines: MachineProfile) -> TuningInputs:
    found = known(100, *machines)
    cost = dataclasses.replace(found.model, kv_heads=kv_heads, kv_bytes=kv_heads * 28 * 256.0)
    return dataclasses.replace(found, model=cost)


def test_attention_is_split_where_heads_do_not_come_out_even() -> None:
    """One head on two threads, three on two, eight on sixteen; not where all have as many."""
    two, sixteen = (machine(1, 15), machine(2, 30)), (machine(1, 15), machine(16, 120))
    for heads, machines, threads in ((1, two, 2), (3, two, 2), (8, sixteen, 16)):
        assert choose_split(shaped(heads, *machines), 1, 16_384, threads).value, heads
    for heads, machines, threads in ((8, two, 2), (2, two, 1), (16, sixteen, 16), (3, two, 1)):
        choice = choose_split(shaped(heads, *machines), 1, 8192, threads)
        assert not choice.value, heads
        assert "come out even" in choice.why


def test_attention_is_not_split_for_little() -> None:
    """Barriers cost more than what threads wait behind a short cache, or one that is one part."""
    found = shaped(1, machine(1, 15), machine(2, 30))
    assert not choose_split(found, 1, 100, 2).value
    slow = dataclasses.replace(found, reached=Efficiency(decode_barrier_s=1e-4, barrier_s=1e-4))
    assert not choose_split(slow, 1, 512, 2).value
    assert choose_split(slow, 1, 100_000, 2).value
    assert "of barriers and merging" in choose_split(slow, 1, 512, 2).why


def test_attention_of_a_few_tokens_is_split_as_well() -> None:
    """A tile of tokens of one head is one thread's; many tiles come out nearly even."""
    found = shaped(1, machine(1, 15), machine(2, 30))
    assert choose_split(found, 8, 4096, 2).value
    assert not choose_split(found, 32, 4096, 2).value, "two tiles of 16 tokens"


def test_one_thread_that_draws_all_the_memory_gives() -> None:
    """Where a second thread brings nothing, there is nothing to be had by keeping it busy."""
    found = shaped(1, machine(1, 30), machine(2, 30))
    fast = dataclasses.replace(found, reached=Efficiency(attention=1e6))
    assert not choose_split(fast, 1, 65536, 2).value


def test_tiles_are_the_usual_ones_unless_others_were_measured_faster() -> None:
    """The plan of the machine, with what was measured of it as the reason."""
    plain = known(600, machine(1, 15))
    assert (choose_tile(plain).value, choose_max_single_tile(plain, 6).value) == (6, 9)
    assert "no other was measured" in choose_tile(plain).why

    gains = {"tile=8": [0.98, 1.05], "max_single_tile=6": [1.31, 1.39]}
    found = dataclasses.replace(plain, tiles=TilePlan(6, 6, gains, "2026-11-21"))
    assert choose_tile(found).value == 6
    assert choose_tile(found).why == "the default; no other was clearly faster (8: 0.98 to 1.05 ×)"
    assert choose_max_single_tile(found, 6).value == 6
    assert choose_max_single_tile(found, 6).why == "clearly faster (6: 1.31 to 1.39 ×)"
    assert choose_max_single_tile(found, 12).value == 12
