"""Tensors of recurrent layers: their differences between a checkpoint and a GGUF file.

A checkpoint of the gated delta rule has the value heads that share a key head side by side; the
files of Qwen3.5 have them G apart, so that value head r reads key head r mod G. A decay is stored
as ln(-A), in a file it is A. Convolutions lose a dimension of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .checkpoint_settings import CheckpointSettings


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a tensor.

    Attributes:
        heads: key heads and value heads, if value heads are put in a file's order.
        first, each: rows before the values', and rows of a value head; columns instead of rows if
            `columns`.
        squeeze: whether dimensions of 1 are left out; decays: whether it becomes -e^x.
        fold: rows that a vector gets, or columns if below 0.
        parts: key heads, dims of a key and rows of the values of a key head, if the rows are q, k,
            v and z of one key head after the other: then it takes q, k and v of all, or z.
    """

    heads: tuple[int, int] | None = None
    first: int = 0
    each: int = 1
    columns: bool = False
    squeeze: bool = False
    decays: bool = False
    fold: int = 0
    parts: tuple[int, int, int] | None = None
    takes_z: bool = False

    def shape(self, one: tuple[int, ...]) -> tuple[int, ...]:
        """Return the tensor's shape after it."""
        if self.parts is not None:
            keys, dim, values = self.parts
            return keys * (values if self.takes_z else 2 * dim + values), *one[1:]
        if self.fold:
            return (
                (one[0] // -self.fold, -self.fold)
                if self.fold < 0
                else (self.fold, one[0] // self.fold)
            )
        return tuple(n for n in one if n != 1) if self.squeeze else one

    def make(self, array: np.ndarray) -> np.ndarray:
        """Return the tensor after it."""
        if self.parts is not None:
            keys, dim, values = self.parts
            heads = array.reshape(keys, 2 * (dim + values), *array.shape[1:])
            *qkv, z = np.split(heads, [dim, 2 * dim, 2 * dim + values], axis=1)
            taken = [z] if self.takes_z else qkv
            return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in taken])
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


def change_of(name: str, s: CheckpointSettings) -> Change | None:
    """Return the change of the file's tensor `name`, if there is one."""
    part = name.split(".", 2)[-1]
    if part in ("shortconv.conv.weight", "ffn_gate_inp_shexp.weight"):
        return Change(squeeze=True)
    if s.groups:
        return {
            "ssm_conv1d.weight": Change(squeeze=True),
            "ssm_a": Change(decays=True, fold=-1),
            "ssm_d": Change(fold=-1),
            "ssm_norm.weight": Change(fold=s.groups),
        }.get(part)
    if s.delta is None:
        return None
    keys, values, key_dim, value_dim = s.delta
    if s.architecture == "qwen3next":
        parts = keys, key_dim, values // keys * value_dim
        return {
            "attn_qkv.weight": Change(parts=parts),
            "attn_gate.weight": Change(parts=parts, takes_z=True),
            "ssm_conv1d.weight": Change(squeeze=True),
            "ssm_a": Change(decays=True),
        }.get(part)
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
