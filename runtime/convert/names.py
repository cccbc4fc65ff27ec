"""The mapping of checkpoint tensor names to file tensor names, and of their parts.

    for place in mappings(name, architecture):
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


class Target(NamedTuple):
    """The destination of a checkpoint tensor.

    Attributes:
        tensor: its name in the file; expert: which one's it is, where each has a tensor of its own.
        view: what is taken of it, given the width of the model's x; None: all.
    """

    tensor: str
    expert: int | None = None
    view: View | None = None


def mappings(name: str, architecture: str) -> list[Target]:
    """Return the targets of a checkpoint tensor; none if the file does not need it.

    Raises:
        UnsupportedModelError: the architecture has no place for it.
    """
    if _IGNORED.search(name):
        return []
    short = _PREFIX.sub("", name)
    if short in _OUTSIDE:
        return [Target(_OUTSIDE[short])]
    if found := _LAYER_NAME.fullmatch(short):
        layer, part = found.groups()
        into = f"blk.{layer}.{{}}".format
        if part in (own := _OWN.get(architecture, {})):
            return [mapping._replace(tensor=into(mapping.tensor)) for mapping in own[part]]
        stem, _, kind = part.rpartition(".")
        expert = _EXPERT_NAME.fullmatch(stem)
        if expert and expert[2] in _EXPERT:
            return [Target(into(f"{_EXPERT[expert[2]]}.{kind}"), int(expert[1]))]
        known = _IN_LAYER | _RENAMED.get(architecture, {})
        if stem in known and kind in ("weight", "bias"):
            return [Target(into(f"{known[stem]}.{kind}"))]
    raise UnsupportedModelError(
        f"the checkpoint has a tensor {name!r}, which {architecture} has no place for"
    )


def _transposed(x: np.ndarray, width: int) -> np.ndarray:
    """Transpose matrices that are stored as [in, out] to [out, in]."""
    return x.swapaxes(-1, -2)


def _reads_x(x: np.ndarray, width: int) -> np.ndarray:
    """Return a matrix that reads x: published as [in, out], saved again as [out, in]."""
    return x.swapaxes(-1, -2) if x.shape[-2] == width else x


def _gives_x(x: np.ndarray, width: int) -> np.ndarray:
    """Return a matrix whose output is added to x, likewise."""
    return x.swapaxes(-1, -2) if x.shape[-1] == width else x


def _as_is(x: np.ndarray, width: int) -> np.ndarray:
    return x


def _half(second: bool, of: View = _as_is) -> View:
    """Return the first or the second half of the rows, of each expert if there are any."""

    def view(x: np.ndarray, width: int) -> np.ndarray:
        rows = of(x, width)
        half = rows.shape[-2] // 2
        return rows[..., half:, :] if second else rows[..., :half, :]

    return view


def _every_other(first: int, of: View = _as_is) -> View:
    """Return every other row, which is an output."""
    return lambda x, width: of(x, width)[..., first::2, :]


_OUTSIDE = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "embedding_norm.weight": "token_embd_norm.weight",
    "embeddings.weight": "token_embd.weight",
    "norm_f.weight": "output_norm.weight",
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
_DELTA = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "post_attention_layernorm": "post_attention_norm",
}


def _shared(experts: str) -> dict[str, str]:
    """Return the names of shared experts, which are called so."""
    return {f"mlp.{experts}.{p}_proj": f"ffn_{p}_shexp" for p in ("gate", "up", "down")}


def _mamba(mixer: str) -> dict[str, str]:
    """Return the names of Mamba-2's matrices in a mixer that is called so."""
    parts = {"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "norm": "ssm_norm", "out_proj": "ssm_out"}
    return {f"{mixer}.{theirs}": ours for theirs, ours in parts.items()}


_SHARED = _shared("shared_expert") | {"mlp.shared_expert_gate": "ffn_gate_inp_shexp"}
_NEXTN = {  # of a layer that only drafts
    **{f"nextn.{part}": f"nextn.{part}" for part in ("eh_proj", "enorm", "hnorm")},
    "nextn.shared_head_norm": "nextn.shared_head_norm",
}
_LFM2 = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output",
    "feed_forward.gate": "ffn_gate_inp",
}
_NEMOTRON = {
    "norm": "attn_norm",
    **_mamba("mixer"),
    "mixer.q_proj": "attn_q",
    "mixer.k_proj": "attn_k",
    "mixer.v_proj": "attn_v",
    "mixer.o_proj": "attn_output",
    "mixer.up_proj": "ffn_up",
    "mixer.down_proj": "ffn_down",
    "mixer.gate": "ffn_gate_inp",
    "mixer.shared_experts.up_proj": "ffn_up_shexp",
    "mixer.shared_experts.down_proj": "ffn_down_shexp",
}
_RENAMED = {
    "nemotron_h": _NEMOTRON,
    "nemotron_h_moe": _NEMOTRON,
    "qwen35": _DELTA | _NEXTN,
    "qwen35moe": _DELTA | _SHARED | _NEXTN,
    "qwen3next": _DELTA | _SHARED | {"linear_attn.in_proj_ba": "ssm_ba"},
    "lfm2": _LFM2,
    "lfm2moe": _LFM2,
    "granitehybrid": {
        **_mamba("mamba"),
        "shared_mlp.output_linear": "ffn_down_shexp",
        "block_sparse_moe.router": "ffn_gate_inp",
        "block_sparse_moe.router.layer": "ffn_gate_inp",
    },
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
        "eh_proj": "nextn.eh_proj",
        "enorm": "nextn.enorm",
        "hnorm": "nextn.hnorm",
        "shared_head.norm": "nextn.shared_head_norm",
        "shared_head.head": "nextn.shared_head_head",
        "embed_tokens": "nextn.embed_tokens",
        **_shared("shared_experts"),
    },
    "laguna": {
        "self_attn.g_proj": "attn_gate",
        **_shared("shared_expert"),
        **_shared("shared_experts"),
    },
    "gpt-oss": {
        "post_attention_layernorm": "post_attention_norm",
        "mlp.router": "ffn_gate_inp",
    },
}
# Names of their own, whole: what is no "weight" or "bias", and tensors that become several.


