"""Mixes: the type of each tensor in Q4_K_M and the other well-known names.

Most weights get the mix's own type. What errors cost most in gets a larger one: the output head
(and the embedding table where it is the head), and in the M mixes the values of attention and the
second half of the feed-forward part in half of the layers. Which layers, and which types, are
facts of the files that others make under the same names. They count matrices, not layers: in a
model whose layers do not all have attention, "the first two" are the first two that do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...errors import SettingError
from ..gguf.types import GGMLType, TensorInfo, fits

F32, F16, BF16 = GGMLType.F32, GGMLType.F16, GGMLType.BF16
FLOATS = (F32, F16, BF16)
T = GGMLType

Rule = Callable[[int, int, int], GGMLType | None]
"""(index, count, query heads of a KV head) -> the type, None for the mix's own.

Index and count are of such matrices, or of layers: see `ModelFacts.index`."""


def _all(kind: GGMLType) -> Rule:
    return lambda index, count, group: kind


def _half(kind: GGMLType) -> Rule:
    """Use the type in the first and last eighth of the layers, and every third between."""

    def rule(index: int, count: int, group: int) -> GGMLType | None:
        outside = index < count // 8 or index >= 7 * count // 8
        return kind if outside or (index - count // 8) % 3 == 2 else None

    return rule


def _first(kind: GGMLType, number: int, then: GGMLType | None = None) -> Rule:
    return lambda index, count, group: kind if index < number else then


def _first_part(kind: GGMLType, parts: int, then: GGMLType | None = None) -> Rule:
    return lambda index, count, group: kind if index < count // parts else then


def _shared(kind: GGMLType, other: GGMLType) -> Rule:
    """Use another type where four or more query heads share a KV head: values are few."""
    return lambda index, count, group: kind if group >= 4 else other


@dataclass(frozen=True, slots=True)
class Mix:
    """A quantization mix: a named choice of the type of each tensor.

    Attributes:
        name: what a user types; number: `general.file_type`.
        kind: the type of most weights; head: the output head's; experts: of experts, if another.
        rules: types of parts of a layer by their names; ``attn_v`` is all matrices with values.
        guarded: the type of the first eighth of ``ffn_down`` where an imatrix is used.
        shared_output: the type of ``attn_output`` in models of eight experts.
    """

    name: str
    number: int
    kind: GGMLType
    head: GGMLType
    rules: Mapping[str, Rule] = field(default_factory=dict)
    experts: GGMLType | None = None
    guarded: GGMLType | None = None
    shared_output: GGMLType | None = None


MIXES = {
    mix.name: mix
    for mix in (
        Mix("F32", 0, T.F32, T.F32),
        Mix("F16", 1, T.F16, T.F16),
        Mix("BF16", 32, T.BF16, T.BF16),
        Mix("Q8_0", 7, T.Q8_0, T.Q8_0),
        Mix("MXFP4_MOE", 38, T.Q8_0, T.Q8_0, experts=T.MXFP4),
        Mix("Q4_0", 2, T.Q4_0, T.Q6_K, guarded=T.Q4_1),
        Mix("Q4_1", 3, T.Q4_1, T.Q6_K),
        Mix("Q5_0", 8, T.Q5_0, T.Q6_K, guarded=T.Q5_1),
        Mix("Q5_1", 9, T.Q5_1, T.Q6_K),
        Mix("Q2_K", 10, T.Q2_K, T.Q6_K,
            {"attn_v": _shared(T.Q4_K, T.Q3_K), "attn_output": _all(T.Q3_K),
             "ffn_down": _all(T.Q3_K)}, shared_output=T.Q5_K),
        Mix("Q3_K_S", 11, T.Q3_K, T.Q6_K, shared_output=T.Q5_K),
        Mix("Q3_K_M", 12, T.Q3_K, T.Q6_K,
            {"attn_v": _first(T.Q5_K, 2, T.Q4_K), "attn_output": _all(T.Q4_K),
             "ffn_down": _first_part(T.Q5_K, 16, T.Q4_K)}, shared_output=T.Q5_K),
        Mix("Q3_K_L", 13, T.Q3_K, T.Q6_K,
            {"attn_v": _all(T.Q5_K), "attn_output": _all(T.Q5_K), "ffn_down": _all(T.Q5_K)}),
        Mix("Q4_K_S", 14, T.Q4_K, T.Q6_K,
            {"attn_v": _first(T.Q5_K, 4), "ffn_down": _first_part(T.Q5_K, 8)},
            shared_output=T.Q5_K),
        Mix("Q4_K_M", 15, T.Q4_K, T.Q6_K,
            {"attn_v": _half(T.Q6_K), "ffn_down": _half(T.Q6_K)}, shared_output=T.Q5_K),
        Mix("Q5_K_S", 16, T.Q5_K, T.Q6_K),
        Mix("Q5_K_M", 17, T.Q5_K, T.Q6_K,
            {"attn_v": _half(T.Q6_K), "ffn_down": _half(T.Q6_K)}),
        Mix("Q6_K", 18, T.Q6_K, T.Q6_K),
    )
}  # fmt: skip
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

# Where rows do not fill super-blocks of 256: blocks of 32 of about the same size.
NARROW = {T.Q2_K: T.Q4_0, T.Q3_K: T.Q4_0, T.Q4_K: T.Q5_0, T.Q5_K: T.Q5_1, T.Q6_K: T.Q8_0}

_PART = re.compile(r"blk\.(\d+)\.(\w+?)(?:_exps|_shexp)?\.weight")
_VALUES = ("attn_kv_b", "attn_qkv", "attn_v")
_UNCHANGED = re.compile(
    r"(_norm|ffn_gate_inp|ffn_gate_inp_shexp|rope_freqs|rope_factors_\w+|ssm_conv1d|shortconv\.conv"
    r"|per_layer_model_proj)\.weight"
)


def mix_of(name: str) -> Mix:
    """Return the mix called `name`, in any case.

    Raises:
        SettingError: there is none; the message lists them.
    """
    upper = name.upper()
    mix = MIXES.get(ALIASES.get(upper, upper))
    if mix is None:
        raise SettingError(f"unknown type {name!r}; known: {', '.join(MIXES)}")
    return mix


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the types of a model's tensors depend on.

    Attributes:
        layers, experts: their numbers; group: query heads of a KV head; tied: whether the embedding
            table is the output head too; imatrix: whether one is used.
        architecture: as the file names it.
        order: number of a matrix among the value matrices, or among those of ``ffn_down``.
        values: number of value matrices.
    """

    layers: int
    group: int
    tied: bool
    experts: int = 0
    architecture: str = ""
    imatrix: bool = False
    order: Mapping[str, int] = field(default_factory=dict)
    values: int = 0

    @classmethod
    def of(cls, names: Iterable[str], layers: int, group: int, **others) -> ModelFacts:
        """Count the matrices of a model whose tensors have these names."""
        found = [(int(m[1]), m[0], m[2]) for m in map(_PART.fullmatch, names) if m]
        values = sorted((n, name) for n, name, part in found if part in _VALUES)
        downs = sorted((n, name) for n, name, part in found if part == "ffn_down")
        order = {name: at for each in (values, downs) for at, (_, name) in enumerate(each)}
        return cls(layers, group, order=order, values=len(values), **others)

    def index(self, name: str, part: str, layer: int) -> tuple[int, int]:
        """Return the number of a matrix in the count that rules refer to, and that count."""
        if part == "attn_v":
            return self.order.get(name, layer), self.values
        # One feed-forward part may be several matrices where there are experts.
        return layer if self.experts > 1 else self.order.get(name, layer), self.layers

    @property
    def few_values(self) -> bool:
        """Whether it is Llama 2 70B or of its shape: eight heads share one of values."""
        shared = self.architecture == "qwen2" or (self.architecture == "llama" and self.group > 1)
        return self.layers == 80 and shared


