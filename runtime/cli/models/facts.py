"""A model's layers and their costs, from its header: for `show`, before anything is loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ....errors import TriplepointError
from ....jit.kernels.kvcache import KeyForm
from ....jit.kv_formats import KV_FORMATS
from ....jit.targets import named
from ....tools import ToolSet
from ...conversation.chat import Chat
from ...engine.model.model_cost import size_up
from ...forward.kv import KVLayout
from ...forward.tensors import HeadShape
from ...gguf.file import GGUFFile
from ...gguf.open import open_gguf
from ...models.blocks import Attention, Half, Recurrence
from ...models.decoder import Decoder
from ...physics.costs import ModelCost
from ...tokens.tokenizer import Tokenizer

BATCHES = (1, 8)  # rows of a pass, for which its bytes are reported


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers of the same structure."""

    what: str
    """Token mixer (first half) of the layers, such as attention or a recurrence."""
    ffn: str
    """Feed-forward half of the layers: ``dense``, ``experts`` or empty."""
    layers: int
    """Number of layers."""
    window: int
    """Positions that a token attends to; 0: all, or none at all."""
    kv_token: dict[str, float]
    """Bytes of keys and values per token, in all of these layers, by KV format."""
    state: int = 0
    """Bytes of the recurrence's state per sequence, in all of these layers."""
    conv: int = 0
    """Bytes of the short convolution's state per sequence, in all of these layers."""
    keys: dict[str, tuple[KeyForm, ...]] = field(default_factory=dict)
    """What stored keys are that have biases, by KV format: see docs/models.md."""


@dataclass(frozen=True, slots=True)
class PassBytes:
    """The bytes of a decode pass over `rows` sequences with empty KV caches."""

    rows: int
    weights: float
    """Bytes of packed weights, including the head and the experts expected to be used."""
    experts: float
    """Expected number of distinct experts of a layer."""
    states: int
    """Bytes of states, read and written."""

    @property
    def token(self) -> float:
        """Return the bytes read and written for each token."""
        return (self.weights + self.states) / self.rows


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The structure of a model and the cost of its passes."""

    kinds: tuple[LayerKind, ...]
    """Its layers by kind, in order of first appearance; those that only draft come last."""
    experts: int
    """Number of experts of a layer that has any."""
    experts_used: int
    """Number of experts that a token is routed to."""
    shared: int
    """Number of experts that every token uses."""
    active: float
    """Number of weights that a token is multiplied by, including those of the head."""
    mtp_blocks: int
    """Number of layers that only draft, even if the file lacks them."""
    calls: str
    """Format of tool calls that the prompt requests."""
    notes: tuple[str, ...]
    """Notes on a call format that is not the model's own, and on repairs of its chat template."""
    passes: tuple[PassBytes, ...]
    """Cost of a pass for each of `BATCHES`."""
    cost: ModelCost
    """Cost model for predictions, with a bf16 cache."""

    @property
    def state(self) -> int:
        """Return the bytes of a sequence's state, in all layers."""
        return sum(kind.state + kind.conv for kind in self.kinds)

    def as_dict(self) -> dict[str, Any]:
        """Return the facts as plain values, without the cost."""
        fields = asdict(self)
        del fields["cost"]
        passes = [{**asdict(one), "token": one.token} for one in self.passes]
        return {**fields, "state": self.state, "passes": passes}


def read_model_facts(path: Path, target: str | None = None) -> ModelFacts:
    """Read the layers, experts and costs of the model at `path`.

    target: of the kernels; None: this machine's.
    """
    with open_gguf(path) as gguf:
        sized = size_up(gguf, named(target))
        network, cost, config = sized.network, sized.cost, sized.network.config
        calls, notes = _calls(gguf)
        a = network.architecture
        return ModelFacts(
            kinds=tuple(_kinds(network)),
            experts=config.experts,
            experts_used=config.experts_used,
            shared=_shared(network),
            active=cost.token_weights + cost.head_weights,
            mtp_blocks=gguf.integer(f"{a}.nextn_predict_layers", 0),
            calls=calls,
            notes=notes,
            passes=tuple(_pass(cost, rows) for rows in BATCHES),
            cost=cost,
        )


