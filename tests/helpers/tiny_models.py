"""Small random models of every architecture: as checkpoints, as GGUF files, and in transformers.

The weights are made by numpy under the names of a Hugging Face checkpoint; `map_checkpoint` makes
the file of them, and transformers, where it is installed, loads the same arrays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from helpers import hybrid_models as hybrid
from helpers import tiny_families

from triplepoint.runtime.convert.mapping import map_checkpoint
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.synthetic.weights import K_QUANTS, random_weights

VOCAB, CONTEXT = 300, 512
_BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 128,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "tie_word_embeddings": False,
}


def _llama3(original: int) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }


def _longrope(pairs: int) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "short_factor": np.linspace(1.0, 1.5, pairs).tolist(),
        "long_factor": np.linspace(1.0, 9.0, pairs).tolist(),
    }


_GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 32,
}
# The sequences of the tests are longer than every window and every original context here, but for
# the model that is named so.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "rope_scaling": _llama3(64)},
    "mistral": {"model_type": "mistral", "sliding_window": 40, "head_dim": 64},
    "smollm3": {"model_type": "smollm3", "num_hidden_layers": 5, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2"},
    "qwen2-yarn": {
        "model_type": "qwen2",
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 64},
    "gemma2": {
        **_GEMMA,
        "model_type": "gemma2",
        "num_hidden_layers": 4,
        "sliding_window": 40,
        "rope_theta": 10000.0,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3": {
        **_GEMMA,
        "num_hidden_layers": 7,
        "sliding_window": 40,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "final_logit_softcapping": 3.0,
    },
    "gemma3-256": {
        **_GEMMA,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "sliding_window": 100,
        "query_pre_attn_scalar": 168,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "phi3": {
        "model_type": "phi3",
        "head_dim": None,
        "hidden_size": 384,  # heads of 96
        "sliding_window": 60,
    },
    "phi3-long": {
        "model_type": "phi3",
        "head_dim": None,
        "hidden_size": 256,  # heads of 64, of which 48 dims are rotated
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": 64,
        "rope_scaling": _longrope(24),
    },
    "phi3-short": {
        "model_type": "phi3",
        "head_dim": None,
        "hidden_size": 256,
        "original_max_position_embeddings": 256,
        "rope_scaling": _longrope(32),
    },
    "granite": {
        "model_type": "granite",
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.04,
        "logits_scaling": 5.0,
    },
    **tiny_families.CONFIGS,
    **hybrid.CONFIGS,
}
# As wide as the blocks of K-quants: first those that differ in how weights are used.
_WIDE = {"hidden_size": 256, "intermediate_size": 256}
WIDE: dict[str, dict[str, Any]] = {
    "qwen2-wide": {**CONFIGS["qwen2"], **_WIDE, "head_dim": 64},
    "gemma3-wide": {**CONFIGS["gemma3"], **_WIDE, "head_dim": 64, "query_pre_attn_scalar": 64},
    "phi3-wide": {**CONFIGS["phi3-long"], **_WIDE},
    "llama-wide": {**CONFIGS["llama"], **_WIDE, "head_dim": 64},
    "smollm3-wide": {**CONFIGS["smollm3"], **_WIDE, "head_dim": 64},
    "qwen3-wide": {**CONFIGS["qwen3"], **_WIDE},
    "gemma2-wide": {**CONFIGS["gemma2"], **_WIDE, "head_dim": 64, "query_pre_attn_scalar": 64},
    "granite-wide": {**CONFIGS["granite"], **_WIDE, "head_dim": 64},
    **{name: {**config, **_WIDE} for name, config in hybrid.WIDE.items()},
}
CONTEXTS = {"phi3-short": 256}  # that an engine must be loaded with; else CONTEXT


def config_of(name: str) -> dict[str, Any]:
    """What `config.json` says of the model."""
    config = {**_BASE, **(CONFIGS | WIDE)[name]}
    if config["head_dim"] is None:
        del config["head_dim"]
    if "kv_lora_rank" in config:
        del config["head_dim"]  # it is that of the rotated part there
    if config["model_type"] in ("llama", "smollm3", "granite") and config["head_dim"] == 32:
        del config["head_dim"]  # it follows from the width; some published ones do not say it
    if (
        "rope_theta" in config.get("rope_parameters", {})
        or "gemma4" in name
        or name in ("olmo3", "laguna")
    ):
        del config["rope_theta"]
    return tiny_families.nested(config) if config["model_type"].startswith("qwen3_vl") else config


def checkpoint(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """The model's weights, float32, by their names in a checkpoint."""
    c, rng = config_of(name), np.random.default_rng(seed)
    c = c | c.get("text_config", {}) | {"model_type": c["model_type"]}
    kind, width, ffn = c["model_type"], c["hidden_size"], c["intermediate_size"]
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dim = c.get("head_dim", width // heads)
    gemma, plus_one = kind.startswith("gemma"), kind in ("gemma2", "gemma3_text")
    begin = tiny_families.prefix(kind)
    shapes: dict[str, tuple[int, ...]] = {f"{begin}embed_tokens.weight": (VOCAB, width)}
    shapes |= {begin + part: shape for part, shape in tiny_families.outside(c).items()}
    for n in range(c["num_hidden_layers"]):
        if hybrid.is_hybrid(kind):
            shapes |= {f"model.layers.{n}.{p}": s for p, s in hybrid.layer_shapes(c, n).items()}
            continue
        if name in tiny_families.CONFIGS:
            layer = tiny_families.layer_shapes(c, n)
            shapes |= {f"{begin}layers.{n}.{part}": shape for part, shape in layer.items()}
            continue
        layer: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (width,)}
        if kind == "phi3":
            layer["self_attn.qkv_proj.weight"] = ((heads + 2 * kv) * dim, width)
            layer["mlp.gate_up_proj.weight"] = (2 * ffn, width)
        else:
            for part, count in (("q", heads), ("k", kv), ("v", kv)):
                layer[f"self_attn.{part}_proj.weight"] = (count * dim, width)
                if kind == "qwen2":
                    layer[f"self_attn.{part}_proj.bias"] = (count * dim,)
            layer |= {f"mlp.{part}_proj.weight": (ffn, width) for part in ("gate", "up")}
        if kind in ("gemma3_text", "qwen3"):
            layer |= {f"self_attn.{part}_norm.weight": (dim,) for part in "qk"}
        if gemma:
            names = ("pre_feedforward_layernorm", "post_feedforward_layernorm")
            layer |= {f"{part}.weight": (width,) for part in names}
        layer |= {
            "post_attention_layernorm.weight": (width,),
            "self_attn.o_proj.weight": (width, heads * dim),
            "mlp.down_proj.weight": (width, ffn),
        }
        shapes |= {f"model.layers.{n}.{part}": shape for part, shape in layer.items()}
    shapes[f"{begin}norm.weight"] = (width,)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (VOCAB, width)
    shapes = {hybrid.renamed(kind, part): shape for part, shape in shapes.items()}

    def values(part: str, shape: tuple[int, ...]) -> np.ndarray:
        if hybrid.is_hybrid(kind):
            return hybrid.values(part, shape, rng, hybrid.adds_one(kind))
        noise = rng.standard_normal(shape)
        if part.endswith(("bias", "sinks")):
            return noise
        if len(shape) >= 2:
            # Bounds on what experts compute are reached now and then.
            wide = 4 if kind == "gpt_oss" and part.endswith("gate_up_proj") else 1
            return noise * 1.5 * wide / np.sqrt(min(shape[1:]) if len(shape) == 3 else shape[1])
        return noise * 0.2 + (0 if plus_one else 1)

    return {part: values(part, shape).astype(np.float32) for part, shape in shapes.items()}


