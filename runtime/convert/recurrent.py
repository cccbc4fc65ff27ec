"""Tensors of recurrent layers: their differences between a checkpoint and a GGUF file.

A checkpoint of the gated delta rule has the value heads that share a key head side by side; the
files of Qwen3.5 have them G apart, so that value head r reads key head r mod G. A decay is stored
as ln(-A), in a file it is A. Convolutions lose a dimension of 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .checkpoint_settings import CheckpointSettings

Change = Callable[[np.ndarray], np.ndarray]
"""Function that converts a checkpoint's tensor to the file's."""


def change_of(name: str, s: CheckpointSettings) -> Change | None:
    """Return the function that converts values for the file's tensor `name`; None to copy them."""
    part = name.split(".", 2)[-1]
    if part in ("shortconv.conv.weight", "ffn_gate_inp_shexp.weight"):
        return np.squeeze
    if s.groups:
        return {
            "ssm_conv1d.weight": np.squeeze,
            "ssm_a": lambda x: _decay(x).reshape(-1, 1),
            "ssm_d": lambda x: x.reshape(-1, 1),
            "ssm_norm.weight": lambda x: x.reshape(s.groups, -1),
        }.get(part)
    if s.delta is None:
        return None
    keys, values, key_dim, value_dim = delta = s.delta
    if s.architecture == "qwen3next":
        return {
            "attn_qkv.weight": lambda x: _joined(_by_part(x, delta)[:3]),
            "attn_gate.weight": lambda x: _joined(_by_part(x, delta)[3:]),
            "ssm_conv1d.weight": np.squeeze,
            "ssm_a": _decay,
        }.get(part)

    def tiled(x: np.ndarray, first: int = 0, each: int = 1) -> np.ndarray:
        """Put value heads in the file's order: `each` rows a head, from row `first` on."""
        rows = x[first:].reshape(keys, values // keys, each, *x.shape[1:]).swapaxes(0, 1)
        return np.concatenate([x[:first], rows.reshape(x[first:].shape)])

    before = 2 * keys * key_dim
    return {
        "attn_qkv.weight": lambda x: tiled(x, before, value_dim),
        "attn_gate.weight": lambda x: tiled(x, 0, value_dim),
        "ssm_alpha.weight": tiled,
        "ssm_beta.weight": tiled,
        "ssm_conv1d.weight": lambda x: tiled(np.squeeze(x), before, value_dim),
        "ssm_dt.bias": tiled,
        "ssm_a": lambda x: tiled(_decay(x)),
        "ssm_out.weight": lambda x: np.ascontiguousarray(tiled(x.T, 0, value_dim).T),
    }.get(part)


def _decay(x: np.ndarray) -> np.ndarray:
    return -np.exp(x)


def _by_part(x: np.ndarray, delta: tuple[int, int, int, int]) -> list[np.ndarray]:
    """Split rows that are q, k, v and z of one key head after the other: [keys, rows, ...] each."""
    keys, values, dim, value_dim = delta
    rows = values // keys * value_dim
    heads = x.reshape(keys, 2 * (dim + rows), *x.shape[1:])
    return np.split(heads, [dim, 2 * dim, 2 * dim + rows], axis=1)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the rows of all heads' first part, then of their second, and so on."""
    return np.concatenate([part.reshape(-1, *part.shape[2:]) for part in parts])