def _pass(cost: ModelCost, rows: int) -> PassBytes:
    experts = cost.expected_experts(rows)
    weights = cost.layer_bytes(experts) + cost.head_bytes
    touched = experts / max(1, cost.sparse_layers)
    return PassBytes(rows, weights, touched, 2 * rows * cost.state_bytes)


def _kinds(network: Decoder) -> list[LayerKind]:
    """Count the layers of each kind, in order of first appearance."""
    cached, tables = network.cached, network.tables(2, network.config.context)
    found: Counter[tuple[str, str, int, HeadShape | None, int, int, tuple[Any, ...]]] = Counter()
    for n, block in enumerate(network.blocks):
        mixer, (shape, window) = block.mixer, cached[n]
        conv = 4 * mixer.conv.state_floats if isinstance(mixer, Recurrence) else 0
        state = 4 * mixer.state_floats - conv if isinstance(mixer, Recurrence) else 0
        keys = ()
        if isinstance(mixer, Attention):
            forms = ((kv, mixer.key_forms(kv, tables)) for kv in KV_FORMATS)
            keys = tuple(one for one in forms if one[1])
        found[_what(mixer, window), _ffn(block.ffn), window, shape, state, conv, keys] += 1
    if network.mtp is not None:
        what = _what(network.mtp.block.mixer, 0)
        kept = sum(4 * floats for n, floats in network.states if n == network.mtp.layer)
        ffn = _ffn(network.mtp.block.ffn)
        found[f"drafts: {what}", ffn, 0, network.mtp.heads, kept, 0, ()] += 1
    kinds = [
        LayerKind(what, ffn, n, window, _kv_bytes(shape, n), n * state, n * conv, dict(keys))
        for (what, ffn, window, shape, state, conv, keys), n in found.items()
    ]
    if network.mtp is not None:  # rows that are kept for it count with its own
        shape = network.mtp.heads
        kinds[-1] = replace(kinds[-1], kv_token=_kv_bytes(shape, 1, network.row_width))
    return kinds


def _kv_bytes(shape: HeadShape | None, layers: int, row_width: int = 0) -> dict[str, float]:
    shapes = [shape] * layers
    return {kv: KVLayout(kv, shapes, 0, row_width=row_width).position_bytes for kv in KV_FORMATS}


def _what(mixer: Half | None, window: int) -> str:
    if isinstance(mixer, Recurrence):
        return mixer.kind
    if isinstance(mixer, Attention):
        other = ", another layer's keys" if mixer.rule.source is not None else ""
        return ("sliding attention" if window else "full attention") + other
    return "latent attention" if mixer is not None else "none"


def _ffn(half: Half | None) -> str:
    if half is None:
        return ""
    return "experts" if any(m.experts for m in half.matrices) else "dense"


def _shared(network: Decoder) -> int:
    """Return the number of shared experts: as recorded in the file, else 1 if it has any."""
    if not any("_shexp" in name for name in network.gguf.tensors):
        return 0
    return network.gguf.integer(f"{network.architecture}.expert_shared_count", 1) or 1


def _look(path: str) -> str:
    """Looks.

    Args:
        path: where.
    """  # noqa: D401 (a model reads it)
    return path


def _calls(gguf: GGUFFile) -> tuple[str, tuple[str, ...]]:
    """Return the format of tool calls that a model is given, and notes on how it was chosen."""
    try:
        chat = Chat(Tokenizer.from_gguf(gguf), tools=ToolSet([_look]).schemas())
    except TriplepointError as error:
        return "", (str(error),)
    return chat.form.name, (*chat.notes, *filter(None, [chat.mended]))
