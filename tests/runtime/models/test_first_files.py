"""What the first files of some models say otherwise than later ones, or do not say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from helpers import tiny_models as tiny

from triplepoint.runtime.engine.engine import Engine


def _logits(engine: Engine) -> np.ndarray:
    session = engine.session()
    session.prefill(list(range(1, 65)))
    return session.logits.copy()


def test_a_magnitude_that_is_said_whole(tmp_path: Path) -> None:
    """OLMo 3's first files give YaRN's own magnitude as one that comes on top of it."""
    logits = []
    for number, factor in enumerate((1.0, 1 + 0.1 * np.log(4.0))):
        path = tmp_path / f"{number}-f32.gguf"
        tiny.write_model(path, "olmo3", metadata={"olmo2.rope.scaling.attn_factor": factor})
        with Engine.load(path, threads=1, kv="f32") as engine:
            logits.append(_logits(engine))
    assert np.array_equal(*logits)


def test_what_gemma2_s_first_files_do_not_say(tmp_path: Path) -> None:
    """The bounds and the window, which all of its models share."""
    keys = ("attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window")
    usual = dict(zip((f"gemma2.{key}" for key in keys), (50.0, 30.0, 4096), strict=True))
    logits = []
    for name, said in (("said", usual), ("unsaid", {})):
        path = tmp_path / f"{name}-f32.gguf"
        tiny.write_model(path, "gemma2", metadata=said, without=usual.keys() - said.keys())
        with Engine.load(tmp_path / f"{name}-f32.gguf", threads=1, kv="f32") as engine:
            logits.append(_logits(engine))
            rules = [engine.loaded.network.rule(layer) for layer in range(2)]
            assert (rules[0].cap, rules[0].window, rules[1].window) == (50.0, 4096, 0)
            assert engine.loaded.network.cap == 30.0
    assert np.array_equal(*logits)
