"""What llama.cpp's further samplers leave, by hand, and how their picks follow from the seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.pools import pool_of

from triplepoint.runtime.engine.sampling.logit_ranking import LogitRanker
from triplepoint.runtime.engine.sampling.sampler import Sampler
from triplepoint.runtime.engine.sampling.settings import LLAMA_ORDER, ORDER, Sampling

P = np.array([0.4, 0.1, 0.3, 0.05, 0.15])  # probabilities by hand
LOGITS = np.log(P).astype(np.float32)


@pytest.fixture(scope="module")
def ranking() -> Iterator[LogitRanker]:
    """Of a vocabulary of five."""
    with pool_of(1) as (library, pool):
        yield LogitRanker(5, library, pool)


def _kept(
    ranking: LogitRanker, settings: dict[str, Any], logits: np.ndarray = LOGITS
) -> dict[int, float]:
    sampler = Sampler(Sampling(**{"temperature": 1.0, **settings}), ranking)
    sampler.pick(logits, None)
    return dict(sampler.kept().likeliest(9))


def _shares(*tokens: int, power: float = 1.0) -> dict[int, float]:
    total = sum(P[token] ** power for token in tokens)
    return {token: P[token] ** power / total for token in tokens}


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        # of 0.4, 0.3 and 0.15, the last one stays
        ({"xtc_probability": 1, "xtc_threshold": 0.12}, [4, 1, 3]),
        ({"xtc_probability": 1, "xtc_threshold": 0.35}, [0, 2, 4, 1, 3]),  # only one is likely
        ({"xtc_probability": 1, "xtc_threshold": 0.51}, [0, 2, 4, 1, 3]),  # off
        ({"xtc_probability": 1, "xtc_threshold": 0.0}, [3]),
        ({"xtc_probability": 1, "xtc_threshold": 0.12, "min_keep": 4}, [0, 2, 4, 1, 3]),
        ({"xtc_probability": 1, "xtc_threshold": 0.12, "min_keep": 3}, [4, 1, 3]),
        ({"xtc_probability": 1, "xtc_threshold": 0.12, "top_k": 3}, [4]),
        # entropy 1.39: the surprises are 0.92, 1.20, 1.90, 2.30, 3.00
        ({"typical_p": 0.1}, [2]),
        ({"typical_p": 0.5}, [0, 2]),
        ({"typical_p": 0.75}, [0, 2, 4]),
        ({"typical_p": 0.1, "min_keep": 2}, [0, 2]),
        # the logits' standard deviation is 0.73
        ({"top_n_sigma": 0.1}, [0]),
        ({"top_n_sigma": 1.0}, [0, 2]),
        ({"top_n_sigma": 2.0}, [0, 2, 4, 1]),
        ({"top_p": 0.1, "min_keep": 3}, [0, 2, 4]),
        ({"min_p": 0.9, "min_keep": 2}, [0, 2]),
        ({"top_p": 0.1, "min_keep": 99}, [0, 2, 4, 1, 3]),
        # what comes after XTC sees what it left: shares 0.5, 0.33, 0.17
        (
            {
                "xtc_probability": 1,
                "xtc_threshold": 0.12,
                "top_p": 0.6,
                "order": ("xtc", "top_p", "temperature"),
            },
            [4, 1],
        ),
        (
            {
                "xtc_probability": 1,
                "xtc_threshold": 0.12,
                "min_p": 0.5,
                "order": ("xtc", "min_p", "temperature"),
            },
            [4, 1],
        ),
        (
            {
                "xtc_probability": 1,
                "xtc_threshold": 0.12,
                "top_k": 1,
                "order": ("xtc", "top_k", "temperature"),
            },
            [4],
        ),
    ],
    ids=str,
)
def test_what_is_kept(ranking: LogitRanker, settings: dict[str, Any], kept: list[int]) -> None:
    """In order of likelihood, with their shares of what is left."""
    found = _kept(ranking, settings)
    assert list(found) == kept
    assert found == pytest.approx(_shares(*kept), abs=1e-6)


def test_dynamic_temperature(ranking: LogitRanker) -> None:
    """From the lowest to the highest, by the entropy's share of the highest that there could be."""
    share = -(P * np.log(P)).sum() / np.log(5)
    for settings, temperature in (
        ({"dynatemp_range": 0.5}, 0.5 + share),
        ({"dynatemp_range": 0.5, "dynatemp_exponent": 3.0}, 0.5 + share**3),
        ({"dynatemp_range": 9.0}, 10 * share),
        ({"dynatemp_range": 0.5, "top_k": 1}, 1.0),
    ):
        tokens = [0] if "top_k" in settings else [0, 2, 4, 1, 3]
        want = _shares(*tokens, power=1 / temperature)
        assert _kept(ranking, settings) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [{"dynatemp_range": 9.0, "temperature": 1e-3}, {"typical_p": 0.5},
     {"typical_p": 0.5, "temperature": 1e-35, "order": ("temperature", "typ_p")},
     {"dynatemp_range": 9.0, "order": ("temperature", "typ_p", "xtc"), "typical_p": 0.5},
     {"top_n_sigma": 1.0}, {"xtc_probability": 1.0}, {"mirostat": 1}, {"mirostat": 2}],
    ids=str,
)  # fmt: skip
def test_flat_and_steep_logits(ranking: LogitRanker, settings: dict[str, Any]) -> None:
    """Equal ones, one that has all, one that is allowed, forbidden ones: there is a token."""
    steep = np.array([0, 500, 0, -500, 0], np.float32)
    for logits in (np.zeros(5, np.float32), steep, np.full(5, -3.4e38, np.float32)):
        kept = _kept(ranking, settings, logits)
        assert sum(kept.values()) == pytest.approx(1)
    assert next(iter(_kept(ranking, settings, steep))) == 1
    only = Sampler(Sampling(**{"temperature": 1.0, **settings}), ranking)
    assert only.pick(LOGITS, np.array([8], np.uint32)) == 3
    bias = {0: -np.inf, 2: -np.inf, 4: -np.inf}
    assert set(_kept(ranking, {**settings, "logit_bias": bias})) & {1, 3}


