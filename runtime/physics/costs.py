"""The cost model: FLOPs, bytes and barriers of a forward pass, and its roofline bound.

For a pass of S tokens at KV length P, for each of B sequences, of a model with N weights in its
matrices, L layers, H query and K key heads of d dims, and b bytes for a cached number:

    linear FLOPs     2 B S N                (output head only for the tokens that want logits)
    attention FLOPs  4 B L H d S (P + (S + 1) / 2)            (scores and weighted values, causal)
    KV cache         2 L K d b bytes a position
    bytes            the weights once; what is cached once, read and written, also where several
                     sequences begin with it; and once more, from a nearer cache, for each tile of
                     tokens after the first

Of E experts a token takes k: N counts k of them, and the bytes those that were read. Beforehand T
tokens are expected to touch E (1 - (1 - k/E)^T), as if each were as likely as any other. Then

    t_compute = linear / int8 peak + attention / bf16 peak,  t_memory = bytes / bandwidth,
    t_dispatch = barriers * barrier cost;  the largest names the bound.

These are the least times that the machine's limits allow: a roofline. How long a pass will take,
with the shares of the limits that kernels reach, is `latency_model.py`'s matter. By hand, 70e9
weights of 2 bytes on 989 TFLOP/s and 3.35 TB/s: a prompt of 4,096 tokens is 2 * 70e9 * 4096 = 573
TFLOP over 140 GB, 4,096 FLOP a byte where the ridge is 989e12 / 3.35e12 = 295, so compute, 0.58 s;
one token is 140 GFLOP over the same bytes, 1 FLOP a byte, so memory, 140e9 / 3.35e12 = 41.8 ms
(`tests/runtime/physics/test_costs_by_hand.py` has these and more).

Sources: the roofline model is that of Williams, Waterman and Patterson (CACM 52(4), 2009); FLOPs of
a transformer are counted as in Kaplan et al. (arXiv:2001.08361, table 1), with causal attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import add, attrgetter
from typing import Literal, NamedTuple

from .machine import MachineProfile

Bound = Literal["compute", "memory", "dispatch"]


class AttentionLayers(NamedTuple):
    """A group of layers with the same attention, where layers differ."""

    layers: int
    """Number of layers in the group."""
    width: float
    """Width of all query heads together: the mean of their key and value widths."""
    kv_bytes: float
    """Bytes of keys and values that one layer reads for a position, its own or another layer's."""
    window: int
    """Positions that a token attends to; 0: all."""


