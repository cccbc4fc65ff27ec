"""The dimensions of published models, under the names that `synthetic:` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model.

    Attributes:
        family: whose equations it has: ``qwen3`` (with experts: ``qwen3moe``), ``llama``,
            ``gemma3``, ``gemma4``, ``gpt-oss``, ``qwen35``, ``lfm2``, ``nemotron_h``,
            ``granitehybrid`` or ``deepseek2``.
        rope_factor: by how much Llama 3 stretches slow rotations; 0: not at all.
        vocab, context, base: size of the vocabulary, positions it was trained for, base of the
            rotation, where they are not those of Qwen3 or Llama 3.
        window: positions that layers see that do not see everything.
        period: one layer of so many sees everything, where that is not the family's usual.
        wide: size and number of the KV heads of layers that see everything (``gemma4``).
        own: values of each layer's own embedding of a token; shared: layers without own keys.
        late_ffn: width of the feed-forward half of layers without own keys, if it is another.
        recurrent: key heads or groups, value heads, dims of keys or states, and of values.
        kinds: of each layer: see `hybrids.kind_of`. dense: layers before those with experts.
        shared_ffn: width of the expert that all tokens take.
        ranks: of the latents of queries and of keys (``deepseek2``); latent_heads: dims of a
            head's query, how many of them are rotated, and dims of a head's value.
        mtp: layers behind the last that only draft.
    """

    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    tied: bool
    head_dim: int = 128
    experts: int = 0
    experts_used: int = 0
    expert_ffn: int = 0
    family: str = "qwen3"
    rope_factor: float = 0.0
    vocab: int = 0
    context: int = 0
    base: float = 0.0
    window: int = 0
    period: int = 0
    wide: tuple[int, int] = (0, 0)
    own: int = 0
    shared: int = 0
    late_ffn: int = 0
    recurrent: tuple[int, int, int, int] | None = None
    kinds: str = ""
    dense: int = 0
    shared_ffn: int = 0
    ranks: tuple[int, int] = (0, 0)
    latent_heads: tuple[int, int, int] = (0, 0, 0)
    mtp: int = 0

    @property
    def architecture(self) -> str:
        suffix = {"qwen3": "moe", "qwen35": "moe", "lfm2": "moe", "nemotron_h": "_moe"}
        return self.family + (suffix.get(self.family, "") if self.experts else "")


def _experts(count: int, used: int, ffn: int, shared_ffn: int = 0) -> dict[str, Any]:
    """A mixture: experts of a layer, how many a token takes, widths of each and of the shared."""
    return {"experts": count, "experts_used": used, "expert_ffn": ffn, "shared_ffn": shared_ffn}


