"""Qwen3's equations in plain numpy, float64: what any engine's logits should be near to."""

from __future__ import annotations

import numpy as np


def forward(
    w: dict[str, np.ndarray],
    ids: list[int],
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    eps: float = 1e-6,
    rope_base: float = 1e6,
) -> np.ndarray:
    """Logits after each of `ids`: float64 [len(ids), n_vocab].

    w: every tensor of the GGUF file, dequantized, by name and rows first.
    """
    n, group = len(ids), heads // kv_heads
    angles = np.arange(n)[:, None] * rope_base ** (-np.arange(0, head_dim, 2) / head_dim)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]  # [n, 1, head_dim / 2]
    later = np.triu(np.full((n, n), -np.inf), 1)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w[name]

    def rotated(x: np.ndarray) -> np.ndarray:
        low, high = np.split(x, 2, axis=-1)
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)

    x = w["token_embd.weight"][ids].astype(np.float64)
    for layer in range(sum(name.endswith("attn_q.weight") for name in w)):
        b = f"blk.{layer}."
        h = norm(x, b + "attn_norm.weight")
        q, k, v = (
            (h @ w[f"{b}attn_{part}.weight"].T).reshape(n, -1, head_dim) for part in ("q", "k", "v")
        )
        q = rotated(norm(q, b + "attn_q_norm.weight"))
        k = rotated(norm(k, b + "attn_k_norm.weight")).repeat(group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head_dim) + later
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, v.repeat(group, axis=1)).reshape(n, -1)
        x = x + mixed @ w[b + "attn_output.weight"].T
        h = norm(x, b + "ffn_norm.weight")
        gate, up = (h @ w[f"{b}ffn_{part}.weight"].T for part in ("gate", "up"))
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[b + "ffn_down.weight"].T
    head = w.get("output.weight", w["token_embd.weight"])
    return norm(x, "output_norm.weight") @ head.T


def divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p || q) at each position, from logits [positions, n_vocab]."""
    a, b = (x - np.logaddexp.reduce(x.astype(np.float64), axis=-1, keepdims=True) for x in (p, q))
    return (np.exp(a) * (a - b)).sum(-1)