class LayerParts(NamedTuple):
    """The cost model's inputs for one layer."""

    weights: int
    nbytes: int
    """Weights and bytes of the layer's matrices, without experts."""
    sparse: bool = False
    """Whether the layer has experts."""
    width: float = 0.0
    kv_bytes: float = 0.0
    window: int = 0
    """Width, bytes and window as in `AttentionLayers`; 0 without attention."""
    kv_own: float = 0.0
    """Bytes of KV cache that it stores for a position; 0 if it reads another layer's."""
    state_bytes: int = 0
    state_flops: int = 0
    """Bytes and operations of the state, as in `ModelCost`."""

    def scores_flops(self, start: int, tokens: int) -> float:
        """Return the layer's operations of scores: see `ModelCost.scores_flops`."""
        seen = _capped_sum(start, tokens, self.window) if self.width else 0
        return self.state_flops * tokens + 4.0 * self.width * seen

    def cache_read(self, start: int, tokens: int) -> float:
        """Return the layer's bytes of keys and values: see `ModelCost.cache_read`."""
        return self.kv_bytes * _capped_sum(start, tokens, self.window) if self.kv_bytes else 0.0


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The cost model's inputs: sizes of a loaded model."""

    layers: int
    heads: int
    head_dim: int
    """Layers, query heads and dims of a head."""
    body_weights: int
    head_weights: int
    """Weights in the layers' matrices, without experts, and in the output head."""
    body_bytes: int
    head_bytes: int
    """Packed bytes of the same matrices."""
    kv_bytes: float
    """Bytes of KV cache for one position, all layers."""
    quantized: bool
    """Whether products run in int8 (else in float32)."""
    expert_weights: int = 0
    expert_bytes: int = 0
    """Weights and bytes of all experts in all layers; body_… does not count them."""
    experts: int = 0
    experts_used: int = 0
    """Experts of one layer, and how many of them a token uses."""
    int8_keys: bool = False
    int8_values: bool = False
    """Whether attention's products with keys, and with values, run in int8 (else in bf16)."""
    value_dim: int = 0
    """Dims of values that are the first dims of keys; 0: they are apart."""
    windows: tuple[int, ...] = ()
    """Window of each layer with sliding-window attention."""
    kv_heads: int = 1
    """KV heads of each layer."""
    expert_diversity: float = 1.0
    """How independently tokens choose their experts: 1: each by itself, 0: all alike."""
    dense_layers: int = 0
    """Layers without experts, in a model that has any."""
    attention: tuple[AttentionLayers, ...] = ()
    """Groups of attention layers, if these are not all alike; else empty."""
    state_bytes: int = 0
    """Bytes of state of a sequence in recurrent layers; a pass reads and writes it once."""
    state_flops: int = 0
    """Operations of a token on that state."""

    @property
    def caches(self) -> int:
        """KV heads of all attending layers, each of which a pass reads separately."""
        attend = sum(group.layers for group in self.attention) or self.layers
        return attend * self.kv_heads

    @property
    def sparse_layers(self) -> int:
        """Layers that have experts."""
        return self.layers - self.dense_layers if self.experts else 0

    def attended_positions(self, start: int, tokens: int) -> float:
        """Return the sum of positions that `tokens` tokens from `start` on attend to, per layer."""
        whole = float(_capped_sum(start, tokens, 0))
        if not self.windows:
            return whole
        bound = sum(_capped_sum(start, tokens, window) for window in self.windows)
        return (whole * (self.layers - len(self.windows)) + bound) / self.layers

    def scores_flops(self, start: int, tokens: int) -> float:
        """Return the operations of scores and weighted values for `tokens` tokens from `start` on.

        Those of recurrences, which take the place of attention, are among them.
        """
        if not self.attention:
            seen = self.attended_positions(start, tokens)
            return 4.0 * self.layers * self.heads * self.head_dim * seen
        return self.state_flops * tokens + 4.0 * sum(
            n * width * _capped_sum(start, tokens, window) for n, width, _, window in self.attention
        )

    def cache_read(self, start: int, tokens: int) -> float:
        """Return the bytes of keys and values that these tokens attend to, summed over tokens."""
        if not self.attention:
            return self.kv_bytes * self.attended_positions(start, tokens)
        return sum(
            n * each * _capped_sum(start, tokens, window) for n, _, each, window in self.attention
        )

    @property
    def token_weights(self) -> float:
        """Weights of the layers that one token is multiplied by."""
        share = self.experts_used / self.experts if self.experts else 0.0
        return self.body_weights + share * self.expert_weights

    def expected_experts(self, tokens: int) -> float:
        """Return the distinct experts that a pass of `tokens` tokens uses, summed over layers."""
        if not self.experts:
            return 0.0
        # So many of the tokens choose by themselves.
        choosing = 1.0 + self.expert_diversity * (tokens - 1)
        spared = (1.0 - self.experts_used / self.experts) ** choosing
        return self.sparse_layers * self.experts * (1.0 - spared)

    def diversity(self, tokens: int, touched: float) -> float:
        """Return the `expert_diversity` with which some tokens use `touched` experts of a layer."""
        left = max(0.5 / self.experts, 1.0 - touched / self.experts)
        choosing = math.log(left) / math.log(1.0 - self.experts_used / self.experts)
        return min(1.0, max(0.0, (choosing - 1.0) / (tokens - 1)))

    def layer_weights(self, experts_read: float) -> float:
        """Return the layers' weights that are read when so many experts are."""
        if not self.experts:
            return float(self.body_weights)
        share = experts_read / (self.sparse_layers * self.experts)
        return self.body_weights + self.expert_weights * share

    def layer_bytes(self, experts_read: float) -> float:
        """Return the bytes of the layers' weights when so many experts are read."""
        if not self.experts:
            return float(self.body_bytes)
        all_ = self.sparse_layers * self.experts
        return self.body_bytes + self.expert_bytes * experts_read / all_


