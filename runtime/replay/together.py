"""Measures N recorded agents on one engine, concurrently and one by one.

Each agent does the work of a recorded run: its prompts, its decodes, whose tokens are given, and
the pauses of its tools as long as they were. Nothing of one agent's text is taken over by another,
so that the prefix cache saves neither way anything.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...errors import SettingError
from ...interrupts import completed, held
from ..engine.passes.shared_pass import Forecasts
from ..forward.logits import ROWS
from .simulate import Execution
from .workload import chosen_run, work_items

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..engine.engine import Engine


@dataclass
class Job:
    """One agent's run.

    Attributes:
        seconds: from its beginning to its end, tools included.
        tokens: decoded ones.
        ttft_s: from each question to the first token after it.
        tpot_s: mean time of a token after the first, of each decode.
        gaps_s: between each two tokens of a decode.
    """

    seconds: float = 0.0
    tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    tpot_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)


@dataclass
class Turns:
    """The rounds of all agents, either concurrent or one after another.

    Attributes:
        together: whether they are concurrent.
        seconds: of each round, from the first agent's beginning to the last one's end.
        jobs: of all rounds.
        forecasts: of the shared passes.
    """

    together: bool
    seconds: list[float] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    forecasts: Forecasts = field(default_factory=Forecasts)

    @property
    def jobs_per_hour(self) -> list[float]:
        """Jobs per hour of each round."""
        each = len(self.jobs) / len(self.seconds)
        return [3600.0 * each / seconds for seconds in self.seconds]

    @property
    def tokens_per_s(self) -> float:
        """Decoded tokens per second of all agents, in the median round."""
        each = sum(job.tokens for job in self.jobs) / len(self.seconds)
        return each / statistics.median(self.seconds)

    def quantile(self, name: str, share: float) -> float:
        """Return a quantile of ``ttft_s``, ``tpot_s`` or ``gaps_s`` over all jobs, in seconds."""
        found = [value for job in self.jobs for value in getattr(job, name)]
        return float(np.quantile(found, share)) if found else 0.0


def measure(engine: Engine, traces: Sequence[Trace], agents: int, repeat: int = 3) -> list[Turns]:
    """Run `agents` agents on the last runs of `traces`, in concurrent and serial rounds by turns.

    A first run does not count.

    Returns:
        The serial rounds, then the concurrent ones.

    Raises:
        SettingError: the number of agents is not one that can be run.
        ReplayError: a run does not fit the engine; names the field.
    """
    if not 1 <= agents <= ROWS:
        raise SettingError(f"from 1 to {ROWS} agents can be measured, not {agents}")
    for trace in traces:
        _Agent(engine, trace).run()
    alone, together = found = [Turns(False), Turns(True)]
    chosen = [traces[n % len(traces)] for n in range(agents)]
    for _ in range(repeat):
        began = time.perf_counter()
        alone.jobs += [_Agent(engine, trace).run() for trace in chosen]
        alone.seconds.append(time.perf_counter() - began)
        with engine.core.runner.observe_shared(together.forecasts.add):
            _at_once(together, [_Agent(engine, trace) for trace in chosen])
    return found


def _at_once(together: Turns, agents: Sequence[_Agent]) -> None:
    """Run one round of all agents, each in a thread."""
    starts: list[float] = []  # before the first of them continues
    ready = threading.Barrier(len(agents) + 1, lambda: starts.append(time.perf_counter()))
    with ThreadPoolExecutor(len(agents)) as threads:
        try:
            with held():
                jobs = [threads.submit(agent.run, ready) for agent in agents]
                ready.wait()
            for job in completed(jobs):
                job.result()  # the first that fails ends the others
            together.jobs += [job.result() for job in jobs]
            together.seconds.append(time.perf_counter() - starts[0])
        except BaseException:  # Ctrl-C too: the pool waits for its threads
            with held():
                ready.abort()
            for agent in agents:
                agent.stop()
            raise


class _Agent:
    """An agent that executes the work of a trace's last run, once."""

    def __init__(self, engine: Engine, trace: Trace) -> None:
        chosen, header = chosen_run(trace, -1)
        self._works = work_items(chosen)
        self._execution = Execution(engine, chosen, header, self._works)
        self._over = threading.Event()

    def stop(self) -> None:
        """Stop the work, the running phase included; callable from another thread."""
        with held():
            self._over.set()
        self._execution.stop()

    def run(self, ready: threading.Barrier | None = None) -> Job:
        """Execute the work, once all agents are ready if `ready` is given; return its times."""
        execution, job = self._execution, Job()
        if ready is not None:
            ready.wait()
        began = sent = time.perf_counter()
        turn = waits_for = None
        for work in self._works:
            phase = work.recorded
            if phase.turn != turn:  # a new question
                turn = waits_for = phase.turn
                sent = time.perf_counter()
            if not phase.tokens:
                execution.take_over(work)
                continue
            if self._over.wait(max(0.0, work.wait_s)):
                break
            times: list[float] = []
            execution.on_token = lambda times=times: times.append(time.perf_counter())
            execution.run(work)
            job.tokens += len(times)
            if times and waits_for is not None:
                job.ttft_s.append(times[0] - sent)
                waits_for = None
            if len(times) > 1:
                job.gaps_s += _gaps(times)
                job.tpot_s.append((times[-1] - times[0]) / (len(times) - 1))
        job.seconds = time.perf_counter() - began
        return job


def _gaps(times: list[float]) -> Iterator[float]:
    return (after - before for before, after in itertools.pairwise(times))
