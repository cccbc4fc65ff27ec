"""What the cost model says of a pass is what the tape of that pass reads and multiplies."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.counted import Counted, counted
from helpers.tiers import quick

from triplepoint.runtime.engine.model.model_cost import layer_parts
from triplepoint.runtime.physics.costs import layer_cost, pass_cost

# Dense; delta rule; the same with experts; shared keys and windows; windows and experts; sinks;
# convolutions; latent attention; Mamba-2.
MODELS = (
    "qwen3-0.6b:q4_0",
    "qwen3.5-4b:q4_0:layers=8",
    "qwen3.5-35b-a3b:q4_0:layers=8",
    "gemma4-e4b:q4_0",
    "gemma4-26b-a4b:q4_0:layers=8",
    "gpt-oss-20b:mxfp4_moe:layers=8",
    "lfm2-8b-a1b:q4_0:layers=8",
    "glm-4.7-flash:q4_0:layers=6",
    "nemotron3-nano:q4_0:layers=12",
)
QUICK = [name for name in MODELS if name.startswith(("qwen3.5-35b", "gemma4-e4b", "lfm2", "glm"))]
START = 2000  # positions before the token: more than any window


@pytest.mark.parametrize("name", quick(MODELS, *QUICK))
def test_a_token(tmp_path: Path, name: str) -> None:
    """Weights, operations, keys and values, states: to the byte, and to the operation but for the
    rows that fill a panel up."""
    with counted(name, tmp_path) as model:
        found, cost = model.decode(START), pass_cost(model.cost, 1, START, 1, 0, 1)

        assert cost.weight_bytes == found.weight_bytes
        assert model.cost.head_bytes == found.head_bytes
        assert cost.linear_flops == pytest.approx(found.linear_flops, rel=0.002)
        assert cost.attention_flops == found.attention_flops + found.state_flops
        assert cost.kv_read_bytes == found.kv_read_bytes
        assert cost.state_bytes == 2 * 4 * found.state_floats
        states = model.layout.states
        assert model.cost.state_bytes == (states.nbytes if states else 0)
        assert cost.kv_write_bytes == model.layout.page_bytes / 256
        _layers_are_the_whole(model)


def _layers_are_the_whole(model: Counted) -> None:
    """The parts of all layers make up the pass, but for the head and what stands before them."""
    cost, parts = model.cost, layer_parts(model.network, model.layout)
    whole = pass_cost(cost, 8, START, 0, 0, 1)
    sparse = max(1, cost.sparse_layers)
    layers = [
        layer_cost(cost, parts, n, whole, 1, whole.experts_read / sparse * part.sparse, 8, START)
        for n, part in enumerate(parts)
    ]
    before = cost.body_bytes - sum(part.nbytes for part in parts)
    assert 0 <= before < 0.05 * cost.body_bytes
    for name in ("attention_flops", "kv_read_bytes", "kv_write_bytes", "state_bytes"):
        assert sum(getattr(one, name) for one in layers) == pytest.approx(getattr(whole, name))
    assert sum(one.weight_bytes for one in layers) + before == pytest.approx(whole.weight_bytes)
    assert sum(part.sparse for part in parts) == cost.sparse_layers
