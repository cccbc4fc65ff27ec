"""Elastic passes of models: the bits of usual ones, whatever a model's layers are made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers.tiers import quick

from triplepoint.jit import pool_block
from triplepoint.runtime.engine.engine import Engine

IDS = np.random.default_rng(19).integers(0, tiny.VOCAB, 140).tolist()
# With norms behind the halves of a layer, experts, recurrences, latents, layers with a window.
MODELS = (
    "llama-wide", "gemma3", "olmo2", "gpt-oss", "deepseek2-lite", "gemma4-moe", "qwen35moe",
    "lfm2moe", "nemotron_h_moe", "granitehybrid-moe",
)  # fmt: skip


def _seen(engine: Engine) -> list[np.ndarray]:
    """What a prompt in two pieces, some tokens and a short continuation give."""
    session = engine.session()
    session.prefill(IDS[:100])
    found = [session.logits.copy()]
    found.append(np.array(list(session.decode(max_tokens=12))))
    session.prefill(IDS[100:])
    found.append(session.logits.copy())
    session.close()
    return found


@pytest.mark.parametrize(("threads", "split"), [(2, "off"), (3, "on")])
@pytest.mark.parametrize("name", quick(MODELS, "llama-wide", "gpt-oss", "qwen35moe", "lfm2moe"))
def test_same_bits(tmp_path: Path, name: str, threads: int, split: str) -> None:
    """Threads that rest after every piece, and usual passes in between."""
    path = tmp_path / "model.gguf"
    tiny.write_model(path, name)
    with Engine.load(path, threads=threads, tune={"kv_split": split}) as engine:
        engine.loaded.contention.on = False
        want = _seen(engine)
        for yield_after in (None, 0):
            if yield_after is not None:
                engine.loaded.pool._block[pool_block.YIELD_AFTER] = yield_after
            engine.loaded.pool.set_elastic(True)
            for got, expected in zip(_seen(engine), want, strict=True):
                assert np.array_equal(got, expected)
            engine.loaded.pool.set_elastic(False)
            for got, expected in zip(_seen(engine), want, strict=True):
                assert np.array_equal(got, expected)
