"""Published speeds of other engines by threads and prompt, and their simulation.

    python tests/helpers/published_speeds.py

prints each column as shares of its maximum, published and simulated: only shapes are compared. At
most two constants a machine are fitted to rows 2, 4, 6, …; rows 1, 3, 5, … judge.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from triplepoint.jit.cores import Cpu, order
from triplepoint.runtime.physics.latency_model import Efficiency, estimate
from triplepoint.runtime.physics.many_cores import ManyCores, machines
from triplepoint.runtime.planning.forecaster import Forecaster, of_name

Constants = Mapping[str, float]
BOUNDS = {
    "products": (0.05, 1.0),
    "attention": (0.02, 1.0),
    "attention_read": (0.01, 1.0),
    "serial": (1e-3, 0.3),
    "weak": (0.02, 1.0),
    "core": (0.2, 2.0),
    "barrier_s": (1e-8, 1e-4),
}
"""What can be fitted, with bounds: three fields of `Efficiency`, the share of a pass that one
thread does alone, factors of a weak core's rate and of a core's bandwidth, and seconds of a
prefill's barrier for each thread. Each machine has the pair with the least loss on even rows."""
WITHIN = 0.15
STEPS, ZOOMS = 9, 4  # of the search


@dataclass(frozen=True)
class Table:
    """Speeds by threads, or by tokens of the prompt; the other one is the same for all rows."""

    by: Literal["threads", "tokens"]
    other: int
    at: Sequence[int]
    prefill: Sequence[float]
    decode: Sequence[float]


@dataclass(frozen=True)
class Published:
    """Tables of an engine on a machine."""

    source: str
    model: str
    ops: float
    """Operations a cycle and core of its kernels."""
    static: bool
    """Whether threads get equal parts of the work."""
    fit: tuple[str, ...]
    tables: Sequence[Table]


PROMPTS = [13, 36, 81, 182, 461, 1096, 1795, 4239, 8134]
PUBLISHED = {
    "ryzen-9-7900": Published(
        "seed 1, a Rust engine, Qwen3-30B-A3B Q4 (dequantized to float32)",
        "synthetic:qwen3-30b-a3b:q4_0",
        32,
        True,
        ("products", "serial"),
        [
            Table(
                "threads",
                1000,
                [1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24],
                [9.7, 19.5, 38.2, 54.3, 68.6, 80.3, 89.7, 63.8, 71.4, 76.3, 79.9],
                [5.4, 10.3, 16.8, 17.8, 21.6, 21.6, 21.6, 20.8, 20.5, 20.1, 18.9],
            ),
            Table(
                "tokens",
                12,
                PROMPTS,
                [47.4, 68.6, 76.0, 87.9, 88.5, 89.8, 87.2, 79.5, 69.0],
                [21.7, 21.6, 21.6, 21.5, 22.4, 21.6, 20.8, 18.3, 15.2],
            ),
        ],
    ),
    "i9-13900k": Published(
        "seed 2, llama.cpp, Llama 7B Q4_K_M",
        "synthetic:llama-3.1-8b:q4_k_m",
        128,
        False,
        ("weak", "core"),
        [
            Table(
                "threads",
                512,
                [1, 4, 8, 12, 16, 24],
                [18, 62, 104, 112, 118, 125],
                [5.2, 16.8, 27.3, 28.1, 26.5, 24.8],
            )
        ],
    ),
    "m3-ultra": Published(
        "seed 1, the same engine and model",
        "synthetic:qwen3-30b-a3b:q4_0",
        32,
        False,
        ("core", "barrier_s"),
        [
            Table(
                "tokens",
                28,
                PROMPTS,
                [34.9, 103.9, 171.4, 244.4, 342.3, 347.7, 309.2, 223.5, 152.2],
                [28.1, 28.0, 27.9, 26.2, 28.1, 26.5, 25.2, 21.7, 17.6],
            )
        ],
    ),
}


@dataclass(frozen=True)
class Column:
    """A column and its simulation, as shares of their maxima."""

    by: str
    phase: Literal["prefill", "decode"]
    at: Sequence[int]
    published: Sequence[float]
    simulated: Sequence[float]

    @property
    def errors(self) -> list[float]:
        return [s / p - 1 for s, p in zip(self.simulated, self.published, strict=True)]

    @property
    def held_out(self) -> float:
        """The largest error of the rows that judge."""
        return max(map(abs, self.errors[::2]))


