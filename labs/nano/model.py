"""The Qwen3 architecture in torch, to train nano and to check its export."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class NanoConfig:
    """The shape of the model. `ffn` and `width` are multiples of 32, the block of Q8_0."""

    vocabulary: int = 2048
    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 640
    rope_base: float = 10_000.0
    epsilon: float = 1e-6
    context: int = 4096


class Norm(nn.Module):
    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.epsilon)


def rope_tables(config: NanoConfig, length: int) -> tuple[Tensor, Tensor]:
    """Compute cos and sin, [length, 1, head_dim / 2]."""
    half = config.head_dim // 2
    frequency = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float()[:, None], angle.sin().float()[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate in NeoX style: the halves of a head form the pairs."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> Tensor:
    """Attend causally: q [batch, heads, tokens, dim] over k, v [batch, kv heads, tokens, dim].

    seen: 1.0 where a query may see a key, else 0.0 [batch, tokens, tokens]; none that comes later.

    By blocks of queries, as matrix products that torch's compiler fuses the rest of: on a CPU,
    forward and back, twice as fast as `scaled_dot_product_attention`. No maximum is taken out of
    the exponent, since normed queries and keys bound it; a score is cut at 60 all the same.
    """
    batch, heads, tokens, dim = q.shape
    groups = k.shape[1]
    share = heads // groups
    size = max(128, -(-tokens // 8))
    q = q.reshape(batch, groups, share, tokens, dim) * dim**-0.5
    keys = k.reshape(batch * groups, tokens, dim).transpose(1, 2)
    values = v.reshape(batch * groups, tokens, dim)
    out: list[Tensor] = []
    for start in range(0, tokens, size):
        end = min(start + size, tokens)
        block = q[:, :, :, start:end].reshape(batch * groups, -1, dim)
        spans = [(start, end), (0, start)] if start else [(0, end)]
        total, mixed = torch.zeros(()), torch.zeros(())
        for first, last in spans:
            scores = torch.bmm(block, keys[:, :, first:last]).float().clamp(max=60.0)
            weights = scores.view(batch * groups, share, end - start, last - first).exp()
            if last == end:  # the part in which some keys come after the query
                weights = weights * torch.ones(end - start, end - first).tril()
            if seen is not None:
                part = seen[:, None, start:end, first:last]
                weights = (weights.view(batch, heads, *part.shape[2:]) * part).view_as(weights)
            total = total + weights.sum(-1)
            flat = weights.to(v.dtype).view(batch * groups, -1, last - first)
            mixed = mixed + torch.bmm(flat, values[:, first:last]).float()
        mixed = mixed / total.view(batch * groups, -1, 1)
        out.append(mixed.to(v.dtype).view(batch, groups, share, end - start, dim))
    return torch.cat(out, 3).reshape(batch, heads, tokens, dim)


class Block(nn.Module):
    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        width, dim = config.width, config.head_dim
        self.attn_norm = Norm(width, config.epsilon)
        self.attn_q = nn.Linear(width, config.heads * dim, bias=False)
        self.attn_k = nn.Linear(width, config.kv_heads * dim, bias=False)
        self.attn_v = nn.Linear(width, config.kv_heads * dim, bias=False)
        self.attn_q_norm = Norm(dim, config.epsilon)
        self.attn_k_norm = Norm(dim, config.epsilon)
        self.attn_output = nn.Linear(config.heads * dim, width, bias=False)
        self.ffn_norm = Norm(width, config.epsilon)
        self.ffn_gate = nn.Linear(width, config.ffn, bias=False)
        self.ffn_up = nn.Linear(width, config.ffn, bias=False)
        self.ffn_down = nn.Linear(config.ffn, width, bias=False)

    def qkv(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project `x` [batch, tokens, width] to query, key, value [batch, heads, tokens, dim]."""
        batch, tokens, _ = x.shape
        dim = self.config.head_dim
        h = self.attn_norm(x)
        q = self.attn_q(h).view(batch, tokens, self.config.heads, dim)
        k = self.attn_k(h).view(batch, tokens, self.config.kv_heads, dim)
        v = self.attn_v(h).view(batch, tokens, self.config.kv_heads, dim)
        q = rotate(self.attn_q_norm(q), cos, sin).to(v.dtype)
        k = rotate(self.attn_k_norm(k), cos, sin).to(v.dtype)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def finish(self, x: Tensor, attended: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute the rest of the block after attention [batch, heads, tokens, dim].

        With `rows` (indices into batch x tokens) of those only: [rows, width].
        """
        attended = attended.transpose(1, 2).flatten(2)
        if rows is not None:
            x, attended = x.flatten(0, 1)[rows], attended.flatten(0, 1)[rows]
        x = x + self.attn_output(attended)
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))

    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.config.heads // self.config.kv_heads, 1)

    def forward(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        rows: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> Tensor:
        q, k, v = self.qkv(x, cos, sin)
        if x.is_cuda:  # its own kernel is the fastest there
            mask = None if seen is None else seen.bool()[:, None]
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
        else:
            out = causal_attention(q, k, v, seen)
        return self.finish(x, out, rows)


class Nano(nn.Module):
    """Tied embedding, pre-norm blocks; parameter names are those of the GGUF's tensors."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.token_embd = nn.Embedding(config.vocabulary, config.width)
        self.blk = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.output_norm = Norm(config.width, config.epsilon)
        cos, sin = rope_tables(config, config.context)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        nn.init.normal_(self.token_embd.weight, std=0.02)
        for name, weight in self.named_parameters():
            if name.endswith(("attn_output.weight", "ffn_down.weight")):
                nn.init.zeros_(weight)

    def hidden(
        self, ids: Tensor, rows: Tensor | None = None, talks: Tensor | None = None
    ) -> Tensor:
        """Return the final norm's output for ids [batch, tokens], or for `rows` of it.

        talks: which conversation of its sequence each token is of, 0 for what all of them begin
        with: [batch, tokens]. Each is computed as if it stood alone behind that.
        """
        cos, sin = self._tables(0, ids.shape[1])
        seen = None
        if talks is not None:
            seen = ((talks[:, :, None] == talks[:, None]) | (talks[:, None] == 0)).float().tril()
            places = seen.sum(-1).long() - 1
            cos, sin = cos[places], sin[places]
        x = self.token_embd(ids)
        for block in self.blk[:-1]:
            x = block(x, cos, sin, None, seen)
        x = self.blk[-1](x, cos, sin, rows, seen)
        return self.output_norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits [batch, tokens, vocabulary]."""
        return F.linear(self.hidden(ids), self.token_embd.weight)

    def loss(
        self, ids: Tensor, rows: Tensor, labels: Tensor, talks: Tensor | None = None
    ) -> Tensor:
        """Return the cross entropy of each of the chosen rows (indices into batch × tokens).

        talks: as for `hidden`.
        """
        logits = F.linear(self.hidden(ids, rows, talks), self.token_embd.weight)
        return F.cross_entropy(logits.float(), labels, reduction="none")

    def extend(self, ids: Tensor, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the logits of the last of `ids` [1, tokens]; append keys and values to `cache`."""
        before = cache[0][0].shape[2] if cache else 0
        cos, sin = self._tables(before, before + ids.shape[1])
        x = self.token_embd(ids)
        for number, module in enumerate(self.blk):
            assert isinstance(module, Block)
            q, k, v = module.qkv(x, cos, sin)
            if before:
                k = torch.cat([cache[number][0], k], 2)
                v = torch.cat([cache[number][1], v], 2)
                cache[number] = (k, v)
            else:
                cache.append((k, v))
            mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before)
            out = F.scaled_dot_product_attention(
                q, module.repeat(k), module.repeat(v), attn_mask=mask
            )
            x = module.finish(x, out)
        return F.linear(self.output_norm(x[:, -1]), self.token_embd.weight)[0]

    def _tables(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos, self.sin
        assert isinstance(cos, Tensor)
        assert isinstance(sin, Tensor)
        return cos[start:end], sin[start:end]


def grown(model: Nano, layers: int) -> Nano:
    """Return an equivalent deeper model: new layers are copies of earlier ones with zero outputs,
    spread evenly."""
    own = len(model.blk)
    if layers < own:
        raise ValueError(f"layers must be at least {own}, the model's own; got {layers}")
    new = Nano(replace(model.config, layers=layers))
    new.token_embd.load_state_dict(model.token_embd.state_dict())
    new.output_norm.load_state_dict(model.output_norm.state_dict())
    last = -1
    for number, block in enumerate(new.blk):
        source = number * own // layers
        block.load_state_dict(model.blk[source].state_dict())
        if source == last:
            assert isinstance(block, Block)
            nn.init.zeros_(block.attn_output.weight)
            nn.init.zeros_(block.ffn_down.weight)
        last = source
    return new
