"""Throughput in tokens per second over the last seconds, for the status page."""

from __future__ import annotations

import threading
import time
from collections import deque

RATE_S = 10.0  # over which rates are given


class Meter:
    """A sliding-window counter of tokens; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: deque[tuple[float, float, int]] = deque()  # since, until, tokens

    def add(self, tokens: int, seconds: float = 0.0) -> None:
        """Count tokens that were computed within the last `seconds`."""
        now = time.perf_counter()
        with self._lock:
            self._spans.append((now - seconds, now, tokens))
            while self._spans[0][1] < now - RATE_S:
                self._spans.popleft()

    def rate(self) -> float:
        """Return the tokens per second over the last `RATE_S` seconds."""
        begin = time.perf_counter() - RATE_S
        with self._lock:
            spans = list(self._spans)
        found = 0.0
        for since, until, tokens in spans:
            if until >= begin:
                part = (until - begin) / (until - since) if since < begin else 1.0
                found += part * tokens
        return found / RATE_S


class Meters:
    """Throughput of all requests: computed prompt tokens, and decoded tokens."""

    def __init__(self) -> None:
        self.prompt, self.generation = Meter(), Meter()
