"""Traces: records of a run, phase by phase, with the hardware limit that bounds each phase."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import AnyEvent as AnyEvent
    from .events import Event as Event
    from .events import PhaseEvent as PhaseEvent
    from .reader import Trace as Trace
    from .writer import TraceWriter as TraceWriter

__all__ = ["AnyEvent", "Event", "PhaseEvent", "Trace", "TraceWriter"]

_HOMES = {
    "AnyEvent": "events",
    "Event": "events",
    "PhaseEvent": "events",
    "Trace": "reader",
    "TraceWriter": "writer",
}


def __getattr__(name: str) -> Any:
    """Import a public name when first used, so that the command line starts fast."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
