"""Admission control: fair queueing by key, and prediction of TTFT.

Requests that exceed the slots wait in a queue. Of the keys that wait, those that were served least
go first; a conversation that comes back from its tools goes before new ones, but overtakes none
more than `OVERTAKES` times, and no key gets more than `LEAD_S` seconds of work ahead of another one
that waits. Work is counted in seconds that the latency model predicts.

The same model predicts the first token of a request: one with an earlier deadline is refused at
once, with the time to come back.
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
    """Namespace of its API key; see `PrefixCache`. Empty: the server has no keys."""
    session: str | None = None
    """Session ID from an agent's headers."""
    deadline_s: float | None = None
    """Deadline of the first token in seconds from the arrival; None: no deadline."""
    parent: tuple[str, str] | None = None
    """Trace and span ID of the client's ``traceparent``."""
    request_id: str = ""
    """Request ID in HTTP."""

    @classmethod
    def of(cls, headers: Mapping[str, str], namespace: str, request_id: str = "") -> Caller:
        """Read the caller from a request's headers.

        Raises:
            APIError: the deadline is not a number of milliseconds.
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
    """Starts the request; called once it is admitted."""
    namespace: str = ""
    """Namespace of its API key."""
    returning: bool = False
    """Whether it continues a paused conversation."""
    prefill_s: float = 0.0
    """Predicted seconds of its prefill."""
    token_s: float = 0.0
    """Predicted seconds of each decoded token."""
    max_tokens: float | None = None
    """Maximum tokens of all answers together; None: no limit."""
    overtaken: int = 0
    """Number of returning requests that came later and were admitted before it."""
    read: bool = False
    """Whether its prefill has ended."""
    written: Callable[[], int] = int
    """Returns the number of tokens decoded so far."""
    number: int = 0
    joined: float = field(default_factory=time.perf_counter)
    expected_s: float = 0.0


class Line:
    """The admission queue, and the running requests; safe to use from several threads.

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
        """Numbers of running and of waiting requests."""
        return len(self._running), len(self._waiting)

    def join(self, slot: QueueSlot, deadline_s: float | None = None) -> None:
        """Queue a request; `start` is called when it is admitted, which may be at once.

        Args:
            deadline_s: seconds from now until the first token is due.

        Raises:
            APIError: the deadline cannot be met; says when it could.
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
        """Remove a waiting request; return whether it was waiting."""
        with self._lock:
            if slot not in self._waiting:
                return False
            self._waiting.remove(slot)
            return True

    def prompt_read(self, slot: QueueSlot) -> None:
        """Record the end of a prefill, and calibrate the prediction on its time."""
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
        """Predict the seconds until a running request ends."""
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
        """Choose the waiting request to admit next."""
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
        """Predict the seconds until the first token of a request, not yet calibrated."""
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
        """Predict the seconds of work that a request has left."""
        limit = self._tokens if slot.max_tokens is None else min(slot.max_tokens, self._tokens)
        tokens = max(1.0, limit - slot.written())
        return (0.0 if slot.read else slot.prefill_s) + tokens * slot.token_s


def prefill_s(engine: Engine, tokens: int, cached: int) -> float:
    """Predict the seconds to prefill the uncached part of a prompt, alone on an engine."""
    tuning = engine.loaded.tuning
    starts = range(max(0, min(cached, tokens - 1)), tokens, max(1, tuning.chunk))
    return math.fsum(tuning.pass_s(min(tuning.chunk, tokens - at), at) for at in starts)
