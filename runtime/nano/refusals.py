"""How nano says that it cannot do what was asked; `labs/nano/solve.py` has its sentence."""

from __future__ import annotations

import re

_REFUSAL = re.compile(r"I (?:can only|cannot|can't|can not|do not know how to) ")


def is_refusal(answer: str) -> bool:
    """Whether this answer of nano's says that the question is beyond it."""
    return _REFUSAL.match(answer.lstrip()) is not None
