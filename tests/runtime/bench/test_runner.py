"""The bench: which cases, and that each is measured on the passes that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import triplepoint as package
from triplepoint.errors import EngineError
from triplepoint.runtime.bench import runner as bench
from triplepoint.runtime.bench.runner import Result
from triplepoint.runtime.engine import engine_timer
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.physics.machine import LEVELS
from triplepoint.runtime.physics.timed_passes import Case

NANO = Path(package.__file__).parent / "runtime" / "nano" / "nano.gguf"


def test_cases_are_in_llama_benchs_order() -> None:
    """All tests at one depth, then at the next; a length of 0 is no test."""
    names = [case.name for case in bench.cases([36, 512, 0], [32], [0, 2048])]

    assert names == ["pp36", "pp512", "tg32", "pp36 @ d2048", "pp512 @ d2048", "tg32 @ d2048"]


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("pp512", Case(prompt=512)),
        ("tg1", Case(generate=1)),
        ("tg32@1024", Case(generate=32, depth=1024)),
        ("pp36 @ d1024", Case(prompt=36, depth=1024)),
    ],
)
def test_a_name_gives_its_case(name: str, case: Case) -> None:
    """What is shown as a row's name can be asked for, with or without the d and the spaces."""
    assert bench.case_of(name) == case
    assert bench.case_of(case.name) == case


@pytest.mark.parametrize("name", ["", "512", "pp", "pp0", "tg-1", "pp5@", "pp5 d7", "xx5", "pp५"])
def test_other_names_are_refused(name: str) -> None:
    """The message shows what a name looks like."""
    with pytest.raises(ValueError, match="is not a test like pp512"):
        bench.case_of(name)


def test_a_result_has_median_and_spread() -> None:
    """Median and standard deviation are of the rates, and one repetition has no spread."""
    result = Result(Case(prompt=10), (1.0, 2.0, 5.0))

    assert result.rates == [10.0, 5.0, 2.0]
    assert result.median == 5.0
    assert result.spread == pytest.approx(4.04, abs=0.01)
    assert Result(Case(generate=4), (2.0,)).spread == 0.0
    assert result.share == 0.0


def test_the_share_is_the_least_time_over_the_time() -> None:
    """Each repetition is validated against the limits around itself."""
    result = Result(Case(prompt=10), (1.0, 2.0, 5.0), least=(0.5, 0.5, 4.0))

    assert result.shares == [0.5, 0.25, 0.8]
    assert result.share == 0.5


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    with Engine.load("nano") as engine:
        yield engine


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 30])
@pytest.mark.parametrize("case", [Case(prompt=20), Case(generate=3)], ids=["prompt", "generate"])
def test_each_repetition_is_the_same_passes(
    case: Case, depth: int, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every repetition starts at the case's depth and computes exactly its tokens."""
    phases: list[Any] = []
    for owner, name in ((Session, "prefill"), (engine_timer, "decode_teacher_forced")):
        original = getattr(owner, name)

        def watched(*args: Any, original: Any = original, **more: Any) -> Any:
            phases.append(original(*args, **more))
            return phases[-1]

        monkeypatch.setattr(owner, name, watched)

    (result,) = bench.run(engine, [replace(case, depth=depth)], repeat=2)

    assert len(result.seconds) == 2
    assert all(seconds > 0 for seconds in result.seconds)
    assert len(result.limits) == len(result.shares) == 2
    assert result.share > 0
    assert result.bound
    kind = "prefill" if case.prompt else "decode"
    start = depth if case.prompt else max(depth, 1)
    timed = [p for p in phases if (p.phase, p.kv_before) == (kind, start) and p.tokens > 1]
    if case.prompt:
        assert [p.tokens for p in timed] == [20, 20, 20]
    else:
        assert [p.kv_after - p.kv_before for p in timed] == [3, 3, 3]
        assert [len(p.token_ids) for p in timed] == [4, 4, 4]
    # Before each of them a token that is not timed has had the weights.
    assert all(
        before.tokens == 1 and before.phase == "prefill"
        for before, phase in pairwise(phases)
        if phase in timed
    )


def test_the_least_time_is_of_what_the_model_needs(engine: Engine) -> None:
    """A decode reads all weights once a token; a long prompt computes with all of them."""
    cost = engine.loaded.cost
    slow_memory = replace(
        engine.machine,
        read_gbps=dict.fromkeys(LEVELS, 1.0),
        int8_gops=1e9,
        fp32_gflops=1e9,
        bf16_gflops=1e9,
    )
    decode = bench.least(engine, Case(generate=10), slow_memory)
    weights = cost.body_bytes + cost.head_bytes
    seen = sum(range(2, 12))  # positions that each of the ten tokens attends to; it writes one
    assert decode.memory_s == pytest.approx((10 * weights + (seen + 10) * cost.kv_bytes) / 1e9)

    slow_compute = replace(engine.machine, int8_gops=1.0, fp32_gflops=1.0, bf16_gflops=1.0)
    prompt = bench.least(engine, Case(prompt=700), slow_compute)
    attention = 4 * cost.layers * cost.heads * cost.head_dim * sum(range(1, 701))
    linear = 2 * (700 * cost.body_weights + cost.head_weights)
    assert prompt.compute_s == pytest.approx((attention + linear) / 1e9)
    # Two passes, since a pass takes at most 512 tokens: the weights are read twice.
    two = bench.least(engine, Case(prompt=700), slow_memory)
    kv = cost.kv_bytes * (513 / 2 + 512 + 189 / 2 + 700)  # read, and written
    assert two.memory_s == pytest.approx((2 * cost.body_bytes + cost.head_bytes + kv) / 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("case", [Case(prompt=20), Case(generate=3)], ids=["prompt", "generate"])
def test_the_time_is_shared_out(case: Case, engine: Engine) -> None:
    """The parts are all of the threads' time, and the model's products and attention are in it."""
    (result,) = bench.run(engine, [case], repeat=1)

    assert tuple(result.spent) == bench.PARTS
    assert all(0 <= share <= 1 for share in result.spent.values())
    assert sum(result.spent.values()) == pytest.approx(1, abs=0.05)
    for part in ("products", "attention", "rope", "prepare", "other"):
        assert result.spent[part] > 0, part


def test_every_kernel_of_a_pass_has_its_part(engine: Engine) -> None:
    """No product of weights is counted as `other`."""
    ops = engine.core.plans.prefill.graph.tape.ops
    other = {op.kernel.source.name for op in ops if bench.part_of(op.kernel.source.name) == "other"}

    assert other == {"embed"}


def test_nothing_to_do_is_nothing_done(engine: Engine) -> None:
    """No cases, no results."""
    assert list(bench.run(engine, [])) == []


def test_a_case_that_does_not_fit_is_an_error() -> None:
    """A length beyond the context is told before anything is measured."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    with Engine.load("nano", context=128) as engine, pytest.raises(EngineError, match="128"):
        next(bench.run(engine, [Case(prompt=5), Case(prompt=200)]))
