"""Records inside events: a model, a machine, a layer's time.

Records are dataclasses, and pydantic is imported only to validate them: a run that only writes a
trace does not pay for it.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from pydantic import TypeAdapter

R = TypeVar("R", bound="Record")
T = TypeVar("T")

Own = Annotated[T, "own words"]
"""Marks a text or container field that holds nothing of the conversation: redaction keeps it."""
TokenId = Annotated[int, "token"]
"""A token id: a number that reveals text of the conversation, so redaction removes it."""


def content_digest(value: Any) -> str:
    """Return the digest of a JSON value: the first half of the SHA-256 of its compact JSON.

    The order of keys counts, since grammars write the keys of a schema in that order.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
@dataclass(kw_only=True, eq=False)
class Record:
    """A part of an event; fields that this version does not know are kept in ``model_extra``.

    The methods are named and behave as those of a pydantic model; only `model_validate` looks at
    types.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "allow"}
    COMPUTED: ClassVar[tuple[str, ...]] = ()
    """Properties that a dump has in addition to the fields."""

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def __post_init__(self) -> None:
        # pydantic puts what is no field next to the fields, where it would hide methods.
        if len(vars(self)) > len(_names(type(self))):
            given, known = vars(self), {*_names(type(self))}
            extra = {name: given.pop(name) for name in [*given] if name not in known}
            extra = {name: value for name, value in extra.items() if name not in self.COMPUTED}
            if extra:
                given["_extra"] = extra

    @property
    def model_extra(self) -> dict[str, Any]:
        """Return the fields that this version does not know."""
        return vars(self).get("_extra", {})

    @classmethod
    def model_validate(cls: type[R], data: Mapping[str, Any]) -> R:
        """Build the record from a JSON object.

        Raises:
            pydantic.ValidationError: a field is missing, or of a wrong type.
        """
        return _adapter(cls).validate_python(data)

    def model_dump(
        self, *, include: AbstractSet[str] | None = None, exclude: AbstractSet[str] = frozenset()
    ) -> dict[str, Any]:
        """Return all fields by name, computed and unknown ones too, as plain dictionaries."""
        names = [*_names(type(self)), *self.COMPUTED]
        body = {name: _dumped(getattr(self, name)) for name in names}
        body |= self.model_extra
        return {
            name: value
            for name, value in body.items()
            if name not in exclude and (include is None or name in include)
        }

    def model_copy(self: R, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> R:
        """Return a copy with some fields changed; a ``deep`` copy shares nothing with it."""
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        vars(copied).update(update or {})
        return copied

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


@functools.cache
def _names(cls: type[Record]) -> dict[str, None]:
    """Return the names of a record's fields, in order."""
    return dict.fromkeys(one.name for one in fields(cls))


@functools.cache
def _adapter(cls: type[R]) -> TypeAdapter[R]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _dumped(value: Any) -> Any:
    if isinstance(value, Record):
        return value.model_dump()
    if isinstance(value, list) and value and isinstance(value[0], Record):
        return [_dumped(item) for item in value]
    return value


class ModelRecord(Record):
    """Which model ran."""

    name: Own[str]
    sha256: Own[str] = ""
    """Hash of the model file: replay compares it before anything else."""
    architecture: Own[str] = ""
    quant: Own[str] = ""
    parameters: int = 0
    path: str = ""
    """Path of the model file; not `Own`: the user's name may be in it."""
    kv_bytes: float = 0.0
    """KV cache bytes per position, in all layers."""
    state_bytes: int = 0
    """Bytes of a sequence's recurrent state, in all layers; independent of its length."""
    experts: int = 0
    """Number of experts of a layer that has any; 0 in a dense model."""
    experts_used: int = 0
    """Number of experts that a token is routed to."""


class MachineRecord(Record):
    """Which machine ran it, and what it can do."""

    cpu: str = ""
    cores: int = 0
    """Physical cores that this process may use."""
    profile: dict[str, Any] = field(default_factory=dict)
    """Measured limits: read bandwidth by level, arithmetic peaks, barrier cost."""


class DraftRecord(Record):
    """What one source drafted in a decode."""

    source: str = ""
    """``lookup``: the context; ``mtp``: the model's own layer."""
    passes: int = 0
    """Number of passes that verified drafts of this source."""
    drafted: int = 0
    """Number of tokens in those drafts."""
    accepted: int = 0
    """Number of drafted tokens that the model accepted."""


class LayerRecord(Record):
    """One layer's time in a phase, added up over its passes; mean over the threads, seconds."""

    layer: int | None = None
    """Layer index from 0; None: what belongs to no layer (embedding, output head, sampling)."""
    wall_s: float = 0.0
    """Total wall time: the sum of the times below."""
    attention_s: float = 0.0
    """Attention, including its norm, four matrix products and RoPE."""
    ffn_s: float = 0.0
    """Feed-forward half of the layer: norm and matrix products, including experts."""
    other_s: float = 0.0
    """Kernels that belong to no layer."""
    wait_s: float = 0.0
    """Waiting at the barriers after this layer's ops."""
    mfu: float = 0.0
    """Model FLOPs utilization: fraction of the measured arithmetic peak, 0 to 1."""
    mbu: float = 0.0
    """Memory bandwidth utilization: fraction of the measured read bandwidth, 0 to 1."""
    observed: str = ""
    """The layer's bound: ``compute``, ``memory`` or ``dispatch``; empty: not known."""


class ShareRecord(Record):
    """What a phase had of passes that other sequences shared: see `PassEvent`."""

    passes: int = 0
    sequences: float = 1.0
    """Mean number of sequences in a shared pass, this one included."""
    seconds: float = 0.0
    """Total of this sequence's shares of the passes' times."""
    flops: float = 0.0
    bytes: float = 0.0


class MissRecord(Record):
    """Why tokens that had been read before were recomputed, and what that took."""

    position: int = 0
    """Position of the first token that differs."""
    expected: TokenId | None = None
    """Token id in the conversation at that position; None if the conversation ends there."""
    found: TokenId | None = None
    """Token id in the KV cache at that position; None if the cache ends there."""
    message: int | None = None
    """Index of the message that the token came from; None for text of the template."""
    field: Own[str] = ""
    """Part of the message: ``content``, ``generated tokens``, ``template text``, …"""
    label: Own[str] = ""
    """Source of the tokens: the tool of a result, ``thinking``, or the origin."""
    why: Own[str] = ""
    """Cause of the difference, if known."""
    tokens: int = 0
    """Number of recomputed tokens."""
    seconds: float = 0.0
    """Time of the recomputation: the tokens' share of the phase."""


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8, in hex; a lone surrogate counts as its three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
