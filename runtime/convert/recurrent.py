"""Tensors of layers with a recurrence: their names, and what a GGUF file has otherwise.

A checkpoint of the gated delta rule has the value heads that share a key head side by side; the
files of Qwen3.5 have them G apart, so that value head r reads key head r mod G. A decay is stored
as ln(-A), in a file it is A. Convolutions lose a dimension of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .settings import CheckpointSettings

_DELTA = {
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "post_attention_layernorm": "post_attention_norm",
}
_CONV = {
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up",
    "feed_forward.w2": "ffn_down",
    "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv",
    "conv.out_proj": "shortconv.out_proj",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output",
}
_MAMBA = {
    "mamba.in_proj": "ssm_in",
    "mamba.conv1d": "ssm_conv1d",
    "mamba.norm": "ssm_norm",
    "mamba.out_proj": "ssm_out",
    "mamba.dt_bias": "ssm_dt.bias",
    "mamba.A_log": "ssm_a",
    "mamba.D": "ssm_d",
    "shared_mlp.input_linear": "ffn_gate+ffn_up",
    "shared_mlp.output_linear": "ffn_down",
}
IN_RECURRENT_LAYER: dict[str, dict[str, str]] = {
    "qwen35": _DELTA,
    "lfm2": _CONV,
    "granitehybrid": _MAMBA,
}
"""What layers of an architecture have beside the usual tensors, or under another name."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to a tensor.

    Attributes:
        heads: key heads and value heads, if value heads are put in a file's order.
        first, each: rows before the values', and rows of a value head; columns instead of rows if
            `columns`.
        squeeze: whether dimensions of 1 are left out; decays: whether it becomes -e^x.
        half: which half of the rows is taken; None: all. fold: rows that a vector gets, or columns
            if below 0.
    """

    heads: tuple[int, int] | None = None
    first: int = 0
    each: int = 1
    columns: bool = False
    squeeze: bool = False
    decays: bool = False
    half: int | None = None
    fold: int = 0

    @property
    def computes(self) -> bool:
        return self.decays

    def shape(self, one: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's shape after it."""
        if self.half is not None:
            return one[0] // 2, *one[1:]
        if self.fold:
            return (
                (one[0] // -self.fold, -self.fold)
                if self.fold < 0
                else (self.fold, one[0] // self.fold)
            )
        return tuple(n for n in one if n != 1) if self.squeeze else one

    def make(self, array: np.ndarray) -> np.ndarray:
        """The tensor after it."""
        if self.half is not None:
            return np.split(array, 2)[self.half]
        if self.squeeze or self.fold:
            array = array.reshape(self.shape(array.shape))
        if self.decays:
            array = -np.exp(array)
        if self.heads is None:
            return array
        if self.columns:
            return np.ascontiguousarray(self._tiled(array.T).T)
        return np.concatenate([array[: self.first], self._tiled(array[self.first :])])

    def _tiled(self, rows: np.ndarray) -> np.ndarray:
        assert self.heads is not None, "heads to put in order"
        keys, values = self.heads
        grouped = rows.reshape(keys, values // keys, self.each, *rows.shape[1:])
        return np.ascontiguousarray(grouped.swapaxes(0, 1)).reshape(rows.shape)


def changes_of(place: str, s: CheckpointSettings) -> Change | None:
    """What is done to the tensor `place` of a file."""
    part = place.split(".", 2)[-1]
    if s.groups:
        split = s.architecture == "granitehybrid" and part in ("ffn_gate.weight", "ffn_up.weight")
        if split:
            return Change(half=int(part == "ffn_up.weight"))
        return {
            "ssm_conv1d.weight": Change(squeeze=True),
            "ssm_a": Change(decays=True, fold=-1),
            "ssm_d": Change(fold=-1),
            "ssm_norm.weight": Change(fold=s.groups),
        }.get(part)
    if s.delta is None:
        return Change(squeeze=True) if part == "shortconv.conv.weight" else None
    keys, values, key_dim, value_dim = s.delta
    heads, before = (keys, values), 2 * keys * key_dim
    return {
        "attn_qkv.weight": Change(heads, before, value_dim),
        "attn_gate.weight": Change(heads, 0, value_dim),
        "ssm_alpha.weight": Change(heads),
        "ssm_beta.weight": Change(heads),
        "ssm_conv1d.weight": Change(heads, before, value_dim, squeeze=True),
        "ssm_dt.bias": Change(heads),
        "ssm_a": Change(heads, decays=True),
        "ssm_out.weight": Change(heads, 0, value_dim, columns=True),
    }.get(part)


def parts_of(place: str) -> list[str]:
    """The tensors that one of a checkpoint becomes."""
    *before, name, kind = place.split(".") if "+" in place else ("", "", "")
    return [".".join([*before, one, kind]) for one in name.split("+")] if name else [place]
