"""Gather evidence for a question over a workspace, by code, before the model runs."""

from .gather import Call, Evidence, Gatherer
from .naming import Missing
from .ranking import Line

__all__ = ["Call", "Evidence", "Gatherer", "Line", "Missing"]
