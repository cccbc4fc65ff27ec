"""Processes that tests start and look at."""

from __future__ import annotations

import os
import time
from pathlib import Path

from triplepoint.jit.targets import MASK


def plain_environment(*prefixes: str) -> dict[str, str]:
    """This process's environment without the user's settings: names that begin so are left out.

    What the CPU is masked to stays: a process must see the machine that its test sees.
    """
    return {k: v for k, v in os.environ.items() if k == MASK or not k.startswith(prefixes)}


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