class Simulation:
    """An engine on a machine; its threads fill domain after domain, as CPUs are numbered."""

    def __init__(self, machine: ManyCores, published: Published) -> None:
        self.published = published
        self._machine = replace(machine, ops=published.ops)
        self._order = order(machine.cpus, fill=True)
        found = of_name(published.model, self._machine.limits(machine.cpus), reached=Efficiency())
        assert found is not None
        self._forecaster: Forecaster = found

    def speed(self, threads: int, tokens: int, start: int, c: Constants) -> float:
        """Return the tokens a second of a phase."""
        weak = c.get("weak", 1.0)
        cpus = {
            cpu.number: cpu if cpu.strong else replace(cpu, strength=weak * cpu.strength)
            for cpu in self._machine.cpus
        }
        core_gbps = c.get("core", 1.0) * self._machine.core_gbps
        machine = replace(self._machine, cpus=tuple(cpus.values()), core_gbps=core_gbps)
        chosen: list[Cpu] = [cpus[n] for n in self._order[:threads]]
        limits = machine.limits(chosen, static=self.published.static)
        serial = c.get("serial", 0.0)
        if serial:
            alone = machine.clock_ghz(chosen) * machine.ops
            ops = 1.0 / (serial / alone + (1.0 - serial) / limits.int8_gops)
            dram = 1.0 / (serial / core_gbps + (1.0 - serial) / limits.read_gbps["DRAM"])
            limits = replace(
                limits,
                read_gbps={**limits.read_gbps, "L3": dram, "DRAM": dram},
                int8_gops=ops,
                bf16_gflops=ops / 2,
            )
        reached = Efficiency(
            row_s=4e-4 / threads,
            decode_rows_s=1e-4 / threads,
            barrier_s=c.get("barrier_s", 1e-7) * threads,
            decode_barrier_s=1e-7 * threads,
        )
        shares = {k: v for k, v in c.items() if k in ("products", "attention", "attention_read")}
        cost, passes = self._forecaster.cost, self._forecaster.passes
        reached = dataclasses.replace(reached, **shares)
        return estimate(cost, limits, reached, passes, tokens, start).tokens_per_s


def compare(published: Published, machine: ManyCores) -> tuple[dict[str, float], list[Column]]:
    """Fit the constants to even rows; return them and all columns."""
    simulation = Simulation(machine, published)

    def simulate(c: Constants) -> list[Column]:
        found = []
        for table in published.tables:
            pairs = [
                (n, table.other) if table.by == "threads" else (table.other, n) for n in table.at
            ]
            prefill = [simulation.speed(n, tokens, 0, c) for n, tokens in pairs]
            decode = [simulation.speed(n, 1, context, c) for n, context in pairs]
            found.append(
                Column(table.by, "prefill", table.at, _shares(table.prefill), _shares(prefill))
            )
            found.append(
                Column(table.by, "decode", table.at, _shares(table.decode), _shares(decode))
            )
        return found

    def loss(c: Constants) -> float:
        fitted = [abs(error) for column in simulate(c) for error in column.errors[1::2]]
        return sum(error**2 for error in fitted) / len(fitted) + 0.2 * max(fitted) ** 2

    constants = _search(loss, published.fit)
    return constants, simulate(constants)


def _shares(values: Sequence[float]) -> list[float]:
    return [value / max(values) for value in values]


def _search(loss: Callable[[Constants], float], names: Sequence[str]) -> dict[str, float]:
    """Find the constants of the least loss on finer and finer grids."""
    boxes, best = [BOUNDS[name] for name in names], {}
    for _ in range(ZOOMS):
        grids = [[a * (b / a) ** (n / (STEPS - 1)) for n in range(STEPS)] for a, b in boxes]
        tried = [dict(zip(names, values, strict=True)) for values in itertools.product(*grids)]
        best = min(tried, key=loss)
        boxes = [
            (max(low, best[name] * (a / b) ** 0.2), min(high, best[name] * (b / a) ** 0.2))
            for name, (a, b) in zip(names, boxes, strict=True)
            for low, high in (BOUNDS[name],)
        ]
    return best


def main() -> None:
    columns: list[Column] = []
    for name, published in PUBLISHED.items():
        constants, found = compare(published, machines()[name])
        columns += found
        fitted = ", ".join(f"{key} {value:.3g}" for key, value in constants.items())
        print(f"{name}: {published.source}; fitted to even rows: {fitted}")
        for c in found:
            for row, at in enumerate(c.at):
                told = (
                    f"{c.phase:<8} {at:>6,} {c.by}  {c.published[row]:.3f} {c.simulated[row]:.3f}"
                )
                print(f"  {told} {c.errors[row]:+5.0%}  simulated{'' if row % 2 else ', held out'}")
    good = sum(c.held_out <= WITHIN for c in columns)
    print(f"{good} of {len(columns)} columns are within {WITHIN:.0%} on the rows held out")


if __name__ == "__main__":
    main()
