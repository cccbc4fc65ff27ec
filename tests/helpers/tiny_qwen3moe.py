"""A small random Qwen3 with experts written with the `gguf` package, and its logits by torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from . import tiny_qwen3 as dense
from .tiny_qwen3 import EPS, HEAD_DIM, HEADS, KV_HEADS, LAYERS, ROPE_BASE, VOCAB, WIDTH

# Not a multiple of the widest panel, and more experts than a vector has lanes on some targets.
EXPERTS, USED, FFN = 10, 3, 96


def shapes() -> dict[str, tuple[int, ...]]:
    """Tensor name to shape, rows first."""
    out = {name: shape for name, shape in dense.shapes().items() if not _dense_only(name)}
    for n in range(LAYERS):
        out |= {
            f"blk.{n}.ffn_gate_inp.weight": (EXPERTS, WIDTH),
            f"blk.{n}.ffn_gate_exps.weight": (EXPERTS, FFN, WIDTH),
            f"blk.{n}.ffn_up_exps.weight": (EXPERTS, FFN, WIDTH),
            f"blk.{n}.ffn_down_exps.weight": (EXPERTS, WIDTH, FFN),
        }
    return out | {"output.weight": (VOCAB, WIDTH)}


def _dense_only(name: str) -> bool:
    return any(part in name for part in ("ffn_gate.", "ffn_up.", "ffn_down."))


def write_tiny(
    path: Path,
    kind: str,
    used: int = USED,
    *,
    experts_said: int = EXPERTS,
    seed: int = 0,
    gates: str | None = None,
) -> None:
    """Write the model with its matrices as `kind` (a lower-case GGML type name), routers as F32.

    experts_said: what the metadata give as the number of experts; gates: another type for these.
    """
    rng = np.random.default_rng(seed)
    w = gguf.GGUFWriter(path, "qwen3moe")
    w.add_name(f"tiny experts {kind}")
    w.add_block_count(LAYERS)
    w.add_context_length(4096)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(dense.FFN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_key_length(HEAD_DIM)
    w.add_value_length(HEAD_DIM)
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(EPS)
    w.add_expert_count(experts_said)
    w.add_expert_used_count(used)
    w.add_expert_feed_forward_length(FFN)
    dense._add_tokenizer(w)
    for name, shape in shapes().items():
        if len(shape) == 1:
            w.add_tensor(name, (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32))
            continue
        values = (rng.standard_normal(shape) / np.sqrt(shape[-1]) * 1.5).astype(np.float32)
        if "gate_inp" in name:
            w.add_tensor(name, values)
        else:
            own_kind = gates if gates and "gate_exps" in name else kind
            own = gguf.GGMLQuantizationType[own_kind.upper()]
            w.add_tensor(name, gguf.quants.quantize(values, own), raw_dtype=own)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def torch_model(path: Path, used: int = USED) -> Any:
    """The same model in transformers, with the dequantized weights."""
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": dense.FFN,
        "moe_intermediate_size": FFN,
        "num_experts": EXPERTS,
        "num_experts_per_tok": used,
        "norm_topk_prob": True,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": EPS,
        "rope_theta": ROPE_BASE,
        "tie_word_embeddings": False,
        "max_position_embeddings": 4096,
        "attn_implementation": "eager",
    }
    model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**settings)).eval()
    weights = dense.dequantized(path)
    state = {
        "model.embed_tokens.weight": weights.pop("token_embd.weight"),
        "model.norm.weight": weights.pop("output_norm.weight"),
        "lm_head.weight": weights.pop("output.weight"),
    }
    for n in range(LAYERS):
        ours, theirs = f"blk.{n}.{{}}.weight".format, f"model.layers.{n}."
        gate_up = [weights.pop(ours(f"ffn_{part}_exps")) for part in ("gate", "up")]
        state[theirs + "mlp.experts.gate_up_proj"] = np.concatenate(gate_up, axis=1)
        state[theirs + "mlp.experts.down_proj"] = weights.pop(ours("ffn_down_exps"))
        state[theirs + "mlp.gate.weight"] = weights.pop(ours("ffn_gate_inp"))
    for name, values in weights.items():
        _, layer, part, _ = name.split(".")
        state[f"model.layers.{layer}.{dense._NAMES[part]}.weight"] = values
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(np.array(values, np.float32)) for name, values in state.items()},
        strict=False,
    )
    assert not missing, missing
    assert not unexpected, unexpected
    return model


def torch_logits(model: Any, ids: list[int]) -> np.ndarray:
    """Logits of every position: float32 [len(ids), VOCAB]."""
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()
