"""Keys and values of rows that do not attend: the cache entries a drafting layer needs.

A pass of the model keeps a draft head's KV cache in step with its own, and nobody needs what the
head makes of these rows. So they have one "query" for each key, which is the key once more.
"""

from __future__ import annotations

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import latent, rope, stored_rows
from ..weights.matrix import Matrix
from .descriptor import ROTATIONS, TOKENS
from .graph import GraphBuilder
from .kv import BASE
from .tensors import Activation, AttentionSpec, QuantizedActivation, padded


def row_before(g: GraphBuilder, x: Activation, name: str) -> Activation:
    """Store the rows of x; return those of the previous positions, zeros before the first."""
    out, width = g.row(name, x.width), padded(x.width)
    assert g.kv.row_width == width, "pages have room for such rows"
    args = [x.data, BASE, g.kv.stored_rows_offset, x.stride, g.rows]
    g.tape.op(f"{name}.keep", spec(stored_rows.keep_rows, width=width), args, g.units(TOKENS))
    args = [out.data, BASE, g.kv.stored_rows_offset, out.stride, g.rows]
    g.tape.op(name, spec(stored_rows.rows_before, width=width), args, g.units(TOKENS))
    return out


def append(
    g: GraphBuilder,
    h: QuantizedActivation,
    key_value: tuple[Matrix, Matrix],
    rule: AttentionSpec,
    norm: np.ndarray,
    eps: float,
) -> None:
    """Append keys and values to the layer's cache: W_k h, normed and rotated, and W_v h."""
    k, v = (g.matmul(w, h, n, last=n == "v") for w, n in zip(key_value, "kv", strict=True))
    heads, layout = rule.heads or g.heads, g.kv
    unread = g.buffers.get("appended", g.max_tokens, heads.kv_heads * heads.head_dim)
    cos, sin = layout.tables[rule.table or 0]
    kernel = spec(
        rope.rope_store,
        head_dim=heads.head_dim,
        kv_heads=heads.kv_heads,
        group=1,
        kv=layout.format,
        norm=True,
        rotated=0 if rule.table is None else 2 * cos.shape[1],
        adjacent=rule.adjacent,
        bias=False,
    )
    args = [k.data, k.data, v.data, norm, norm, cos, cos, sin, cos, unread, BASE,
            *layout.offsets(g.layer_index), k.stride, k.stride, float(eps), rule.scale,
            g.units(TOKENS), g.rows]  # fmt: skip
    g.tape.op("rope", kernel, args, g.units(ROTATIONS, heads.kv_heads))


def append_latent(
    g: GraphBuilder, kv: Activation, weight: np.ndarray, rule: AttentionSpec, eps: float
) -> None:
    """Append the latent in rows `kv`, normed, and the rotated dims of the key that follow it."""
    heads, layout = rule.heads or g.heads, g.kv
    unread = g.buffers.get("appended", g.max_tokens, heads.head_dim)
    cos, sin = layout.tables[rule.table or 0]
    kernel = spec(latent.latent_store, kv=layout.format, latent=heads.out_dim, heads=1,
                  rotated=2 * cos.shape[1])  # fmt: skip
    args = [kv.data, kv.data, kv.data, weight, cos, sin, unread, BASE,
            layout.offsets(g.layer_index)[0], kv.stride, kv.stride, kv.width, kv.stride, float(eps),
            rule.scale, g.rows]  # fmt: skip
    g.tape.op("rope", kernel, args, g.units(TOKENS, 2))
