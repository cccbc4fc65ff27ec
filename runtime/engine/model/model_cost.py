"""The cost model's inputs, counted from a model's matrices, caches and states."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ....jit.compile import Library, ObjectCache
from ....jit.kernels.kvcache import KVFormat, key_format, value_format
from ....jit.targets import CpuTarget
from ... import models
from ...forward.kv import KVLayout
from ...gguf.file import GGUFFile
from ...models.blocks import Recurrence
from ...models.decoder import Decoder
from ...physics.costs import AttentionLayers, LayerParts, ModelCost
from ...weights.loader import WeightLoader
from ...weights.matrix import Matrix


@dataclass(frozen=True, slots=True)
class Sized:
    """The sizes of a model, computed without loading its weights."""

    network: Decoder
    layout: KVLayout
    """Layout of its KV cache, without rotary tables."""
    cost: ModelCost
    packed: int
    """Bytes of all weights."""
    state: int
    """Bytes of a sequence's state, including the MTP layer's."""


def size_up(gguf: GGUFFile, target: CpuTarget, kv: KVFormat = "bf16", *, mtp: bool = True) -> Sized:
    """Size the model of a file on `target`, from its header alone.

    Raises:
        ModelError: it cannot be run.
    """
    weights = WeightLoader(gguf, Library(target, ObjectCache(None)))
    network = models.build(gguf, weights, mtp=mtp)
    weights.size_only()
    shapes, windows = zip(*network.cached, strict=True)
    layout = KVLayout(kv, shapes, 0, windows=windows, row_width=network.row_width)
    state = 4 * sum(floats for _, floats in network.states)
    return Sized(network, layout, model_cost(network, layout), weights.packed_bytes, state)


def model_cost(network: Decoder, layout: KVLayout) -> ModelCost:
    """Return the cost model's inputs for a model with a KV cache of this layout."""
    *in_layers, head = network.matrices
    experts = [m for m in in_layers if _chosen(m)]
    body = [m for m in in_layers if not _chosen(m)]
    config, h = network.config, network.config.heads
    return ModelCost(
        layers=config.layers,
        heads=h.heads,
        head_dim=h.head_dim,
        body_weights=sum(m.parameters for m in body),
        head_weights=head.parameters,
        body_bytes=sum(m.nbytes for m in body),
        head_bytes=head.nbytes,
        kv_bytes=layout.position_bytes,
        quantized=head.format.quantized,
        int8_keys=key_format(layout.format) == "q8",
        int8_values=value_format(layout.format, in_keys=h.value_dim > 0) == "q8",
        value_dim=h.value_dim,
        expert_weights=sum(m.parameters for m in experts),
        expert_bytes=sum(m.nbytes for m in experts),
        experts=config.experts,
        experts_used=config.experts_used,
        dense_layers=config.dense,
        attention=_attention_layers(network, layout),
        windows=tuple(window for window in network.windows if window),
        kv_heads=h.kv_heads,
        state_bytes=sum(4 * part.state_floats for part in network.recurrent.values()),
        state_flops=sum(part.state_flops for part in network.recurrent.values()),
    )


def layer_parts(network: Decoder, layout: KVLayout) -> list[LayerParts]:
    """Return the cost model's inputs for each layer."""
    recurrent = network.recurrent
    return [_layer(network, layout, n, recurrent.get(n)) for n in range(network.config.layers)]


def _layer(network: Decoder, layout: KVLayout, n: int, state: Recurrence | None) -> LayerParts:
    matrices = network.blocks[n].matrices
    plain = [m for m in matrices if not _chosen(m)]
    shape, width, kv_bytes, own = network.config.shapes[n], 0.0, 0.0, 0.0
    if shape is not None:
        width = shape.heads * (shape.head_dim + shape.out_dim) / 2
        kv_bytes = KVLayout(layout.format, [shape], 0).position_bytes
        own = kv_bytes if network.config.sources[n] == n else 0.0
    return LayerParts(
        weights=sum(m.parameters for m in plain),
        nbytes=sum(m.nbytes for m in plain),
        sparse=len(plain) < len(matrices),
        width=width,
        kv_bytes=kv_bytes,
        window=network.windows[n],
        kv_own=own,
        state_bytes=4 * state.state_floats if state else 0,
        state_flops=state.state_flops if state else 0,
    )


def _attention_layers(network: Decoder, layout: KVLayout) -> tuple[AttentionLayers, ...]:
    """Group layers by how they attend; empty if all attend alike, apart from windows."""
    config = network.config
    usual = config.sources == tuple(range(config.layers)) and not config.heads.value_dim
    if usual and len(set(config.shapes)) == 1:
        return ()
    parts = [one for one in layer_parts(network, layout) if one.width]
    found = Counter((one.width, one.kv_bytes, one.window) for one in parts)
    return tuple(AttentionLayers(n, *kind) for kind, n in found.items())


def _chosen(m: Matrix) -> bool:
    """Return whether a token uses only some copies of the matrix, as with experts."""
    return m.experts > 0 and not m.by_head