SMOLLM2: dict[str, Any] = {
    "family": "llama", "head_dim": 64, "vocab": 49_152, "context": 8192, "base": 100_000.0,
}  # fmt: skip
GEMMA3: dict[str, Any] = {
    "family": "gemma3", "tied": True, "head_dim": 256, "vocab": 262_144, "context": 32_768,
    "base": 1e6, "window": 512,
}  # fmt: skip
GEMMA4: dict[str, Any] = {**GEMMA3, "family": "gemma4", "context": 131_072}
GEMMA4_SPARSE: dict[str, Any] = {**GEMMA4, "window": 1024}
GPT_OSS: dict[str, Any] = {
    "family": "gpt-oss", "head_dim": 64, "vocab": 201_088, "context": 131_072, "base": 150_000.0,
    "window": 128,
}  # fmt: skip
QWEN35: dict[str, Any] = {
    "family": "qwen35", "head_dim": 256, "vocab": 248_320, "context": 262_144, "base": 1e7,
    "recurrent": (16, 32, 128, 128),
}  # fmt: skip
LFM2: dict[str, Any] = {
    "family": "lfm2", "head_dim": 64, "vocab": 65_536, "context": 128_000, "base": 1e6,
}  # fmt: skip
GLM47: dict[str, Any] = {
    "family": "deepseek2", "head_dim": 576, "vocab": 154_880, "context": 202_752, "base": 1e6,
    "ranks": (768, 512), "latent_heads": (256, 64, 256),
}  # fmt: skip
NANO3: dict[str, Any] = {
    "family": "nemotron_h", "vocab": 131_072, "context": 262_144, "recurrent": (8, 64, 128, 64),
    "kinds": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
}  # fmt: skip
GRANITE4: dict[str, Any] = {
    "family": "granitehybrid", "vocab": 100_352, "context": 131_072, "base": 10_000.0,
    "kinds": "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM",
}  # fmt: skip
SHAPES = {
    "qwen3-0.6b": Shape(28, 1024, 3072, 16, 8, tied=True),
    "qwen3-1.7b": Shape(28, 2048, 6144, 16, 8, tied=True),
    "qwen3-4b": Shape(36, 2560, 9728, 32, 8, tied=True),
    "qwen3-8b": Shape(36, 4096, 12288, 32, 8, tied=False),
    "qwen3-30b-a3b": Shape(48, 2048, 6144, 32, 4, tied=False, **_experts(128, 8, 768)),
    "llama-3.2-1b": Shape(
        16, 2048, 8192, 32, 8, tied=True, head_dim=64, family="llama", rope_factor=32.0
    ),
    "llama-3.1-8b": Shape(32, 4096, 14336, 32, 8, tied=False, family="llama", rope_factor=8.0),
    "smollm2-135m": Shape(30, 576, 1536, 9, 3, tied=True, **SMOLLM2),
    "gemma4-e2b": Shape(
        35, 1536, 6144, 8, 1, period=5, wide=(512, 1), own=256, shared=20, late_ffn=12_288, **GEMMA4
    ),
    "gemma4-e4b": Shape(42, 2560, 10240, 8, 2, wide=(512, 2), own=256, shared=18, **GEMMA4),
    "gemma4-12b": Shape(48, 3840, 15_360, 16, 8, wide=(512, 1), **GEMMA4_SPARSE),
    "gemma4-26b-a4b": Shape(
        30, 2816, 2112, 16, 8, wide=(512, 2), **_experts(128, 8, 704), **GEMMA4_SPARSE
    ),
    "gpt-oss-20b": Shape(24, 2880, 2880, 64, 8, tied=False, **_experts(32, 4, 2880), **GPT_OSS),
    "gemma3-1b": Shape(26, 1152, 6912, 4, 1, **GEMMA3),
    "qwen3.5-4b": Shape(32, 2560, 9216, 16, 4, tied=True, **QWEN35),
    "qwen3.5-9b": Shape(32, 4096, 12_288, 16, 4, tied=False, **QWEN35),
    "qwen3.5-35b-a3b": Shape(
        40, 2048, 512, 16, 2, tied=False, **_experts(256, 8, 512, 512), **QWEN35
    ),
    "lfm2-1.2b": Shape(16, 2048, 8192, 32, 8, True, kinds="CC*CC*CC*C*C*C*C", **LFM2),
    "lfm2-2.6b": Shape(
        30, 2048, 10_752, 32, 8, True, kinds="CC*CC*CCC*CCC*CCC*CCC*CC*CC*CC", **LFM2
    ),
    "lfm2-8b-a1b": Shape(
        24,
        2048,
        7168,
        32,
        8,
        True,
        dense=2,
        kinds="CC*CCC*CCC*CCC*CCC*CC*CC",
        **_experts(32, 4, 1792),
        **LFM2,
    ),
    "glm-4.7-flash": Shape(
        47, 2048, 10240, 20, 1, tied=False, dense=1, **_experts(64, 4, 1536, 1536), **GLM47
    ),
    "nemotron3-nano": Shape(
        52, 2688, 1856, 32, 2, tied=False, **_experts(128, 6, 1856, 3712), **NANO3
    ),
    "granite4-h-micro": Shape(
        40, 2048, 8192, 32, 8, True, 64, recurrent=(1, 64, 128, 64), **GRANITE4
    ),
    "granite4-h-tiny": Shape(
        40,
        1536,
        512,
        12,
        4,
        tied=True,
        recurrent=(1, 48, 128, 64),
        **_experts(64, 6, 512, 1024),
        **GRANITE4,
    ),
}
