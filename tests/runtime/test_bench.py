"""The bench: which cases, and that each is measured on the passes that it names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import triplepoint as package
from triplepoint.errors import EngineError
from triplepoint.runtime import bench
from triplepoint.runtime.bench import Case, Result
from triplepoint.runtime.engine import Engine
from triplepoint.runtime.session import Session

NANO = Path(package.__file__).parent / "runtime" / "nano" / "nano.gguf"


def test_cases_are_in_llama_benchs_order() -> None:
    """All tests at one depth, then at the next; a length of 0 is no test."""
    names = [case.name for case in bench.cases([36, 512, 0], [32], [0, 2048])]

    assert names == ["pp36", "pp512", "tg32", "pp36 @ d2048", "pp512 @ d2048", "tg32 @ d2048"]


def test_a_result_has_median_and_spread() -> None:
    """Median and standard deviation are of the rates, and one repetition has no spread."""
    result = Result(Case(prompt=10), (1.0, 2.0, 5.0))

    assert result.rates == [10.0, 5.0, 2.0]
    assert result.median == 5.0
    assert result.spread == pytest.approx(4.04, abs=0.01)
    assert Result(Case(generate=4), (2.0,)).spread == 0.0


@pytest.mark.parametrize("depth", [0, 30])
@pytest.mark.parametrize("case", [Case(prompt=20), Case(generate=3)], ids=["prompt", "generate"])
def test_each_repetition_is_the_same_passes(
    case: Case, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every repetition starts at the case's depth and computes exactly its tokens."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    engine = Engine.load("nano")
    phases: list[Any] = []
    for name in ("prefill", "decode"):
        original = getattr(Session, name)

        def watched(self: Session, *args: Any, original: Any = original, **more: Any) -> Any:
            result = original(self, *args, **more)
            if not hasattr(result, "wall_s"):
                result = iter(list(result))
            phases.append(self.last_phase)
            return result

        monkeypatch.setattr(Session, name, watched)

    (result,) = bench.run(engine, [replace(case, depth=depth)], repeat=2)
    engine.close()

    assert len(result.seconds) == 2
    assert all(seconds > 0 for seconds in result.seconds)
    kind = "prefill" if case.prompt else "decode"
    start = depth if case.prompt else max(depth, 1)
    timed = [p for p in phases if (p.phase, p.kv_before) == (kind, start)]
    if case.prompt:
        assert [p.tokens for p in timed] == [20, 20, 20]
    else:
        assert [p.kv_after - p.kv_before for p in timed] == [3, 3, 3]
        assert [len(p.token_ids) for p in timed] == [4, 4, 4]


def test_a_case_that_does_not_fit_is_an_error() -> None:
    """A length beyond the context is told before anything is measured."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    engine = Engine.load("nano", context=128)

    with pytest.raises(EngineError, match="128"):
        list(bench.run(engine, [Case(prompt=200)]))
    engine.close()