def _numbers(mixer: str) -> dict[str, list[Target]]:
    """Return the numbers of Mamba-2's heads in a mixer that is called so."""
    parts = {"dt_bias": "ssm_dt.bias", "A_log": "ssm_a", "D": "ssm_d"}
    return {f"{mixer}.{theirs}": [Target(ours)] for theirs, ours in parts.items()}


_DELTA_NUMBERS = {
    "linear_attn.dt_bias": [Target("ssm_dt.bias")],
    "linear_attn.A_log": [Target("ssm_a")],
}
_FUSED = [
    Target("ffn_gate_exps.weight", view=_half(False)),
    Target("ffn_up_exps.weight", view=_half(True)),
]
_FUSED_EXPERTS = {
    "mlp.experts.gate_up_proj": _FUSED,
    "mlp.experts.down_proj": [Target("ffn_down_exps.weight")],
}
_NEMOTRON_NUMBERS = {
    **_numbers("mixer"),
    "mixer.gate.e_score_correction_bias": [Target("exp_probs_b.bias")],
    "mixer.experts.up_proj": [Target("ffn_up_exps.weight")],
    "mixer.experts.down_proj": [Target("ffn_down_exps.weight")],
}
_OWN: dict[str, dict[str, list[Target]]] = {
    "nemotron_h": _NEMOTRON_NUMBERS,
    "nemotron_h_moe": _NEMOTRON_NUMBERS,
    "qwen35": _DELTA_NUMBERS,
    "qwen35moe": _DELTA_NUMBERS | _FUSED_EXPERTS,
    "qwen3next": _DELTA_NUMBERS
    | _FUSED_EXPERTS
    | {"linear_attn.in_proj_qkvz.weight": [Target("attn_qkv.weight"), Target("attn_gate.weight")]},
    "lfm2moe": {
        "feed_forward.experts.gate_up_proj": _FUSED,
        "feed_forward.experts.down_proj": [Target("ffn_down_exps.weight")],
        "feed_forward.expert_bias": [Target("exp_probs_b.bias")],
    },
    "granitehybrid": {
        **_numbers("mamba"),
        "shared_mlp.input_linear.weight": [
            Target("ffn_gate_shexp.weight", view=_half(False)),
            Target("ffn_up_shexp.weight", view=_half(True)),
        ],
        "block_sparse_moe.input_linear.weight": _FUSED,
        "block_sparse_moe.experts.gate_up_proj": _FUSED,
        "block_sparse_moe.output_linear.weight": [Target("ffn_down_exps.weight")],
        "block_sparse_moe.experts.down_proj": [Target("ffn_down_exps.weight")],
    },
    "qwen3vlmoe": {
        "mlp.experts.gate_up_proj": [
            Target("ffn_gate_exps.weight", view=_half(False, _reads_x)),
            Target("ffn_up_exps.weight", view=_half(True, _reads_x)),
        ],
        "mlp.experts.down_proj": [Target("ffn_down_exps.weight", view=_gives_x)],
    },
    "gpt-oss": {
        "self_attn.sinks": [Target("attn_sinks.weight")],
        "mlp.experts.gate_up_proj": [
            Target("ffn_gate_exps.weight", view=_every_other(0, _transposed)),
            Target("ffn_up_exps.weight", view=_every_other(1, _transposed)),
        ],
        # The same in MXFP4, where an output's weights are a row.
        "mlp.experts.gate_up_proj_blocks": [
            Target("ffn_gate_exps.weight", view=_every_other(0)),
            Target("ffn_up_exps.weight", view=_every_other(1)),
        ],
        "mlp.experts.down_proj_blocks": [Target("ffn_down_exps.weight")],
        "mlp.experts.gate_up_proj_bias": [
            Target("ffn_gate_exps.bias", view=lambda x, _: x[..., ::2]),
            Target("ffn_up_exps.bias", view=lambda x, _: x[..., 1::2]),
        ],
        "mlp.experts.down_proj": [Target("ffn_down_exps.weight", view=_transposed)],
        "mlp.experts.down_proj_bias": [Target("ffn_down_exps.bias")],
    },
    "deepseek2": {
        "mlp.gate.e_score_correction_bias": [Target("exp_probs_b.bias")],
        "self_attn.kv_b_proj.weight": [Target("attn_k_b.weight"), Target("attn_v_b.weight")],
    },
    "laguna": {
        "mlp.gate.e_score_correction_bias": [Target("exp_probs_b.bias")],
        "mlp.experts.e_score_correction_bias": [Target("exp_probs_b.bias")],
    },
    "gemma4": {
        "layer_scalar": [Target("layer_output_scale.weight")],
        "router.scale": [Target("ffn_gate_inp.scale")],
        "router.per_expert_scale": [Target("ffn_down_exps.scale")],
        "experts.gate_up_proj": [Target("ffn_gate_up_exps.weight")],
        "experts.down_proj": [Target("ffn_down_exps.weight")],
    },
}
_EXPERT = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
_EXPERT |= {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}

_LAYER_NAME = re.compile(r"layers\.(\d+)\.(.+)")
_EXPERT_NAME = re.compile(r"(?:mlp|feed_forward|mixer)\.experts\.(\d+)\.(\w+)")
_PREFIX = re.compile(
    r"^(language_model\.model\.|model\.language_model\.|language_model\.|model\.|backbone\.)"
)
_IGNORED = re.compile(
    r"(^|\.)(vision_tower|vision_model|visual|audio_tower|embed_vision|embed_audio"
    r"|multi_modal_projector|mtp)\.|\.inv_freq$"
)
