"""Validation of the forecast: concurrent agents on this machine, measured and simulated.

A clock is learned from other agents than those that are measured: what passes take, by what the
latency model says of them, and what the host does between two.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveInt, TypeAdapter

from ...arguments import is_file
from ...errors import SettingError
from ..bench.load import Load
from ..physics.costs import Part
from .clock import Corrections, Seen
from .fleet import Result, Scenario, simulate
from .forecaster import Forecaster
from .machine_sim import Policy
from .programs import Program, Request

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.passes.request import Batch, StepResult

GOALS = {"throughput": 0.10, "TTFT p50": 0.15, "TTFT p99": 0.30}
"""Tolerances of the relative errors of a forecast."""
HEAD = ("agents", "what", "measured", "min … max", "simulated", "error", "goal")
_MEASURED = {"throughput", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99"}


@contextmanager
def watching(engine: Engine) -> Iterator[list[Seen]]:
    """Record the passes that the engine runs while the context is open, in order."""
    runner, found, lock = engine.core.runner, list[Seen](), threading.Lock()
    times: list[tuple[tuple[Part, ...], float, float, float]] = []
    run = runner.run

    def timed(parts: tuple[Part, ...], began: float, expected: float) -> None:
        with lock:
            times.append((parts, began, time.perf_counter(), expected))

    def watched(batch: Batch, plan: Any = None) -> list[StepResult]:
        parts = tuple(
            Part(n, one.start, one.outputs if n == len(one.ids) else 0) for one, n in batch.parts
        )
        expected = engine.loaded.tuning.expect_mixed(parts)[1] if len(parts) > 1 else 0.0
        began = time.perf_counter()
        results = run(batch, plan)
        timed(parts, began, expected)
        return results

    runner.run = watched
    try:
        yield found
    finally:
        runner.run = run
        for n, (parts, began, ended, expected) in enumerate(times):
            following = times[n + 1][1] if n + 1 < len(times) else ended
            found.append(Seen(parts, ended - began, following - ended, expected))


def programs_of(load: Load) -> list[Program]:
    """Return the programs of a load: pauses, and sizes of prompts and replies, without times.

    What was found of prompts is not taken from the run but for the length of the shared beginning.
    """
    found: list[Program] = []
    firsts = [job.replies[0].cached for job in load.jobs if job.replies]
    shared = statistics.mode(firsts) if firsts else 0
    for agent, job in enumerate(load.jobs):
        requests, last = list[Request](), 0
        for reply, (pause, _) in zip(job.replies, load.work.script(agent), strict=False):
            requests.append(Request(pause, max(1, reply.prompt - last), max(1, reply.written)))
            last = reply.prompt
        group = 0 if shared and shared < requests[0].new else -1
        found.append(Program(tuple(requests), shared if not group else 0, group, kept=False))
    return found


@dataclass(frozen=True)
class Round:
    """A measured round of concurrent agents: their programs, and results by name."""

    agents: int
    programs: tuple[Program, ...]
    measured: dict[str, float]

    @classmethod
    def of(cls, load: Load) -> Round:
        """Build the round of a measured load."""
        measured = {"throughput": load.written / load.seconds}
        for name in ("ttft", "tpot"):
            for label, share in (("p50", 0.5), ("p99", 0.99)):
                measured[f"{name.upper()} {label}"] = load.quantile(name, share)
        return cls(len(load.jobs), tuple(programs_of(load)), measured)

    def as_json(self) -> str:
        """Serialize the round as a line of a file of rounds."""
        programs = [[one.requests, one.shared, one.group, one.kept] for one in self.programs]
        return json.dumps([self.agents, programs, self.measured])


def read_rounds(path: Path) -> list[Round]:
    """Read the rounds of a file that `plan --validate --rounds FILE` has written.

    Raises:
        SettingError: it is no such file.
    """
    try:
        if not is_file(path, "cannot read the rounds", SettingError):
            return []
        lines = path.read_text(encoding="utf-8").splitlines()
        return [_round(line) for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"cannot read the rounds {path}: {error}") from None
    except ValueError:
        raise SettingError(f"{path} has no rounds of `plan --validate`") from None


_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Tokens = Annotated[int, Field(gt=0, lt=1 << 40)]
_Requests = Annotated[list[tuple[_Seconds, _Tokens, _Tokens]], Field(min_length=1)]
_Programs = Annotated[list[tuple[_Requests, int, int, bool]], Field(min_length=1)]


@cache
def _file_line() -> TypeAdapter[tuple[int, _Programs, dict[str, float]]]:
    """Return the form of a line: agents, programs as `Program` has them, measured figures."""
    return TypeAdapter(tuple[PositiveInt, _Programs, dict[str, _Seconds]])


def _round(line: str) -> Round:
    agents, programs, measured = _file_line().validate_json(line, strict=True)
    if set(measured) != _MEASURED or not all(measured[name] > 0 for name in GOALS):
        raise ValueError("no round")
    found = (
        Program(tuple(Request(*one) for one in requests), shared, group, keeps)
        for requests, shared, group, keeps in programs
    )
    return Round(agents, tuple(found), measured)


@dataclass
class Compared:
    """Rounds of equally many agents, measured and simulated."""

    agents: int
    rounds: list[Round] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    """The simulation of each round, with the same programs."""

    def add(self, one: Round, forecaster: Forecaster, seen: Corrections) -> None:
        """Simulate a measured round."""
        scenario = Scenario(
            forecaster, seen, programs=one.programs, in_order=True, exact=True, policy=Policy()
        )
        self.rounds.append(one)
        self.results.append(simulate(scenario, 1))

    def pairs(self) -> list[tuple[str, list[float], list[float]]]:
        """Return the compared figures: name, measured and simulated, a value for each round."""
        found = []
        for name in self.rounds[0].measured:
            what, _, label = name.lower().partition(" p")
            simulated = [
                one.quantile(what, int(label) / 100) if label else one.tokens_per_s
                for one in self.results
            ]
            found.append((name, [one.measured[name] for one in self.rounds], simulated))
        return found

    def errors(self) -> list[tuple[str, float, float]]:
        """Return name, error of the median round, and the tolerance."""
        return [
            (name, statistics.median(simulated) / statistics.median(real) - 1.0, GOALS[name])
            for name, real, simulated in self.pairs()
            if name in GOALS
        ]

    @property
    def met(self) -> bool:
        """Whether all errors are within their tolerance."""
        return all(abs(error) <= goal for _, error, goal in self.errors())

    def lines(self) -> list[list[str]]:
        """Format the comparison as rows of a table."""
        found = []
        for name, real, simulated in self.pairs():
            middle, forecast = statistics.median(real), statistics.median(simulated)
            goal = GOALS.get(name)
            found.append(
                [
                    str(self.agents),
                    name,
                    f"{middle:.3g}",
                    f"{min(real):.3g} … {max(real):.3g}",
                    f"{forecast:.3g}",
                    f"{forecast / middle - 1:+.0%}" if middle else "–",
                    f"{goal:.0%}" if goal is not None else "–",
                ]
            )
        return found


def compare(rounds: Sequence[Round], forecaster: Forecaster, seen: Corrections) -> list[Compared]:
    """Simulate all rounds, and compare them by their number of agents."""
    found: dict[int, Compared] = {}
    for one in rounds:
        found.setdefault(one.agents, Compared(one.agents)).add(one, forecaster, seen)
    return [found[agents] for agents in sorted(found)]
