"""Admission control: fair queueing by key, and prediction of TTFT.

Requests that find no place wait in line. Of the keys that wait, those that were given least go
first; a conversation that comes back from its tools goes before new ones, but overtakes none more
than `OVERTAKES` times, and no key gets more than `LEAD_S` seconds of work ahead of another one that
waits. Work is counted in seconds that the latency model expects of it.

The same model says when a request will have its first token: a client that needs it sooner is
refused at once, with the time to come back.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....traces.timeline import duration
from ..http.api_error import APIError, busy
from .programs import session_of
from .telemetry import parent_of

if TYPE_CHECKING:
    from ...engine.engine import Engine

DEADLINE_HEADER = "x-ttft-deadline-ms"
LEAD_S = 10.0
OVERTAKES = 4
USUAL_TOKENS = 256.0  # of an answer, before there was one
WEIGHT = 0.2  # of the newest among what was observed
MAX_ERROR = 4.0  # observed by predicted seconds that is believed


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    namespace: str = ""
    """Namespace of its key; see `PrefixCache`. "": the server has no keys."""
    session: str | None = None
    """The session that an agent names."""
    deadline_s: float | None = None
    """Seconds from the arrival until the first token has to be there; None: no limit."""
    parent: tuple[str, str] | None = None
    """Trace and span of the client that the request is part of."""
    request_id: str = ""
    """Identifier of the request in HTTP."""

    @classmethod
    def of(cls, headers: Mapping[str, str], namespace: str, request_id: str = "") -> Caller:
        """Read the caller from a request's headers.

        Raises:
            APIError: the deadline is none.
        """
        deadline = headers.get(DEADLINE_HEADER)
        if deadline is not None and not (
            deadline.isascii() and deadline.isdigit() and 0 < len(deadline) < 10 and int(deadline)
        ):
            raise APIError(
                f"{DEADLINE_HEADER} must be a whole number of milliseconds above 0",
                param=DEADLINE_HEADER,
                code="invalid_value",
            )
        seconds = None if deadline is None else int(deadline) / 1000
        parent = parent_of(headers.get("traceparent"))
        return cls(namespace, session_of(headers), seconds, parent, request_id)


@dataclass(eq=False, slots=True)
class QueueSlot:
    """A request in the queue."""

    start: Callable[[], None]
    """Called when its turn has come."""
    namespace: str = ""
    """Namespace of its key."""
    returning: bool = False
    """Whether it continues a conversation."""
    prefill_s: float = 0.0
    """Predicted seconds to read its prompt."""
    token_s: float = 0.0
    """Predicted seconds for each token."""
    max_tokens: float | None = None
    """Tokens of its answers together; None: no limit was given."""
    overtaken: int = 0
    """How many that came later, and were returning, went before it."""
    read: bool = False
    """Whether its prompt is read."""
    written: Callable[[], int] = int
    """Returns the number of tokens so far."""
    number: int = 0
    joined: float = field(default_factory=time.perf_counter)
    expected_s: float = 0.0


class Line:
    """Who runs and who waits. Safe to use from several threads.

    Args:
        slots: requests that run at once.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lock = threading.Lock()
        self._running: set[QueueSlot] = set()
        self._waiting: list[QueueSlot] = []
        self._served: dict[str, float] = {}  # seconds of work by namespace
        self._numbers = itertools.count()
        self._error = 1.0  # observed by predicted seconds, of late
        self._tokens = USUAL_TOKENS  # of an answer, of late

    @property
    def load(self) -> tuple[int, int]:
        """Requests that run, and that wait."""
        return len(self._running), len(self._waiting)

    def join(self, slot: QueueSlot, deadline_s: float | None = None) -> None:
        """Wait for a turn, which may come at once: `start` is called then.

        Args:
            deadline_s: from now on, when the first token has to be there.

        Raises:
            APIError: it will not be; says when it could.
        """
        with self._lock:
            slot.expected_s = self._predict(slot)
            seconds = slot.expected_s * self._error
            if deadline_s is not None and seconds > deadline_s:
                late = f"the first token would take {duration(seconds)}, more than the "
                late += f"{duration(deadline_s)} that are left"
                late = late if deadline_s > 0 else "the deadline of the first token has passed"
                raise busy(
                    f"{late}; try again later",
                    status=429,
                    wait_s=seconds - deadline_s,
                )
            here = {other.namespace for other in (*self._running, *self._waiting)}
            served = self._served.get(slot.namespace, 0.0)
            if slot.namespace not in here:  # what it did not ask for earlier is no claim
                served = max(served, min((self._served[name] for name in here), default=0.0))
            self._served[slot.namespace] = served
            slot.number = next(self._numbers)
            self._waiting.append(slot)
        self._fill()

    def leave(self, slot: QueueSlot) -> bool:
        """Remove a request that waits; return whether it did."""
        with self._lock:
            if slot not in self._waiting:
                return False
            self._waiting.remove(slot)
            return True

    def prompt_read(self, slot: QueueSlot) -> None:
        """Note that the prompt is read: the first token is about to come."""
        with self._lock:
            slot.read = True
            if slot.expected_s > 0:
                ratio = (time.perf_counter() - slot.joined) / slot.expected_s
                ratio = min(MAX_ERROR, max(1 / MAX_ERROR, ratio))
                self._error += WEIGHT * (ratio - self._error)

    def ended(self, slot: QueueSlot) -> None:
        """Free the slot of a request that has ended, and start the next."""
        with self._lock:
            if slot not in self._running:
                return
            self._running.remove(slot)
            written = slot.written()
            self._served[slot.namespace] += written * slot.token_s
            if written:
                self._tokens += WEIGHT * (written - self._tokens)
        self._fill()

    def slot_s(self) -> float:
        """Predict the seconds until one that runs ends."""
        with self._lock:
            return self._error * min(map(self._left_s, self._running), default=0.0)

    def _fill(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or len(self._running) >= self._slots:
                    return
                slot = self._next()
                self._waiting.remove(slot)
                self._running.add(slot)
                self._served[slot.namespace] += slot.prefill_s
            slot.start()

    def _next(self) -> QueueSlot:
        """Choose the next of those that wait."""
        lowest = min(self._served[slot.namespace] for slot in self._waiting)
        there = [p for p in self._waiting if self._served[p.namespace] <= lowest + LEAD_S]
        found = min(
            there,
            key=lambda p: (
                p.overtaken < OVERTAKES,
                not p.returning,
                self._served[p.namespace],
                p.number,
            ),
        )
        if found.returning:
            for slot in self._waiting:
                slot.overtaken += slot.number < found.number and not slot.returning
        return found

    def _predict(self, slot: QueueSlot) -> float:
        """Predict the seconds until its first token."""
        before = [p for p in self._waiting if p.returning or not slot.returning]
        queued = [p.prefill_s for p in (*self._running, *before) if not p.read]
        work = sum(queued) + slot.prefill_s
        late = len(self._running) + len(before) - self._slots
        if late < 0:
            return work
        ends = sorted(map(self._left_s, self._running))
        rounds, number = divmod(late, self._slots)
        later = sum(map(self._left_s, before)) / self._slots if rounds else 0.0
        # Nothing runs for the moment between the end of one and the start of the next.
        first = ends[min(number, len(ends) - 1)] if ends else 0.0
        return max(work, first + later + slot.prefill_s)

    def _left_s(self, slot: QueueSlot) -> float:
        """Predict the seconds until one ends."""
        limit = self._tokens if slot.max_tokens is None else min(slot.max_tokens, self._tokens)
        tokens = max(1.0, limit - slot.written())
        return (0.0 if slot.read else slot.prefill_s) + tokens * slot.token_s


def prefill_s(engine: Engine, tokens: int, cached: int) -> float:
    """Predict the seconds to read the rest of a prompt, on an engine of its own."""
    tuning = engine.loaded.tuning
    starts = range(max(0, min(cached, tokens - 1)), tokens, max(1, tuning.chunk))
    return math.fsum(tuning.pass_s(min(tuning.chunk, tokens - at), at) for at in starts)
