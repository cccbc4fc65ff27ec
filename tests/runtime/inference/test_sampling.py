"""Picking a token from logits."""

from __future__ import annotations

import numpy as np
import pytest

from triplepoint.errors import EngineError
from triplepoint.runtime.inference.sampling import GREEDY, Sampler, Sampling

LOGITS = np.log(np.array([0.4, 0.1, 0.3, 0.05, 0.15], np.float32))  # probabilities by hand
DRAWS = 4000


def _drawn(settings: Sampling, mask: np.ndarray | None = None, draws: int = DRAWS) -> np.ndarray:
    """Share of each token over many draws from one stream."""
    sampler = Sampler(settings)
    ids = [sampler.pick(LOGITS, mask) for _ in range(draws)]
    return np.bincount(ids, minlength=5) / draws


def _bits(*ids: int) -> np.ndarray:
    bits = np.zeros(32, bool)
    bits[list(ids)] = True
    return np.packbits(bits, bitorder="little").view(np.uint32)


def _near(shares: np.ndarray, want: list[float]) -> bool:
    """Within four standard errors of what was to be expected."""
    p = np.array(want)
    return bool((np.abs(shares - p) <= 4 * np.sqrt(p * (1 - p) / DRAWS)).all())


def test_temperature_one_draws_the_distribution() -> None:
    """At temperature 1 tokens come as often as the softmax says."""
    assert _near(_drawn(Sampling(temperature=1.0, seed=1)), [0.4, 0.1, 0.3, 0.05, 0.15])


def test_temperature_sharpens_and_flattens() -> None:
    """Temperature 1/2 squares the odds, 2 takes their root."""
    p = np.exp(LOGITS.astype(np.float64))
    for temperature in (0.5, 2.0):
        q = p ** (1 / temperature)
        want = (q / q.sum()).tolist()
        assert _near(_drawn(Sampling(temperature=temperature, seed=2)), want)


def test_a_tiny_temperature_is_greedy() -> None:
    """Without overflow, the likeliest token is all that is left."""
    assert _drawn(Sampling(temperature=1e-6), draws=50).tolist() == [1, 0, 0, 0, 0]


def test_top_k() -> None:
    """Only the k likeliest, in their old proportions."""
    want = [0.4 / 0.7, 0, 0.3 / 0.7, 0, 0]
    assert _near(_drawn(Sampling(temperature=1.0, top_k=2, seed=3)), want)
    assert _drawn(Sampling(temperature=1.0, top_k=1), draws=50)[0] == 1
    assert _near(_drawn(Sampling(temperature=1.0, top_k=99, seed=3)), [0.4, 0.1, 0.3, 0.05, 0.15])


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.39, [0]), (0.41, [0, 2]), (0.71, [0, 2, 4]), (0.96, [0, 2, 4, 1, 3])]
)
def test_top_p(top_p: float, kept: list[int]) -> None:
    """The fewest of the likeliest that reach the probability together."""
    shares = _drawn(Sampling(temperature=1.0, top_p=top_p, seed=4))
    p = np.array([0.4, 0.1, 0.3, 0.05, 0.15])
    want = np.where(np.isin(np.arange(5), kept), p, 0)

    assert np.flatnonzero(shares).tolist() == sorted(kept)
    assert _near(shares, (want / want.sum()).tolist())


@pytest.mark.parametrize(("min_p", "kept"), [(0.9, [0]), (0.7, [0, 2]), (0.2, [0, 1, 2, 4])])
def test_min_p(min_p: float, kept: list[int]) -> None:
    """Nothing less likely than this share of the likeliest."""
    shares = _drawn(Sampling(temperature=1.0, min_p=min_p, seed=5))
    assert np.flatnonzero(shares).tolist() == kept


def test_mask() -> None:
    """Only allowed tokens come, in their proportions; bits past the vocabulary do not count."""
    want = [0, 0.1 / 0.15, 0, 0.05 / 0.15, 0]
    assert _near(_drawn(Sampling(temperature=1.0, seed=6), _bits(1, 3, 20)), want)


def test_one_stream_from_a_seed() -> None:
    """The same seed gives the same draws, in their order; other seeds give others."""
    hot = [Sampler(Sampling(temperature=1.0, seed=seed)) for seed in (7, 7, 8)]
    a, b, c = ([s.pick(LOGITS, None) for _ in range(40)] for s in hot)

    assert a == b
    assert a != c


def test_broken_logits() -> None:
    """Logits that are not finite, or of which none is allowed, are an error and not a token."""
    sampler = Sampler(Sampling(temperature=1.0))
    with pytest.raises(EngineError, match="no token can be chosen"):
        sampler.pick(LOGITS, _bits(20))
    with pytest.raises(EngineError, match="no token can be chosen"):
        sampler.pick(np.where(LOGITS < -1, np.nan, LOGITS), None)
    with pytest.raises(EngineError, match="no token can be chosen"):
        sampler.pick(np.full(5, -np.inf, np.float32), None)


def test_logits_are_left_as_they_are() -> None:
    """Picking does not write to the engine's logits."""
    logits = LOGITS.copy()
    Sampler(Sampling(temperature=0.5, top_k=2, top_p=0.5)).pick(logits, _bits(0, 1))
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
]


@pytest.mark.parametrize("settings", BAD, ids=str)
def test_settings_that_make_no_sense(settings: dict[str, float]) -> None:
    """They are refused by name and value."""
    (name,) = settings
    with pytest.raises(EngineError, match=name):
        Sampling(**settings)  # pyright: ignore[reportArgumentType]


def test_greedy() -> None:
    """Temperature 0 is greedy, whatever the rest; settings can be written down."""
    assert GREEDY.greedy
    assert Sampling(top_k=5).greedy
    assert not Sampling(temperature=0.01).greedy
    assert Sampling(**Sampling(temperature=0.7, seed=3).as_dict()) == Sampling(0.7, seed=3)
