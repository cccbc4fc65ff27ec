"""A small random Qwen3 written with the `gguf` package, and its logits by `transformers`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 96, 3, 6, 2, 32, 160, 300
EPS, ROPE_BASE = 1e-6, 50000.0  # not the default base, so that reading it matters
CONTEXT = 4096


def shapes() -> dict[str, tuple[int, ...]]:
    """Tensor name to shape, rows first."""
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    out: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, WIDTH)}
    for n in range(LAYERS):
        layer = {
            "attn_norm": (WIDTH,),
            "attn_q": (q, WIDTH),
            "attn_k": (kv, WIDTH),
            "attn_v": (kv, WIDTH),
            "attn_q_norm": (HEAD_DIM,),
            "attn_k_norm": (HEAD_DIM,),
            "attn_output": (WIDTH, q),
            "ffn_norm": (WIDTH,),
            "ffn_gate": (FFN, WIDTH),
            "ffn_up": (FFN, WIDTH),
            "ffn_down": (WIDTH, FFN),
        }
        out |= {f"blk.{n}.{name}.weight": shape for name, shape in layer.items()}
    return out | {"output_norm.weight": (WIDTH,)}


def write_tiny(
    path: Path,
    kind: str,
    seed: int = 0,
    *,
    architecture: str = "qwen3",
    kinds: dict[str, str] | None = None,
    reshaped: dict[str, tuple[int, ...]] | None = None,
    without: Collection[str] = (),
    metadata: dict[str, int] | None = None,
    nan_row: int | None = None,
    huge: str = "",
) -> None:
    """Write the model with its matrices as `kind` (a lower-case GGML type name).

    The rest makes files that are wrong in one way: `kinds` and `reshaped` give single tensors
    another type or shape, `without` leaves some out, `metadata` replaces integer keys. `nan_row`
    makes the embedding of one token NaN; the weights of the norm `huge` make all that follows NaN.
    """
    rng = np.random.default_rng(seed)
    values: dict[str, tuple[int, Callable[[int], None]]] = {}
    w = gguf.GGUFWriter(path, architecture)
    w.add_name(f"tiny {kind}")
    values["block_count"] = LAYERS, w.add_block_count
    values["context_length"] = CONTEXT, w.add_context_length
    values["embedding_length"] = WIDTH, w.add_embedding_length
    values["feed_forward_length"] = FFN, w.add_feed_forward_length
    values["head_count"] = HEADS, w.add_head_count
    values["head_count_kv"] = KV_HEADS, w.add_head_count_kv
    values["key_length"] = HEAD_DIM, w.add_key_length
    values["value_length"] = HEAD_DIM, w.add_value_length
    for name, (value, add) in values.items():
        add((metadata or {}).get(name, value))
    w.add_rope_freq_base(ROPE_BASE)
    w.add_layer_norm_rms_eps(EPS)
    _add_tokenizer(w)
    for name, shape in (shapes() | (reshaped or {})).items():
        if name in without:
            continue
        quant = gguf.GGMLQuantizationType[(kinds or {}).get(name, kind).upper()]
        if len(shape) == 1:
            norm = (1 + 0.2 * rng.standard_normal(shape)).astype(np.float32)
            w.add_tensor(name, norm * 1e38 if name == huge else norm)
        else:
            data = (rng.standard_normal(shape) / np.sqrt(shape[1]) * 1.5).astype(np.float32)
            if name == "token_embd.weight" and nan_row is not None:
                data[nan_row] = np.nan
            if quant == gguf.GGMLQuantizationType.F64:
                w.add_tensor(name, data.astype(np.float64))
            else:
                w.add_tensor(name, gguf.quants.quantize(data, quant), raw_dtype=quant)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _add_tokenizer(w: gguf.GGUFWriter) -> None:
    """256 byte tokens, then control tokens up to the vocabulary's size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    symbols = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}
    tokens = [symbols[b] for b in range(256)] + ["ab"]
    tokens += [f"<|extra_{n}|>" for n in range(VOCAB - 257)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([1] * 257 + [3] * (VOCAB - 257))
    w.add_token_merges(["a b"])
    w.add_eos_token_id(VOCAB - 1)
    w.add_bos_token_id(VOCAB - 2)


def dequantized(path: Path) -> dict[str, np.ndarray]:
    """Every tensor as float32, by the `gguf` package."""
    out = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        out[tensor.name] = values.reshape(tuple(reversed(tensor.shape.tolist())))
    return out


def numpy_logits(path: Path, ids: list[int]) -> np.ndarray:
    """The same by plain numpy in float64."""
    from .qwen3_numpy import forward

    sizes = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    return forward(dequantized(path), ids, **sizes, eps=EPS, rope_base=ROPE_BASE)


_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def torch_logits(path: Path, ids: list[int]) -> np.ndarray:
    """Logits of every position by transformers on the dequantized weights: [len(ids), vocabulary].

    `path`: any dense qwen3 with a tied head.
    """
    import torch

    with torch.no_grad():
        return _torch_model(path)(torch.tensor([ids])).logits[0].float().numpy()


@functools.lru_cache(maxsize=2)
def _torch_model(path: Path) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    fields = gguf.GGUFReader(path).fields

    def of(key: str) -> Any:
        return fields[f"qwen3.{key}"].contents()

    weights = dequantized(path)
    # As a dict: what a version of transformers takes is not in its signature.
    settings = {
        "vocab_size": len(weights["token_embd.weight"]),
        "hidden_size": of("embedding_length"),
        "intermediate_size": of("feed_forward_length"),
        "num_hidden_layers": of("block_count"),
        "num_attention_heads": of("attention.head_count"),
        "num_key_value_heads": of("attention.head_count_kv"),
        "head_dim": of("attention.key_length"),
        "rms_norm_eps": of("attention.layer_norm_rms_epsilon"),
        "rope_theta": of("rope.freq_base"),
        "tie_word_embeddings": True,
        "max_position_embeddings": CONTEXT,
        "attn_implementation": "eager",
    }
    config = Qwen3Config(**settings)
    model = Qwen3ForCausalLM(config).eval()
    state = {}
    for name, values in weights.items():
        if name == "token_embd.weight":
            target = "model.embed_tokens.weight"
        elif name == "output_norm.weight":
            target = "model.norm.weight"
        else:
            _, layer, part, _ = name.split(".")
            target = f"model.layers.{layer}.{_NAMES[part]}.weight"
        state[target] = torch.from_numpy(np.array(values, np.float32))
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model
