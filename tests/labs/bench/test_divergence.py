"""Divergences of logits, their ratios, and the texts that they are taken over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.texts import EACH, kinds, text, texts

from labs.bench.divergence import (
    Score,
    compare,
    perplexity_change,
    ratio,
    read_record,
    scores,
    write_record,
)

IDS = [3, 1, 4, 1, 5]


def logits(seed: int, noise: float = 0.0) -> np.ndarray:
    base = np.random.default_rng(0).normal(size=(len(IDS), 9)) * 3
    return (base + noise * np.random.default_rng(seed).normal(size=base.shape)).astype(np.float32)


def test_scores_are_the_formulas() -> None:
    """KL, equal top tokens and -log p of the next token, but for the first, in pieces of two."""
    base, other = logits(0), logits(1, noise=0.5)

    def pieces(rows: np.ndarray) -> list[np.ndarray]:
        return [rows[:2], rows[2:4], rows[4:]]

    got = {"same": pieces(base), "other": pieces(other)}
    found = scores(IDS, compare(IDS, pieces(base), got))

    p, q = (np.exp(x[1:]) / np.exp(x[1:]).sum(1, keepdims=True) for x in (base, other))
    want = (p * np.log(p / q)).sum(1).mean()
    nll = [-np.log(x[np.arange(3), IDS[2:]]).mean() for x in (p, q)]
    assert (found["same"].kl, found["same"].same, found["same"].tokens) == (0.0, 4, 4)
    assert found["same"].nll == found["same"].reference_nll == pytest.approx(nll[0], rel=1e-5)
    assert found["other"].kl == pytest.approx(want, rel=1e-5)
    assert found["other"].same == (p.argmax(1) == q.argmax(1)).sum() < 4
    assert found["other"].nll == pytest.approx(nll[1], rel=1e-5)
    change = perplexity_change([found["other"]])
    assert change == pytest.approx(np.exp(nll[1] - nll[0]) - 1, rel=1e-5)


def test_engines_read_the_same_rows() -> None:
    """An engine that gives fewer is an error, not a shorter comparison."""
    with pytest.raises(ValueError, match="shorter"):
        compare(IDS, [logits(0)], {"short": [logits(0)[:3]]})


def test_a_ratio_weighs_texts_by_their_tokens() -> None:
    """The median is of the texts, the mean of all tokens; texts drawn anew give the interval."""
    ours = [Score(n, 10 * (n + 1), kl, 0, 0.0, 0.0) for n, kl in enumerate((1.0, 2.0, 9.0))]
    found = ratio(ours, [replace(one, kl=1.0) for one in ours])
    assert found.median == 2.0
    assert found.mean == pytest.approx((10 + 40 + 270) / 60)
    assert found.low == 1.0
    assert found.high == 9.0
    with pytest.raises(AssertionError, match="other texts"):
        ratio(ours, [replace(one, ids=one.ids + 1) for one in ours])


def test_what_is_recorded_is_read(tmp_path: Path) -> None:
    """Beside other engines and models."""
    path, one = tmp_path / "record.json", Score(7, 100, 0.00125, 99, 2.5, 2.25)
    write_record(path, "llama.cpp f16", "1.0", "small", {"prose-0": one})
    write_record(path, "llama.cpp f16", "1.0", "large", {"prose-0": replace(one, kl=0.5)})
    assert read_record(path, "llama.cpp f16", "small") == {"prose-0": one}
    assert read_record(path, "llama.cpp f16", "large")["prose-0"].kl == 0.5


def test_texts_are_always_the_same() -> None:
    """48 texts, 100 kB, all filled in, no two alike."""
    found = texts()
    assert found == texts()
    assert len(set(found.values())) == EACH * len(kinds()) == 48
    assert 100_000 < sum(len(one.encode()) for one in found.values()) < 110_000
    assert found["prose-2"] == text("prose", 2)
    names = [one for one in found.values() if any(f"${word}" in one for word in ("who", "int"))]
    assert not names
