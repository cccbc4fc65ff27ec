"""What-if analysis: the same programs with one change, and sweeps over a setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..engine.policy.choices import at_best
from .fleet import Result, Scenario, simulate

FASTER_DRAM = 1.25
_HELPS = 0.01  # a gain that is worth a word
_BOUNDS = {
    "compute": "arithmetic",
    "memory": "reading memory",
    "dispatch": "dispatch: passes are small for their barriers",
    "host": "the host between passes",
}


@dataclass(frozen=True)
class Change:
    """The result of a scenario with one change."""

    name: str
    """The name of the change."""
    result: Result
    """The result with the change."""
    busy: float
    """Machine time that the work takes, over that without the change."""

    @property
    def gain(self) -> float:
        """Relative gain in throughput: 0.1 for a tenth."""
        return 1.0 / self.busy - 1.0 if self.busy else 0.0


def variants(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """Return the variants of a scenario, by name."""
    one, machine = scenario.forecaster, scenario.forecaster.machine
    cores = at_best(machine, machine.threads + 1)
    yield "one more core", replace(scenario, forecaster=one.with_machine(cores))
    rates = {**machine.read_gbps, "DRAM": FASTER_DRAM * machine.read_gbps["DRAM"]}
    dram = replace(machine, read_gbps=rates)
    yield "DRAM 25 % faster", replace(scenario, forecaster=one.with_machine(dram))
    if one.kv == "bf16":
        yield "Q8 KV cache", replace(scenario, forecaster=one.with_kv("q8"))
    if scenario.policy.memory is not None:
        policy = replace(scenario.policy, memory=2 * scenario.policy.memory)
        yield "twice the KV memory", replace(scenario, policy=policy)
    yield "one more machine", replace(scenario, machines=scenario.machines + 1)
    policy = replace(scenario.policy, share=False)
    yield "no shared prefixes", replace(scenario, policy=policy)


def changes(base: Result, processes: int | None = None) -> list[Change]:
    """Simulate each variant of a scenario; return their changes."""
    found = []
    for name, scenario in variants(base.scenario):
        result = simulate(scenario, processes)
        work = _work(base, result)  # none where nothing can be answered
        busy = result.used * result.seconds / work if work else 0.0
        found.append(Change(name, result, busy))
    return found


def _work(base: Result, other: Result) -> float:
    """Return the machine-seconds of the base, for as many machines as the other has."""
    each = base.used * base.seconds * base.scenario.machines
    return each / other.scenario.machines


def sweep(
    scenario: Scenario,
    values: Sequence[str],
    change: Callable[[Scenario, str], Scenario],
    processes: int | None = None,
) -> list[tuple[str, Result]]:
    """Simulate the scenario for each value of a setting."""
    return [(value, simulate(change(scenario, value), processes)) for value in values]


def bottleneck(result: Result, tried: Sequence[Change] = ()) -> str:
    """Describe what takes most of the machines' time, and which change in `tried` helps most."""
    bounds = result.bounds
    tally = result.tally
    if not result.requests:
        return "none: no request was answered"
    first = max(_BOUNDS, key=lambda bound: bounds.get(bound, 0.0))
    shares = f"{bounds[first]:.0%} of the machines' time, {bounds['idle']:.0%} is idle"
    words = f"{_BOUNDS[first]} ({shares})"
    lost = tally.evicted + tally.preempted
    if lost > 0.05 * result.requests:
        share = lost / result.requests
        words = f"memory for KV caches: {share:.0%} of the requests lost their pages; then {words}"
    best = max(tried, key=lambda one: one.gain, default=None)
    if best is None:
        return f"{words}; --what-if shows what would help"
    if best.gain < _HELPS:
        return f"{words}; none of what was tried helps"
    return f"{words}; of what was tried, {best.name} helps most: {best.gain:+.0%} work"
