"""Models on other servers that speak OpenAI's wire format."""

from __future__ import annotations

from .engine import RemoteEngine

__all__ = ["RemoteEngine"]
