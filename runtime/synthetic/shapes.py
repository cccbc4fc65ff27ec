"""The dimensions of published models, under the names that `synthetic:` takes: `shapes.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model; the defaults are those of Qwen3 or Llama 3."""

    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    tied: bool
    head_dim: int = 128
    experts: int = 0
    experts_used: int = 0
    """Number of experts chosen for each token."""
    expert_ffn: int = 0
    family: str = "qwen3"
    """The model family: ``qwen3`` (with experts: ``qwen3moe``), ``llama``, ``gemma3``, ``gemma4``,
    ``gpt-oss``, ``qwen35``, ``lfm2``, ``nemotron_h``, ``granitehybrid`` or ``deepseek2``."""
    rope_factor: float = 0.0
    """Llama 3's RoPE scaling factor of low frequencies; 0: none."""
    vocab: int = 0
    context: int = 0
    """Training context in positions; 0: the family's usual."""
    base: float = 0.0
    """RoPE base frequency; 0: the family's usual."""
    window: int = 0
    """Sliding window in positions, of layers that have one; 0: none."""
    period: int = 0
    """Period of global layers among sliding-window layers; 0: the family's usual."""
    wide: tuple[int, int] = (0, 0)
    """Head size and number of KV heads of global layers (``gemma4``)."""
    own: int = 0
    """Width of the per-layer token embeddings (``gemma4``); 0: none."""
    shared: int = 0
    """Number of last layers that have no keys and values of their own (``gemma4``)."""
    late_ffn: int = 0
    """Feed-forward width of layers without keys of their own, if it differs."""
    recurrent: tuple[int, int, int, int] | None = None
    """Of recurrent layers: key heads or groups, value heads, key or state dims, value dims."""
    kinds: str = ""
    """The kind of each layer: see `hybrids.kind_of`."""
    dense: int = 0
    """Number of dense layers, which precede those with experts."""
    shared_ffn: int = 0
    """Width of the shared expert."""
    ranks: tuple[int, int] = (0, 0)
    """Ranks of the query latent and of the key-value latent (``deepseek2``)."""
    latent_heads: tuple[int, int, int] = (0, 0, 0)
    """Dims of a head's query, how many of them are rotated, and dims of a head's value."""
    mtp: int = 0
    """Number of multi-token prediction layers, which draft, after the last layer."""

    @property
    def architecture(self) -> str:
        suffix = {"qwen3": "moe", "qwen35": "moe", "lfm2": "moe", "nemotron_h": "_moe"}
        return self.family + (suffix.get(self.family, "") if self.experts else "")


_TABLES = tomllib.loads(Path(__file__).with_name("shapes.toml").read_text(encoding="utf-8"))
_NAMED: dict[str, dict[str, Any]] = _TABLES["families"] | _TABLES["shapes"]


def shape_of(fields: dict[str, Any] | str) -> Shape:
    """Return a shape from its fields, a name, or differences from a named one (``like``)."""
    return Shape(**_resolved(fields))


def _resolved(fields: dict[str, Any] | str) -> dict[str, Any]:
    given = dict(_NAMED[fields] if isinstance(fields, str) else fields)
    like = given.pop("like", None)
    own = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return {**(_resolved(like) if like else {}), **own}


SHAPES = {name: shape_of(name) for name in _TABLES["shapes"]}
