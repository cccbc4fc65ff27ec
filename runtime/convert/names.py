"""Which tensor of a checkpoint becomes which of the file, and which part of it.

    for place in places(name, architecture):
        place.tensor, place.expert, place.view

Names are those of Hugging Face checkpoints on one side and of llama.cpp's files on the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedModelError

View = Callable[[np.ndarray, int], np.ndarray]


class Place(NamedTuple):
    """Where a tensor goes.

    Attributes:
        tensor: its name in the file; expert: which one's it is, where each has a tensor of its own.
        view: what is taken of it, given the width of the model's x; None: all.
    """

    tensor: str
    expert: int | None = None
    view: View | None = None


def places(name: str, architecture: str) -> list[Place]:
    """Where a tensor goes; nowhere if it is not needed.

    Raises:
        UnsupportedModelError: the architecture has no place for it.
    """
    if _IGNORED.search(name):
        return []
    short = _PREFIX.sub("", name)
    if short in _OUTSIDE:
        return [Place(_OUTSIDE[short])]
    if found := _LAYER_NAME.fullmatch(short):
        layer, part = found.groups()
        into = f"blk.{layer}.{{}}".format
        if part in (own := _OWN.get(architecture, {})):
            return [place._replace(tensor=into(place.tensor)) for place in own[part]]
        stem, _, kind = part.rpartition(".")
        expert = _EXPERT_NAME.fullmatch(stem)
        if expert and expert[2] in _EXPERT:
            return [Place(into(f"{_EXPERT[expert[2]]}.{kind}"), int(expert[1]))]
        known = _IN_LAYER | _RENAMED.get(architecture, {})
        if stem in known and kind in ("weight", "bias"):
            return [Place(into(f"{known[stem]}.{kind}"))]
    raise UnsupportedModelError(
        f"the checkpoint has a tensor {name!r}, which {architecture} has no place for"
    )


def _to_rows(x: np.ndarray, width: int) -> np.ndarray:
    """Matrices that are stored [in, out], as [out, in]."""
    return x.swapaxes(-1, -2)


def _gate(x: np.ndarray, width: int) -> np.ndarray:
    """The first half of what reads x: published as [in, out], saved again as [out, in]."""
    x = x.swapaxes(-1, -2) if x.shape[-2] == width else x
    return x[..., : x.shape[-2] // 2, :]


def _up(x: np.ndarray, width: int) -> np.ndarray:
    x = x.swapaxes(-1, -2) if x.shape[-2] == width else x
    return x[..., x.shape[-2] // 2 :, :]


def _down(x: np.ndarray, width: int) -> np.ndarray:
    return x.swapaxes(-1, -2) if x.shape[-1] == width else x


def _even(x: np.ndarray, width: int) -> np.ndarray:
    return x[..., ::2]


def _odd(x: np.ndarray, width: int) -> np.ndarray:
    return x[..., 1::2]


def _even_rows(x: np.ndarray, width: int) -> np.ndarray:
    """Every other output of matrices that are stored [in, out]."""
    return x[..., ::2].swapaxes(-1, -2)


def _odd_rows(x: np.ndarray, width: int) -> np.ndarray:
    return x[..., 1::2].swapaxes(-1, -2)


_OUTSIDE = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
    "embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
}
# Where what leaves a part is normed, too, "post attention" means just that.
_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_RENAMED = {
    "gemma2": _POST_NORMS,
    "gemma3": _POST_NORMS,
    "gemma4": _POST_NORMS
    | {
        "router.proj": "ffn_gate_inp",
        "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
        "post_feedforward_layernorm_1": "post_ffw_norm_1",
        "post_feedforward_layernorm_2": "post_ffw_norm_2",
        "per_layer_input_gate": "inp_gate",
        "per_layer_projection": "proj",
        "post_per_layer_input_norm": "post_norm",
    },
    "olmo2": _POST_NORMS,
    "deepseek2": {
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        **{
            f"mlp.shared_experts.{part}_proj": f"ffn_{part}_shexp"
            for part in ("gate", "up", "down")
        },
    },
    "laguna": {
        "self_attn.g_proj": "attn_gate",
        **{
            f"mlp.shared_expert{s}.{part}_proj": f"ffn_{part}_shexp"
            for s in ("", "s")
            for part in ("gate", "up", "down")
        },
    },
    "gpt-oss": {
        "post_attention_layernorm": "post_attention_norm",
        "mlp.router": "ffn_gate_inp",
    },
}
# Names of their own, whole: what is no "weight" or "bias", and tensors that become several.
_OWN: dict[str, dict[str, list[Place]]] = {
    "qwen3vlmoe": {
        "mlp.experts.gate_up_proj": [
            Place("ffn_gate_exps.weight", view=_gate),
            Place("ffn_up_exps.weight", view=_up),
        ],
        "mlp.experts.down_proj": [Place("ffn_down_exps.weight", view=_down)],
    },
    "gpt-oss": {
        "self_attn.sinks": [Place("attn_sinks.weight")],
        "mlp.experts.gate_up_proj": [
            Place("ffn_gate_exps.weight", view=_even_rows),
            Place("ffn_up_exps.weight", view=_odd_rows),
        ],
        "mlp.experts.gate_up_proj_bias": [
            Place("ffn_gate_exps.bias", view=_even),
            Place("ffn_up_exps.bias", view=_odd),
        ],
        "mlp.experts.down_proj": [Place("ffn_down_exps.weight", view=_to_rows)],
        "mlp.experts.down_proj_bias": [Place("ffn_down_exps.bias")],
    },
    "deepseek2": {
        "mlp.gate.e_score_correction_bias": [Place("exp_probs_b.bias")],
        "self_attn.kv_b_proj.weight": [Place("attn_k_b.weight"), Place("attn_v_b.weight")],
    },
    "laguna": {
        "mlp.gate.e_score_correction_bias": [Place("exp_probs_b.bias")],
        "mlp.experts.e_score_correction_bias": [Place("exp_probs_b.bias")],
    },
    "gemma4": {
        "layer_scalar": [Place("layer_output_scale.weight")],
        "router.scale": [Place("ffn_gate_inp.scale")],
        "router.per_expert_scale": [Place("ffn_down_exps.scale")],
        "experts.gate_up_proj": [Place("ffn_gate_up_exps.weight")],
        "experts.down_proj": [Place("ffn_down_exps.weight")],
    },
}
_EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}

_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)")
_EXPERT_NAME = re.compile(r"mlp\.experts\.(\d+)\.(\w+)")
_PREFIX = re.compile(r"^(language_model\.model\.|model\.language_model\.|language_model\.|model\.)")
_IGNORED = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|audio_tower|embed_vision|embed_audio"
    r"|multi_modal_projector)\.|\.inv_freq$"
)
