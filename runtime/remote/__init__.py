"""Models that run in another server and speak OpenAI's wire format."""

from __future__ import annotations

from .engine import RemoteEngine, RemoteModel

__all__ = ["RemoteEngine", "RemoteModel"]
