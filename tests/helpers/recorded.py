"""Engines for recorded runs."""

from __future__ import annotations

from triplepoint import Engine, Trace


def engine_of(trace: Trace) -> Engine:
    """The engine that a recorded run needs."""
    header = trace.header
    assert header is not None
    model = header.model.path or "nano"
    return Engine.load(model, target=header.target, kv="bf16", context=header.config["context"])
