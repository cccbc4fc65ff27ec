"""Conversations that pause for tool calls: their prefixes stay cached until they return.

An agent's conversation is many requests. Between two of them a tool runs, and the computed prefix
would be evicted first, being the oldest. So it is kept, for about as long as that tool has taken so
far, and the request that continues it is recognized: by the session ID in agents' headers, else by
a prompt that begins with the one before.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

SESSION_HEADERS = (
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "session-id",
    "thread-id",
    "x-session-id",
)
"""Session headers of Claude Code, Codex and OpenCode; all that a request has form one ID."""
TTL_S = 60.0  # of a tool that nothing is known of: 19 of 20 calls take less
MIN_TTL_S, MAX_TTL_S = 5.0, 300.0
MARGIN = 2.0  # times what nine of ten pauses took
ENOUGH = 3  # pauses that say something
REMEMBERED_S = 3600.0  # a conversation that comes later is a new one
MAX_PROGRAMS = 1024
MAX_TOOLS = 1024  # whose pauses are remembered


Key = tuple[str, str, str | bytes]


def session_of(headers: Mapping[str, str]) -> str | None:
    """Return the session ID in an agent's headers; None without one."""
    named = [f"{name}={headers[name][:200]}" for name in SESSION_HEADERS if headers.get(name)]
    return " ".join(named) or None


@dataclass(frozen=True, slots=True)
class Pause:
    """A conversation that waits for its tools."""

    read: list[int]
    """Tokens of its last prompt, a likely prefix of the next one."""
    tools: tuple[str, ...]
    """Names of the called tools."""
    since: float
    """When its answer ended, by `time.monotonic`."""


class Programs:
    """The paused conversations of a server; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pauses: OrderedDict[Key, Pause] = OrderedDict()
        self._took: OrderedDict[tuple[str, str], deque[float]] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of paused conversations."""
        return len(self._pauses)

    def knows(self, namespace: str, model: str, session: str | None, ids: list[int]) -> bool:
        """Return whether a prompt continues a conversation that is paused."""
        with self._lock:
            self._forget(time.monotonic())
            return self._find(namespace, model, session, ids) is not None

    def returns(
        self,
        namespace: str,
        model: str,
        session: str | None,
        ids: list[int],
        at: float | None = None,
    ) -> bool:
        """Return whether a prompt continues a paused conversation, and end the pause.

        A session may ask for something else meanwhile, such as a title: then the pause stays.

        Args:
            namespace, model, session, ids: of the request.
            at: time of arrival by `time.monotonic`; None: now. Its queueing is no tool's time.
        """
        now = time.monotonic() if at is None else at
        with self._lock:
            self._forget(now)
            key = self._find(namespace, model, session, ids)
            if key is None:
                return False
            pause = self._pauses[key]
            if ids[: len(pause.read)] == pause.read:
                del self._pauses[key]
                for tool in pause.tools:
                    self._history(namespace, tool).append(max(0.0, now - pause.since))
            return True

    def paused(
        self,
        namespace: str,
        model: str,
        session: str | None,
        read: list[int],
        tools: Iterable[str],
    ) -> float:
        """Record the pause of a conversation for tools; return the seconds to keep its prefix."""
        tools = tuple(dict.fromkeys(tools))
        key = namespace, model, session or _digest(read)
        now = time.monotonic()
        with self._lock:
            self._pauses.pop(key, None)
            self._pauses[key] = Pause(read, tools, now)
            self._forget(now)
            return max((self._ttl(namespace, tool) for tool in tools), default=TTL_S)

    def _find(self, namespace: str, model: str, session: str | None, ids: list[int]) -> Key | None:
        if session is not None:
            key = namespace, model, session
            return key if key in self._pauses else None
        # The longest one: each is known by its length and digest, and all of them in one go.
        lengths = {
            len(pause.read)
            for (owner, name, what), pause in self._pauses.items()
            if owner == namespace and name == model and isinstance(what, bytes)
        }
        found: Key | None = None
        running, at = hashlib.sha256(), 0
        for length in sorted(lengths):
            if length > len(ids):
                break
            running.update(np.array(ids[at:length], np.int64).tobytes())
            at = length
            key = namespace, model, running.digest()
            found = key if key in self._pauses else found
        return found

    def _forget(self, now: float) -> None:
        while self._pauses:
            key, pause = next(iter(self._pauses.items()))
            if len(self._pauses) <= MAX_PROGRAMS and now - pause.since <= REMEMBERED_S:
                return
            del self._pauses[key]

    def _history(self, namespace: str, tool: str) -> deque[float]:
        found = self._took.pop((namespace, tool), None) or deque[float](maxlen=32)
        self._took[namespace, tool] = found  # as the last one
        if len(self._took) > MAX_TOOLS:
            self._took.popitem(last=False)
        return found

    def _ttl(self, namespace: str, tool: str) -> float:
        """Return the seconds to keep a prefix while a tool runs; 0 if it usually takes too long."""
        took = sorted(self._took.get((namespace, tool), ()))
        if len(took) < ENOUGH:
            return TTL_S
        if took[len(took) // 2] > MAX_TTL_S:
            return 0.0
        usual = took[math.ceil(0.9 * len(took)) - 1]
        return min(MAX_TTL_S, max(MIN_TTL_S, MARGIN * usual))


def _digest(ids: list[int]) -> bytes:
    return hashlib.sha256(np.array(ids, np.int64).tobytes()).digest()
