"""Picking a token from logits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from helpers.pools import pool_of

from triplepoint.errors import EngineError
from triplepoint.runtime.engine.sampling.logit_ranking import LogitRanker
from triplepoint.runtime.engine.sampling.sampler import Sampler, uniform
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling

P = np.array([0.4, 0.1, 0.3, 0.05, 0.15])  # probabilities by hand
LOGITS = np.log(P).astype(np.float32)
DRAWS = 4000


@pytest.fixture(scope="module")
def ranking() -> Iterator[LogitRanker]:
    """Of a vocabulary of five."""
    with pool_of(2) as (library, pool):
        yield LogitRanker(len(LOGITS), library, pool)


def _drawn(
    ranking: LogitRanker, mask: np.ndarray | None = None, /, **settings: float
) -> np.ndarray:
    """Share of each token over many positions."""
    sampler = Sampler(Sampling(**settings), ranking)  # pyright: ignore[reportArgumentType]
    ids = np.zeros(DRAWS, np.int64)
    for n in range(DRAWS):
        ids[n] = sampler.pick(LOGITS, mask)
        sampler.position += 1
    return np.bincount(ids, minlength=5) / DRAWS


def _bits(*ids: int) -> np.ndarray:
    bits = np.zeros(32, bool)
    bits[list(ids)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _near(shares: np.ndarray, want: list[float]) -> bool:
    """Within four standard errors of what was to be expected."""
    p = np.array(want)
    return bool((np.abs(shares - p) <= 4 * np.sqrt(p * (1 - p) / DRAWS)).all())


@pytest.mark.slow
def test_temperature_one_draws_the_distribution(ranking: LogitRanker) -> None:
    """At temperature 1 tokens come as often as the softmax says."""
    assert _near(_drawn(ranking, temperature=1.0, seed=1), P.tolist())


@pytest.mark.slow
def test_temperature_sharpens_and_flattens(ranking: LogitRanker) -> None:
    """Temperature 1/2 squares the odds, 2 takes their root."""
    for temperature in (0.5, 2.0):
        q = P ** (1 / temperature)
        assert _near(_drawn(ranking, temperature=temperature, seed=2), (q / q.sum()).tolist())


@pytest.mark.slow
def test_a_tiny_temperature_is_greedy(ranking: LogitRanker) -> None:
    """Without overflow, the likeliest token is all that is left."""
    assert _drawn(ranking, temperature=1e-6).tolist() == [1, 0, 0, 0, 0]
    assert _drawn(ranking, temperature=5e-324).tolist() == [1, 0, 0, 0, 0]


@pytest.mark.slow
def test_top_k(ranking: LogitRanker) -> None:
    """Only the k likeliest, in their old proportions."""
    want = [0.4 / 0.7, 0, 0.3 / 0.7, 0, 0]
    assert _near(_drawn(ranking, temperature=1.0, top_k=2, seed=3), want)
    assert _drawn(ranking, temperature=1.0, top_k=1)[0] == 1
    assert _near(_drawn(ranking, temperature=1.0, top_k=99, seed=3), P.tolist())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, [0]), (0.41, [0, 2]), (0.71, [0, 2, 4]), (0.96, [0, 2, 4, 1, 3])]
)
def test_top_p(ranking: LogitRanker, top_p: float, kept: list[int]) -> None:
    """The fewest of the likeliest that reach the probability together."""
    shares = _drawn(ranking, temperature=1.0, top_p=top_p, seed=4)
    want = np.where(np.isin(np.arange(5), kept), P, 0)

    assert np.flatnonzero(shares).tolist() == sorted(kept)
    assert _near(shares, (want / want.sum()).tolist())


@pytest.mark.slow
@pytest.mark.parametrize(("min_p", "kept"), [(0.9, [0]), (0.7, [0, 2]), (0.2, [0, 1, 2, 4])])
def test_min_p(ranking: LogitRanker, min_p: float, kept: list[int]) -> None:
    """Nothing less likely than this share of the likeliest."""
    shares = _drawn(ranking, temperature=1.0, min_p=min_p, seed=5)
    assert np.flatnonzero(shares).tolist() == kept


def test_mask(ranking: LogitRanker) -> None:
    """Only allowed tokens come, in their proportions; bits past the vocabulary do not count."""
    want = [0, 0.1 / 0.15, 0, 0.05 / 0.15, 0]
    assert _near(_drawn(ranking, _bits(1, 3, 20), temperature=1.0, seed=6), want)


def test_a_draw_belongs_to_its_position(ranking: LogitRanker) -> None:
    """A pick changes nothing; the same seed draws the same at a position, wherever it began."""
    a, b, c = (Sampler(Sampling(temperature=1.0, seed=seed), ranking) for seed in (7, 7, 8))
    first, other = [], []
    for _ in range(40):
        first.append(a.pick(LOGITS, None))
        assert a.pick(LOGITS, None) == first[-1]
        a.accept(first[-1])
        other.append(c.pick(LOGITS, None))
        c.accept(0)
    later = Sampler(Sampling(temperature=1.0, seed=7), ranking, position=15)
    for want in first[15:]:
        assert later.pick(LOGITS, None) == want
        later.accept(4)  # another token than was picked is as good
    assert b.pick(LOGITS, None) == first[0]
    assert first != other


def test_uniform_is_uniform() -> None:
    """Positions and seeds give numbers in [0, 1) that are spread evenly; the first is pinned."""
    for many in ([uniform(3, n) for n in range(2000)], [uniform(n, 3) for n in range(2000)]):
        counts = np.histogram(many, 10, (0, 1))[0]
        assert counts.sum() == 2000
        assert ((counts - 200) ** 2 / 200).sum() < 27.9  # chi squared, 9 degrees, 0.1 %
    assert uniform(0, 0) == 0.011546754286331562  # other numbers would break replays


@pytest.mark.parametrize(
    ("settings", "written", "want"),
    [
        ({"repeat_penalty": 2}, [], [2.0, 1.0, -1.0, 0.0]),
        ({"repeat_penalty": 2}, [0, 2, 2], [1.0, 1.0, -2.0, 0.0]),
        ({"presence_penalty": 0.5}, [0, 2, 2], [1.5, 1.0, -1.5, 0.0]),
        ({"frequency_penalty": 0.5}, [0, 2, 2], [1.5, 1.0, -2.0, 0.0]),
        ({"frequency_penalty": -0.5, "repeat_penalty": 4}, [0, 2, 2], [1.0, 1.0, -3.0, 0.0]),
        ({"frequency_penalty": 0.5, "penalty_last": 2}, [0, 2, 2], [2.0, 1.0, -2.0, 0.0]),
        ({"frequency_penalty": 0.5, "penalty_last": 0}, [0, 2, 2], [2.0, 1.0, -1.0, 0.0]),
    ],
    ids=str,
)
def test_penalties(settings: dict[str, float], written: list[int], want: list[float]) -> None:
    """By hand: what was written loses logits, once or for each time, in the last tokens."""
    logits = np.array([2.0, 1.0, -1.0, 0.0], np.float32)
    with pool_of(1) as (library, pool):
        ranking = LogitRanker(4, library, pool)
        sampler = Sampler(Sampling(**settings), ranking)  # pyright: ignore[reportArgumentType]
        for token in written:
            sampler.accept(token)
        sampler.pick(logits, None)
        assert ranking.logits.tolist() == want


def test_penalties_look_back(ranking: LogitRanker) -> None:
    """Only at the last tokens, where that was asked for."""
    sampler = Sampler(Sampling(temperature=0, presence_penalty=5, penalty_last=2), ranking)
    picked = []
    for _ in range(6):
        picked.append(sampler.pick(LOGITS, None))
        sampler.accept(picked[-1])
    assert picked == [0, 2, 4, 0, 2, 4]


class _Calls:
    calling = False


def test_penalties_leave_calls_alone(ranking: LogitRanker) -> None:
    """In a call no token is penalized, and what it writes does not count later."""
    calls = _Calls()
    sampler = Sampler(Sampling(temperature=0, presence_penalty=5), ranking, 0, calls)
    sampler.accept(0)
    assert sampler.pick(LOGITS, None) == 2
    calls.calling = True
    assert sampler.pick(LOGITS, None) == 0
    sampler.accept(2)
    calls.calling = False
    assert sampler.pick(LOGITS, None) == 2


@pytest.mark.slow
def test_logit_bias(ranking: LogitRanker) -> None:
    """It is added to the logits; -inf forbids a token, unless it is the only one allowed."""
    forbid = Sampler(Sampling(temperature=0, logit_bias={0: -np.inf, 2: -9}), ranking)
    assert forbid.pick(LOGITS, None) == 4
    assert forbid.pick(LOGITS, _bits(0)) == 0
    q = P * [1, np.e, 1, 1, 1]
    shares = Sampler(Sampling(temperature=1.0, logit_bias={1: 1.0}), ranking)
    ids = []
    for _ in range(DRAWS):
        ids.append(shares.pick(LOGITS, None))
        shares.accept(0)
    assert _near(np.bincount(ids, minlength=5) / DRAWS, (q / q.sum()).tolist())
    with pytest.raises(EngineError, match="names token 5, but the vocabulary has 5"):
        Sampler(Sampling(logit_bias={5: 1}), ranking)


def test_broken_logits(ranking: LogitRanker) -> None:
    """Logits of which none is finite, or none allowed, are an error and not a token."""
    for temperature in (0.0, 1.0):
        sampler = Sampler(Sampling(temperature=temperature, frequency_penalty=1), ranking)
        for logits, mask in (
            (LOGITS, _bits(20)),
            (np.full(5, np.nan, np.float32), None),
            (np.full(5, -np.inf, np.float32), None),
            (np.array([0, np.inf, 0, 0, 0], np.float32), None),
        ):
            with pytest.raises(EngineError, match="no token can be chosen"):
                sampler.pick(logits, mask)


def test_logits_are_left_as_they_are(ranking: LogitRanker) -> None:
    """Picking does not write to the engine's logits."""
    logits = LOGITS.copy()
    settings = Sampling(temperature=0.5, top_k=2, top_p=0.5, repeat_penalty=2, logit_bias={1: 3})
    sampler = Sampler(settings, ranking)
    sampler.accept(0)
    sampler.pick(logits, _bits(0, 1))
    assert np.array_equal(logits, LOGITS)


