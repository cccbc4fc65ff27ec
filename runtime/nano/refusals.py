"""Nano's refusal of questions it cannot answer; `labs/nano/solve.py` has its sentence."""

from __future__ import annotations

import re

_REFUSAL = re.compile(r"I (?:can only|cannot|can't|can not|do not know how to) ")


def is_refusal(answer: str) -> bool:
    """Return whether nano's answer refuses the question."""
    return _REFUSAL.match(answer.lstrip()) is not None
