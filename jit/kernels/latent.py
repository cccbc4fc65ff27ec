"""Latent attention's keys and queries: one key for all heads, which also contains the value.

    key = [rmsnorm(c), rope(k_r)],  value = rmsnorm(c),  query of head h = [W_h q_h, rope(q_r,h)]

c is what a token's keys and values of all heads are made of; what makes keys of it is part of the
queries already (`absorbed`), and what makes values of it comes after attention. Pairs lie side by
side, and are stored apart as `rope.py` does. The value is stored with the key alone: see
`key_values.py`. Source: multi-head latent attention (MLA), DeepSeek-V2, arXiv:2405.04434.
"""

from __future__ import annotations

from ..simd import F32, I64, F32s, I8s, I64s, Kernel, i32, kernel
from .batch import ROW_POSITION, ROW_SLOTS, ROW_TABLE
from .kvcache import PAGE, KVFormat, head_part, head_words, key_format
from .rope import Head, inverse_rms, query_words, store_key, store_query


@kernel
def latent_store(
    k: Kernel,
    absorbed: F32s,
    q: F32s,
    kv_rows: F32s,
    weight: F32s,
    cos: F32s,
    sin: F32s,
    q_out: I8s,
    pages: I64s,
    k_offset: I64,
    absorbed_stride: I64,
    q_stride: I64,
    q_width: I64,
    kv_stride: I64,
    eps: F32,
    scale: F32,
    rows: I64s,
    *,
    kv: KVFormat,
    latent: int,
    heads: int,
    rotated: int,
) -> None:
    """Store queries and the key; unit = (token, head), head fastest, the key after the last head.

    absorbed float32 [tokens * heads, absorbed_stride], of which `latent` values count; q [tokens *
    heads, q_stride], whose last `rotated` of q_width values are rotated; kv_rows [tokens,
    kv_stride], the latent and then the key's rotated dims. weight [latent], of the latent's norm.
    The rest as for `rope_store`, with a head of latent + rotated dims.
    """
    head_dim, lanes = latent + rotated, k.lanes
    form = Head(k, rotated, rotated, adjacent=True)
    key_words, stored = head_words(kv, head_dim, "k"), key_format(kv)
    with k.units() as unit:
        token, head = unit // (heads + 1), unit % (heads + 1)
        row = rows.at(token * ROW_SLOTS)
        position = row.load(ROW_POSITION)
        angles = cos.at(position * (rotated // 2)), sin.at(position * (rotated // 2))
        with k.if_(head < heads):
            number = token * heads + head
            absorbed_query = absorbed.at(number * absorbed_stride)
            dims = [absorbed_query.load(d, lanes) for d in range(0, latent, lanes)]
            last = form.read(q.at(number * q_stride + q_width - rotated))
            line = q_out.cast(i32).at(number * query_words(k.target, stored, head_dim))
            store_query(k, line, dims + form.rotate(last, angles), scale, stored)
        with k.if_(head.eq(heads)):
            mine = kv_rows.at(token * kv_stride)
            values = [mine.load(d, lanes) for d in range(0, latent, lanes)]
            inverse = inverse_rms(k, values, latent, eps)
            values = [v * inverse * weight.load(n * lanes, lanes) for n, v in enumerate(values)]
            last = form.read(mine.at(latent))
            page, within = position // PAGE, position % PAGE
            table, one = pages.at(row.load(ROW_TABLE)), k.i64(0)
            k_part = head_part(k, table, page, k_offset, one, key_words)
            key = values + form.rotate(last, angles)
            store_key(k, k_part, within, key, head_dim, stored, value_dim=latent)