def write_model(
    path: Path,
    name: str,
    kind: str = "f32",
    seed: int = 0,
    *,
    metadata: dict[str, Any] | None = None,
    without: Collection[str] = (),
    rounded_to: str = "f32",
    drop: str | None = None,
    copies: Mapping[str, str] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write the model's GGUF file with matrices of the GGML type `kind`.

    `metadata` replaces values of the file and `without` leaves keys out, for files that are wrong
    in one way. `rounded_to`: the matrices have the values that they would have in this type.
    `drop`: how names of tensors begin that are left out; `copies`: further tensors, which are those
    of other names once more. `extra`: weights that the checkpoint has beside the usual ones.
    """
    weights = checkpoint(name, seed) | dict(extra or {})
    mapping = map_checkpoint(config_of(name), list(weights))
    assert not mapping.unused
    quant = gguf.GGMLQuantizationType[kind.upper()]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", mapping.architecture)
        # llama.cpp looks for tokens of its own in what is called phi-3.
        writer.add("general.name", f"tiny {name.replace('phi3', 'phi')}")
        for key, value in (mapping.metadata | (metadata or {})).items():
            if key not in without:
                writer.add(key, value)
        _add_tokenizer(writer)
        arrays = {
            t.name: t.make([weights[n] for n in t.sources])
            for t in mapping.tensors
            if drop is None or not t.name.startswith(drop)
        }
        arrays |= {new: arrays[old] for new, old in (copies or {}).items()}
        plain = {t.name for t in mapping.tensors if t.is_vector}
        plain |= {tensor for tensor, array in arrays.items() if array.ndim == 1}
        plain |= {tensor for tensor in arrays if "ffn_gate_inp" in tensor}
        for tensor, array in arrays.items():
            stored = GGMLType.F32 if tensor in plain else GGMLType[quant.name]
            writer.declare(tensor, array.shape, stored)
        for tensor, array in arrays.items():
            data = array.astype(np.float32)
            if tensor not in plain:
                kind_of = gguf.GGMLQuantizationType[rounded_to.upper()]
                data = gguf.quants.dequantize(_stored(tensor, data, kind_of), kind_of)
                data = _stored(tensor, data, quant)
            writer.write(tensor, data)


def _stored(
    name: str, values: np.ndarray, quant: gguf.GGMLQuantizationType
) -> np.ndarray[Any, np.dtype[Any]]:
    """`values` in blocks; of a type that the `gguf` package cannot make, random ones."""
    kind = GGMLType[quant.name]
    if kind not in K_QUANTS:
        return gguf.quants.quantize(values, quant)
    raw = np.concatenate(list(random_weights(name, values.shape, kind)))
    return raw.reshape(values.shape[0], -1)


def _add_tokenizer(writer: GGUFWriter) -> None:
    """256 byte tokens, then control tokens up to the vocabulary's size."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    symbols = {b: chr(b) for b in printable} | {b: chr(256 + n) for n, b in enumerate(others)}
    tokens = [symbols[b] for b in range(256)] + ["ab"]
    tokens += [f"<|extra_{n}|>" for n in range(VOCAB - 257)]
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "qwen2")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", np.array([1] * 257 + [3] * (VOCAB - 257), np.int32))
    writer.add("tokenizer.ggml.merges", ["a b"])
    writer.add("tokenizer.ggml.eos_token_id", VOCAB - 1)
    writer.add("tokenizer.ggml.bos_token_id", VOCAB - 2)


def torch_model(name: str, seed: int = 0) -> Any:
    """The model in transformers."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    settings = {**config_of(name), "attn_implementation": "eager", "pad_token_id": 0}
    kind = AutoModelForImageTextToText if "text_config" in settings else AutoModelForCausalLM
    model = kind.from_config(AutoConfig.for_model(**settings)).eval().float()
    state = {n: torch.from_numpy(v) for n, v in checkpoint(name, seed).items()}
    if name == "qwen3vlmoe":  # on disk they are turned
        turned = [n for n in state if "mlp.experts." in n]
        state |= {n: state[n].transpose(1, 2).contiguous() for n in turned}
    if name in tiny_families.CONFIGS:
        state = tiny_families.from_disk(state)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert all(n == "lm_head.weight" or ".visual." in n for n in missing), missing
    model.tie_weights()
    return model


def torch_logits(name: str, ids: list[int], seed: int = 0) -> np.ndarray:
    """Logits of every position by transformers: float32 [len(ids), VOCAB]."""
    import torch

    model = torch_model(name, seed)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()
