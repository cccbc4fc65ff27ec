"""Marks of errors in a text: the two searches that nano knows by heart."""

from __future__ import annotations

import re
from functools import lru_cache

ERRORS = (
    r"error|\berr\b|fatal|crit|emerg|severe|exception|traceback|fail|panic|killed|out of memory"
    r"|segfault|core dumped|abort|^E[ :\d]"
)
"""The words that logs use."""
SIGNS = (
    r"cannot|can't|could not|unable|refused|denied|timed out|not found|no such|invalid"
    r"|unreachable|expired|exited|rejected|lost|corrupt"
)
"""What a failure says where no such word stands; searched for when `ERRORS` has no match."""


@lru_cache(16)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile as the search tool does; for these patterns both engines agree."""
    return re.compile(pattern, re.IGNORECASE)


def holds_mark(text: str) -> bool:
    """Return whether one of the two searches finds the line."""
    return compiled(f"{ERRORS}|{SIGNS}").search(text) is not None
