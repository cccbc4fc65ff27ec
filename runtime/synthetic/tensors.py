"""The tensors of each layer of a model, by its family."""

from __future__ import annotations

from . import families, hybrids
from .families import Tensors
from .shapes import Shape


def layer_tensors(s: Shape, layer: int) -> Tensors:
    """Return names and shapes of one layer's tensors."""
    if s.family in hybrids.FAMILIES:
        return hybrids.layer_tensors(s, layer)
    if s.family == "gpt-oss":
        return families.gpt_oss_layer(s)
    if s.family == "gemma4":
        return families.gemma4_layer(s, layer)
    if s.family == "deepseek2":
        return families.deepseek2_layer(s, layer)
    q_rows, kv_rows = s.heads * s.head_dim, s.kv_heads * s.head_dim
    norms: Tensors = [
        ("attn_q_norm.weight", (s.head_dim,)),
        ("attn_k_norm.weight", (s.head_dim,)),
    ]
    attention: Tensors = [
        ("attn_norm.weight", (s.width,)),
        ("attn_q.weight", (q_rows, s.width)),
        ("attn_k.weight", (kv_rows, s.width)),
        ("attn_v.weight", (kv_rows, s.width)),
        *(norms if s.family != "llama" else []),
        ("attn_output.weight", (s.width, q_rows)),
        *([("post_attention_norm.weight", (s.width,))] if s.family == "gemma3" else []),
        ("ffn_norm.weight", (s.width,)),
        *([("post_ffw_norm.weight", (s.width,))] if s.family == "gemma3" else []),
    ]
    if not s.experts:
        return attention + families.feed_forward(s.ffn, s.width)
    experts = families.feed_forward(s.expert_ffn, s.width, "_exps", s.experts)
    return [*attention, ("ffn_gate_inp.weight", (s.experts, s.width)), *experts]
