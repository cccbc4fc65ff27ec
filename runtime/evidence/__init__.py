"""Evidence for a question over a workspace, gathered by code before a model is asked."""

from .gather import Call, Evidence, Gatherer
from .naming import Missing
from .ranking import Line

__all__ = ["Call", "Evidence", "Gatherer", "Line", "Missing"]
