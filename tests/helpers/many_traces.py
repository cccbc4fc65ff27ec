"""Synthetic traces by the thousand, written with the project's own events and writer.

    python tests/helpers/many_traces.py FOLDER 10000          # write them
    python tests/helpers/many_traces.py FOLDER 10000 --measure   # and time ingest and reports

Five questions of three steps make 30 phases. Models, machines, bounds, times, errors and ends are
drawn from the trace's number: the same number gives the same trace.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

from triplepoint.traces.events import (
    Bound,
    MachineRecord,
    MessageEvent,
    MissRecord,
    ModelRecord,
    PhaseEvent,
    PhaseName,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)
from triplepoint.traces.writer import TraceWriter

TURNS, STEPS = 5, 3
PHASES = TURNS * STEPS * 2
MODELS = (
    ("nano", "Q8_0", 3_279_616),
    ("qwen3-0.6b", "Q4_0", 596_049_920),
    ("qwen3-4b", "Q4_K", 4e9),
)
MACHINES = (("Made-up EPYC", 8), ("Made-up Xeon", 16), ("Made-up Graviton", 4))
TOOLS = ("read_file", "search", "list_dir")
ERRORS = ("no such file: missing.txt", "the pattern is empty", "end=3 is before start=9")
BOUNDS: dict[PhaseName, tuple[Bound, ...]] = {
    "prefill": ("compute", "compute", "compute", "dispatch", "memory"),
    "decode": ("memory", "memory", "memory", "dispatch", "compute"),
}
EPOCH = 1_795_000_000.0


class _Writing:
    """One trace on its way into its file."""

    def __init__(self, path: Path, number: int) -> None:
        self.chance = random.Random(number)
        self.now = EPOCH + 60.0 * number
        self.kv = 0
        self.run = f"synthetic-{number:07}"
        self.writer = TraceWriter(path, run=self.run)
        self.cpu, self.cores = MACHINES[number % 3]
        self.model = MODELS[number // 3 % 3]

    def add(self, event: Any, seconds: float = 0.001) -> None:
        self.now += seconds
        event.ts = self.now
        self.writer.write(event)

    def phase(self, kind: PhaseName, purpose: str, tokens: int, turn: int, step: int) -> float:
        """Write one; gives its seconds."""
        chance, rate = self.chance, 900.0 if kind == "prefill" else 30.0
        predicted = tokens / rate / self.cores
        wall = predicted * chance.uniform(0.8, 1.5)
        expected, seen = chance.choice(BOUNDS[kind]), chance.choice(BOUNDS[kind])
        dropped = kind == "prefill" and step == 1 and turn > 1 and chance.random() < 0.2
        event = PhaseEvent(
            phase=kind,
            purpose=purpose,
            turn=turn,
            step=step,
            predicted=expected,
            observed=seen,
            tokens=tokens,
            kv_before=self.kv,
            kv_after=self.kv + tokens,
            cached_tokens=self.kv if kind == "prefill" else 0,
            reread_tokens=40 if dropped else 0,
            miss=MissRecord(label="thinking", tokens=40, seconds=wall / 9) if dropped else None,
            wall_s=wall,
            flops=tokens * 2 * self.model[2],
            bytes=float(self.model[2]),
            mfu=chance.random(),
            mbu=chance.random(),
            dispatch_share=chance.random(),
            limit_share=chance.random(),
            threads=self.cores,
            plan=kind,
            memory_level="DRAM",
            token_ids=[chance.randrange(32_000) for _ in range(tokens)],
            ttft_s=wall if kind == "decode" and step == 1 else None,
            passes=tokens if kind == "decode" else 1,
            predicted_s={"compute": predicted, "memory": predicted / 2, "dispatch": predicted / 9},
            predicted_by="calibration",
            predicted_wall_s=predicted,
            bound_shares={"compute": 0.2, "memory": 0.6, "dispatch": 0.2},
        )
        self.kv += tokens
        self.add(event, wall)
        return wall


def write(path: Path, number: int, turns: int = TURNS) -> None:
    """One trace of ``turns`` × 6 phases; every twentieth fails, every fiftieth was killed."""
    made = _Writing(path, number)
    chance = made.chance
    name, quant, parameters = made.model
    model = ModelRecord(name=name, quant=quant, architecture="qwen3", parameters=int(parameters))
    header = RunStart(task="Question 1?", model=model, target="avx512-bf16", threads=made.cores)
    header.kv, header.machine = "bf16", MachineRecord(cpu=made.cpu, cores=made.cores)
    made.add(header)
    for turn in range(1, turns + 1):
        made.add(MessageEvent(role="user", content=f"Question {turn}?", turn=turn, step=1))
        totals = [0, 0, 0]
        for step in range(1, STEPS + 1):
            fed, last = chance.randint(80, 240), step == STEPS
            totals[2] += made.kv
            made.phase("prefill", "prompt" if step == 1 else "tool_result", fed, turn, step)
            said = chance.randint(8, 40)
            made.phase("decode", "answer" if last else "tool_call", said, turn, step)
            totals[0] += made.kv - said
            totals[1] += said
            made.add(MessageEvent(role="assistant", content="…", turn=turn, step=step))
            if not last:
                _call(made, turn, step)
        if number % 50 == 1 and turn == turns:
            break  # killed
        status: Literal["answered", "limit", "error", "cancelled"] = "answered"
        if number % 20 == 0 and turn == turns:
            status = chance.choice(("limit", "error", "cancelled"))
        end = TurnEnd(turn=turn, answer="An answer.", ttft_s=0.1, tpot_s=0.03)
        end.input_tokens, end.output_tokens, end.cached_tokens = totals
        made.add(end)
        why = "" if status == "answered" else f"stopped: after {turn} questions"
        made.add(RunEnd(status=status, message=why, answer="An answer."))
    made.writer.close()


def _call(made: _Writing, turn: int, step: int) -> None:
    chance = made.chance
    error = chance.choice(ERRORS) if chance.random() < 0.04 else None
    result = error or f"{turn}.{step}: a line of a log file\n" * chance.randint(1, 40)
    call = ToolEvent(name=chance.choice(TOOLS), arguments={"path": "app.log"}, result=result)
    call.turn, call.step, call.error, call.duration_s = turn, step, error, chance.random() / 100
    call.effect, call.decision, call.decided_by = "read", "allowed", "effect"
    made.add(call, call.duration_s)
    made.add(MessageEvent(role="tool", content=result, turn=turn, step=step))


def write_many(folder: Path, count: int, first: int = 0) -> list[Path]:
    """As many, ten thousand in a folder of their own at most; those that are there stay."""
    paths = [
        folder / f"{n // 10_000:03}" / f"run-{n:07}.jsonl" for n in range(first, first + count)
    ]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    todo = [(path, n) for n, path in enumerate(paths, first) if not path.exists()]
    if len(todo) < 100:
        for path, number in todo:
            write(path, number)
    else:
        with ProcessPoolExecutor() as pool:
            for _ in pool.map(write, *zip(*todo, strict=True), chunksize=50):
                pass
    return paths


def _timed(what: str, act: Any) -> Any:
    began = time.perf_counter()
    done = act()
    print(f"{what}: {time.perf_counter() - began:.2f} s", flush=True)
    return done


def measure(folder: Path, count: int, target: Path) -> None:
    """Time an ingest, one that finds nothing new, and every report."""
    from triplepoint.traces.warehouse.ingest import ingest
    from triplepoint.traces.warehouse.reading import Warehouse
    from triplepoint.traces.warehouse.reports import REPORTS

    fresh = _timed("ingest", partial(ingest, [str(folder)], target))
    print(f"{fresh.files / fresh.seconds:,.0f} traces/s, {fresh.rows:,} rows; {count:,} asked for")
    _timed("ingest again", partial(ingest, [str(folder)], target))
    for name, report in REPORTS.items():
        with Warehouse(target) as opened:
            _timed(f"report {name}", partial(report.run, opened))
    size = sum(p.stat().st_size for p in [target, *target.rglob("*")] if p.is_file())
    print(
        f"{size / 1e6:.1f} MB from {sum(p.stat().st_size for p in folder.rglob('*')) / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("-o", "--output", type=Path, help="the warehouse (FOLDER.duckdb)")
    args = parser.parse_args()
    _timed(f"{args.count:,} traces", lambda: write_many(args.folder, args.count))
    if args.measure:
        place = args.output or args.folder.with_suffix(".duckdb")
        if place.exists():
            sys.exit(f"{place} is there already")
        measure(args.folder, args.count, place)
