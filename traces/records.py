"""Parts of events: what a model, a machine, a layer's time look like in a trace."""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """A part of an event; fields that this version does not know are kept."""

    model_config = ConfigDict(extra="allow", validate_assignment=False, defer_build=True)


class ModelRecord(Record):
    """Which model ran."""

    name: str
    sha256: str = ""
    """Hash of the model file: replay compares it before anything else."""
    architecture: str = ""
    quant: str = ""
    parameters: int = 0
    path: str = ""


class MachineRecord(Record):
    """Which machine ran it, and what it can do."""

    cpu: str = ""
    cores: int = 0
    """Physical cores that this process may use."""
    profile: dict[str, Any] = Field(default_factory=dict)
    """Measured limits: read bandwidth by level, arithmetic peaks, barrier cost."""


class LayerRecord(Record):
    """One layer's time in a phase, added up over its passes; mean over the threads, seconds."""

    layer: int | None = None
    """Index from 0; None: what belongs to no layer (embedding, output head, the choice)."""
    wall_s: float = 0.0
    """Everything below together."""
    attention_s: float = 0.0
    """Attention with its norm, its four products and the rotation."""
    ffn_s: float = 0.0
    """The second half of the layer: norm and products, experts too."""
    other_s: float = 0.0
    """Kernels outside the layers."""
    wait_s: float = 0.0
    """At the barriers after this layer's ops."""
    mfu: float = 0.0
    """Share of the measured arithmetic peak that the layer reached, 0 to 1."""
    mbu: float = 0.0
    """Share of the measured read bandwidth that it reached, 0 to 1."""
    observed: str = ""
    """Its bound: ``compute``, ``memory`` or ``dispatch``; empty: not known."""


class ShareRecord(Record):
    """What a phase had of passes that other sequences shared: see `PassEvent`."""

    passes: int = 0
    sequences: float = 1.0
    """In such a pass, on average, this one among them."""
    seconds: float = 0.0
    """Shares of them, added up."""
    flops: float = 0.0
    bytes: float = 0.0


class MissRecord(Record):
    """Why tokens that had been read before were recomputed, and what that took."""

    position: int = 0
    """The first token that differs."""
    expected: int | None = None
    """Its id in the conversation; None where that ends there."""
    found: int | None = None
    """Its id in the KV cache; None where that ends there."""
    message: int | None = None
    """Index of the message that it came from; None for text of the template."""
    field: str = ""
    """What of the message: ``content``, ``generated tokens``, ``template text``, …"""
    label: str = ""
    """Whose: the tool of a result, ``thinking``, or the origin."""
    why: str = ""
    """What made it, where that is known."""
    tokens: int = 0
    """How many were recomputed."""
    seconds: float = 0.0
    """What that took: their share of the phase."""


def text_hash(text: str) -> str:
    """SHA-256 of a text as UTF-8, in hex; a lone surrogate counts as its three bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
