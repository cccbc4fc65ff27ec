"""DeepSeek 2 and GLM-4.7-Flash: latent attention, and experts with shared ones.

c = norm((W_kv h)[:r]),  k_r = rope((W_kv h)[r:]),  q_n, q_r = W_qb norm(W_qa h), or W_q h
scores of head i: ((W_kb,i^T q_n,i) c + rope(q_r,i) k_r) / sqrt(dims of q),  o_i = W_vb,i sum p c
x = x + W_o o,                                                 h = rmsnorm(x)
x = x + sum over T of w_e f_e(h) + shared(h),                  h = rmsnorm(x)

Keys and values are never made: a head's query is projected to the latent instead, and its output
from there to values. So there is one key for all heads, r + rotated dims wide.
The norms of the latents have an eps of their own, as in the models' code; llama.cpp takes that of
the others. Pairs that are rotated lie side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..forward import experts
from ..forward.appending import append_latent
from ..forward.graph import GraphBuilder
from ..forward.tensors import ALIGN, Activation, AttentionSpec, HeadShape, padded
from ..weights.matrix import Matrix
from .blocks import Half, enter, leave
from .decoder import Name
from .experts import KEYS, Mixture
from .rotary import Rotation, read_rotation

LATENT_EPS = 1e-6
GLM_FLASH_VOCAB = 154_880  # some of its files do not say how experts are chosen


@dataclass(slots=True)
class LatentAttention(Half):
    """Multi-head latent attention (MLA), a layer's first half; q_a and its norm may be missing.

    Attributes:
        q_dims: of a head's query, those that are rotated among them; nope: those that are not.
    """

    norm: np.ndarray
    q_a: Matrix | None
    q_norm: np.ndarray | None
    q: Matrix
    kv: Matrix
    kv_norm: np.ndarray
    k_b: Matrix
    v_b: Matrix
    o: Matrix
    rule: AttentionSpec
    q_dims: int
    nope: int

    @property
    def appending(self) -> tuple[Matrix, ...]:
        return (self.kv,)

    def append(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        h = enter(g, x, self.norm, eps, [self.kv], "attn_norm")
        kv = g.matmul(self.kv, h, "kv_a")
        append_latent(g, kv, self.kv_norm, self.rule, LATENT_EPS)

    def add(self, g: GraphBuilder, x: Activation, eps: float) -> None:
        first = self.q_a or self.q
        h = enter(g, x, self.norm, eps, [first, self.kv], "attn_norm")
        q = g.matmul(first, h, "q_a" if self.q_a else "q", last=False)
        kv = g.matmul(self.kv, h, "kv_a")
        if self.q_a:
            assert self.q_norm is not None, "it comes with q_a"
            q = g.matmul(self.q, g.norm(q, self.q_norm, LATENT_EPS, [self.q], "q_a_norm"), "q")
        heads = self.k_b.experts
        plain = q.rows_of(heads, self.q_dims, self.nope)
        absorbed = experts.by_head(g, self.k_b, g.quantize(plain, [self.k_b], "q_nope"), "k_b")
        whole = q.rows_of(heads, self.q_dims, self.q_dims)
        a = g.attend_latent(absorbed, whole, kv, self.kv_norm, self.rule, LATENT_EPS)
        a = a.rows_of(heads, self.k_b.rows, self.k_b.rows)
        v = experts.by_head(g, self.v_b, g.quantize(a, [self.v_b], "latent_ready"), "v_b")
        joined = v.joined(heads)
        ready = g.quantize(joined, [self.o], "attn_ready")
        leave(g, x, self.o, ready, "attn_output", None, eps, "")


class DeepSeek2(Mixture):
    """The architecture `deepseek2`."""

    architecture = "deepseek2"
    understands = KEYS | {"attention.kv_lora_rank", "rope.scaling.yarn_log_multiplier"}
    normalized = False
    drafts_from = "plain"

    def head_shape(self) -> HeadShape:
        """Return the shape of MLA's heads: one latent key for all; its first dims are the value."""
        gguf, a = self.gguf, "deepseek2.attention."
        self.rotated = gguf.integer("deepseek2.rope.dimension_count", low=32, high=256)
        self.rank = gguf.integer(f"{a}kv_lora_rank", low=32, high=1024)
        self.q_rank = gguf.integer(f"{a}q_lora_rank", 0, high=1 << 16)
        self.q_dims = gguf.integer(f"{a}key_length_mla", low=self.rotated + 32, high=1024)
        self.v_dims = gguf.integer(f"{a}value_length_mla", low=32, high=1024)
        heads = gguf.integer(f"{a}head_count", low=1, high=4096)
        sizes = {"kv_lora_rank": self.rank, "value_length_mla": self.v_dims}
        for key, size in {**sizes, "head_count": heads * self.q_dims}.items():
            if size % ALIGN:
                gguf.unsupported(a + key, f"makes rows of {size}: no multiple of {ALIGN}")
        if self.rotated % 32 or (self.q_dims - self.rotated) % 32:
            why = f"{self.q_dims}, {self.rotated} of them rotated: both must be multiples of 32"
            gguf.unsupported(f"{a}key_length_mla", why)
        table = gguf.tensors.get("token_embd.weight")
        if table is not None and table.shape[0] == GLM_FLASH_VOCAB:
            self.gating, self.normalized = 2, True
        return HeadShape(heads, 1, self.rank + self.rotated, self.rank)

    def read_rotations(self) -> list[Rotation]:
        rotation = read_rotation(self.gguf, self.weights, "deepseek2", self.rotated)
        if not self._multiplier:
            return [rotation]
        if (more := self.gguf.number(key := "deepseek2.rope.scaling.attn_factor", 1.0)) != 1.0:
            self.gguf.unsupported(key, f"= {more:g} is not supported beside yarn_log_multiplier")
        return [replace(rotation, magnitude=1.0)]

    @property
    def _multiplier(self) -> float:
        """YaRN's log multiplier, a tenth of which is in the file."""
        return 10 * self.gguf.number("deepseek2.rope.scaling.yarn_log_multiplier", 0.0)

    def rule(self, layer: int) -> AttentionSpec:
        factor = max(1.0, self.gguf.number("deepseek2.rope.scaling.factor", 1.0))
        mscale = 1.0 + 0.1 * self._multiplier * math.log(factor)
        return replace(super().rule(layer), scale=self.q_dims**-0.5 * mscale**2)

    def load_attention(self, name: Name, layer: int) -> LatentAttention:
        c, w, rule = self.config, self.weights, self.rule(layer)
        assert rule.heads is not None, "every layer says its heads"
        n, rows = rule.heads.heads, rule.heads.heads * self.q_dims
        q_a, q_norm = None, None
        if self.q_rank:
            q_a = w.matrix(name("attn_q_a.weight"), self.q_rank, c.width)
            q_norm = w.vector(name("attn_q_a_norm.weight"), self.q_rank, padded(self.q_rank))
        q = "attn_q_b.weight" if self.q_rank else "attn_q.weight"
        a = LatentAttention(
            norm=self.norm_weight(name("attn_norm.weight")),
            q_a=q_a,
            q_norm=q_norm,
            q=w.matrix(name(q), rows, self.q_rank or c.width),
            kv=w.matrix(name("attn_kv_a_mqa.weight"), self.rank + self.rotated, c.width),
            kv_norm=w.vector(name("attn_kv_a_norm.weight"), self.rank),
            k_b=w.matrix(name("attn_k_b.weight"), self.rank, self.q_dims - self.rotated, n),
            v_b=w.matrix(name("attn_v_b.weight"), self.v_dims, self.rank, n),
            o=w.matrix(name("attn_output.weight"), c.width, n * self.v_dims),
            rule=rule,
            q_dims=self.q_dims,
            nope=self.q_dims - self.rotated,
        )
        a.k_b.by_head = a.v_b.by_head = True
        return a
