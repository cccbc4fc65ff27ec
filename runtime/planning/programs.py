"""Programs: the requests of conversations, from traces or generated.

A program is a chain of requests. Each brings some tokens behind all that came before, gets a reply
of some tokens, and is followed by a pause: a tool, or a person. Programs that begin alike share
their first tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...errors import SettingError
from ..replay.workload import run_of, work_items

if TYPE_CHECKING:
    from ...traces.reader import Trace

MAX_REQUESTS = 1000  # of a made-up conversation, on average: no context holds more


class Request(NamedTuple):
    """One request: seconds of pause before it, tokens that it adds, tokens of the reply."""

    pause_s: float
    new: int
    reply: int


@dataclass(frozen=True, slots=True)
class Program:
    """One conversation: its requests, and the prefix that it shares."""

    requests: tuple[Request, ...]
    shared: int = 0
    """Number of first tokens that all programs of the same `group` share."""
    group: int = -1
    """Group of programs with the same prefix; -1: no shared prefix."""
    kept: bool = True
    """Whether the next request finds the tokens of each reply cached: all but the last in our
    agent, which keeps its ledger; else a client sends texts that are tokenized anew, whose tokens
    are then among the new ones of the next request."""

    @property
    def prompt(self) -> int:
        """Number of tokens that requests add."""
        return sum(request.new for request in self.requests)

    @property
    def written(self) -> int:
        """Number of tokens of all replies."""
        return sum(request.reply for request in self.requests)

    @property
    def length(self) -> int:
        """Number of KV cache positions that the conversation needs."""
        return self.prompt + (self.written if self.kept else self.requests[-1].reply)


def of_trace(trace: Trace, group: int = 0) -> list[Program]:
    """Return a program for each run of a trace.

    A trace does not say where beginnings part: half of the first prompt is taken as shared, of the
    first run's or of its own, whichever is smaller.

    Raises:
        ReplayError: the trace has no phases whose sizes fit together.
    """
    found: list[Program] = []
    first = 0
    for number in range(len(trace.runs)):
        run, header = run_of(trace, number)
        if header.config.get("server"):
            continue
        requests: list[Request] = []
        new, pause = 0, 0.0
        for work in work_items(run):
            phase = work.recorded
            pause += work.wait_s
            if phase.phase == "prefill":
                new += work.computed
            elif phase.tokens:
                requests.append(Request(pause, max(1, new), phase.tokens))
                new, pause = 0, 0.0
        if requests:
            first = first or requests[0].new
            system = min(first, requests[0].new) // 2 if group >= 0 else 0
            found.append(Program(tuple(requests), system, group))
    return found


@dataclass(frozen=True, slots=True)
class Mix:
    """The distribution of generated programs: means of their sizes and pauses."""

    shared: int = 1500
    """Tokens of the system prompt, which all programs share."""
    new: int = 400
    """Tokens that a request adds, from a fifth to five times of it."""
    reply: int = 80
    """Tokens of a reply, from half to twice of it."""
    requests: int = 4
    """Requests of a conversation, on average."""
    tool_s: float = 0.5
    """Seconds of a tool, exponentially distributed."""
    person_s: float = 0.0
    """Seconds of a person, after `every` requests on average."""
    every: int = 3

    def __post_init__(self) -> None:
        for name in ("new", "reply", "requests", "every"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.requests > MAX_REQUESTS:
            raise SettingError(f"requests must be at most {MAX_REQUESTS:,}, not {self.requests:,}")
        if self.shared < 0 or self.tool_s < 0 or self.person_s < 0:
            raise SettingError("shared tokens and pauses must be at least 0")

    def draw(self, count: int, seed: int) -> Iterator[Program]:
        """Draw `count` programs, deterministic by seed."""
        chance, limit = random.Random(seed), 10 * self.requests  # one of some 20,000 has more
        for _ in range(count):
            n = 1 + int(chance.expovariate(1.0 / (self.requests - 0.5)))
            n = min(limit, n) if self.requests > 1 else 1
            requests = []
            for at in range(n):
                pause = chance.expovariate(1.0 / self.tool_s) if at and self.tool_s else 0.0
                if at and self.person_s and chance.random() < 1 / self.every:
                    pause = chance.expovariate(1.0 / self.person_s)
                new = max(1, round(self.new * 0.2 * 25 ** chance.random() / _LOG_MEAN))
                reply = max(1, round(self.reply * 0.5 * 4 ** chance.random() / _LOG_MEAN_4))
                requests.append(Request(pause, new + (self.shared if not at else 0), reply))
            yield Program(tuple(requests), self.shared, 0 if self.shared else -1)


_LOG_MEAN = 0.2 * 24 / math.log(25)  # mean of 0.2 * 25^u for u from 0 to 1
_LOG_MEAN_4 = 0.5 * 3 / math.log(4)


def arrivals(count: int, rate: float, seed: int) -> Iterator[float]:
    """Yield the start times of conversations in s: a Poisson process; all 0 where rate is 0."""
    chance, at = random.Random(seed * 7919 + 1), 0.0
    for _ in range(count):
        if rate > 0:
            at += chance.expovariate(rate)
        yield at


def repeated(programs: Sequence[Program], count: int, seed: int) -> Iterator[Program]:
    """Draw `count` of the recorded programs."""
    if not programs:
        raise SettingError("there are no programs to simulate: the traces have no requests")
    chance = random.Random(seed * 104_729 + 5)
    return (programs[chance.randrange(len(programs))] for _ in range(count))
