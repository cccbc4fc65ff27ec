"""Qwen3-VL's text tower: Qwen3.

For text the three positions of its rotary sections are one, and there is nothing to add to the
first layers from an image.
"""

from __future__ import annotations

from .qwen3 import Qwen3


class Qwen3VL(Qwen3):
    """The architecture `qwen3vl`."""

    architecture = "qwen3vl"
    understands = frozenset({"rope.dimension_sections"})