@dataclass(frozen=True, slots=True)
class Chosen:
    """The type of one tensor; `narrowed`: the type it replaces because rows are too narrow."""

    kind: GGMLType
    narrowed: GGMLType | None = None


def choose(info: TensorInfo, mix: Mix, facts: ModelFacts) -> Chosen:
    """Return the type of tensor `info` in `mix`."""
    if len(info.shape) == 1 or _UNCHANGED.search(info.name) or not info.name.endswith(".weight"):
        return Chosen(info.type)
    wanted = type_of(info.name, mix, facts)
    kind = wanted
    if not fits(info.name, info.shape[-1], kind):
        kind = NARROW.get(kind, F16)
    if not fits(info.name, info.shape[-1], kind):
        kind = F16
    return Chosen(kind, wanted if kind is not wanted else None)


def type_of(name: str, mix: Mix, facts: ModelFacts) -> GGMLType:
    """Return the type of the matrix `name` in `mix` if its rows are wide enough: see `choose`."""
    tables = ("token_embd.weight", "per_layer_token_embd.weight")
    if name == "output.weight" or (facts.tied and name in tables):
        return mix.head
    if mix.experts and name.endswith("_exps.weight"):
        return mix.experts
    found = _PART.fullmatch(name)
    if not found or mix.kind in FLOATS or mix.experts:
        return mix.kind
    layer, part = int(found[1]), "attn_v" if found[2] in _VALUES else found[2]
    if facts.experts == 8:  # attention is small beside them
        if part in ("attn_v", "attn_k"):
            return T.Q8_0
        if part == "attn_output":
            return mix.shared_output or mix.kind
    index, count = facts.index(name, part, layer)
    if mix.guarded and facts.imatrix and part == "ffn_down" and index < count // 8:
        return mix.guarded
    rule = mix.rules.get(part)
    kind = (rule(index, count, facts.group) if rule else None) or mix.kind
    if part == "attn_v" and facts.few_values and kind in (T.Q3_K, T.Q4_K):
        return T.Q5_K
    return kind
