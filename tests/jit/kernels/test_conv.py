"""Short causal convolutions: against numpy, and the same bits however a sequence is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.runners import Native, Runner
from helpers.states import States, cuts, run_pass
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.conv import block_of, reference, short_conv, units_of

ASKS = ()  # see helpers/feature_sets.py

# channels, taps and what is done beside the sum: Qwen3.5, Mamba-2, LFM2
FORMS: list[tuple[int, int, dict[str, bool]]] = [
    (192, 4, {"activation": True}),
    (48, 4, {"activation": True, "has_bias": True}),
    (64, 3, {"gated": True}),
]


def _run(
    runner: Runner,
    form: tuple[int, int, dict[str, bool]],
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    states: States,
    spans: list[tuple[int, int]],
    cut: int = 0,
) -> np.ndarray:
    channels, taps, flags = form
    out = np.full((len(x), channels + 16), np.nan, np.float32)
    kernel = spec(short_conv, channels=channels, taps=taps, **flags)
    before: list[Any] = [np.ascontiguousarray(x), weight, bias, out, x.shape[1], out.shape[1]]
    run_pass(runner, kernel, states, spans, before, [], units_of(channels), cut)
    assert np.isnan(out[:, channels:]).all()
    return out[:, :channels]


def _data(rng: np.random.Generator, form: Any, rows: int) -> tuple[np.ndarray, ...]:
    channels, taps, flags = form
    width = channels * (3 if flags.get("gated") else 1)
    sizes = (rows, width), (taps, channels), (channels,), (taps - 1, channels)
    x, weight, bias, state = (rng.standard_normal(size).astype(np.float32) for size in sizes)
    return x, weight, bias, state


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_convolution(runner: Runner, rng: np.random.Generator, form: Any) -> None:
    """Rows of two sequences, each behind its own last inputs, and the state that they leave."""
    _, taps, flags = form
    x, weight, bias, state = _data(rng, form, 11)
    other = rng.standard_normal(state.shape).astype(np.float32)
    states = States([state, other])
    got = _run(runner, form, x, weight, bias, states, [(1, 2), (0, 9)])
    rest = {name: flag for name, flag in flags.items() if name != "has_bias"}
    used = bias if flags.get("has_bias") else None
    for rows, before, number in ((slice(2), other, 1), (slice(2, 11), state, 0)):
        want, after = reference(x[rows], weight, before, used, **rest)

        assert_close(got[rows], want, "silu")
        assert_close(states.part(number).reshape(taps - 1, -1), after, "float product")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_same_bits_in_any_cut(native: Native, rng: np.random.Generator, form: Any) -> None:
    """In passes of 1, 2, 7 rows or all, by one thread or two, rows and state have the same bits."""
    x, weight, bias, state = _data(rng, form, 23)
    whole = States([state])
    want = _run(native, form, x, weight, bias, whole, [(0, 23)])
    for size in (1, 2, 7, 23):
        states = States([state])
        parts = [
            _run(native, form, x[part], weight, bias, states, [(0, part.stop - part.start)], 1)
            for part in cuts(23, size)
        ]

        assert np.array_equal(np.concatenate(parts), want)
        assert np.array_equal(states.part(0), whole.part(0))


def test_channels_of_a_unit() -> None:
    """As many as divide the channels, 64 at most; fewer than 16 are refused."""
    assert [block_of(n) for n in (64, 192, 48, 8192, 16)] == [64, 64, 16, 64, 16]
    with pytest.raises(AssertionError, match="not a multiple"):
        block_of(24)