def test_what_is_left_at_a_low_temperature(ranking: LogitRanker) -> None:
    """Shares of what XTC has left are exact, though what it dropped had nearly all the weight."""
    logits = np.array([8, 2, 1.5, 1, -3], np.float32)
    dropped = {"xtc_probability": 1.0, "xtc_threshold": 0.002, "temperature": 0.02}
    for order in (("xtc", "temperature"), ("xtc", "temperature", "top_p", "min_p", "top_k")):
        kept = _kept(ranking, {**dropped, "order": order, "top_p": 1 - 1e-12}, logits)
        weights = np.exp((logits[1:].astype(float) - 2) / 0.02)
        want = dict(zip([1, 2, 3, 4], weights / weights.sum(), strict=True))
        assert list(kept) == [1, 2, 3, 4][: len(kept)]
        assert kept == pytest.approx({token: want[token] for token in kept}, rel=1e-4)
    sampler = Sampler(Sampling(**{**dropped, "order": ("xtc", "temperature")}), ranking)
    assert {sampler.pick(logits, None) for sampler.position in range(50)} == {1}


@pytest.mark.slow
def test_xtc_comes_as_often_as_asked(ranking: LogitRanker) -> None:
    """Whether it does is a draw of its own, which belongs to seed and position as well."""
    settings = Sampling(temperature=1.0, xtc_probability=0.3, xtc_threshold=0.12, seed=4)
    sampler, other = (Sampler(settings, ranking) for _ in range(2))
    counts, picked = [], []
    for _ in range(2000):
        picked.append(sampler.pick(LOGITS, None))
        counts.append(sampler.kept().count)
        sampler.accept(0)
    assert set(counts) == {3, 5}
    assert abs(counts.count(3) / 2000 - 0.3) < 0.045
    shares = np.bincount(picked, minlength=5) / 2000
    left = _shares(4, 1, 3)
    want = [0.7 * P[token] + 0.3 * left.get(token, 0.0) for token in range(5)]
    assert np.abs(shares - want).max() < 0.045
    other.position = 1000
    assert [other.pick(LOGITS, None)] == picked[1000:1001]


