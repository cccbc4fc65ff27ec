"""Tensors and metadata of gpt-oss, Gemma 4 and DeepSeek 2, whose layers are unlike the others'."""

from __future__ import annotations

from .shapes import Shape

Tensors = list[tuple[str, tuple[int, ...]]]
PERIODS = {"gemma4": 6, "gpt-oss": 2}  # one layer of so many sees everything
OUTSIDE = ("per_layer_token_embd.weight", "per_layer_model_proj.weight")


def sees_all(s: Shape, layer: int) -> bool:
    """Return whether a layer attends globally, without a sliding window."""
    return (layer + 1) % (s.period or PERIODS[s.family]) == 0


def gpt_oss_layer(s: Shape) -> Tensors:
    """Return the tensors of one gpt-oss layer: biases everywhere, and attention sinks."""
    q, kv, n, f = s.heads * s.head_dim, s.kv_heads * s.head_dim, s.experts, s.expert_ffn
    out: Tensors = [("attn_norm.weight", (s.width,))]
    for part, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
        out += [(f"{part}.weight", (rows, s.width)), (f"{part}.bias", (rows,))]
    out += [
        ("attn_sinks.weight", (s.heads,)),
        ("attn_output.weight", (s.width, q)),
        ("attn_output.bias", (s.width,)),
        ("post_attention_norm.weight", (s.width,)),
        ("ffn_gate_inp.weight", (n, s.width)),
        ("ffn_gate_inp.bias", (n,)),
    ]
    for part, rows, depth in (("gate", f, s.width), ("up", f, s.width), ("down", s.width, f)):
        out += [
            (f"ffn_{part}_exps.weight", (n, rows, depth)),
            (f"ffn_{part}_exps.bias", (n, rows)),
        ]
    return out


def gemma4_layer(s: Shape, layer: int) -> Tensors:
    """Return the tensors of one Gemma 4 layer: global or sliding-window, with or without keys."""
    full, shares = sees_all(s, layer), layer >= s.layers - s.shared
    dim, kv_heads = s.wide if full else (s.head_dim, s.kv_heads)
    q, kv, w = s.heads * dim, kv_heads * dim, s.width
    ffn = s.late_ffn if shares and s.late_ffn else s.ffn
    out: Tensors = [
        ("attn_norm.weight", (w,)),
        ("attn_q.weight", (q, w)),
        ("attn_q_norm.weight", (dim,)),
    ]
    if not shares:
        out += [("attn_k.weight", (kv, w)), ("attn_k_norm.weight", (dim,))]
        out += [] if full and not s.own else [("attn_v.weight", (kv, w))]
    out += [
        ("attn_output.weight", (w, q)),
        ("post_attention_norm.weight", (w,)),
        ("ffn_norm.weight", (w,)),
        *feed_forward(ffn, w),
        ("post_ffw_norm.weight", (w,)),
        ("layer_output_scale.weight", (1,)),
    ]
    if s.own:
        out += [("inp_gate.weight", (s.own, w)), ("proj.weight", (w, s.own))]
        out += [("post_norm.weight", (w,))]
    if s.experts:
        out += [
            ("ffn_gate_inp.weight", (s.experts, w)),
            ("ffn_gate_inp.scale", (w,)),
            ("pre_ffw_norm_2.weight", (w,)),
            ("ffn_gate_up_exps.weight", (s.experts, 2 * s.expert_ffn, w)),
            ("ffn_down_exps.weight", (s.experts, w, s.expert_ffn)),
            ("ffn_down_exps.scale", (s.experts,)),
            ("post_ffw_norm_1.weight", (w,)),
            ("post_ffw_norm_2.weight", (w,)),
        ]
    return out


def deepseek2_layer(s: Shape, layer: int) -> Tensors:
    """Return the tensors of one layer with latent attention; the first layers are dense."""
    (q_rank, rank), (dim, rotated, value), w = s.ranks, s.latent_heads, s.width
    n, f = s.experts, s.expert_ffn
    out: Tensors = [
        ("attn_norm.weight", (w,)),
        ("attn_q_a.weight", (q_rank, w)),
        ("attn_q_a_norm.weight", (q_rank,)),
        ("attn_q_b.weight", (s.heads * dim, q_rank)),
        ("attn_kv_a_mqa.weight", (rank + rotated, w)),
        ("attn_kv_a_norm.weight", (rank,)),
        ("attn_k_b.weight", (s.heads, rank, dim - rotated)),
        ("attn_v_b.weight", (s.heads, value, rank)),
        ("attn_output.weight", (w, s.heads * value)),
        ("ffn_norm.weight", (w,)),
    ]
    if layer < s.dense:
        return out + feed_forward(s.ffn, w)
    out += [("ffn_gate_inp.weight", (n, w)), ("exp_probs_b.bias", (n,))]
    return [*out, *feed_forward(f, w, "_exps", n), *feed_forward(s.shared_ffn, w, "_shexp")]


def feed_forward(
    rows: int, width: int, suffix: str = "", copies: int = 0, *, gated: bool = True
) -> Tensors:
    """Return the tensors of a feed-forward block, or those of `copies` experts."""
    shapes = {"gate": (rows, width), "up": (rows, width), "down": (width, rows)}
    return [
        (f"ffn_{part}{suffix}.weight", (copies, *shape) if copies else shape)
        for part, shape in shapes.items()
        if gated or part != "gate"
    ]


def outside(s: Shape, vocab: int) -> Tensors:
    """Return the tensors outside layers, except for the token embedding and the output head."""
    if not s.own:
        return []
    rows = s.own * s.layers
    table, proj = OUTSIDE
    return [
        (table, (vocab, rows)),
        (proj, (rows, s.width)),
        ("per_layer_proj_norm.weight", (s.own,)),
    ]


def metadata(s: Shape) -> dict[str, int | float | str | list[bool] | list[int]]:
    """Return the metadata that only these families have; keys lack the architecture prefix."""
    if s.family == "gpt-oss":
        return {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 4096,
        }
    if s.family == "deepseek2":
        (q_rank, rank), (dim, rotated, value) = s.ranks, s.latent_heads
        return {
            "attention.q_lora_rank": q_rank,
            "attention.kv_lora_rank": rank,
            "attention.value_length": rank,
            "attention.key_length_mla": dim,
            "attention.value_length_mla": value,
            "rope.dimension_count": rotated,
            "leading_dense_block_count": s.dense,
            "expert_shared_count": s.shared_ffn // s.expert_ffn,
            "expert_weights_scale": 1.8,
            "expert_weights_norm": True,
            "expert_gating_func": 2,
        }
    if s.family != "gemma4":
        return {}
    full = [sees_all(s, layer) for layer in range(s.layers)]
    dim, kv_heads = s.wide
    own = s.layers - s.shared
    ffns = {"feed_forward_length": [s.ffn] * own + [s.late_ffn] * s.shared} if s.late_ffn else {}
    return {
        **ffns,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.key_length_swa": s.head_dim,
        "attention.value_length_swa": s.head_dim,
        "attention.head_count_kv": [kv_heads if wide else s.kv_heads for wide in full],
        "attention.sliding_window_pattern": [not wide for wide in full],
        "attention.shared_kv_layers": s.shared,
        "embedding_length_per_layer_input": s.own,
        "rope.dimension_count": dim,
        "rope.dimension_count_swa": s.head_dim,
        "rope.freq_base_swa": 10000.0,
        "final_logit_softcapping": 30.0,
    }
