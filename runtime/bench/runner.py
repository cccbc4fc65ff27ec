"""The speed of a model on this machine, in the rows of llama.cpp's ``llama-bench``.

``pp512`` is a prefill of 512 random tokens, ``tg32`` a decode of 32; ``@ d2048`` means with that
many tokens in the KV cache already. Only the passes are timed: no tokenizing, no text, no grammar.

Every repetition stands between two samples of this machine's limits (`RooflineProbe`). From
them and from the operations and bytes that the model needs follows the least time that the
repetition could have taken; the share of the limit is that time over the time it took.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.engine_timer import EngineTimer
from ..physics.costs import PassCost, Prediction, decode_cost, pass_cost, predict
from ..physics.timed_passes import Case

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.session import Session
    from ..physics.machine import MachineProfile, RooflineProbe

MIN_PASS = 512  # tokens for each read of the weights in the least time, however they are cut
# What a pass spends its time on.
PARTS = ("products", "attention", "rope", "prepare", "other", "barriers", "outside")


def case_of(name: str) -> Case:
    """Parse a case such as ``pp512``, ``tg32@1024`` or ``tg32 @ d1024``.

    Raises:
        ValueError: it is not such a name.
    """
    found = re.fullmatch(r"(pp|tg)([0-9]{1,9})(?:\s*@\s*d?([0-9]{1,9}))?", name.strip())
    if found is None or int(found[2]) < 1:
        raise ValueError(f"{name!r} is not a test like pp512, tg32 or tg32@1024")
    count, depth = int(found[2]), int(found[3] or 0)
    return Case(prompt=count, depth=depth) if found[1] == "pp" else Case(0, count, depth)


def cases(prompts: Sequence[int], generates: Sequence[int], depths: Sequence[int]) -> list[Case]:
    """Return the cases in llama-bench's order: all tests at the first depth, then the next."""
    return [
        case
        for depth in depths or (0,)
        for case in (
            *(Case(prompt=n, depth=depth) for n in prompts if n > 0),
            *(Case(generate=n, depth=depth) for n in generates if n > 0),
        )
    ]


@dataclass(frozen=True)
class Result:
    """The times of one case, in seconds, one for each repetition."""

    case: Case
    seconds: tuple[float, ...]
    limits: tuple[MachineProfile, ...] = ()
    """This machine's limits around each repetition."""
    least: tuple[float, ...] = ()
    """Minimum seconds of each repetition, by those limits."""
    bound: str = ""
    """What bounds the minimum time: ``compute``, or the memory level that is read."""
    spent: Mapping[str, float] = field(default_factory=dict)
    """Median share of the threads' time in each of `PARTS`."""

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [self.case.tokens / s for s in self.seconds]

    @property
    def median(self) -> float:
        """Median tokens per second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation of the tokens per second; 0 for a single repetition."""
        return statistics.stdev(self.rates) if len(self.seconds) > 1 else 0.0

    @property
    def shares(self) -> list[float]:
        """Share of the limit that each repetition reached."""
        return [least / s for least, s in zip(self.least, self.seconds, strict=True)]

    @property
    def share(self) -> float:
        """Median share of the limit; 0 without measured limits."""
        return statistics.median(self.shares) if self.least else 0.0


def spent(session: Session) -> dict[str, float]:
    """Return the share of threads' time in each of `PARTS` in a session's last phase.

    The ops' own stamps give work and waiting; what no op has had is `outside`: Python, and
    threads on their way into a pass.
    """
    phase = session.last_phase
    assert phase is not None
    total = phase.wall_s * phase.threads
    shares: dict[str, float] = dict.fromkeys(PARTS, 0.0)
    for plan, times in session.sequence.measured.items():
        work = times.work_seconds().sum(axis=0) / total
        for op, share in zip(plan.graph.tape.ops, work, strict=True):
            shares[part_of(op.kernel.source.name)] += float(share)
        shares["barriers"] += float(times.wait_seconds().sum()) / total
    shares["outside"] = max(0.0, 1.0 - sum(shares.values()))
    return shares


def part_of(kernel: str) -> str:
    """Return the one of `PARTS` that a kernel belongs to."""
    if kernel.startswith("gemm"):
        return "products"
    if kernel.startswith("attention"):
        return "attention"
    parts = {"rope_store": "rope", "prepare": "prepare", "arrange": "prepare"}
    return parts.get(kernel, "other")


@dataclass
class Samples:
    """The samples of a case's repetitions."""

    case: Case
    seconds: list[float] = field(default_factory=list)
    limits: list[MachineProfile] = field(default_factory=list)
    spent: list[dict[str, float]] = field(default_factory=list)

    def result(self, engine: Engine) -> Result:
        """Build the result: times, and the minimum times by the limits around each."""
        needed = [least(engine, self.case, limits) for limits in self.limits]
        bounds = [n.level if n.memory_s > n.compute_s else "compute" for n in needed]
        return Result(
            self.case,
            tuple(self.seconds),
            tuple(self.limits),
            tuple(max(n.compute_s, n.memory_s) for n in needed),
            statistics.mode(bounds) if bounds else "",
            {part: statistics.median(s[part] for s in self.spent) for part in PARTS}
            if self.spent
            else {},
        )


def run(
    engine: Engine, todo: Sequence[Case], *, repeat: int = 5, limits: RooflineProbe | None = None
) -> Iterator[Result]:
    """Measure the cases one after another, each after a warm-up.

    Raises:
        EngineError: a case is longer than the model's context.
    """
    from ..physics.machine import RooflineProbe

    if not todo:
        return iter(())
    limits = limits or RooflineProbe(engine.loaded.library, engine.loaded.pool)
    return _measured(EngineTimer(engine, todo), todo, repeat, limits)


def _measured(
    timer: EngineTimer, todo: Sequence[Case], repeat: int, limits: RooflineProbe
) -> Iterator[Result]:
    for case in todo:
        samples = Samples(case)
        timer.measure(case)
        before = limits.sample()
        for _ in range(repeat):
            samples.seconds.append(timer.measure(case))
            samples.spent.append(spent(timer.session))
            after = limits.sample()
            samples.limits.append(before.merged(after))
            before = after
        yield samples.result(timer.engine)


def least(engine: Engine, case: Case, limits: MachineProfile) -> Prediction:
    """Return the minimum times that the limits allow for a case.

    That is every weight once a pass, every cached key and value once a pass, and no barrier.
    """
    cost = engine.loaded.cost
    if case.generate:
        total = decode_cost(cost, case.start, case.generate, barriers=0)
        return predict(total, cost, limits, case.generate)
    total, passes = PassCost(), 0
    for at in range(0, case.prompt, MIN_PASS):
        tokens = min(MIN_PASS, case.prompt - at)
        last = int(at + tokens == case.prompt)
        total += pass_cost(cost, tokens, case.start + at, last, barriers=0, tile=tokens)
        passes += 1
    return predict(total, cost, limits, passes)
