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
    """Seconds of TTFT and of TPOT of each request; TPOT of those with several tokens."""
    finished: array[float] = field(default_factory=lambda: array("f"))
    """Seconds of each conversation, from its arrival to its end."""
    arrived: int = 0
    done: int = 0
    failed: int = 0
    """Number of conversations that arrived, ended, and failed."""
    good: int = 0
    """Number of requests that met the TTFT and TPOT goals."""
    computed: int = 0
    adopted: int = 0
    written: int = 0
    """Prompt tokens that were computed, and found in the prefix cache; output tokens."""
    passes: int = 0
    shared: int = 0
    """Number of all passes, and of those with several sequences."""
    evicted: int = 0
    preempted: int = 0
    """How often a conversation lost its pages in a pause, and in a request."""
    busy_s: float = 0.0
    """Seconds in passes."""
    host_s: float = 0.0
    """Seconds between passes."""
    first_s: float = math.inf
    last_s: float = 0.0
    """Times of the first arrival, and of the last end or failure of a request."""
    peak: float = 0.0
    kv_s: float = 0.0
    """Peak bytes of KV caches; bytes times seconds."""
    bound_s: dict[str, float] = field(default_factory=dict)
    """Seconds in passes, by bound."""

    def add(self, other: Tally) -> None:
        """Add another machine's statistics."""
        extremes = {"first_s": min, "last_s": max, "peak": max}
        for name in (one.name for one in fields(self) if one.name != "bound_s"):
            combine = extremes.get(name, operator.iadd)
            setattr(self, name, combine(getattr(self, name), getattr(other, name)))
        for bound, seconds in other.bound_s.items():
            self.bound_s[bound] = self.bound_s.get(bound, 0.0) + seconds
