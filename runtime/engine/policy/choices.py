"""Choices of execution settings, from profile and model: pure functions, each with a reason.

Times come from the cost model with what kernels reach (`physics/latency_model.py`), once for each
number of threads that the machine was measured with. `autotune.py` puts the choices to work and
corrects them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....jit.cores import EQUAL_CORES, ThreadPlan
from ....jit.kernels.kvcache import PAGE
from ....jit.pool import SPIN_IDLE_S
from ....jit.targets import CpuTarget
from ...physics.costs import ModelCost
from ...physics.huge_pages import PageGain
from ...physics.latency_model import Efficiency, LatencyEstimate, Passes, estimate, shared_s
from ...physics.machine import MachineProfile
from ...physics.register_tiles import TilePlan, default

FASTER = 0.9  # of a predicted time: what counts as less, as the model errs by some per cent itself
DOUBT = 0.8  # of a predicted time: what it may really be
SLACK = 1.005  # of the least time: what a smaller chunk may cost
CHUNKS = (128, 256, 512, 1024)  # tokens of a prefill pass at most
PROMPT = 2048  # tokens of the prompt that the chunk is chosen for
WAKE_S = 40e-6  # to wake a thread that has parked, typically
WAKE_SHARE = 0.01  # of a pass: from here on it is worth to spin for long
SPIN_LONG_S = 2e-3
SPIN_MOST_S = 5e-3


@dataclass(frozen=True, slots=True)
class Decision:
    """The value of a setting, and why it was chosen."""

    value: int | float | bool
    why: str


def override(value: int | float | bool | None) -> Decision | None:
    """Wrap a given value as a decision; None stays None."""
    return None if value is None else Decision(value, "given")


@dataclass(frozen=True, slots=True)
class TuningInputs:
    """The inputs of choices: model, measured limits, kernel efficiency."""

    model: ModelCost
    machines: Mapping[int, MachineProfile]
    """Measured limits by number of threads, at least for all threads."""
    reached: Efficiency
    """Shares of these limits that the model's kernels reach."""
    passes: Passes
    """How work is cut into passes, and their barriers."""
    target: CpuTarget
    """The CPU feature set."""
    tiles: TilePlan
    """The best measured register tiles of the GEMMs."""
    decode: ThreadPlan = EQUAL_CORES
    """The threads of decode that the topology suggests."""

    @property
    def most(self) -> int:
        """The number of all threads."""
        return max(self.machines)

    def for_tokens(self, tokens: int) -> TuningInputs:
        """Return the inputs without the thread counts that the topology rules out for a pass."""
        limit = max(self.decode.counts) if tokens == 1 else self.most
        if limit >= self.most:
            return self
        fewer = {n: machine for n, machine in self.machines.items() if n < limit}
        strong = self.machines.get(limit) or at_best(self.machines[self.most], limit)
        return dataclasses.replace(self, machines={**fewer, limit: strong})

    def seconds(
        self, tokens: int, start: int, threads: int | None = None, chunk: int | None = None
    ) -> float:
        """Predict the seconds of a phase; with all threads if no number is given."""
        return self._estimate(tokens, start, threads, chunk).seconds

    def dispatch_bound(self, tokens: int, start: int, threads: int) -> bool:
        """Predict whether a pass is bound by dispatch."""
        return self._estimate(tokens, start, threads).seen.bound == "dispatch"

    def _estimate(
        self, tokens: int, start: int, threads: int | None, chunk: int | None = None
    ) -> LatencyEstimate:
        all_, threads = self.machines[self.most], threads or self.most
        machine = self.machines.get(threads) or at_best(all_, threads)
        barriers = machine.barrier_s / all_.barrier_s if all_.barrier_s else 1.0
        reached = dataclasses.replace(
            self.reached,
            row_s=self.reached.row_s * self.most / threads,
            barrier_s=self.reached.barrier_s * barriers,
            decode_barrier_s=self.reached.decode_barrier_s * barriers,
            waiting=self.reached.waiting if threads > 1 else 0.0,
        )
        passes = dataclasses.replace(self.passes, chunk=chunk or max(CHUNKS))
        return estimate(self.model, machine, reached, passes, tokens, start)

    def attention_s(self, tokens: int, start: int, threads: int) -> float:
        """Predict the seconds of a pass's attention on `threads` threads, all busy to its end."""
        machine = self.machines.get(threads) or at_best(self.machines[self.most], threads)
        return estimate(self.model, machine, self.reached, self.passes, tokens, start).attention_s


