"""Tensors and metadata of models with recurrent layers."""

from __future__ import annotations

from .families import Tensors, feed_forward
from .shapes import Shape

FAMILIES = ("qwen35", "lfm2", "nemotron_h", "granitehybrid")
NO_POSITIONS = ("nemotron_h", "granitehybrid")  # nor norms of queries and keys
SIGMOID = ("lfm2", "nemotron_h")  # how experts are chosen, with a correction
PLAIN = ("ssm_a", "ssm_d", "ssm_norm", "ssm_conv1d", "shortconv.conv")  # stay float32


def kind_of(s: Shape, layer: int) -> str:
    """Return a layer's kind, a letter.

    ``*``: attention; ``C``: convolution; ``D``: delta rule; ``M``: Mamba-2; ``E``: experts, in
    models whose layers have either a mixer or experts.
    """
    if s.family == "qwen35":
        return "*" if (layer + 1) % 4 == 0 or layer >= s.layers else "D"
    return s.kinds[layer]


def layer_tensors(s: Shape, layer: int) -> Tensors:
    """Return names and shapes of one layer's tensors."""
    kind, w = kind_of(s, layer), s.width
    out: Tensors = [("attn_norm.weight", (w,)), *_FIRST[kind](s)]
    if s.family == "nemotron_h":
        return out
    if layer >= s.layers:
        out += [(f"nextn.{part}.weight", (w,)) for part in ("enorm", "hnorm", "shared_head_norm")]
        out.append(("nextn.eh_proj.weight", (w, 2 * w)))
    out.append((f"{'post_attention' if s.family == 'qwen35' else 'ffn'}_norm.weight", (w,)))
    if s.experts and layer >= s.dense:
        return out + _experts(s)
    return out + feed_forward(s.ffn, w)


def _attention(s: Shape) -> Tensors:
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    norms = [] if s.family in NO_POSITIONS else ["q", "k"]
    return [
        ("attn_q.weight", (2 * q if s.family == "qwen35" else q, s.width)),
        ("attn_k.weight", (kv, s.width)),
        ("attn_v.weight", (kv, s.width)),
        *((f"attn_{part}_norm.weight", (s.head_dim,)) for part in norms),
        ("attn_output.weight", (s.width, q)),
    ]


def _delta(s: Shape) -> Tensors:
    assert s.recurrent is not None, s.family
    keys, values, key_dim, value_dim = s.recurrent
    channels, inner = 2 * keys * key_dim + values * value_dim, values * value_dim
    return [
        ("attn_qkv.weight", (channels, s.width)),
        ("attn_gate.weight", (inner, s.width)),
        ("ssm_alpha.weight", (values, s.width)),
        ("ssm_beta.weight", (values, s.width)),
        ("ssm_conv1d.weight", (channels, 4)),
        ("ssm_dt.bias", (values,)),
        ("ssm_a", (values,)),
        ("ssm_norm.weight", (value_dim,)),
        ("ssm_out.weight", (s.width, inner)),
    ]


def _mamba(s: Shape) -> Tensors:
    assert s.recurrent is not None, s.family
    groups, heads, n, dim = s.recurrent
    inner = heads * dim
    channels = inner + 2 * groups * n
    return [
        ("ssm_in.weight", (inner + channels + heads, s.width)),
        ("ssm_conv1d.weight", (channels, 4)),
        ("ssm_conv1d.bias", (channels,)),
        ("ssm_dt.bias", (heads,)),
        ("ssm_a", (heads, 1)),
        ("ssm_d", (heads, 1)),
        ("ssm_norm.weight", (groups, inner // groups)),
        ("ssm_out.weight", (s.width, inner)),
    ]


def _conv(s: Shape) -> Tensors:
    return [
        ("shortconv.in_proj.weight", (3 * s.width, s.width)),
        ("shortconv.conv.weight", (s.width, 3)),
        ("shortconv.out_proj.weight", (s.width, s.width)),
    ]


def _experts(s: Shape) -> Tensors:
    n, f, w, gated = s.experts, s.expert_ffn, s.width, s.family != "nemotron_h"
    out: Tensors = [("ffn_gate_inp.weight", (n, w))]
    if s.family in SIGMOID:
        out.append(("exp_probs_b.bias", (n,)))
    out += feed_forward(f, w, "_exps", n, gated=gated)
    if s.shared_ffn:
        out += feed_forward(s.shared_ffn, w, "_shexp", gated=gated)
    return out + ([("ffn_gate_inp_shexp.weight", (w,))] if s.family == "qwen35" else [])


_FIRST = {"*": _attention, "D": _delta, "M": _mamba, "C": _conv, "E": _experts}


def metadata(s: Shape) -> dict[str, int | float | list[int]]:
    """Return the metadata that only these families have; keys lack the architecture prefix."""
    kinds = [kind_of(s, layer) for layer in range(s.layers)]
    out: dict[str, int | float | list[int]] = {}
    if s.family == "qwen35":
        out |= {"full_attention_interval": 4, "rope.dimension_count": s.head_dim // 4}
        out["rope.dimension_sections"] = [11, 11, 10, 0]
    else:
        out["attention.head_count_kv"] = [s.kv_heads * (kind == "*") for kind in kinds]
    if s.family == "lfm2":
        out |= {"shortconv.l_cache": 3, "leading_dense_block_count": s.dense}
    if s.family == "nemotron_h":
        out["feed_forward_length"] = [s.ffn * (kind == "E") for kind in kinds]
        out["expert_weights_scale"] = 2.5
        out["attention.layer_norm_epsilon"] = 1e-6  # llama.cpp asks for it, for heads that draft
    if s.family == "granitehybrid":
        out |= {"attention.scale": 1 / s.head_dim, "embedding_scale": 12.0}
        out |= {"residual_scale": 0.22, "logit_scale": 6.0, "rope.scaling.finetuned": False}
    if s.experts and s.family in SIGMOID:
        out["expert_gating_func"] = 2
    if s.mtp:
        out |= {"block_count": s.layers + s.mtp, "nextn_predict_layers": s.mtp}
    if s.shared_ffn:
        out["expert_shared_feed_forward_length"] = s.shared_ffn
    if s.recurrent:
        first, heads, n, dim = s.recurrent
        out |= {"ssm.conv_kernel": 4, "ssm.state_size": n, "ssm.group_count": first}
        out |= {"ssm.time_step_rank": heads, "ssm.inner_size": heads * dim}
    return out
