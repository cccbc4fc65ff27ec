"""The int8 KV cache in whole models: what it costs in accuracy, and that its bits are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.qwen3_numpy import divergence
from helpers.tiny_qwen3 import VOCAB, write_tiny

from triplepoint.jit import targets
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.forward.kv import KVCache, KVLayout
from triplepoint.runtime.physics.costs import pass_cost, predict

KL = 2e-3  # most that q8 may cost against bf16, mean over the positions

LOG = """<|im_start|>user
What is wrong in {name}?<|im_end|>
<|im_start|>assistant
<tool_call>
{{"name": "read_file", "arguments": {{"path": "{name}"}}}}
</tool_call><|im_end|>
<|im_start|>user
<tool_response>
1\t2026-03-01 10:0{n}:11 INFO started worker {n}
2\t2026-03-01 10:0{n}:19 WARN retrying request to host-{n}{n}
3\t2026-03-01 10:1{n}:02 ERROR disk full: cannot write /var/data/part-{n}
4\t2026-03-01 10:1{n}:40 INFO stopped
</tool_response><|im_end|>
<|im_start|>assistant
The error is: disk full: cannot write /var/data/part-{n}<|im_end|>
"""


def _scores(
    model: str | Path, kv: str, ids: list[int] | None = None, target: str | None = None
) -> np.ndarray:
    """Logits after every position of `ids`, or of a text that nano knows how to go on with."""
    with Engine.load(model, kv=kv, threads=1, target=target) as engine:
        if ids is None:
            text = "".join(LOG.format(name=f"app{n}.log", n=n) for n in range(4))
            ids = engine.tokenizer.encode(text, special=True)
            assert len(ids) > 500
        return engine.session(context=len(ids) + 1).logits_for(ids)


@pytest.mark.slow
def test_divergence_on_nano() -> None:
    """On the embedded model q8 is within the bound of bf16, over several hundred positions."""
    assert divergence(_scores("nano", "bf16"), _scores("nano", "q8")).mean() <= KL


@pytest.mark.parametrize(
    ("kind", "target"), [("q8_0", None), *(("f32", t.name) for t in targets.runnable())]
)
def test_divergence_on_a_small_model(
    tmp_path: Path, rng: np.random.Generator, kind: str, target: str | None
) -> None:
    """The same on random weights, where attention is spread over all positions."""
    path = tmp_path / "tiny.gguf"
    write_tiny(path, kind)
    ids = rng.integers(0, VOCAB, 400).tolist()

    near, far = (_scores(path, kv, ids, target) for kv in ("bf16", "q8"))
    assert divergence(near, far).mean() <= KL


def test_same_bits_in_any_chunk_and_on_any_threads(rng: np.random.Generator) -> None:
    """Logits do not depend on the passes that the tokens came in, nor on the threads."""
    ids = [int(n) for n in rng.integers(0, 2000, 300)]
    found = []
    for threads in (1, 2, 3):
        with Engine.load("nano", kv="q8", threads=threads) as engine:
            for parts in ([300], [1, 1, 70, 200, 27, 1], [255, 1, 44]):
                session, at = engine.session(context=301), 0
                for part in parts:
                    session.prefill(ids[at : at + part])
                    at += part
                found.append(session.logits.copy())

    assert all(np.array_equal(logits, found[0]) for logits in found)


def test_truncated_and_computed_again() -> None:
    """After tokens were forgotten, others in their place give what they give in a new session."""
    with Engine.load("nano", kv="q8", threads=2) as engine:
        first, second = engine.session(context=400), engine.session(context=400)
        first.prefill(list(range(100, 350)))
        first.truncate(61)
        first.prefill(list(range(600, 640)))
        got = first.logits.copy()
        second.prefill([*range(100, 161), *range(600, 640)])

        assert np.array_equal(got, second.logits)


def test_half_the_bytes() -> None:
    """The cost model counts what the cache has: 64 bytes and 2 scales a key, 64 and 1 a value."""
    with Engine.load("nano", kv="q8", threads=1) as engine:
        config, cost = engine.loaded.network.config, engine.loaded.cost
        h = config.heads
        each = h.head_dim + 2 * h.head_dim // 32 + h.head_dim + 2
        cache = KVCache(KVLayout("q8", [h] * config.layers, 512), 512)

        assert cost.kv_bytes == cache.bytes_per_position == config.layers * h.kv_heads * each
        done = pass_cost(cost, 16, 100, 0, 1, 16)
        assert done.kv_read_bytes == cost.kv_bytes * 108.5
        assert predict(done, cost, engine.machine).compute_s > 0