BAD = [
    {"temperature": -0.1},
    {"temperature": float("nan")},
    {"temperature": float("inf")},
    {"top_k": -1},
    {"top_p": 0.0},
    {"top_p": 1.1},
    {"min_p": -0.1},
    {"min_p": 1.5},
    {"seed": -1},
    {"seed": 2**64},
    {"repeat_penalty": 0.0},
    {"presence_penalty": float("nan")},
    {"frequency_penalty": float("inf")},
    {"penalty_last": -2},
    {"logit_bias": {-1: 0.0}},
    {"logit_bias": {1: float("inf")}},
    {"stop": ""},
    {"stop": ["x"] * 33},
    {"stop": "x" * 257},
    {"order": ("top_k", "xtc")},
    {"order": ("temperature", "xtc", "xtc")},
    {"order": "temperature"},
    {"min_keep": -1},
    {"min_keep": 1.5},
    {"typical_p": 0.0},
    {"typical_p": 1.1},
    {"top_n_sigma": float("inf")},
    {"xtc_probability": 1.1},
    {"xtc_threshold": -0.1},
    {"dynatemp_range": -1.0},
    {"dynatemp_exponent": float("nan")},
    {"dry_multiplier": -1.0},
    {"dry_base": 0.9},
    {"dry_allowed_length": 1025},
    {"dry_penalty_last_n": -2},
    {"dry_sequence_breakers": [""]},
    {"dry_sequence_breakers": "\n"},
    {"mirostat": 3},
    {"mirostat_tau": -1.0},
    {"mirostat_eta": float("inf")},
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_settings_that_make_no_sense(settings: dict[str, float]) -> None:
    """They are refused by name and value, with what would make sense."""
    (name,) = settings
    with pytest.raises(EngineError, match=f"{name}=.* is out of range; give"):
        Sampling(**settings)  # pyright: ignore[reportArgumentType]


def test_settings() -> None:
    """Temperature 0 is greedy; settings go to a trace and back; what is given comes first."""
    assert GREEDY.greedy
    assert Sampling(top_k=5).greedy
    assert not Sampling(temperature=0.01).greedy
    assert Sampling(top_k=5, stop="x").filled().plain
    assert not Sampling(logit_bias={1: 2}).filled().plain
    hot = Sampling(0.7, seed=3, logit_bias={4: -np.inf}, stop="END", presence_penalty=0.5)
    again = Sampling(**hot.as_dict())
    assert again.as_dict() == hot.as_dict()
    assert again.filled().stop == ("END",)
    assert Sampling(0.7).as_dict() == {
        "temperature": 0.7,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 0,
    }
    assert Sampling(top_k=0, seed=2).over(Sampling(0.6, top_k=20)) == Sampling(0.6, 0, seed=2)
