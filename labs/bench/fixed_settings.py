"""The policy's settings compared with each of them fixed at one value.

All variants run in turns in one process, a round of all of them for each repetition, and a time is
compared with the policy's of the same round: what moves the machine moves both. A whole run of an
agent is run too: its phases' numbers of tokens, with random ids, and its tools as pauses.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from triplepoint.runtime import memory
from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.engine.policy.choices import SPIN_MOST_S
from triplepoint.runtime.physics.timed_passes import Case
from triplepoint.traces.reader import Trace

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.policy.autotune import Autotuner

POLICY = "policy"
GROUPS: dict[str, Sequence[str]] = {
    "threads": (),  # those that the machine has
    "chunk": ("128", "256", "512", "1024"),
    "kv_split": ("on", "off"),
    "spin": ("0us", "50us", "300us", "5ms"),
    "tile": ("4", "6", "8"),
    "max_single_tile": ("6", "9"),
    "pages": ("on", "off"),
}
TESTS = "tg16,tg16@1024,tg16@3900,tg16@4096,pp4,pp13,pp36,pp461,pp1096"
MAX_PAUSE_S = 0.02  # of a tool: what comes after a longer one finds threads as much asleep


@dataclass(frozen=True, slots=True)
class AgentRun:
    """The phases of a recorded run: tokens read or written, and the pause before.

    Attributes:
        steps: (tokens, whether they are decoded, seconds of tools before).
    """

    name: str
    steps: tuple[tuple[int, bool, float], ...]

    @classmethod
    def of(cls, trace: Trace, name: str) -> AgentRun:
        """Return the schedule of a trace."""
        steps: list[tuple[int, bool, float]] = []
        events = sorted([*trace.phases, *trace.tools], key=lambda event: event.seq)
        pause = 0.0
        for event in events:
            if event.event == "tool":
                pause += min(MAX_PAUSE_S, event.duration_s)
            elif event.tokens:
                steps.append((event.tokens, event.phase == "decode", pause))
                pause = 0.0
        return cls(name, tuple(steps))

    def within(self, context: int) -> AgentRun:
        """Return the part that fits a context."""
        ends = itertools.accumulate(tokens for tokens, *_ in self.steps)
        pairs = zip(self.steps, ends, strict=True)
        return replace(self, steps=tuple(step for step, end in pairs if end < context))

    @property
    def tokens(self) -> int:
        return sum(tokens for tokens, *_ in self.steps)

    @property
    def end(self) -> int:
        """Maximum tokens of the session."""
        return self.tokens + 1

    def measure(self, timer: EngineTimer) -> float:
        """Return the seconds of its phases, without pauses."""
        session, total, at = timer.session, 0.0, 0
        session.truncate(0)
        timer.forget()
        for tokens, decode, pause in self.steps:
            if pause:
                time.sleep(pause)
            began = time.perf_counter()
            if decode:
                for _ in session.decode(max_tokens=tokens, stop=()):
                    pass
            else:
                session.prefill(timer.ids[at : at + tokens])
            total += time.perf_counter() - began
            at += tokens
        return total


@dataclass
class Compared:
    """Times of one case by variant, one for each round."""

    name: str
    tokens: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Median tokens per second of the policy."""
        return self.tokens / statistics.median(self.seconds[POLICY])

    def ratios(self, variant: str) -> list[float]:
        """Return a variant's speed over the policy's, round by round."""
        pairs = zip(self.seconds[POLICY], self.seconds[variant], strict=True)
        return [policy / fixed for policy, fixed in pairs]

    def ratio(self, variant: str) -> float:
        """Return the median of `ratios`: above 1 the fixed setting is faster."""
        return statistics.median(self.ratios(variant))

    def spread(self, variant: str) -> float:
        """Return half the distance between the quartiles of the ratios."""
        found = self.ratios(variant)
        if len(found) < 2:
            return 0.0
        low, _, high = statistics.quantiles(found, n=4, method="inclusive")
        return (high - low) / 2


def variants(groups: Sequence[str], threads: int) -> dict[str, dict[str, str]]:
    """Return names and fixed settings; the policy comes first."""
    counts = sorted({1, 2, threads // 2, threads} & set(range(1, threads + 1)))
    found: dict[str, dict[str, str]] = {POLICY: {}}
    for group in groups:
        values = [str(n) for n in counts] if group == "threads" else GROUPS[group]
        found |= {f"{group}={value}": {group: value} for value in values}
    return found


class Ablation:
    """The variants of one model, ready to be timed."""

    def __init__(
        self,
        load: Callable[[Mapping[str, Any]], Engine],
        cases: Sequence[Case | AgentRun],
        groups: Sequence[str],
    ) -> None:
        """Create the engines; load: the model's engine with given settings.

        Runs end where the context does; cases that do not fit are left out.
        """
        self._engines = [load({})]
        policy = self._last = self._engines[0]
        self.context = policy.context
        fitting = [
            case.within(self.context) if isinstance(case, AgentRun) else case for case in cases
        ]
        self.cases = [case for case in fitting if case.tokens and case.end <= self.context]
        longest = max((case.end for case in self.cases), default=2)
        self._timers: dict[str, EngineTimer] = {}
        self._tunings: dict[str, Autotuner] = {}
        shared: dict[tuple[object, ...], EngineTimer] = {}
        for name, given in variants(groups, policy.threads).items():
            engine = policy
            if "pages" in given and (given["pages"] == "on") != policy.loaded.tuning.large_pages:
                engine = load(given)
                self._engines.append(engine)
            # Two engines take each other's cores; and a fixed setting is to stay as it is.
            engine.loaded.contention.on = False
            tuning = engine.loaded.tuning if not given else engine.loaded.tuning.override(given)
            own, engine.loaded.tuning = engine.loaded.tuning, tuning
            key = id(engine), tuning.chunk, *tuning.tiles.items()
            if key not in shared:
                shared[key] = EngineTimer(engine, [Case(prompt=longest - 1)])
            engine.loaded.tuning = own
            self._timers[name], self._tunings[name] = shared[key], tuning

    @property
    def names(self) -> list[str]:
        return list(self._timers)

    @property
    def policy(self) -> Autotuner:
        """The chosen settings."""
        return self._tunings[POLICY]

    def run(self, repeat: int) -> Iterator[Compared]:
        """Run each case in turn: a warm-up round, then so many that count."""
        chance = random.Random(1)
        for case in self.cases:
            found = Compared(case.name, case.tokens, {name: [] for name in self.names})
            for round_ in range(repeat + 1):
                # Shuffled: what a variant leaves in the caches is not always for the same other.
                for name in chance.sample(self.names, len(self.names)):
                    seconds = self._measure(name, case)
                    if round_:
                        found.seconds[name].append(seconds)
            yield found

    def _measure(self, name: str, case: Case | AgentRun) -> float:
        timer, tuning = self._timers[name], self._tunings[name]
        if timer.engine is not self._last:
            # The other engine's threads spin on the same cores until they park.
            time.sleep(2 * SPIN_MOST_S)
            self._last = timer.engine
        timer.engine.loaded.tuning = tuning
        tuning.apply()
        memory.advise_huge_pages(tuning.large_pages)
        return timer.measure(case) if isinstance(case, Case) else case.measure(timer)

    def close(self) -> None:
        """Stop the threads of all engines."""
        for engine in self._engines:
            engine.close()
