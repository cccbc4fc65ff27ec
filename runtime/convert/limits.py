"""Limits of the engine's loader, checked before a file is written."""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedModelError
from ..models import class_of
from .checkpoint_settings import CheckpointSettings
from .fields import refuse, whole

# What each size must be a multiple of, in `models/config.py`, `rotary.py`, and `gemma4.py`, and its
# name in a configuration.
_STEPS = {
    "attention.key_length": (32, "head_dim"),
    "attention.key_length_swa": (32, "head_dim of sliding attention"),
    "rope.dimension_count": (8, "the rotated dims of a head"),
    "rope.dimension_count_swa": (8, "the rotated dims of a head of sliding attention"),
    "embedding_length_per_layer_input": (64, "hidden_size_per_layer_input"),
}
# The same in `models/deepseek2.py`; the width of all queries is added to them.
_LATENT_STEPS = {
    "attention.kv_lora_rank": (64, "kv_lora_rank"),
    "attention.value_length_mla": (64, "v_head_dim"),
    "attention.key_length_mla": (32, "qk_nope_head_dim + qk_rope_head_dim"),
    "rope.dimension_count": (32, "the rotated dims of a head"),
}
_RECURRENT_STEP = 16
"""Divisor of the sizes of heads, states and channels that the recurrent kernels require."""


def check_limits(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Raise UnsupportedModelError for biases and sizes that the engine's loader would refuse."""
    if c.get("mlp_bias") and s.architecture != "gpt-oss":
        refuse(c, "mlp_bias", c["mlp_bias"])
    latent = s.architecture == "deepseek2"
    # With a norm behind attention, its bias would come before the norm.
    if c.get("attention_bias") and (latent or class_of(s.architecture).post_norm):
        refuse(c, "attention_bias", c["attention_bias"])
    sizes = {
        name: (s.metadata.get(f"{s.architecture}.{key}", 0), step)
        for key, (step, name) in (_LATENT_STEPS if latent else _STEPS).items()
    }
    if latent:
        queries = s.heads * (whole(c, "qk_nope_head_dim") + whole(c, "qk_rope_head_dim"))
        sizes["num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)"] = queries, 64
    sizes |= {name: (size, _RECURRENT_STEP) for name, size in _recurrent_sizes(s).items()}
    for name, (size, step) in sizes.items():
        if isinstance(size, int) and size % step:
            raise UnsupportedModelError(
                f"config.json of a {c['model_type']}: {name} = {size} is not supported: it must be "
                f"a multiple of {step}"
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
