"""Half of one resource on the tape: what is halved, what is not, and what is made of the times."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from helpers import tiny_qwen3moe as tiny

from labs.bench import causal_profile
from labs.bench.causal import _values
from labs.bench.causal_profile import Point
from labs.bench.perturbed_graph import Perturbation, perturbed
from triplepoint import Engine
from triplepoint.jit.kernels.batch import COUNT, START
from triplepoint.jit.tape import Op
from triplepoint.runtime.engine.passes.request import Request
from triplepoint.runtime.forward.batch import Span
from triplepoint.runtime.physics.costs import Prediction
from triplepoint.runtime.physics.observation import observe

NAMES: tuple[Perturbation, ...] = ("control", "memory", "compute")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", context=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    tiny.write_tiny(path, "q8_0", tiny.USED)
    with Engine.load(path, context=64) as engine:
        yield engine


def products(ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.kernel.source.name.startswith(("gemm", "stream"))]


def distinct(ops: list[Op]) -> int:
    """How many different pieces of weights the products of a tape read."""
    starts = set()
    for op in products(ops):
        first = int(op.args[6][0]) if op.kernel.source.name == "gemm_selected" else 0
        starts.add((op.args[0].ctypes.data, first))
    return len(starts)


@pytest.mark.parametrize("tokens", [1, 8])
def test_all_else_stays(engine: Engine, tokens: int) -> None:
    """Bytes and products are halved with as many ops and barriers as the control has."""
    session = engine.session()
    plans = {name: perturbed(session, name, tokens) for name in NAMES}
    control = plans["control"]

    for plan in plans.values():
        assert len(plan.tape) == len(control.tape)
        assert plan.tape.barriers == control.tape.barriers
    assert distinct(plans["memory"].graph.tape.ops) * 2 == distinct(control.graph.tape.ops)
    assert distinct(plans["compute"].graph.tape.ops) == distinct(control.graph.tape.ops)


def test_half_of_the_products(engine: Engine) -> None:
    """Of 8 tokens 4 are multiplied and attend; of one every second piece is only read."""
    session = engine.session()
    many, one = (perturbed(session, "compute", tokens) for tokens in (8, 1))
    many.graph.set_pass([Span(session.sequence.cache.table, 100, list(range(8)), 1)])

    counts = {int(op.args[4][0]) for op in products(many.graph.tape.ops) if op.name != "output"}
    assert counts == {4}
    tiles = [op.args[7] for op in many.graph.tape.ops if op.kernel.source.name == "attention"]
    first = {(int(one[0, COUNT]), int(one[0, START])) for one in tiles}
    assert first == {(4, 102)}  # as much of the cache as 8 tokens from 100 on, on average
    kernels = [op.kernel.source.name for op in products(one.graph.tape.ops)]
    assert kernels.count("stream_only") * 2 == len(kernels)


def test_half_of_the_barriers(engine: Engine) -> None:
    """Two passes in one run, with as many barriers as one has."""
    session = engine.session()
    whole, fewer = perturbed(session, "", 8), perturbed(session, "dispatch", 8)

    assert len(fewer.tape) == 2 * len(whole.tape)
    assert abs(fewer.tape.barriers - whole.tape.barriers) <= 1
    assert fewer.graph.tape.ops[-1].barrier


def test_what_is_not_halved_is_the_pass(engine: Engine) -> None:
    """The unchanged pass and the control give the very logits of a prefill."""
    session = engine.session()
    ids = list(range(50, 62))
    session.prefill(ids)
    want = session.logits.copy()
    for name in ("", "control"):
        other = engine.session()
        plan = perturbed(other, name, len(ids))
        engine.core.scheduler.run_on(plan, Request(other.sequence, 0, ids, 1))
        assert np.array_equal(
            engine.loaded.outputs.logits[0, : engine.loaded.outputs.n_vocab], want
        ), name


def test_experts_are_the_same_in_all_passes(mixture: Engine) -> None:
    """Tokens go to experts by a fixed chance: as many are touched whatever was computed."""
    for tokens in (1, 6, 32):
        session = mixture.session()
        touched = {}
        for name in ("", *NAMES):
            plan = perturbed(session, name, tokens)
            session.sequence.n_cached = 0
            mixture.core.scheduler.run_on(
                plan, Request(session.sequence, 0, list(range(tokens)), 1)
            )
            touched[name] = [int(count[0]) for count in plan.graph.experts_hit]
        assert touched[""] == touched["control"] == touched["memory"] == touched["compute"]
        assert sum(touched[""]) > 0 or tokens == 1


@pytest.mark.slow
def test_a_grid_is_measured(engine: Engine) -> None:
    """Each point once, with what every change did to its time and what the stamps said."""
    points = [(1, 0), (4, 0), (4, 200)]
    found = list(causal_profile.measure(engine, points))

    assert [(p.tokens, p.start) for p in found] == points
    for point in found:
        assert set(point.effects) == {"memory", "compute", "dispatch"}
        assert all(effect < 1 for effect in point.effects.values())
        assert set(point.rounds) == {"whole", "control", "memory", "compute", "dispatch"}
        assert point.seen.bound in point.effects
        assert causal_profile.as_fields(point)["agrees"] == point.agrees
        assert set(_values(point)[1]) == {"rounds"}, "a list is no cell of CSV"


@pytest.mark.slow
def test_a_mixture_is_measured(mixture: Engine) -> None:
    """Passes of one and of several tokens, with experts of few and of many tokens."""
    found = list(causal_profile.measure(mixture, [(1, 8), (4, 0), (32, 8)]))
    assert [(p.tokens, p.start) for p in found] == [(1, 8), (4, 0), (32, 8)]
    assert all(set(p.effects) == {"memory", "compute", "dispatch"} for p in found)


def test_what_agrees(engine: Engine) -> None:
    """The largest effect agrees, one within the noise ties, any other does not."""
    (point,) = causal_profile.measure(engine, [(4, 0)])

    def judged(compute: float, memory: float, noise: float = 0.0) -> Point:
        return dataclasses.replace(
            point,
            effects={"compute": compute, "memory": memory, "dispatch": 0.0},
            noise={"compute": noise, "memory": noise, "dispatch": 0.0},
            seen=observe(Prediction(0.1, 0.6, 0.0, "DRAM"), 1.0, 0.9),
        )

    assert judged(0.1, 0.3).most == "memory"
    assert judged(0.1, 0.3).agrees
    assert judged(0.3, 0.28).agrees
    assert not judged(0.3, 0.2).agrees
    assert judged(0.3, 0.2, noise=0.05).agrees