def _capped_sum(start: int, tokens: int, window: int) -> int:
    """Sum min(position + 1, window) over `tokens` positions from `start` on; 0: no window."""
    last = start + tokens
    free = max(0, min(last, window) - start) if window else tokens  # before the window is full
    return free * start + free * (free + 1) // 2 + (tokens - free) * window


@dataclass(frozen=True, slots=True)
class PassCost:
    """FLOPs, bytes and barriers of one pass, or of several passes added up."""

    linear_flops: float = 0.0
    attention_flops: float = 0.0
    weight_bytes: float = 0.0
    kv_read_bytes: float = 0.0
    """Bytes of cached keys and values, each counted once a pass."""
    barriers: float = 0
    experts_read: float = 0.0
    """Distinct experts in each layer of each pass, added up."""
    kv_again_bytes: float = 0.0
    """Bytes of these that later tiles of tokens read again, from a nearer CPU cache."""
    kv_write_bytes: float = 0.0
    """Bytes of keys and values that the pass adds."""
    unpacked: float = 0.0
    """Weights of the layers that passes of more than one token read, once each pass."""
    again_flops: float = 0.0
    """FLOPs of one token's attention, for each tile of tokens but the first."""
    state_bytes: float = 0.0
    """Bytes of recurrent states, read once and written once a pass."""

    @property
    def flops(self) -> float:
        return self.linear_flops + self.attention_flops

    @property
    def bytes(self) -> float:
        """Bytes moved to or from the level that holds the weights and the cache."""
        return self.weight_bytes + self.cached_bytes

    @property
    def cached_bytes(self) -> float:
        """Bytes of KV caches and recurrent states that are read or written."""
        return self.kv_read_bytes + self.kv_write_bytes + self.state_bytes

    def __add__(self, other: PassCost) -> PassCost:
        return PassCost(*map(add, _counts(self), _counts(other)))


_counts = attrgetter(*(one.name for one in fields(PassCost)))


