"""Replay a recorded run: verify it token by token, time it again, predict it or continue it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fork import branch as branch
    from .replay import PhaseCheck as PhaseCheck
    from .replay import VerifyReport as VerifyReport
    from .replay import verify as verify
    from .report import PerfPhase as PerfPhase
    from .report import PerfReport as PerfReport
    from .simulate import predict as predict
    from .simulate import run_workload as run_workload

_HOMES = {
    "PerfPhase": "report",
    "PerfReport": "report",
    "PhaseCheck": "replay",
    "VerifyReport": "replay",
    "branch": "fork",
    "run_workload": "simulate",
    "predict": "simulate",
    "verify": "replay",
}
__all__ = [
    "PerfPhase",
    "PerfReport",
    "PhaseCheck",
    "VerifyReport",
    "branch",
    "predict",
    "run_workload",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
