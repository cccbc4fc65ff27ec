"""Files whose metadata contradict their tensors, or each other: refused before a kernel runs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.lies import lies, told

from triplepoint.errors import EngineError, TriplepointError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.gguf.open import open_gguf

MODELS = ("llama", "qwen2-yarn", "gemma3", "phi3-long")
IDS = list(range(20))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_lie_is_refused_or_harmless(tmp_path: Path, name: str) -> None:
    """Each ends in one short, printable error of ours, or in a model that computes and speaks."""
    path, seed, count = tmp_path / "lie.gguf", 7, 60
    tiny.write_model(tmp_path / "truth.gguf", name)
    came: Counter[str] = Counter()
    with open_gguf(tmp_path / "truth.gguf") as truth:
        every = list(lies(truth))
        some = random.Random(seed).sample(every, count)
        for lie in some:
            path.write_bytes(told(truth, lie))
            came[_tried(path, f"seed {seed}: {str(lie)[:200]}")] += 1

    print(f"seed {seed}: {len(some)} lies, {came}")
    assert came["GGUFError"] > len(some) // 5
    assert came["accepted"] < len(some) // 3


def _tried(path: Path, lie: str) -> str:
    """Load, read and speak; how that ended."""
    ended: TriplepointError | None = None
    try:
        with Engine.load(path, threads=1, kv="f32") as engine:
            ids = engine.tokenizer.encode("Which files <|im_end|> are here?")
            engine.tokenizer.decode(ids)
            session = engine.session(min(engine.context, 64))
            session.prefill(IDS[: max(1, session.context - 3)])
            assert np.isfinite(session.logits).all(), lie
            assert list(session.decode(max_tokens=3)), lie
    except TriplepointError as error:
        ended = error
    if ended is None:
        return "accepted"
    said = str(ended)
    assert said.isprintable(), lie
    assert len(said) < 600, lie
    if isinstance(ended, EngineError):
        assert "context" in said, lie
    return type(ended).__name__


def test_a_norm_needs_something_above_nothing(tmp_path: Path) -> None:
    """An epsilon that would make the root of a negative number is refused."""
    path = tmp_path / "lie.gguf"
    tiny.write_model(tmp_path / "truth.gguf", "llama")
    with open_gguf(tmp_path / "truth.gguf") as truth:
        below = [
            lie for lie in lies(truth) if "rms_epsilon" in str(lie) and "value=-1)" in str(lie)
        ]
        assert below
        for lie in below:
            path.write_bytes(told(truth, lie))
            with pytest.raises(TriplepointError, match="above 0"):
                Engine.load(path)
