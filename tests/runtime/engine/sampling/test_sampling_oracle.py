"""Sampling over a whole vocabulary, against the logits warpers of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.pools import pool_of

from triplepoint.runtime.engine.sampling.logit_ranking import FEW, LogitRanker
from triplepoint.runtime.engine.sampling.sampler import Sampler, uniform
from triplepoint.runtime.engine.sampling.settings import Sampling

ORACLE = "the oracle is torch: pip install '.[oracle]'"

SIZE = 30_011  # more than is ever sorted at once, and a multiple of nothing


@pytest.fixture(scope="module", params=[1, 2], ids=["one-thread", "two-threads"])
def ranking(request: pytest.FixtureRequest) -> Iterator[LogitRanker]:
    """Of a vocabulary that takes several looks."""
    with pool_of(request.param) as (library, pool):
        yield LogitRanker(SIZE, library, pool)


def _warped(logits: np.ndarray, settings: Sampling, written: list[int]) -> np.ndarray:
    """float64 [n]: the probabilities that transformers would draw from."""
    # Not at the top: every worker would import them to collect.
    torch = pytest.importorskip("torch", reason=ORACLE)
    process = pytest.importorskip("transformers.generation.logits_process", reason=ORACLE)
    s = settings.filled()
    chain: list[Any] = []
    if s.repeat_penalty != 1:
        chain.append(process.RepetitionPenaltyLogitsProcessor(s.repeat_penalty))
    for name in s.order:
        if name == "temperature":
            chain.append(process.TemperatureLogitsWarper(s.temperature))
        elif name == "top_k" and s.top_k:
            chain.append(process.TopKLogitsWarper(s.top_k))
        elif name == "top_p" and s.top_p < 1:
            chain.append(process.TopPLogitsWarper(s.top_p))
        elif name == "min_p" and s.min_p > 0:
            chain.append(process.MinPLogitsWarper(s.min_p))
    scores = torch.tensor(logits, dtype=torch.float64)[None]
    for warper in chain:
        scores = warper(torch.tensor([written]), scores)
    return torch.softmax(scores, -1)[0].numpy()


LAST = ("top_k", "top_p", "min_p", "temperature")  # as llama-server does by itself
CHAINS = [
    {"temperature": 0.7, "top_k": 20, "top_p": 0.95},
    {"temperature": 0.6, "top_k": 20, "top_p": 0.8, "repeat_penalty": 1.3},
    {"temperature": 1.0},
    {"temperature": 30.0},
    {"temperature": 0.05, "top_k": 4000},
    {"temperature": 1.0, "top_p": 0.6},
    {"temperature": 2.0, "top_p": 0.99},
    {"temperature": 0.8, "min_p": 0.05},
    {"temperature": 4.0, "top_k": 9000, "top_p": 0.97, "min_p": 1e-3},
    {"temperature": 0.6, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "order": LAST},
    {"temperature": 3.0, "top_p": 0.8, "order": LAST},
    {"temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "order": ("min_p", "temperature", "top_p")},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.9, "order": ("temperature", "top_p")},
]


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS, ids=str)
@pytest.mark.parametrize("spread", [1.0, 4.0])
def test_the_same_tokens_are_kept_and_drawn(
    ranking: LogitRanker, chain: dict[str, Any], spread: float, rng: np.random.Generator
) -> None:
    """What is kept is what transformers keeps; a draw is its inverse distribution, token by token.

    Tokens stand in order of likelihood. Sums of float32 weights may move the end of what is kept,
    and a draw, by a token whose probability is below 1e-5.
    """
    settings = Sampling(**chain, seed=5)
    for turn in range(3):
        logits = (rng.standard_normal(SIZE) * spread).astype(np.float32)
        written = [int(token) for token in np.argsort(-logits)[:3]]
        p = _warped(logits, settings, written)
        order = np.argsort(-p, kind="stable")
        sums = np.cumsum(p[order])
        sampler = Sampler(settings, ranking, position=1000 * turn)
        for token in written:
            sampler.accept(token)
        for _ in range(20):
            u = uniform(5, sampler.position)
            token = sampler.pick(logits, None)
            place = int(np.flatnonzero(order == token)[0])
            assert p[token] > 0 or abs(u - 1) < 1e-5
            low, high = sums[place] - p[token], sums[place]
            assert low - 1e-5 <= u <= high + 1e-5
            sampler.position += 1
        kept = np.count_nonzero(p)
        rank = sampler.kept().last
        edge = np.sort(p[p > 0])[: max(1, abs(rank - kept))]
        assert rank == kept or edge.sum() < 1e-5


@pytest.mark.slow
def test_equal_logits(ranking: LogitRanker) -> None:
    """More equal ones than are sorted at once: the first ids come first."""
    logits = np.zeros(SIZE, np.float32)
    sampler = Sampler(Sampling(temperature=1.0, top_k=FEW * 2), ranking)
    tokens = []
    for _ in range(50):
        tokens.append(sampler.pick(logits, None))
        sampler.accept(0)

    assert max(tokens) < FEW * 2
    assert len(set(tokens)) > 40


def test_threads_draw_the_same(rng: np.random.Generator) -> None:
    """The same tokens with one thread and with two, in every chain."""
    logits = (rng.standard_normal((5, SIZE)) * 2).astype(np.float32)
    picked = []
    for threads in (1, 2):
        with pool_of(threads) as (library, pool):
            ranking = LogitRanker(SIZE, library, pool)
            samplers = [Sampler(Sampling(**chain), ranking) for chain in CHAINS]
            picked.append([[s.pick(row, None) for row in logits] for s in samplers])

    assert picked[0] == picked[1]