def pass_cost(
    model: ModelCost,
    tokens: int,
    start: int,
    outputs: int,
    barriers: int,
    tile: int,
    experts_read: float | None = None,
    batch: int = 1,
) -> PassCost:
    """Count the cost of `tokens` tokens at KV length `start`, with logits for `outputs`.

    tile: tokens that share one read of the KV cache. experts_read: distinct experts of all layers
    that the pass used; None: the expected number. batch: sequences, each with its own cache.
    """
    experts = model.expected_experts(tokens * batch) if experts_read is None else experts_read
    read = batch * model.cache_read(start, tokens) / max(1, tokens)
    again = -(-tokens // tile) - 1
    scored = batch * model.scores_flops(start, tokens)
    linear = tokens * model.token_weights + outputs * model.head_weights
    return PassCost(
        linear_flops=2.0 * batch * linear,
        attention_flops=scored,
        weight_bytes=model.layer_bytes(experts) + (model.head_bytes if outputs > 0 else 0),
        kv_read_bytes=read,
        kv_again_bytes=read * again,
        kv_write_bytes=batch * model.kv_bytes * tokens,
        barriers=barriers,
        experts_read=experts,
        unpacked=model.layer_weights(experts) if tokens * batch > 1 else 0.0,
        again_flops=(scored / max(1, tokens) - batch * model.state_flops) * again,
        state_bytes=2.0 * batch * model.state_bytes,
    )


class Part(NamedTuple):
    """One sequence's rows in a pass: their number, cached positions before them, and logits.

    together: how many of the first cached positions are read once for several sequences; readers:
    for how many, on average.
    """

    tokens: int
    start: int
    outputs: int = 0
    together: int = 0
    readers: float = 1.0

    def spared(self, model: ModelCost) -> float:
        """Return the KV cache bytes of shared prefixes that are counted in other parts."""
        if not self.together:
            return 0.0
        behind = model.cache_read(self.start - self.together, self.tokens)
        read = (model.cache_read(self.start, self.tokens) - behind) / self.tokens
        return read * (1.0 - 1.0 / self.readers)


def part_cost(
    model: ModelCost,
    parts: Sequence[Part],
    at: int,
    barriers: int,
    tile: int,
    experts_read: float | None = None,
) -> PassCost:
    """Count the cost of one sequence in a mixed pass, which consists of all `parts`.

    Operations and KV cache are its own; what several read together is shared out evenly. Weights
    and barriers go by rows, the head by outputs.
    """
    part, rows = parts[at], sum(one.tokens for one in parts)
    outputs = sum(one.outputs for one in parts)
    experts = model.expected_experts(rows) if experts_read is None else experts_read
    own = pass_cost(model, part.tokens, part.start, part.outputs, 0, tile, experts)
    share = part.tokens / rows
    head = part.outputs / outputs * model.head_bytes if outputs else 0.0
    return replace(
        own,
        kv_read_bytes=own.kv_read_bytes - part.spared(model),
        weight_bytes=share * model.layer_bytes(experts) + head,
        barriers=share * barriers,
        experts_read=share * experts,
        unpacked=share * model.layer_weights(experts) if rows > 1 else 0.0,
    )


def mixed_cost(
    model: ModelCost,
    parts: Sequence[Part],
    barriers: int,
    tile: int,
    experts_read: float | None = None,
) -> PassCost:
    """Count the cost of a mixed pass: the sum of the `part_cost` of its sequences."""
    rows, outputs = sum(part.tokens for part in parts), sum(part.outputs for part in parts)
    experts = model.expected_experts(rows) if experts_read is None else experts_read
    scored = read = again = scored_again = 0.0
    state = model.state_flops
    for part in parts:
        tokens, start = part.tokens, part.start
        seen, flops = model.cache_read(start, tokens) / tokens, model.scores_flops(start, tokens)
        scored, read = scored + flops, read + seen - part.spared(model)
        more = -(-tokens // tile) - 1
        again, scored_again = again + seen * more, scored_again + (flops / tokens - state) * more
    return PassCost(
        linear_flops=2.0 * (rows * model.token_weights + outputs * model.head_weights),
        attention_flops=scored,
        weight_bytes=model.layer_bytes(experts) + (model.head_bytes if outputs else 0),
        kv_read_bytes=read,
        kv_again_bytes=again,
        kv_write_bytes=model.kv_bytes * rows,
        barriers=barriers,
        experts_read=experts,
        unpacked=model.layer_weights(experts) if rows > 1 else 0.0,
        again_flops=scored_again,
        state_bytes=2.0 * model.state_bytes * len(parts),
    )


def decode_cost(model: ModelCost, start: int, passes: int, barriers: int) -> PassCost:
    """Count the cost of `passes` single-token passes from KV length `start` on."""
    experts = model.expected_experts(1)
    return PassCost(
        linear_flops=2.0 * passes * (model.token_weights + model.head_weights),
        attention_flops=model.scores_flops(start, passes),
        weight_bytes=passes * (model.layer_bytes(experts) + model.head_bytes),
        kv_read_bytes=model.cache_read(start, passes),
        kv_write_bytes=model.kv_bytes * passes,
        barriers=passes * barriers,
        experts_read=passes * experts,
        state_bytes=2.0 * model.state_bytes * passes,
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Minimum times that the machine's limits allow, in seconds."""

    compute_s: float
    memory_s: float
    dispatch_s: float
    level: str

    @property
    def bound(self) -> Bound:
        times = self.as_dict()
        return max(times, key=times.__getitem__)  # pyright: ignore[reportReturnType]

    def as_dict(self) -> dict[str, float]:
        """Return the minimum times by bound, for a trace."""
        return {"compute": self.compute_s, "memory": self.memory_s, "dispatch": self.dispatch_s}

    @property
    def limit_s(self) -> float:
        """The minimum time of the resource that bounds the pass."""
        return max(self.compute_s, self.memory_s, self.dispatch_s)


def layer_cost(
    model: ModelCost,
    layers: Sequence[LayerParts],
    number: int,
    total: PassCost,
    passes: int,
    experts: float,
    tokens: int,
    start: int,
) -> PassCost:
    """Return the part of layer `number` in the cost of `passes` passes.

    layers: all of the model. The passes computed `tokens` tokens from position `start` on, and read
    `experts` experts altogether.
    """
    mine, sparse = layers[number], max(1, model.sparse_layers)
    each = 1.0 / max(1, sparse * model.experts)
    taken = model.expert_weights / sparse * model.experts_used / max(1, model.experts)
    read = mine.weights + experts * model.expert_weights * each / max(1, passes)
    cache = sum(one.cache_read(start, tokens) for one in layers)
    cached = mine.cache_read(start, tokens) / cache if cache else 0.0
    states = sum(one.state_bytes for one in layers)
    return PassCost(
        linear_flops=2.0 * tokens * (mine.weights + (taken if mine.sparse else 0.0)),
        attention_flops=mine.scores_flops(start, tokens),
        weight_bytes=passes * mine.nbytes + experts * model.expert_bytes * each,
        kv_read_bytes=total.kv_read_bytes * cached,
        barriers=round(total.barriers / model.layers),
        experts_read=experts,
        kv_again_bytes=total.kv_again_bytes * cached,
        kv_write_bytes=mine.kv_own * tokens,
        unpacked=read * passes if total.unpacked else 0.0,
        again_flops=total.again_flops * cached,
        state_bytes=total.state_bytes * mine.state_bytes / states if states else 0.0,
    )


class PartTimes(NamedTuple):
    """The minimum seconds of each part of some passes, at the machine's limits."""

    linear_s: float
    """Arithmetic of GEMMs."""
    unpack_s: float
    """Arithmetic of one token for each pass of several: the unit of the cost of unpacking."""
    attention_s: float
    """Arithmetic of scores and weighted values."""
    tile_s: float
    """Attention of one row and one KV head, for each tile of tokens but the first."""
    weights_s: float
    """Reads of the weights."""
    cached_s: float
    """Reads and writes of KV caches and states."""
    reread_s: float
    """Rereads of the KV cache by tiles: one head of one layer a thread at a time."""
    dispatch_s: float
    """Time of the `barriers`."""
    barriers: float
    products_rate: float
    """Operations a second of GEMMs."""
    read_rate: float
    """Read bandwidth of `level`, in bytes a second."""
    level: str
    """The memory level that holds the weights and the KV cache."""

    @property
    def minimum(self) -> Prediction:
        """The minimum times by resource."""
        return Prediction(
            compute_s=self.linear_s + self.attention_s,
            memory_s=self.weights_s + self.cached_s + self.reread_s,
            dispatch_s=self.dispatch_s,
            level=self.level,
        )


def part_times(
    cost: PassCost, model: ModelCost, machine: MachineProfile, passes: int = 1, level: str = ""
) -> PartTimes:
    """Return the minimum times of the parts of `cost`, that of `passes` passes.

    level: where weights and cache lie; by default the nearest that holds what a pass reads.
    """
    cached, each = cost.cached_bytes, max(1, passes)
    level = level or machine.level_of((cost.weight_bytes + cached) / each)
    rate = machine.bandwidth(level)
    products = 1e9 * (machine.int8_gops if model.quantized else machine.fp32_gflops)
    # Of bytes, scores are one product and weighted values two: a probability has 14 bits.
    of_keys = machine.int8_gops if model.int8_keys else machine.bf16_gflops
    of_values = machine.int8_gops / 2 if model.int8_values else machine.bf16_gflops
    scores = 2e9 / (1 / of_keys + 1 / of_values)
    again = 0.0
    if cost.kv_again_bytes:
        head = cost.kv_read_bytes / (each * model.caches)
        again = cost.kv_again_bytes / machine.bandwidth(machine.level_of(head * machine.threads))
    return PartTimes(
        linear_s=cost.linear_flops / products,
        unpack_s=2.0 * cost.unpacked / products,
        attention_s=cost.attention_flops / scores,
        tile_s=cost.again_flops * model.kv_heads / model.heads / scores,
        weights_s=cost.weight_bytes / rate,
        cached_s=cached / rate,
        reread_s=again,
        dispatch_s=cost.barriers * machine.barrier_s,
        barriers=cost.barriers,
        products_rate=products,
        read_rate=rate,
        level=level,
    )


def predict(
    cost: PassCost, model: ModelCost, machine: MachineProfile, passes: int = 1, level: str = ""
) -> Prediction:
    """Predict the minimum times of `cost` by resource: see `part_times`."""
    return part_times(cost, model, machine, passes, level).minimum
