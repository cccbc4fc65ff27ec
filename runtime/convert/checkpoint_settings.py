"""The settings of a checkpoint's `config.json` as GGUF metadata."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .names import View

Value = bool | int | float | str | list[bool] | list[int]


@dataclass(slots=True)
class CheckpointSettings:
    """The settings of a checkpoint in GGUF's terms.

    Attributes:
        width: of x; heads, kv_heads, head_dim: attention's shape; rotated: dims of a head that are
            rotated.
        experts: of one layer, 0 in a dense model.
        rope: rotary settings of full attention: `rope_theta` and what scales it.
        kinds: kind of each layer; layers of a kind have the same tensors; empty: all are of one.
        views: the part of its source that a tensor of a layer is, by its name in the layer.
        unread: tensors that a checkpoint may hold and nobody reads.
        metadata: keys and values of the file, without `general.*` and the tokenizer's.
        delta: heads of the gated delta rule, if there is one: of keys and of values, and the dims
            of each.
        groups: of Mamba-2, if there is one.
        mtp: layers behind the last one that only draft.
    """

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    rotated: int
    rope: dict[str, Any]
    experts: int = 0
    metadata: dict[str, Value] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    views: dict[str, View] = field(default_factory=dict)
    delta: tuple[int, int, int, int] | None = None
    groups: int = 0
    mtp: int = 0

    def dense_name(self, tensor: str) -> str:
        """Return a tensor's name, without the mark of a shared expert if the model is dense."""
        dense = self.architecture == "granitehybrid" and not self.experts
        return tensor.replace("_shexp.", ".") if dense else tensor
