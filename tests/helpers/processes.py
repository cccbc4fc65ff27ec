"""Processes that tests look at."""

from __future__ import annotations

import time
from pathlib import Path


def ended(pid: int) -> bool:
    """Whether a process ends within some seconds, being killed (a zombie has)."""
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
