"""Limits of the engine's loader, checked before a file is written."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedModelError
from ..models import class_of
from .checkpoint_settings import CheckpointSettings
from .fields import refuse

# What each size must be a multiple of, in `models/config.py`, `rotary.py`, and `gemma4.py`.
_STEPS = {
    "attention.key_length": 32,
    "attention.key_length_swa": 32,
    "rope.dimension_count": 8,
    "rope.dimension_count_swa": 8,
    "embedding_length_per_layer_input": 64,
}
# The same in `models/deepseek2.py`; the width of all queries is added to them.
_LATENT_STEPS = {
    "attention.kv_lora_rank": 64,
    "attention.value_length_mla": 64,
    "attention.key_length_mla": 32,
    "rope.dimension_count": 32,
}
# The same in `models/qwen35.py`, `mamba.py` and `lfm2.py`: of heads, states and channels.
_RECURRENT_STEP = 16
_NAMES = {
    "attention.key_length": "head_dim",
    "attention.key_length_swa": "head_dim of sliding attention",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.value_length_mla": "v_head_dim",
    "attention.key_length_mla": "qk_nope_head_dim + qk_rope_head_dim",
    "rope.dimension_count": "the rotated dims of a head",
    "rope.dimension_count_swa": "the rotated dims of a head of sliding attention",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "queries": "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
}


def check_limits(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for biases and sizes that the engine's loader would refuse."""
    if c.get("mlp_bias") and s.architecture != "gpt-oss":
        refuse(c, "mlp_bias", c["mlp_bias"])
    latent = s.architecture == "deepseek2"
    # With a norm behind attention, its bias would come before the norm.
    if c.get("attention_bias") and (latent or class_of(s.architecture).post_norm):
        refuse(c, "attention_bias", c["attention_bias"])
    sizes = {key: s.metadata.get(f"{s.architecture}.{key}", 0) for key in _NAMES}
    steps = _LATENT_STEPS if latent else _STEPS
    if latent:
        sizes["queries"] = s.heads * int(str(sizes["attention.key_length_mla"]))
        steps = steps | {"queries": 64}
    recurrent = _recurrent_sizes(s)
    sizes, steps = sizes | recurrent, steps | dict.fromkeys(recurrent, _RECURRENT_STEP)
    for key, step in steps.items():
        size = sizes[key]
        if isinstance(size, int) and size % step:
            raise UnsupportedModelError(
                f"config.json of a {c['model_type']}: {_NAMES.get(key, key)} = {size} is not "
                f"supported: it must be a multiple of {step}"
            )


def _recurrent_sizes(s: CheckpointSettings) -> dict[str, int]:
    """Return the sizes of recurrent layers by name; none for models without such layers."""
    if f"{s.architecture}.shortconv.l_cache" in s.metadata:
        return {"hidden_size": s.width}
    inner, heads, state = (
        s.metadata.get(f"{s.architecture}.ssm.{part}")
        for part in ("inner_size", "time_step_rank", "state_size")
    )
    if not (isinstance(inner, int) and isinstance(heads, int) and isinstance(state, int)):
        return {}
    what = "the dims of a recurrent layer's"
    return {f"{what} heads": inner // max(1, heads), f"{what} states": state}