def by_threads(
    machine: MachineProfile, profiles: Sequence[MachineProfile]
) -> dict[int, MachineProfile]:
    """Merge limits by number of threads, from a sweep that may have been disturbed.

    More threads can do what fewer did, and all of them what they ever did: where a sweep says
    otherwise a neighbor was at work. So fewer threads are not taken for as fast by mistake.
    """
    found: dict[int, MachineProfile] = {}
    best: MachineProfile | None = None
    for profile in sorted(profiles, key=lambda p: p.threads):
        if profile.threads < machine.threads:
            best = profile if best is None else _rates_of_fewer(best, profile)
            found[profile.threads] = best
        elif profile.threads == machine.threads:
            machine = profile.merged(machine)
    found[machine.threads] = machine if best is None else _rates_of_fewer(best, machine)
    return found


def _rates_of_fewer(fewer: MachineProfile, more: MachineProfile) -> MachineProfile:
    return dataclasses.replace(fewer.merged(more), barrier_s=more.barrier_s)


def choose_threads(known: TuningInputs, tokens: int, start: int) -> Decision:
    """Choose all threads for a pass, unless fewer are predicted to be clearly faster.

    Decode has the strong cores at most: the others would wait for weak ones at each barrier.
    """
    every, known = known.most, known.for_tokens(tokens)
    all_ = "all" if known.most == every else "the strong cores"
    seconds = {n: known.seconds(tokens, start, n) for n in known.machines}
    if len(seconds) == 1:
        return Decision(known.most, f"{all_}; no other number was measured")
    told = ", ".join(f"{n}: {s * 1e3:.3g} ms" for n, s in sorted(seconds.items()))
    best = min(seconds.values())
    if best > FASTER * seconds[known.most]:
        return Decision(known.most, f"{all_}: fewer are not expected to be faster ({told})")
    fewest = min(n for n, s in seconds.items() if s <= best / FASTER)
    return Decision(fewest, f"fewer are expected to be faster ({told})")


def worth_trying(known: TuningInputs, start: int, threads: int, other: int) -> bool:
    """Return whether a decode pass might be faster with `other` threads, given model error."""
    doubt = DOUBT if other in known.machines else 1.0  # the other is at its best already
    return doubt * known.seconds(1, start, other) <= known.seconds(1, start, threads)


def at_best(machine: MachineProfile, threads: int) -> MachineProfile:
    """Extrapolate a profile to another number of threads, in the best case.

    Cores bring their arithmetic and their caches; the memory gives all to any number of them, and
    one thread alone has nobody to wait for.
    """
    share = threads / machine.threads
    near = {level: rate * share for level, rate in machine.read_gbps.items() if level != "DRAM"}
    return dataclasses.replace(
        machine,
        threads=threads,
        read_gbps={**machine.read_gbps, **near},
        int8_gops=machine.int8_gops * share,
        bf16_gflops=machine.bf16_gflops * share,
        fp32_gflops=machine.fp32_gflops * share,
        barrier_s=machine.barrier_s * share,
    )


def neighbors(known: TuningInputs, start: int, threads: int, most: int) -> list[list[int]]:
    """Return the thread counts worth a try in decode: below and above, nearest first."""
    most = min(most, max(known.decode.counts))
    counts = {n for n in {*known.machines, *known.decode.counts} if n <= most}
    below = [n for n in sorted(counts, reverse=True) if n < threads]
    above = [n for n in sorted(counts) if threads < n <= most]
    found = []
    for numbers in (below, above):
        worth = [n for n in numbers if worth_trying(known, start, threads, n)]
        # Not beyond one that is not worth it.
        found.append([n for n, w in zip(numbers, worth, strict=False) if n == w])
    return [numbers for numbers in found if numbers]


