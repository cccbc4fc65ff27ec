"""Divergences from a reference: of the engine itself, and of another run of it."""

from __future__ import annotations

from labs.bench.exactness import OwnReference, measure
from triplepoint import Engine
from triplepoint.runtime.engine.engine import NANO

TEXTS = {"prose-0": "Which files are in this folder, and how long is the longest of them? " * 3}


def test_the_reference_may_be_our_own_cache() -> None:
    """From it a float32 cache is nowhere, and another one a little way off."""
    with Engine.load(NANO, kv="f32") as exact, Engine.load(NANO, kv="q8") as q8:
        engines = {"f32": exact, "q8": q8}
        ((text, scored, _),) = measure(OwnReference(NANO, 64), engines, {}, TEXTS, 32)

    assert (text, scored["f32"].tokens) == ("prose-0", 31)
    assert (scored["f32"].kl, scored["f32"].same) == (0.0, 31)  # but the first
    assert 0 < scored["q8"].kl < 0.1
