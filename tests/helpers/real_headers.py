"""Headers of real files: the metadata and tensors of one model of each family, without weights.

Sizes are those that the families publish. The vocabularies are short: what tokens there are is no
part of what a header is about. A file made of one is sparse: it has its full length and no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers.families import TEMPLATES

from triplepoint.runtime.gguf.types import GGMLType, TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.byte_bpe import byte_characters

Tensors = dict[str, tuple[int, ...]]
"""Name → shape, rows first. Without a suffix of its own a name gets ``.weight``."""
N_VOCAB = 512
_FLOATS = ("norm", "inp", "conv", "bias", "scale", "sinks", "ssm_a", "ssm_d", "rope_freqs")


@dataclass(frozen=True)
class Header:
    """One file."""

    name: str
    architecture: str
    metadata: dict[str, Any]
    """Without the architecture before each key."""
    layers: Callable[[int], Tensors]
    """The tensors of one block."""
    pre: str
    template: str
    """Whose template it has; see `helpers.families`."""
    top: Tensors
    """Tensors outside of all blocks."""
    experts: GGMLType = GGMLType.Q8_0

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], GGMLType]]:
        """Names, shapes and types of all tensors."""
        for name, shape in self.top.items():
            yield self._typed(name, shape)
        for i in range(self.metadata["block_count"]):
            for name, shape in self.layers(i).items():
                yield self._typed(f"blk.{i}.{name}", shape)

    def _typed(self, name: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], GGMLType]:
        wide = len(shape) > 1 and not shape[-1] % 32
        kind = GGMLType.Q8_0 if wide and not any(f in name for f in _FLOATS) else GGMLType.F32
        kind = self.experts if kind == GGMLType.Q8_0 and "_exps" in name else kind
        own = name.endswith((".bias", ".scale", "ssm_a", "ssm_d"))
        return (name if own else f"{name}.weight"), shape, kind


class _Sparse(GGUFWriter):
    """Writes a header, and a hole in the place of the data but for factors, which are looked at."""

    def close(self) -> None:
        self._begin()
        start = self._file.tell()
        for name, (shape, kind) in self._tensors.items():
            if name == "rope_freqs.weight":  # the first quarter of the pairs is rotated
                factors = np.where(np.arange(shape[0]) < shape[0] // 4, 1.0, 1e30)
                self._file.seek(start)
                self._file.write(factors.astype(np.float32).tobytes())
            start += -(-kind.nbytes(shape) // self.alignment) * self.alignment
        self._file.truncate(start)
        self._todo.clear()
        super().close()


def write_header(path: Path, header: Header) -> None:
    """A file that has this header and the length of the real one."""
    tokens, kinds = _vocabulary(header)
    with _Sparse(path) as writer:
        writer.add("general.architecture", header.architecture)
        writer.add("general.name", header.name)
        for key, value in header.metadata.items():
            array = np.array(value) if isinstance(value, list) else value
            if isinstance(array, np.ndarray) and array.dtype == np.int64:
                array = array.astype(np.int32)
            writer.add(f"{header.architecture}.{key}", array)
        model = "gemma4" if header.pre == "gemma4" else "gpt2"
        writer.add("tokenizer.ggml.model", model)
        if model == "gpt2":
            writer.add("tokenizer.ggml.pre", header.pre)
        writer.add("tokenizer.ggml.tokens", tokens)
        writer.add("tokenizer.ggml.token_type", np.array(kinds, np.int32))
        writer.add("tokenizer.ggml.merges", ["a b"])
        writer.add("tokenizer.ggml.bos_token_id", 0)
        writer.add("tokenizer.ggml.eos_token_id", 0)
        template = (TEMPLATES / f"{header.template}.jinja").read_text(encoding="utf-8")
        writer.add("tokenizer.chat_template", template)
        for name, shape, kind in header.tensors():
            writer.declare(name, shape, kind)


def _vocabulary(header: Header) -> tuple[list[str], list[TokenType]]:
    tokens = ["<|endoftext|>", *byte_characters(), "ab"]
    kinds = [TokenType.CONTROL, *[TokenType.NORMAL] * 257]
    tokens += [f"<unused{i}>" for i in range(N_VOCAB - len(tokens))]
    return tokens, kinds + [TokenType.UNUSED] * (N_VOCAB - len(kinds))


def _top(width: int, *, tied: bool = False, norm: str = "output_norm") -> Tensors:
    head = {} if tied else {"output": (N_VOCAB, width)}
    return {"token_embd": (N_VOCAB, width), norm: (width,), **head}


def _attention(width: int, q: int, kv: int, head: int, *, gated: bool = False) -> Tensors:
    return {
        "attn_norm": (width,),
        "attn_q": (q * head * (2 if gated else 1), width),
        "attn_k": (kv * head, width),
        "attn_v": (kv * head, width),
        "attn_output": (width, q * head),
    }


def _qk_norms(head: int) -> Tensors:
    return {"attn_q_norm": (head,), "attn_k_norm": (head,)}


def _dense(width: int, ffn: int) -> Tensors:
    up = {f"ffn_{name}": (ffn, width) for name in ("gate", "up")}
    return {**up, "ffn_down": (width, ffn)}


def _experts(width: int, ffn: int, count: int, *, shared: int = 0, bias: bool = False) -> Tensors:
    found: Tensors = {"ffn_gate_inp": (count, width)}
    found |= {f"ffn_{name}_exps": (count, ffn, width) for name in ("gate", "up")}
    found["ffn_down_exps"] = (count, width, ffn)
    if shared:
        found |= {f"ffn_{name}_shexp": (shared, width) for name in ("gate", "up")}
        found["ffn_down_shexp"] = (width, shared)
    if bias:
        found["exp_probs_b.bias"] = (count,)
    return found


# --- Qwen3.5, Qwen3-Next, Qwen3-VL ----------------------------------------------------------------


def _delta(width: int, groups: int, heads: int) -> Tensors:
    values = 128 * heads
    return {
        "attn_norm": (width,),
        "attn_qkv": (256 * groups + values, width),
        "attn_gate": (values, width),
        "ssm_alpha": (heads, width),
        "ssm_beta": (heads, width),
        "ssm_conv1d": (256 * groups + values, 4),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads,),
        "ssm_norm": (128,),
        "ssm_out": (width, values),
    }


def _qwen35(name: str, arch: str, width: int, blocks: int, q: int, kv: int, **more: Any) -> Header:
    heads, ffn, experts = more.get("heads", 32), more.get("ffn", 0), more.get("experts", 0)
    metadata = {
        "block_count": blocks,
        "context_length": 262144,
        "embedding_length": width,
        "attention.head_count": q,
        "attention.head_count_kv": kv,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": heads,
        "ssm.inner_size": 128 * heads,
    }
    metadata |= {"feed_forward_length": ffn} if ffn else {}
    if experts:
        metadata |= {
            "expert_count": experts,
            "expert_used_count": more["used"],
            "expert_feed_forward_length": 512,
            "expert_shared_feed_forward_length": 512,
        }

    def layers(i: int) -> Tensors:
        found = _delta(width, 16, heads)
        if i % 4 == 3:
            found = {**_attention(width, q, kv, 256, gated=True), **_qk_norms(256)}
        elif arch == "qwen3next":
            del found["ssm_alpha"], found["ssm_beta"]
            found["ssm_ba"] = (2 * heads, width)
        found["post_attention_norm"] = (width,)
        if not experts:
            return {**found, **_dense(width, ffn)}
        routed = _experts(width, 512, experts, shared=512)
        return {**found, **routed, "ffn_gate_inp_shexp": (width,)}

    pre, template = ("qwen2", "qwen35") if arch == "qwen3next" else ("qwen35", "qwen36")
    return Header(name, arch, metadata, layers, pre, template, _top(width, tied=not experts))


def _qwen3vl() -> Header:
    width, ffn = 2048, 6144
    metadata = {
        "block_count": 28,
        "context_length": 262144,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": 16,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 5e6,
        "rope.dimension_sections": [24, 20, 20, 0],
        "n_deepstack_layers": 3,
    }

    def layers(i: int) -> Tensors:
        mix = {**_attention(width, 16, 8, 128), **_qk_norms(128)}
        return {**mix, "ffn_norm": (width,), **_dense(width, ffn)}

    top = _top(width, tied=True)
    return Header("Qwen3-VL-2B", "qwen3vl", metadata, layers, "qwen2", "granite4", top)


# --- Gemma 4 -------------------------------------------------------------------------------------


def _gemma4(name: str, width: int, ffn: int, blocks: int, q: int, kv: int, **more: Any) -> Header:
    interval, full_kv, shared = more["interval"], more["full_kv"], more.get("shared", 0)
    ple, experts = more.get("ple", 0), more.get("experts", 0)
    sliding = [i % interval != interval - 1 for i in range(blocks)]
    metadata = {
        "block_count": blocks,
        "context_length": 131072 if ple else 262144,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": q,
        "attention.head_count_kv": [kv if s else full_kv for s in sliding],
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 512 if ple else 1024,
        "attention.sliding_window_pattern": sliding,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": ple,
        "final_logit_softcapping": 30.0,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": 512,
        "rope.dimension_count_swa": 256,
    }
    if experts:
        used, length = "expert_used_count", "expert_feed_forward_length"
        metadata |= {"expert_count": experts, used: 8, length: 704}

    def layers(i: int) -> Tensors:
        head, heads = (256, kv) if sliding[i] else (512, full_kv)
        found = {**_attention(width, q, heads, head), **_qk_norms(head)}
        if i >= blocks - shared:
            found = {k: v for k, v in found.items() if k not in ("attn_k", "attn_v", "attn_k_norm")}
        elif not sliding[i] and not ple:
            del found["attn_v"]
        for norm in ("post_attention_norm", "ffn_norm", "post_ffw_norm"):
            found[norm] = (width,)
        found |= {**_dense(width, ffn), "layer_output_scale": (1,)}
        if ple:
            found |= {"inp_gate": (ple, width), "proj": (width, ple), "post_norm": (width,)}
        if experts:
            routed = _experts(width, 704, experts)
            routed["ffn_gate_up_exps"] = (experts, 1408, width)
            del routed["ffn_gate_exps"], routed["ffn_up_exps"]
            found |= routed
            found |= {"ffn_gate_inp.scale": (width,), "ffn_down_exps.scale": (experts,)}
            for norm in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                found[norm] = (width,)
        return found

    top = {**_top(width, tied=True), "rope_freqs": (256,)}
    if ple:
        top["per_layer_token_embd"] = (N_VOCAB, ple * blocks)
        top["per_layer_model_proj"] = (ple * blocks, width)
        top["per_layer_proj_norm"] = (ple,)
    return Header(name, "gemma4", metadata, layers, "gemma4", "gemma4", top)


# --- the others ----------------------------------------------------------------------------------


def _gpt_oss() -> Header:
    width, experts = 2880, 32
    metadata = {
        "block_count": 24,
        "context_length": 131072,
        "embedding_length": width,
        "feed_forward_length": 2880,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.sliding_window": 128,
        "expert_count": experts,
        "expert_used_count": 4,
        "expert_feed_forward_length": 2880,
        "rope.freq_base": 150000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }

    def layers(i: int) -> Tensors:
        found = {**_attention(width, 64, 8, 64), "attn_sinks": (64,)}
        found |= {f"attn_{n}.bias": (heads * 64,) for n, heads in (("q", 64), ("k", 8), ("v", 8))}
        found |= {"attn_output.bias": (width,), "post_attention_norm": (width,)}
        found |= {**_experts(width, 2880, experts), "ffn_gate_inp.bias": (experts,)}
        return found | {f"ffn_{n}_exps.bias": (experts, 2880) for n in ("gate", "up", "down")}

    top = _top(width)
    kind = GGMLType.MXFP4
    return Header("gpt-oss-20b", "gpt-oss", metadata, layers, "gpt-4o", "harmony", top, kind)


def _lfm2(name: str, arch: str, blocks: int, full: Sequence[int], ffn: int) -> Header:
    width, moe = 2048, arch == "lfm2moe"
    metadata = {
        "block_count": blocks,
        "context_length": 128000,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": 32,
        "attention.head_count_kv": [8 if i in full else 0 for i in range(blocks)],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 1e6,
        "shortconv.l_cache": 3,
    }
    if moe:
        metadata |= {
            "leading_dense_block_count": 2,
            "expert_count": 32,
            "expert_used_count": 4,
            "expert_feed_forward_length": 1792,
            "expert_gating_func": 2,
        }

    def layers(i: int) -> Tensors:
        found: Tensors = {"attn_norm": (width,), "shortconv.in_proj": (3 * width, width)}
        found |= {"shortconv.conv": (width, 3), "shortconv.out_proj": (width, width)}
        if i in full:
            found = {**_attention(width, 32, 8, 64), **_qk_norms(64)}
        routed = moe and i >= 2
        ffns = _experts(width, 1792, 32, bias=True) if routed else _dense(width, ffn)
        return {**found, "ffn_norm": (width,), **ffns}

    top = _top(width, tied=True, norm="token_embd_norm")
    return Header(name, arch, metadata, layers, "lfm2", "lfm2", top)


def _glm() -> Header:
    width, heads, experts = 2048, 20, 64
    metadata = {
        "block_count": 48,
        "context_length": 202752,
        "embedding_length": width,
        "feed_forward_length": 10240,
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 768,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 256,
        "attention.value_length_mla": 256,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "leading_dense_block_count": 1,
        "nextn_predict_layers": 1,
        "expert_count": experts,
        "expert_used_count": 4,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 1536,
        "expert_weights_scale": 1.8,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
        "rope.dimension_count": 64,
        "rope.freq_base": 1e6,
    }

    def layers(i: int) -> Tensors:
        found: Tensors = {
            "attn_norm": (width,),
            "attn_q_a": (768, width),
            "attn_q_a_norm": (768,),
            "attn_q_b": (heads * 256, 768),
            "attn_kv_a_mqa": (576, width),
            "attn_kv_a_norm": (512,),
            "attn_k_b": (heads, 512, 192),
            "attn_v_b": (heads, 256, 512),
            "attn_output": (width, heads * 256),
            "ffn_norm": (width,),
        }
        found |= _experts(width, 1536, 64, shared=1536, bias=True) if i else _dense(width, 10240)
        if i == 47:
            found |= {f"nextn.{n}": (width,) for n in ("enorm", "hnorm", "shared_head_norm")}
            found["nextn.eh_proj"] = (width, 2 * width)
        return found

    top = _top(width)
    return Header("GLM-4.7-Flash", "deepseek2", metadata, layers, "glm4", "glm", top)


def _mamba(width: int, inner: int, groups: int, heads: int) -> Tensors:
    channels = inner + 2 * groups * 128
    return {
        "attn_norm": (width,),
        "ssm_in": (inner + channels + heads, width),
        "ssm_conv1d": (channels, 4),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        "ssm_norm": (groups, inner // groups),
        "ssm_out": (width, inner),
    }


def _mamba_keys(inner: int, groups: int, heads: int) -> dict[str, Any]:
    return {
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": groups,
        "ssm.inner_size": inner,
        "ssm.time_step_rank": heads,
    }


def _nemotron() -> Header:
    width = 2688
    pattern = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    metadata = {
        "block_count": len(pattern),
        "context_length": 1048576,
        "embedding_length": width,
        "feed_forward_length": [1856 if kind == "E" else 0 for kind in pattern],
        "attention.head_count": 32,
        "attention.head_count_kv": [2 if kind == "*" else 0 for kind in pattern],
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-5,
        **_mamba_keys(4096, 8, 64),
        "expert_count": 128,
        "expert_used_count": 6,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 1856,
        "expert_shared_feed_forward_length": 3712,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "expert_gating_func": 2,
    }

    def layers(i: int) -> Tensors:
        if pattern[i] == "M":
            return _mamba(width, 4096, 8, 64)
        if pattern[i] == "*":
            return _attention(width, 32, 2, 128)
        found = _experts(width, 1856, 128, shared=3712, bias=True)
        found = {name: shape for name, shape in found.items() if "_gate_" not in name[:-3]}
        return {"attn_norm": (width,), "ffn_gate_inp": (128, width), **found}

    top, name = _top(width), "NVIDIA-Nemotron-3-Nano-30B-A3B"
    return Header(name, "nemotron_h_moe", metadata, layers, "pixtral", "nemotron3", top)


def _granite(name: str, width: int, ffn: int, q: int, kv: int, heads: int) -> Header:
    full, head, inner, moe = (5, 15, 25, 35), width // q, 64 * heads, "Tiny" in name
    metadata = {
        "block_count": 40,
        "context_length": 131072,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": q,
        "attention.head_count_kv": [kv if i in full else 0 for i in range(40)],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.scale": 1 / head,
        "embedding_scale": 12.0,
        "residual_scale": 0.22,
        "logit_scale": 6.0,
        "rope.freq_base": 10000.0,
        "rope.scaling.finetuned": False,
        **_mamba_keys(inner, 1, heads),
    }
    if moe:
        metadata |= {
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_feed_forward_length": 512,
            "expert_shared_feed_forward_length": 1024,
        }

    def layers(i: int) -> Tensors:
        found = _attention(width, q, kv, head) if i in full else _mamba(width, inner, 1, heads)
        ffns = _experts(width, 512, 64, shared=1024) if moe else _dense(width, ffn)
        return {**found, "ffn_norm": (width,), **ffns}

    top = _top(width, tied=True)
    return Header(name, "granitehybrid", metadata, layers, "dbrx", "granite4", top)


def _ministral() -> Header:
    width, ffn = 4096, 14336
    metadata = {
        "block_count": 34,
        "context_length": 262144,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.temperature_scale": 0.1,
        "rope.dimension_count": 128,
        "rope.freq_base": 1e6,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 16.0,
        "rope.scaling.original_context_length": 16384,
        "rope.scaling.yarn_beta_fast": 32.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "rope.scaling.yarn_log_multiplier": 1.0,
    }

    def layers(i: int) -> Tensors:
        return {**_attention(width, 32, 8, 128), "ffn_norm": (width,), **_dense(width, ffn)}

    top = _top(width)
    return Header("Ministral-3-8B", "mistral3", metadata, layers, "tekken", "mistral3", top)


def _laguna() -> Header:
    width, blocks = 2048, 40
    heads = [48 if i % 4 == 0 else 64 for i in range(blocks)]
    metadata = {
        "block_count": blocks,
        "context_length": 131072,
        "embedding_length": width,
        "feed_forward_length": 8192,
        "attention.head_count": heads,
        "attention.head_count_kv": 8,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [i % 4 != 0 for i in range(blocks)],
        "leading_dense_block_count": 1,
        "expert_count": 256,
        "expert_used_count": 8,
        "expert_shared_count": 1,
        "expert_feed_forward_length": 512,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "expert_gating_func": 2,
        "rope.dimension_count": 64,
        "rope.dimension_count_swa": 128,
        "rope.freq_base": 500000.0,
        "rope.freq_base_swa": 10000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    }

    def layers(i: int) -> Tensors:
        found = {**_attention(width, heads[i], 8, 128), **_qk_norms(128)}
        found |= {"attn_gate": (heads[i], width), "ffn_norm": (width,)}
        ffn = _experts(width, 512, 256, shared=512, bias=True) if i else _dense(width, 8192)
        return {**found, **ffn}

    return Header("Laguna-XS.2", "laguna", metadata, layers, "laguna", "laguna", _top(width))


def _olmo3() -> Header:
    width, ffn = 4096, 11008
    metadata = {
        "block_count": 32,
        "context_length": 65536,
        "embedding_length": width,
        "feed_forward_length": ffn,
        "attention.head_count": 32,
        "attention.head_count_kv": 32,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 4096,
        "attention.sliding_window_pattern": [i % 4 != 3 for i in range(32)],
        "rope.freq_base": 500000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 8.0,
        "rope.scaling.original_context_length": 8192,
    }

    def layers(i: int) -> Tensors:
        found = {**_attention(width, 32, 32, 128), **_qk_norms(width), **_dense(width, ffn)}
        del found["attn_norm"]
        return {**found, "post_attention_norm": (width,), "post_ffw_norm": (width,)}

    return Header("Olmo-3-7B", "olmo2", metadata, layers, "dbrx", "granite4", _top(width))


HEADERS = (
    _qwen35("Qwen3.5-4B", "qwen35", 2560, 32, 16, 4, ffn=9216),
    _qwen35("Qwen3.5-35B-A3B", "qwen35moe", 2048, 40, 16, 2, experts=256, used=8),
    _qwen35("Qwen3-Next-80B-A3B", "qwen3next", 2048, 48, 16, 2, experts=512, used=10),
    _qwen3vl(),
    _gemma4("gemma-4-E4B", 2560, 10240, 42, 8, 2, interval=6, full_kv=2, shared=18, ple=256),
    _gemma4("gemma-4-26B-A4B", 2816, 2112, 30, 16, 8, interval=6, full_kv=2, experts=128),
    _gpt_oss(),
    _lfm2("LFM2.5-1.2B", "lfm2", 16, (2, 5, 8, 10, 12, 14), 8192),
    _lfm2("LFM2-8B-A1B", "lfm2moe", 24, (2, 6, 10, 14, 18, 21), 7168),
    _glm(),
    _nemotron(),
    _granite("Granite-4.0-H-Tiny", 1536, 512, 12, 4, 48),
    _granite("Granite-4.0-H-Micro", 2048, 8192, 32, 8, 64),
    _ministral(),
    _laguna(),
    _olmo3(),
)
