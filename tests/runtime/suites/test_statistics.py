"""The estimators, against what they estimate."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from triplepoint.runtime.suites.definition import Price, Suite
from triplepoint.runtime.suites.statistics import cost_of, pass_at_k, score, wilson


@pytest.mark.parametrize("attempts", [1, 4, 7])
def test_pass_at_k_is_the_share_of_choices(attempts: int) -> None:
    """Of all ways to choose k attempts, the share that has one that passed."""
    for passed in range(attempts + 1):
        outcomes = [True] * passed + [False] * (attempts - passed)
        for k in range(1, attempts + 1):
            ways = [any(chosen) for chosen in itertools.combinations(outcomes, k)]
            assert pass_at_k(attempts, passed, k) == pytest.approx(sum(ways) / len(ways))
    with pytest.raises(ValueError, match="pass@9"):
        pass_at_k(8, 1, 9)


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    # By hand: (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n), z = 1.959964.
    [
        (0, 10, 0.0, 0.27753),
        (5, 10, 0.23659, 0.76341),
        (10, 10, 0.72247, 1.0),
        (81, 263, 0.25527, 0.36620),
    ],
)
def test_wilson(right: int, count: int, low: float, high: float) -> None:
    """Known intervals; the last is Newcombe's example (Stat. Med. 17, 1998)."""
    assert wilson(right / count, count) == pytest.approx((low, high), abs=6e-5)


def test_cost() -> None:
    """Cached input has its own price, or that of input."""
    usage = {"input_tokens": 3000, "cached_tokens": 1000, "output_tokens": 500}

    assert cost_of(usage, Price(input=1, cached=0.1, output=4)) == pytest.approx(0.0041)
    assert cost_of(usage, Price(input=1, output=4)) == pytest.approx(0.005)


def row(task: str, repeat: int, *passed: bool, status: str = "ok") -> dict[str, Any]:
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "decode_s": 0.5,
        "wall_s": 1.0,
        "ttft_s": 0.2,
    }
    questions = [{"ask": "q", "passed": one, "checks": [], "status": "answered"} for one in passed]
    return {
        **{"task": task, "model": "nano", "setting": "default", "repeat": repeat, "group": "g"},
        **{"status": status, "passed": all(passed) and status == "ok", "questions": questions},
        "usage": usage,
    }


def test_scores(suite_of: Callable[..., Suite]) -> None:
    """Accuracy over questions, pass@k over tasks; what failed on our side counts for neither."""
    checks = [{"contains": "x"}]
    tasks = [{"id": name, "question": "q", "checks": checks} for name in "abc"]
    suite = suite_of(tasks=tasks, repeats=2, k=[1, 2], price_per_million={"input": 10})
    rows = [
        row("a", 0, True),
        row("a", 1, False),
        row("b", 0, True, False),
        row("b", 1, True, True),
    ]
    rows += [row("c", 0, False, status="error")]

    (found,) = score(suite, rows)

    assert (found.attempts, found.wanted, found.errors, found.questions) == (5, 6, 1, 3)
    assert found.accuracy == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert (found.low, found.high) == pytest.approx(wilson(2 / 3, 3))
    assert found.pass_at == {1: pytest.approx(0.5), 2: 1.0}
    assert (found.tokens_per_s, found.seconds, found.ttft_s) == (20.0, 1.0, 0.2)
    assert found.cost == pytest.approx(100 * 10 / 1e6)
    assert found.cost_of_right == pytest.approx(2 * 100 * 10 / 1e6)
    assert score(suite, [])[0].accuracy is None
