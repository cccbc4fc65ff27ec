"""Statistics of results: accuracy with its interval, pass@k, speed, tokens, price.

*pass@k* is the unbiased estimator of M. Chen et al., "Evaluating Large Language Models Trained on
Code" (arXiv:2107.03374, 2021): 1 − C(n−c, k) / C(n, k) for a task of which c of n attempts passed.
Intervals are E. B. Wilson's (J. Am. Stat. Assoc. 22, 1927), at 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .definition import Price, Suite
from .results import Row


def pass_at_k(attempts: int, passed: int, k: int) -> float:
    """Return the probability that one of k attempts passes, given `passed` of `attempts`.

    Raises:
        ValueError: k is more than there were attempts.
    """
    if not 0 <= passed <= attempts or not 1 <= k <= attempts:
        raise ValueError(f"pass@{k} of {passed} in {attempts} attempts")
    return 1.0 - math.comb(attempts - passed, k) / math.comb(attempts, k)


def wilson(share: float, count: int) -> tuple[float, float]:
    """Return the Wilson interval of a proportion `share` of `count` independent trials."""
    if count <= 0:
        return 0.0, 1.0
    z = 1.959963984540054  # of 95 %
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    middle, scale = share + z * z / (2 * count), 1 + z * z / count
    return max((middle - spread) / scale, 0.0), min((middle + spread) / scale, 1.0)


@dataclass
class Score:
    """The statistics of one model under one setting.

    Attributes:
        attempts, wanted: attempts made and planned; errors: those that a technical error ended,
            which count neither as right nor as wrong.
        questions: number of distinct ones; accuracy: mean over them of the share of right repeats;
            low, high: its interval, by the number of questions: repeats of one are not independent.
        pass_at: pass@k by k, the mean over tasks with at least k attempts.
        *_tokens, seconds, ttft_s: means per attempt; of ttft_s the median.
        tokens_per_s: of decodes.
        cost: per attempt; cost_of_right: per attempt that passed. None without a price.
    """

    model: str
    setting: str
    attempts: int = 0
    wanted: int = 0
    errors: int = 0
    questions: int = 0
    accuracy: float | None = None
    low: float = 0.0
    high: float = 1.0
    pass_at: dict[int, float | None] = field(default_factory=dict)
    input_tokens: float | None = None
    cached_tokens: float | None = None
    output_tokens: float | None = None
    steps: float | None = None
    seconds: float | None = None
    ttft_s: float | None = None
    tokens_per_s: float | None = None
    cost: float | None = None
    cost_of_right: float | None = None


def score(suite: Suite, rows: Iterable[Row]) -> list[Score]:
    """Compute the score of each model and setting of the suite, in its order."""
    rows = list(rows)
    scores = []
    for model in suite.models:
        for setting in suite.settings:
            mine = [r for r in rows if (r["model"], r["setting"]) == (model.name, setting.name)]
            made = Score(model.name, setting.name, wanted=len(suite.tasks) * suite.repeats)
            _fill(made, mine, suite.k, suite.price_of(model))
            scores.append(made)
    return scores


def _fill(made: Score, rows: Sequence[Row], ks: Sequence[int], price: Price | None) -> None:
    made.attempts, made.errors = len(rows), sum(row["status"] == "error" for row in rows)
    rows = [row for row in rows if row["status"] != "error"]
    made.questions, made.accuracy, made.low, made.high = accuracy(rows)
    for k in ks:
        counts = _by_task(rows)
        found = [pass_at_k(n, c, k) for n, c in counts if n >= k]
        made.pass_at[k] = statistics.fmean(found) if found else None
    if not rows:
        return
    usage = [row["usage"] for row in rows]
    for name in ("input_tokens", "cached_tokens", "output_tokens", "steps"):
        setattr(made, name, statistics.fmean(one.get(name) or 0 for one in usage))
    made.seconds = statistics.fmean(one.get("wall_s") or 0.0 for one in usage)
    firsts = [one["ttft_s"] for one in usage if one.get("ttft_s") is not None]
    made.ttft_s = statistics.median(firsts) if firsts else None
    decoding = sum(one.get("decode_s") or 0.0 for one in usage)
    tokens = sum(one.get("output_tokens") or 0 for one in usage)
    made.tokens_per_s = tokens / decoding if decoding > 0 else None
    if price is not None:
        everything = sum(cost_of(one, price) for one in usage)
        right = sum(row["passed"] for row in rows)
        made.cost = everything / len(rows)
        made.cost_of_right = everything / right if right else None


def accuracy(rows: Iterable[Row]) -> tuple[int, float | None, float, float]:
    """Return the number of questions, their accuracy, and its interval."""
    found = [share for _, share in by_question(rows)]
    if not found:
        return 0, None, 0.0, 1.0
    mean = statistics.fmean(found)
    return len(found), mean, *wilson(mean, len(found))


def by_question(rows: Iterable[Row]) -> list[tuple[tuple[str, int, str], float]]:
    """Return each question's task, index and group, and its share of right attempts."""
    found: dict[tuple[str, int, str], list[bool]] = {}
    for row in rows:
        for number, question in enumerate(row["questions"]):
            group = question.get("group", row.get("group", ""))
            found.setdefault((row["task"], number, group), []).append(bool(question["passed"]))
    return [(key, statistics.fmean(passed)) for key, passed in found.items()]


def cost_of(usage: dict[str, Any], price: Price) -> float:
    """Return the cost of an attempt at a price."""
    fed, cached = usage.get("input_tokens") or 0, usage.get("cached_tokens") or 0
    generated = usage.get("output_tokens") or 0
    cached_price = price.input if price.cached is None else price.cached
    return ((fed - cached) * price.input + cached * cached_price + generated * price.output) / 1e6


def _by_task(rows: Iterable[Row]) -> list[tuple[int, int]]:
    """Return the attempts and passed attempts of each task."""
    counts: dict[str, list[int]] = {}
    for row in rows:
        pair = counts.setdefault(row["task"], [0, 0])
        pair[0] += 1
        pair[1] += bool(row["passed"])
    return [(n, c) for n, c in counts.values()]
