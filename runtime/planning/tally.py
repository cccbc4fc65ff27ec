"""Statistics of one or several simulated machines."""

from __future__ import annotations

import math
import operator
from array import array
from dataclasses import dataclass, field, fields


@dataclass
class Tally:
    """The statistics of a machine."""

    ttft: array[float] = field(default_factory=lambda: array("f"))
    tpot: array[float] = field(default_factory=lambda: array("f"))
    """Seconds of each request; tpot of those with more than one token."""
    finished: array[float] = field(default_factory=lambda: array("f"))
    """Conversation's seconds from its arrival to its end."""
    arrived: int = 0
    done: int = 0
    failed: int = 0
    """Conversations that came, ended, and could not."""
    good: int = 0
    """Requests that met both goals."""
    computed: int = 0
    adopted: int = 0
    written: int = 0
    """Tokens of prompts that were computed, and found; of replies."""
    passes: int = 0
    shared: int = 0
    """All passes, and those of several sequences."""
    evicted: int = 0
    preempted: int = 0
    """Conversations that lost their cache in a pause, and in a request."""
    busy_s: float = 0.0
    """Time in passes."""
    host_s: float = 0.0
    """Time between passes."""
    first_s: float = math.inf
    last_s: float = 0.0
    """When the first conversation came, and the last request ended or failed."""
    peak: float = 0.0
    kv_s: float = 0.0
    """Bytes of KV at most; bytes times seconds."""
    bound_s: dict[str, float] = field(default_factory=dict)
    """Time in passes by what bounds it."""

    def add(self, other: Tally) -> None:
        """Add another machine's statistics."""
        extremes = {"first_s": min, "last_s": max, "peak": max}
        for name in (one.name for one in fields(self) if one.name != "bound_s"):
            combine = extremes.get(name, operator.iadd)
            setattr(self, name, combine(getattr(self, name), getattr(other, name)))
        for bound, seconds in other.bound_s.items():
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + seconds
