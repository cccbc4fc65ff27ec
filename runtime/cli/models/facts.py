"""What a model's layers are and take, from its header: for `show`, before anything is loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ....errors import TriplepointError
from ....jit.kernels.kvcache import KVFormat
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

KV_FORMATS: tuple[KVFormat, ...] = ("bf16", "q8", "f32")
BATCHES = (1, 8)  # rows of a pass, for which the bytes that it reads are told


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers that are alike.

    Attributes:
        what: what their first half is; ffn: their second: ``dense``, ``experts`` or empty.
        layers: how many.
        window: positions that a token sees; 0: all, or none at all.
        kv_token: bytes of keys and values that all of them keep of a token, by format.
        state, conv: bytes of a sequence's state in all of them: of the recurrence, and of the
            convolution before it.
    """

    what: str
    ffn: str
    layers: int
    window: int
    kv_token: dict[str, float]
    state: int = 0
    conv: int = 0


@dataclass(frozen=True, slots=True)
class PassBytes:
    """What a pass of so many sequences, with a token each and nothing cached, reads and writes.

    Attributes:
        weights: packed weights, of the head too, with the experts that it is expected to touch.
        experts: distinct ones of a layer.
        states: read and written.
    """

    rows: int
    weights: float
    experts: float
    states: int

    @property
    def token(self) -> float:
        """Bytes for each token."""
        return (self.weights + self.states) / self.rows


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is made of.

    Attributes:
        kinds: its layers, in the order in which they come first; the ones that draft last.
        experts, experts_used: of a layer that has any, and of those a token's; shared: experts that
            every token takes.
        active: weights that a token is multiplied by, those of the head too.
        mtp_blocks: layers that only draft, in the file or not.
        calls: the format that it is told to write tool calls in; notes: why it is none of its own.
        passes: for each of `BATCHES`.
        cost: for predictions, with a cache in bf16.
    """

    kinds: tuple[LayerKind, ...]
    experts: int
    experts_used: int
    shared: int
    active: float
    mtp_blocks: int
    calls: str
    notes: tuple[str, ...]
    passes: tuple[PassBytes, ...]
    cost: ModelCost

    @property
    def state(self) -> int:
        """Bytes of a sequence's state, in all layers."""
        return sum(kind.state + kind.conv for kind in self.kinds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the cost."""
        fields = asdict(self)
        del fields["cost"]
        passes = [{**asdict(one), "token": one.token} for one in self.passes]
        return {**fields, "state": self.state, "passes": passes}


def read_model_facts(path: Path, target: str | None = None) -> ModelFacts:
    """What the model at `path` is made of; `target`: of the kernels, this machine's if None.

    Raises:
        TriplepointError: it cannot be run here.
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
    """Layers that are alike counted, in the order in which they come first."""
    cached = network.cached
    found: Counter[tuple[str, str, int, HeadShape | None, int, int]] = Counter()
    for n, block in enumerate(network.blocks):
        mixer, (shape, window) = block.mixer, cached[n]
        conv = 4 * mixer.conv.state_floats if isinstance(mixer, Recurrence) else 0
        state = 4 * mixer.state_floats - conv if isinstance(mixer, Recurrence) else 0
        found[_what(mixer, window), _ffn(block.ffn), window, shape, state, conv] += 1
    if network.mtp is not None:
        what = _what(network.mtp.block.mixer, 0)
        kept = sum(4 * floats for n, floats in network.states if n == network.mtp.layer)
        found[f"drafts: {what}", _ffn(network.mtp.block.ffn), 0, network.mtp.heads, kept, 0] += 1
    kinds = [
        LayerKind(what, ffn, n, window, _kv_bytes(shape, n), n * state, n * conv)
        for (what, ffn, window, shape, state, conv), n in found.items()
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
    """Experts that every token takes: as the file counts them, or what there are."""
    if not any("_shexp" in name for name in network.gguf.tensors):
        return 0
    return network.gguf.integer(f"{network.architecture}.expert_shared_count", 1) or 1


def _look(path: str) -> str:
    """Looks.

    Args:
        path: where.
    """
    return path


def _calls(gguf: GGUFFile) -> tuple[str, tuple[str, ...]]:
    """The format of calls that an agent's model is held to, and what had to be done for it."""
    try:
        chat = Chat(Tokenizer.from_gguf(gguf), tools=ToolSet([_look]).schemas())
    except TriplepointError as error:
        return "", (str(error),)
    return chat.form.name, (*chat.notes, *filter(None, [chat.mended]))
