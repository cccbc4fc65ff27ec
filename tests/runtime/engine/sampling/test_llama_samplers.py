"""Samplers of llama.cpp, against what its own library left of the same logits.

`llama_samplers.json` was recorded with `llama_sampler_apply` of libllama (the llama.cpp of
llama-cpp-python 0.3.36) on `_logits` here: what a chain keeps, the likeliest tokens with their
probabilities; Mirostat's picks, which are given to ours; and what DRY takes from logits of 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pools import pool_of

from triplepoint.runtime.engine.sampling.dry_penalty import Breakers, DryPenalty
from triplepoint.runtime.engine.sampling.logit_ranking import LogitRanker
from triplepoint.runtime.engine.sampling.sampler import Sampler
from triplepoint.runtime.engine.sampling.settings import Sampling

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "llama_samplers.json").read_text())
SIZES = (50, 3000)


def _logits(size: int, spread: float, turn: int = 0) -> np.ndarray:
    """float32 [size]: a few high ones and a long tail, the same on every machine."""
    places = (np.arange(1, size + 1, dtype=np.uint64) + np.uint64(size * turn)) * np.uint64(
        2654435761
    )
    share = (places % np.uint64(2**32)).astype(np.float64) / 2**32
    return (-spread * np.log1p(-share)).astype(np.float32)


@pytest.fixture(scope="module", params=SIZES)
def ranking(request: pytest.FixtureRequest) -> Iterator[LogitRanker]:
    """Of a small vocabulary, and of one that takes several looks."""
    with pool_of(2) as (library, pool):
        yield LogitRanker(request.param, library, pool)


def _kept(sampler: Sampler, ranking: LogitRanker, logits: np.ndarray) -> dict[int, float]:
    sampler.pick(logits, None)
    return dict(sampler.kept().likeliest(ranking.n_vocab))


@pytest.mark.slow
def test_what_is_kept(ranking: LogitRanker) -> None:
    """As many tokens, the same likeliest ones, and their probabilities within 1e-5."""
    cases = [case for case in CASES["kept"] if case["size"] == ranking.n_vocab]
    assert len(cases) > 30
    for case in cases:
        sampler = Sampler(Sampling(**case["sampling"]), ranking)
        kept = _kept(sampler, ranking, _logits(ranking.n_vocab, case["spread"]))
        found = len(kept), sum(kept), list(kept)[: len(case["likeliest"])]
        assert found == (case["count"], case["sum"], case["likeliest"]), case
        assert np.allclose([*kept.values()][: len(case["p"])], case["p"], rtol=0, atol=1e-5), case
        assert sum(kept.values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_mirostat(ranking: LogitRanker) -> None:
    """As many tokens before each of its picks: so its limit moves as ours does."""
    cases = [case for case in CASES["mirostat"] if case["size"] == ranking.n_vocab]
    assert {case["sampling"]["mirostat"] for case in cases} == {1, 2}
    for case in cases:
        sampler, counts = Sampler(Sampling(**case["sampling"]), ranking), []
        for turn, token in enumerate(case["picks"]):
            logits = _logits(ranking.n_vocab, case["spread"], turn)
            counts.append(len(_kept(sampler, ranking, logits)))
            sampler.chances(logits, None, token, 0)
            sampler.accept(token)
        assert counts == case["counts"], case
        assert len(set(counts)) > 1


def test_dry() -> None:
    """What it takes from the logits; breakers of several tokens among its cases."""
    assert len(CASES["dry"]) > 30
    for case in CASES["dry"]:
        tails: dict[int, set[tuple[int, ...]]] = {}
        for head, *tail in case["breakers"]:
            tails.setdefault(head, set()).add(tuple(tail))
        settings = Sampling(**case["sampling"]).filled()
        half = len(case["tokens"]) // 2
        dry = DryPenalty(settings, case["tokens"][:half], Breakers(tails, case["size"]))
        for token in case["tokens"][half:]:
            dry.accept(token)
        logits = np.zeros(case["size"], np.float32)
        dry.change(logits)
        want = np.zeros(case["size"])
        want[[int(token) for token in case["penalties"]]] = [*case["penalties"].values()]
        assert np.allclose(-logits, want, rtol=1e-5), case