def choose_chunk(known: TuningInputs, context: int) -> Decision:
    """Choose the smallest prefill chunk that is as fast as any: less memory, sooner stopped."""
    prompt = min(PROMPT, context)
    seconds = {n: known.seconds(prompt, 0, chunk=n) for n in CHUNKS}
    best = min(seconds.values())
    chunk = min(n for n, s in seconds.items() if s <= SLACK * best)
    slower = ", ".join(f"{n}: {s / best - 1:+.1%}" for n, s in seconds.items())
    return Decision(chunk, f"the smallest as fast as any for {prompt} tokens ({slower})")


def choose_split(
    known: TuningInputs, tokens: int, start: int, threads: int, tiles: int = 0
) -> Decision:
    """Choose whether a short pass's attention is split over the KV cache, not over heads alone.

    tiles: query tiles of the pass, where sequences share a prefix; 0: those of one sequence.

    Weighs the time that threads wait for each other at the end of the heads against more barriers
    and the merging of partial results.
    """
    model, reached = known.model, known.reached
    tiles = tiles or (1 if tokens == 1 else -(-tokens // known.passes.tile))
    units = tiles * model.kv_heads
    parts = -(-int(model.attended_positions(start, tokens) / tokens) // PAGE)
    if threads == 1 or units % threads == 0 or parts == 1:
        return Decision(False, f"{units} units of attention come out even on {threads} threads")

    def alone_s(count: int) -> float:
        return known.attention_s(tokens, start, count)

    saved = shared_s(alone_s, units, threads) - shared_s(alone_s, units * parts, threads)
    single = tokens == 1
    barriers = 2 * reached.decode_barrier_s if single else reached.barrier_s
    moved = 8.0 * tokens * model.heads * model.head_dim * parts
    machine = known.machines[known.most]
    cost = model.layers * (barriers + moved / machine.bandwidth(machine.level_of(moved)))
    why = (
        f"{units} units of attention on {threads} threads: {saved * 1e6:.0f} µs of waiting at "
        f"context {start}, against {cost * 1e6:.0f} µs of barriers and merging"
    )
    return Decision(DOUBT * saved > cost, why)


def choose_spin(known: TuningInputs) -> Decision:
    """Choose the seconds that a thread spins between two passes before it parks."""
    step = known.seconds(1, 0)
    share = WAKE_S / step
    if share < WAKE_SHARE:
        return Decision(SPIN_IDLE_S, f"waking up is {share:.1%} of a decode pass")
    return Decision(SPIN_LONG_S, f"waking up would be {share:.0%} of a decode pass")


def choose_pages(gain: PageGain) -> Decision:
    """Choose whether the system is to use huge pages."""
    why = f"reading {gain.reading:.2f} ×, first touch {gain.touching:.1f} × as fast with large ones"
    return Decision(gain.helps, why)


def choose_tile(known: TuningInputs) -> Decision:
    """Choose the token width of the GEMM's register tile for passes with many tokens."""
    return _tile_choice(known, "tile", known.tiles.tile, default(known.target).tile)


def choose_max_single_tile(known: TuningInputs, tile: int) -> Decision:
    """Choose the tokens up to which a pass is one register tile, for the usual size `tile`."""
    return _tile_choice(
        known,
        "max_single_tile",
        max(tile, known.tiles.max_single_tile),
        max(tile, default(known.target).max_single_tile),
    )


def _tile_choice(known: TuningInputs, name: str, value: int, default: int) -> Decision:
    gains = {
        told.partition("=")[2]: found
        for told, found in known.tiles.gains.items()
        if told.startswith(f"{name}=")
    }
    if not gains:
        return Decision(value, f"the default for {known.target}; no other was measured")
    times = ", ".join(f"{n}: {min(g):.2f} to {max(g):.2f} ×" for n, g in gains.items())
    why = "the default; no other was clearly faster" if value == default else "clearly faster"
    return Decision(value, f"{why} ({times})")