def test_mirostat_holds_the_surprise(ranking: LogitRanker) -> None:
    """Its limit rises while tokens are less surprising than asked for, and falls else.

    One that was forced, or is the only one allowed, says nothing of it.
    """
    settings = Sampling(temperature=1.0, mirostat=2, mirostat_tau=1.0, mirostat_eta=2.0)
    sampler, counts = Sampler(settings, ranking), []
    for token, chance in ((2, 3 / 7), (0, 1.0)):
        assert sampler.chances(LOGITS, None, token, 0)[0] == pytest.approx(chance, abs=1e-6)
        counts.append(sampler.kept().count)
        sampler.accept(token)
    sampler.pick(LOGITS, None)
    # 2 bits; 1.22 - 1 too many, twice; 1 too few, twice: 3.56
    assert [*counts, sampler.kept().count] == [2, 1, 4]
    for token, mask in ((3, None), (1, np.array([2], np.uint32))):
        twin = Sampler(settings, ranking)
        if mask is not None:
            assert twin.pick(LOGITS, mask) == token
        twin.accept(token)
        twin.pick(LOGITS, None)
        assert twin.kept().count == 2


def test_mirostat_leaves_the_others_out(ranking: LogitRanker) -> None:
    """As in llama.cpp: only bias and temperature count; at temperature 0 it is greedy."""
    alone = {"mirostat": 2, "mirostat_tau": 9.0}
    others = {"top_k": 1, "repeat_penalty": 9.0, "dry_multiplier": 5.0, "xtc_probability": 1.0}
    sampler = Sampler(Sampling(1.0, **{**alone, **others}), ranking, before=[0, 1] * 9)
    sampler.accept(0)
    sampler.pick(LOGITS, None)
    assert sampler.kept().count == 5
    assert np.array_equal(ranking.logits, LOGITS)
    assert Sampling(0.0, **{**alone, **others}).filled().plain


def test_its_own_order() -> None:
    """It is llama.cpp's where further samplers of it are in use; a trace says which it is."""
    assert Sampling(1.0, top_p=0.9, dry_multiplier=1, min_keep=2).filled().order == ORDER
    for more in (
        {"typical_p": 0.9}, {"top_n_sigma": 1}, {"xtc_probability": 0.1}, {"dynatemp_range": 0.1}
    ):  # fmt: skip
        used: dict[str, Any] = {"temperature": 1.0, **more}
        assert Sampling(**used).filled().order == LLAMA_ORDER
        assert Sampling(**used, order=ORDER).filled().order == ORDER
        again = Sampling(**Sampling(**used).as_dict())
        assert again.filled() == Sampling(**used).filled()
    assert Sampling(0, dynatemp_range=1.0).filled().order == ORDER
    texts = Sampling(1.0, dry_multiplier=1, dry_sequence_breakers=["\n"])
    assert texts.as_dict()["dry_sequence_breakers"] == ["\n"]
    assert Sampling(**texts.as_dict()).filled() == texts.filled()


def test_threads_draw_the_same(rng: np.random.Generator) -> None:
    """The same tokens with one thread and with two, by all of them."""
    size = 30_011
    logits = (rng.standard_normal((6, size)) * 2).astype(np.float32)
    chains: list[dict[str, Any]] = [
        {"xtc_probability": 1.0, "xtc_threshold": 1e-3}, {"typical_p": 0.4}, {"mirostat": 1},
        {"mirostat": 2}, {"dynatemp_range": 0.5}, {"top_n_sigma": 1.0, "min_keep": 5, "top_p": 0.1},
    ]  # fmt: skip
    picked = []
    for threads in (1, 2):
        with pool_of(threads) as (library, pool):
            ranking = LogitRanker(size, library, pool)
            for chain in chains:
                sampler = Sampler(Sampling(1.0, **chain), ranking)
                for row in logits:
                    picked.append(sampler.pick(row, None))
                    sampler.accept(picked[-1])
    assert picked[: len(picked) // 2] == picked[len(picked) // 2 :]
