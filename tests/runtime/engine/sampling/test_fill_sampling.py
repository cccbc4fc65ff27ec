"""What may fill a gap, of a few likely tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from triplepoint.runtime.engine.sampling.fill_sampling import FillChooser, drawn

TEXTS = [b"hel", b"hell", b"hello", b"dummy", b"", b"<end>", b"<pad>", b"hello<x>"]
END, PAD, HIDDEN = 5, 6, 7


def _chooser(eot: int | None = END) -> FillChooser:
    tokenizer: Any = SimpleNamespace(
        token_bytes=TEXTS.__getitem__,
        stop_ids={END},
        fill_ends={PAD},
        eot=eot,
        eos=END,
        vocabulary=SimpleNamespace(hidden={END, PAD, HIDDEN}),
    )
    return FillChooser(cast(Any, tokenizer))


@pytest.mark.parametrize(
    ("given", "left"),
    [
        # llama.h's own example: what begins alike is one
        ([(0, 0.5), (1, 0.2), (2, 0.1), (3, 0.1)], {0: 1.0}),
        ([(1, 0.4), (0, 0.3), (3, 0.3)], {1: 1.0}),
        ([(0, 0.9), (END, 0.1)], {0: 0.9, END: 0.1}),
        # three times the end's share for each that is asked about is more than the rest
        ([(0, 0.8), (END, 0.15), (PAD, 0.05)], {END: 0.75, PAD: 0.25}),
        (
            [(3, 0.4), (0, 0.35), (2, 0.24), (END, 0.01)],
            {3: 0.4 / 0.76, 0: 0.35 / 0.76, END: 0.01 / 0.76},
        ),
        # what is not shown begins like nothing
        ([(2, 0.5), (HIDDEN, 0.5)], {2: 0.5, HIDDEN: 0.5}),
        # nothing is likely: it ends
        ([(3, 0.15), (0, 0.1)], {END: 1.0}),
        # two that are not likely enough beside a third
        ([(3, 0.6), (0, 0.22)], {3: 1.0}),
    ],
)
def test_choice(given: list[tuple[int, float]], left: dict[int, float]) -> None:
    """By the rules that llama.cpp writes down for its sampler."""
    assert dict(_chooser().choose(given)) == pytest.approx(left)


def test_under_a_grammar() -> None:
    """What is not allowed does not come: the likeliest does."""
    given = [(3, 0.15), (0, 0.1)]
    assert _chooser().choose(given, free=False) == [(3, 1.0)]
    assert _chooser(None).choose(given) == [(END, 1.0)]


def test_drawn() -> None:
    """By shares, in order; by rounding the last."""
    chances = [(3, 0.25), (0, 0.75)]
    assert [drawn(chances, at) for at in (0.0, 0.24, 0.26, 1.0)] == [3, 3, 0, 0]
