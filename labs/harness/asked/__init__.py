"""What is asked, by kind."""

from __future__ import annotations

from .small import SMALL
from .spec import Asked

ALL: tuple[Asked, ...] = (*SMALL,)
"""All questions, in the order of their modules."""
