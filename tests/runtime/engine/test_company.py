"""The same bits in any company: alone, beside others, in chunks, after a fork or a truncation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_models, tiny_qwen3moe
from helpers.schedules import Company, Go, Pass, schedules
from helpers.tiers import quick
from hypothesis import HealthCheck, find, given, settings
from hypothesis.errors import NoSuchExample

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import StepResult
from triplepoint.runtime.engine.passes.runner import Runner
from triplepoint.runtime.forward import kv

MODELS = ["nano", "qwen3moe", *tiny_models.CONFIGS]
MakeModel = Callable[[str], str]
few = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
many = settings(few, max_examples=250)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes each model once; the name or the path to load."""
    folder = tmp_path_factory.mktemp("company")

    def make(name: str) -> str:
        path = folder / f"{name}.gguf"
        if name == "nano":
            return name
        if not path.exists():
            if name == "qwen3moe":
                tiny_qwen3moe.write_tiny(path, "q8_0")
            else:
                tiny_models.write_model(path, name, "q8_0")
        return str(path)

    return make


def _load(path: str, **options: Any) -> Engine:
    context = tiny_models.CONTEXTS.get(Path(path).stem, 512)
    return Engine.load(path, context=max(context, 384), **options)


# Windows, sinks and experts, layers that share keys, heads of two shapes, latent attention, the
# delta rule, short convolutions.
QUICK = ("nano", "qwen3moe", "gemma3", "gpt-oss", "gemma4", "laguna", "glm4-flash")
QUICK += ("qwen35", "lfm2")


@pytest.fixture(scope="module", params=quick(MODELS, *QUICK))
def company(request: pytest.FixtureRequest, model: MakeModel) -> Iterator[Company]:
    """Each model on two threads."""
    if request.param in tiny_models.CONTEXTS:
        pytest.skip("its context is shorter than the sequences here")
    with pytest.MonkeyPatch.context() as patch, _load(model(request.param), threads=2) as engine:
        patch.setattr(kv, "SLACK", 0)  # windows let go of pages as soon as they can
        yield Company(engine)


@few
@given(schedule=schedules)
def test_schedules(company: Company, schedule: list[Pass]) -> None:
    """Every architecture: logits and greedy choices are those of the sequence alone."""
    company.run(schedule)


FORMS = [(kv, threads) for kv in ("bf16", "k16v8", "f32", "q8") for threads in (1, 2, 3)]
QUICK_FORMS = [("bf16", 2), ("k16v8", 2), ("f32", 1), ("q8", 3)]


@pytest.fixture(scope="module", params=quick(FORMS, *QUICK_FORMS), ids=str)
def form(request: pytest.FixtureRequest) -> Iterator[Company]:
    """nano with every cache format on one to three threads, attention split by parts."""
    kv, threads = request.param
    tune = {"kv_split": "on" if threads > 1 else "off"}
    with Engine.load("nano", kv=kv, threads=threads, context=512, tune=tune) as engine:
        yield Company(engine)


@pytest.mark.slow
@few
@given(schedule=schedules)
def test_cache_formats_and_threads(form: Company, schedule: list[Pass]) -> None:
    """Every cache format, one to three threads, split attention or not."""
    form.run(schedule)


@pytest.mark.exhaustive
@many
@given(schedule=schedules)
def test_many_schedules(company: Company, schedule: list[Pass]) -> None:
    """The same at length."""
    company.run(schedule)


@pytest.mark.exhaustive
@settings(few, max_examples=800)
@given(schedule=schedules)
def test_many_schedules_of_forms(form: Company, schedule: list[Pass]) -> None:
    """The same at length, on every cache format."""
    form.run(schedule)


@pytest.mark.slow
def test_a_sum_in_another_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterexample: were rows of a company computed in another order, a schedule tells.

    Here passes of several sequences go wrong by one unit in the last place of one logit.
    """
    run = Runner.run

    def slightly_off(runner: Runner, batch: Any, plan: Any = None) -> list[StepResult]:
        results = run(runner, batch, plan)
        for result in results[1:2]:
            if result.logits is not None:
                rows = result.logits.rows
                rows[0, 7] = np.nextafter(rows[0, 7], np.float32(np.inf))
        return results

    with Engine.load("nano", threads=1, context=512) as engine:
        company = Company(engine)
        monkeypatch.setattr(Runner, "run", slightly_off)

        def fails(schedule: list[Pass]) -> bool:
            try:
                company.run(schedule)
            except AssertionError:
                return True
            return False

        try:
            smallest = find(schedules, fails, settings=settings(few, max_examples=300))
        except NoSuchExample:
            pytest.fail("no schedule found it")
    (both,) = (moves for moves in smallest if len(moves) > 1)
    assert [type(move) for move in both.values()] == [Go, Go]
