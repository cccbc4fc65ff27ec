"""The tables of a published article, measured on this machine: speed over one quantity each.

The article that this project grew from measured Qwen3-30B-A3B in Q4 on a Ryzen 9 7900 (12 cores)
and an M3 Ultra (28 cores), with another engine. Its figures are here for the shape of a curve,
never for the value: each is shown as a share of the largest of its column, beside ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.physics.calibrate import Sampler
from triplepoint.runtime.physics.costs import pass_cost
from triplepoint.runtime.physics.timed_passes import Case

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine

PROMPTS = (13, 36, 81, 182, 461, 1096, 1795, 4239, 8134)
POSITIONS = (10, 100, 1000, 10_000, 17_000)
DECODES = 16  # passes of one token that are timed together
THREADS_PROMPT = 1000
QUANT_PROMPTS = (81, 1096)
QUANTS = ("q4_0", "q4_k_m", "q8_0")
LAYERS_PROMPT = 1954

# By prompt length: prefill and decode on the Ryzen, prefill and decode on the M3 Ultra, tokens/s.
ARTICLE_PROMPT = {
    13: (47.4, 21.7, 34.9, 28.1),
    36: (68.6, 21.6, 103.9, 28.0),
    81: (76.0, 21.6, 171.4, 27.9),
    182: (87.9, 21.5, 244.4, 26.2),
    461: (88.5, 22.4, 342.3, 28.1),
    1096: (89.8, 21.6, 347.7, 26.5),
    1795: (87.2, 20.8, 309.2, 25.2),
    4239: (79.5, 18.3, 223.5, 21.7),
    8134: (69.0, 15.2, 152.2, 17.6),
}
# By threads on the Ryzen: prefill and decode, tokens/s; above 12 they share cores.
ARTICLE_THREADS = {
    1: (9.7, 5.4),
    2: (19.5, 10.3),
    4: (38.2, 16.8),
    6: (54.3, 17.8),
    8: (68.6, 21.6),
    10: (80.3, 21.6),
    12: (89.7, 21.6),
    14: (63.8, 20.8),
    16: (71.4, 20.5),
    20: (76.3, 20.1),
    24: (79.9, 18.9),
}
# By cached positions, on one core of the Ryzen: GFLOP/s of attention, and where the cache lay.
ARTICLE_KV = {
    10: (92.0, "L1"),
    100: (84.0, "L2"),
    1000: (91.0, "L3"),
    10_000: (56.0, "DRAM"),
    17_000: (45.0, "DRAM"),
}


@dataclass(frozen=True)
class Point:
    """One row of a sweep.

    Attributes:
        label: what was varied, e.g. a prompt length.
        values: what was measured, by name.
        article: the article's own figures for the same, by name; empty where it has none.
        note: a word on the row, such as the cache level.
    """

    label: str
    values: Mapping[str, float]
    article: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def _rate(timer: EngineTimer, case: Case, repeat: int) -> float:
    """Return the median tokens per second, after a warm-up."""
    timer.measure(case)
    return case.tokens / statistics.median(timer.measure(case) for _ in range(repeat))


def _both(timer: EngineTimer, prefill: Case, decode: Case, repeat: int) -> dict[str, float]:
    return {"prefill": _rate(timer, prefill, repeat), "decode": _rate(timer, decode, repeat)}


def by_prompt(engine: Engine, repeat: int, lengths: Sequence[int] = PROMPTS) -> Iterator[Point]:
    """Measure a prefill, then a decode behind it; skip what does not fit the context."""
    fits = [n for n in lengths if n + DECODES + 2 <= engine.context]
    cases = [(Case(prompt=n), Case(generate=DECODES, depth=n)) for n in fits]
    if not cases:
        return
    timer = EngineTimer(engine, [case for pair in cases for case in pair])
    for n, (prefill, decode) in zip(fits, cases, strict=True):
        found = _both(timer, prefill, decode, repeat)
        names = ("Ryzen prefill", "Ryzen decode", "M3 prefill", "M3 decode")
        yield Point(str(n), found, dict(zip(names, ARTICLE_PROMPT.get(n, ()), strict=False)))


def by_threads(
    load: Callable[[int], Engine], counts: Sequence[int], repeat: int, prompt: int = THREADS_PROMPT
) -> Iterator[Point]:
    """Measure one prompt and decode with each number of threads, on an engine of its own."""
    for count in counts:
        with load(count) as engine:
            length = min(prompt, engine.context - DECODES - 2)
            prefill, decode = Case(prompt=length), Case(generate=DECODES, depth=length)
            timer = EngineTimer(engine, [prefill, decode])
            found = _both(timer, prefill, decode, repeat)
        names = ("Ryzen prefill", "Ryzen decode")
        yield Point(
            str(count), found, dict(zip(names, ARTICLE_THREADS.get(count, ()), strict=False))
        )


def by_kv(engine: Engine, repeat: int, positions: Sequence[int] = POSITIONS) -> Iterator[Point]:
    """Measure attention's GFLOP/s for one tile of tokens, by positions in the cache.

    The level is the nearest that holds what a layer has cached of so many positions.
    """
    tile = engine.loaded.attention_tile
    fits = [n for n in positions if n + tile + 2 <= engine.context]
    if not fits:
        return
    cases = {n: Case(prompt=tile, depth=n) for n in fits}
    sampler = Sampler(EngineTimer(engine), list(cases.values()))
    for n in fits:
        cost = pass_cost(engine.loaded.cost, tile, n, 1, 0, tile)
        spent = [s.parts["attention"] for s in sampler.take(cases[n], repeat)]
        gflops = cost.attention_flops / statistics.median(spent) / 1e9
        level = engine.machine.level_of(cost.kv_read_bytes / engine.loaded.cost.layers)
        size = cost.kv_read_bytes / engine.loaded.cost.layers / 2**20
        theirs, its_level = ARTICLE_KV.get(n, (0.0, ""))
        note = f"{size:.2f} MiB a layer: {level}" + (f"; article {its_level}" if its_level else "")
        yield Point(str(n), {"GFLOP/s": gflops}, {"Ryzen": theirs} if theirs else {}, note)


def by_quant(load: Callable[[str], Engine], quants: Sequence[str], repeat: int) -> Iterator[Point]:
    """Measure prefill and decode of one shape in several weight formats."""
    for quant in quants:
        with load(quant) as engine:
            found: dict[str, float] = {}
            lengths = [n for n in QUANT_PROMPTS if n + DECODES + 2 <= engine.context]
            cases = [(Case(prompt=n), Case(generate=DECODES, depth=n)) for n in lengths]
            timer = EngineTimer(engine, [case for pair in cases for case in pair])
            for n, (prefill, decode) in zip(lengths, cases, strict=True):
                found[f"prefill {n}"] = _rate(timer, prefill, repeat)
                found[f"decode {n}"] = _rate(timer, decode, repeat)
            size = (
                engine.loaded.cost.body_bytes
                + engine.loaded.cost.expert_bytes
                + engine.loaded.cost.head_bytes
            ) / 1e6
        yield Point(quant, found, {}, f"{size:,.0f} MB")


def by_layer(engine: Engine, repeat: int, prompt: int = LAYERS_PROMPT) -> Iterator[Point]:
    """Measure the ms of each layer's two halves in one prefill: the median over its repeats."""
    length = min(prompt, engine.context - 2)
    timer = EngineTimer(engine, [Case(prompt=length)])
    timer.session.sequence.profile = True
    rounds = []
    for n in range(repeat + 1):
        timer.measure(Case(prompt=length))
        phase = timer.session.last_phase
        assert phase is not None, "a prefill has just ended"
        if n:
            rounds.append([record for record in phase.layers if record.layer is not None])
    for same in zip(*rounds, strict=True):
        values = {
            "attention ms": statistics.median(record.attention_s for record in same) * 1e3,
            "ffn ms": statistics.median(record.ffn_s for record in same) * 1e3,
            "wait ms": statistics.median(record.wait_s for record in same) * 1e3,
        }
        yield Point(str(same[0].layer), values)
