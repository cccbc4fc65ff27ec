"""Nemotron 3 Nano, with experts: see `nemotron_h.py`."""

from __future__ import annotations

from .nemotron_h import NemotronHMoE

__all__ = ["NemotronHMoE"]
