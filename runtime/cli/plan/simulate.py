"""``triplepoint plan``: the capacity of machines, simulated, and forecasts checked against runs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import EngineError, SettingError
from ....jit.kv_formats import KV_FORMATS
from ....traces.charts import side_by_side
from ...physics.machine import DOUBT
from ...planning import clock
from ...planning.clock import Corrections
from ...planning.cost import owned_hourly
from ...planning.fleet import Result, Scenario, simulate
from ...planning.forecaster import Forecaster, of_engine
from ...planning.machine_sim import Policy
from ...planning.pages import HEAD, Plan, plan_page, row, sweep_svg, validation
from ...planning.prices import load_prices
from ...planning.programs import Mix, Program, of_trace
from ...planning.validate import (
    HEAD as COMPARED_HEAD,
)
from ...planning.validate import (
    Compared,
    Round,
    compare,
    read_rounds,
    watching,
)
from ...planning.what_if import bottleneck, changes, sweep
from ..arguments import positive
from ..atomic_write import atomic_write, check_new, check_outputs
from ..load_engine import model_path
from ..options import amount
from ..output import Output
from ..tables import plain
from .cost import forecaster
from .options import ROUTES

if TYPE_CHECKING:
    from ...engine.engine import Engine

LEARN = 12  # agents that a clock is learned from
SEED = 1000  # of their texts, which are not those that are measured


def run(args: argparse.Namespace, output: Output) -> None:
    """Measure or read costs, simulate the load, and print and write the capacity."""
    check_outputs(args.html, args.svg)
    if args.learn:
        return _learn(args, output)
    rounds = _measured(args, output)
    forecaster, seen = _clock(args, output)
    compared = compare(rounds, forecaster, seen) if rounds else []
    if args.validate or (args.rounds and not (args.files or args.rate or args.html)):
        return _show_compared(args, output, compared)
    scenario = _scenario(args, forecaster, seen)
    return _plan(args, output, scenario, compared)


def _clock(args: argparse.Namespace, output: Output) -> tuple[Forecaster, Corrections]:
    if args.clock:
        if args.model or args.machine:
            raise SettingError(
                "--clock cannot be combined with -m or --machine: the clock file names both"
            )
        found, seen, date = clock.read(args.clock)
        return found.with_kv(args.kv), clock.learn(found, seen, date)
    found = forecaster(args.model or "qwen3:0.6b", args.machine, output)
    return found.with_kv(args.kv), clock.Corrections()


def _scenario(args: argparse.Namespace, forecaster: Forecaster, seen: Corrections) -> Scenario:
    policy = Policy(args.deadline, args.parallel, args.sharing, args.kv_memory)
    sizes = args.shared, args.new, args.reply, args.requests, args.pause, args.person or 0.0
    return Scenario(
        forecaster,
        seen,
        args.machines,
        _programs(args.files),
        None if args.files else Mix(*sizes),
        args.conversations,
        args.rate or 0.0,
        policy,
        args.goals,
        args.route,
        args.seed,
    )


def _programs(names: Sequence[str]) -> list[Program]:
    from ..engine_from_trace import load_trace

    found = [
        program for group, name in enumerate(names) for program in of_trace(load_trace(name), group)
    ]
    if names and not found:
        raise SettingError(f"{', '.join(names)}: no requests to a local model in these traces")
    return found


def _plan(
    args: argparse.Namespace, output: Output, scenario: Scenario, compared: list[Compared]
) -> None:
    book = load_prices(args.prices)
    hardware = book.machine(args.hardware)
    hourly = hardware.hourly if hardware.rented else owned_hourly(hardware, book.kwh)
    paid = {"always": "all day", "hour": "begun", "second": "in use"}[hardware.billing]
    priced = f"${hourly:.3f} an hour {paid if hardware.rented else 'of full load'}"
    began = time.perf_counter()
    what, values = args.sweep or ("", ())
    if what:
        rows = sweep(scenario, values, _change(what, args, output), args.jobs)
        base = rows[0][1]
    else:
        base = simulate(scenario, args.jobs)
        rows = [("as asked", base)]
    found = changes(base, args.jobs) if args.what_if else []
    took = time.perf_counter() - began
    one, machine = scenario.forecaster, scenario.forecaster.machine
    told = [
        f"{base.tally.arrived:,} conversations, {base.requests:,} requests on "
        f"{base.scenario.machines:,} × {machine.cpu} ({machine.threads} threads, "
        f"{machine.read_gbps['DRAM']:.0f} GB/s, {machine.int8_gops:,.0f} GOP/s), model {one.name}, "
        f"KV cache {one.kv}, {_times(scenario)}; simulated in {took:.1f} s.",
        f"In time: TTFT up to {args.goals[0]:g} s and TPOT up to {args.goals[1]:g} s. Prices: "
        f"{hardware.name} at {priced}, of {hardware.date or 'an unknown date'}.",
    ]
    if machine.doubtful:
        told.append(f"Doubtful: {DOUBT}.")
    title = f"{base.scenario.machines:,} machines with {one.name}"
    plan = Plan(title, told, base, hardware, book.kwh, rows, what, found, compared)
    _show(output, plan)
    output.line(f"next bottleneck: {bottleneck(base, found)}")
    if failed := max(one.tally.failed for _, one in rows):
        output.note(
            f"{failed:,} conversations could not be answered: they exceed the context of "
            f"{scenario.policy.context:,} tokens, or need more than the memory for KV caches"
        )
    if args.html:
        with atomic_write(args.html) as file:
            file.write(plan_page(plan))
    if args.svg:
        with atomic_write(args.svg) as file:
            file.write(sweep_svg(plan))
    output.json(_json(plan))


def _times(scenario: Scenario) -> str:
    """Describe where the times of passes come from."""
    basis = scenario.forecaster.basis
    if basis == "learned":
        return f"pass times learned from {scenario.seen.passes:,} passes"
    if basis == "calibration":
        return "pass times predicted, calibrated with this model"
    if basis == "given":
        return "pass times predicted with the shares of the limits in the machine's file"
    return "pass times predicted with typical shares of the machine's limits"


def _change(
    what: str, args: argparse.Namespace, output: Output
) -> Callable[[Scenario, str], Scenario]:
    def change(scenario: Scenario, value: str) -> Scenario:
        policy = scenario.policy
        if what == "machines":
            return replace(scenario, machines=positive(value))
        if what == "rate":
            return replace(scenario, rate=amount(value))
        if what == "deadline":
            return replace(scenario, policy=replace(policy, deadline_s=amount(value)))
        if what == "parallel":
            return replace(scenario, policy=replace(policy, parallel=positive(value)))
        if what in ("kv", "route"):
            known = KV_FORMATS if what == "kv" else ROUTES
            if value not in known:
                raise SettingError(f"--sweep {what}: {value!r} is not one of {', '.join(known)}")
            if what == "route":
                return replace(scenario, route=value)  # pyright: ignore[reportArgumentType]
            kv: Any = value
            return replace(scenario, forecaster=scenario.forecaster.with_kv(kv))
        if args.clock:
            raise SettingError(
                f"--sweep {what} cannot be combined with --clock: a clock belongs to one model "
                "and machine"
            )
        model = value if what == "model" else args.model or "qwen3:0.6b"
        found = forecaster(model, value if what == "machine" else args.machine, output)
        return replace(scenario, forecaster=found.with_kv(args.kv))

    def checked(scenario: Scenario, value: str) -> Scenario:
        try:
            return change(scenario, value)
        except argparse.ArgumentTypeError as error:
            raise SettingError(f"--sweep {what}: {error}") from None

    return checked


def _show(output: Output, plan: Plan) -> None:
    for line in plan.about:
        output.words(line, "")
    output.line()
    rows = [row(name, one, plan) for name, one in plan.rows]
    rows += [row(one.name, one.result, plan) for one in plan.changes]
    plain(output, HEAD, rows)
    output.line()
    for one in plan.changes:
        output.line(f"{one.name}: {one.gain:+.0%} work on the same machines")


def _json(plan: Plan) -> dict[str, Any]:
    return {
        "told": list(plan.about),
        "results": [_fields(name, one) for name, one in plan.rows],
        "changes": [{**_fields(one.name, one.result), "gain": one.gain} for one in plan.changes],
    }


def _fields(name: str, one: Result) -> dict[str, Any]:
    times = {
        f"{what}_p{100 * q:.0f}_s": one.quantile(what, q)
        for what in ("ttft", "tpot", "finished")
        for q in (0.5, 0.99)
    }
    tally = one.tally
    return {
        "name": name,
        "machines": one.scenario.machines,
        "seconds": one.seconds,
        "conversations": tally.done,
        "failed": tally.failed,
        "requests": one.requests,
        "tokens_per_s": one.tokens_per_s,
        **times,
        "good": one.good,
        "goodput": one.goodput,
        "used": one.used,
        "bounds": one.bounds,
        "kv_mean_bytes": one.kv_mean,
        "kv_peak_bytes": tally.peak,
        "computed_tokens": tally.computed,
        "adopted_tokens": tally.adopted,
        "written_tokens": tally.written,
        "evicted": tally.evicted,
        "preempted": tally.preempted,
        "passes": tally.passes,
    }


# --- this machine, measured


def _engine(args: argparse.Namespace, output: Output) -> Engine:
    """Load the model to run."""
    from ...engine.engine import Engine

    if not args.model:
        raise SettingError("no model to run; name one with -m")
    return Engine.load(model_path(args.model, output), kv=args.kv, cache_packed_weights=True)


def _agents(args: argparse.Namespace, engine: Engine, agents: int, seed: int) -> Any:
    from ...bench.load import measure
    from ...bench.load_work import Work
    from ...serve.models.prompts import Prompts
    from ..engine_client import EngineClient

    turns, system, least, most, reply = args.work
    work = Work(agents, turns, system, least, most, reply, seed)
    options = {"temperature": 1.0, "top_k": 40, "seed": seed}
    prompts = Prompts(engine.tokenizer)
    load = measure(work, lambda: EngineClient(engine, prompts, options))
    if load.failures:
        raise EngineError(f"a measured agent failed: {load.failures[0]}")
    return load


def _calibrated(engine: Engine) -> Forecaster:
    from ...engine.engine_timer import EngineTimer
    from ...physics import calibration
    from ...physics.calibrate import calibrated

    kept = calibration.load(calibration.path_of(engine.loaded.cost, engine.machine, engine.kv))
    if kept is not None:
        engine.loaded.apply_calibration(kept)
        return of_engine(engine, kept)
    return of_engine(engine, calibrated(EngineTimer(engine)))


def _learn(args: argparse.Namespace, output: Output) -> None:
    check_new(args.learn, force=True)
    before: list[clock.Seen] = []
    with _engine(args, output) as engine:
        known = None
        if Path(args.learn).exists():
            known, before, _ = clock.read(args.learn)
            _check_clock(args.learn, known, engine)
        measured = _calibrated(engine)
        forecaster = known or measured
        with watching(engine) as seen:
            _agents(args, engine, LEARN, SEED + len(before))
    seen = before + seen
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with atomic_write(args.learn) as file:
        file.write(clock.as_json(forecaster, seen, date))
    found = clock.learn(forecaster, seen, date)
    output.line(
        f"{len(seen)} passes: alone {_ratios(found.alone)}, shared {_ratios(found.shared)} of "
        f"what is predicted; the host takes {1e3 * found.pass_s:.2f} ms a pass and "
        f"{1e3 * found.row_s:.2f} ms a sequence"
    )
    output.json({"passes": len(seen), "alone": found.alone, "shared": found.shared})


def _check_clock(path: str, known: Forecaster, engine: Engine) -> None:
    """Refuse a clock of another model."""
    if known.name != engine.model.name:
        raise SettingError(
            f"{path} is a clock for {known.name}, not {engine.model.name}; name its model with "
            "-m, or give another file"
        )


def _ratios(found: Any) -> str:
    values = list(found.values())
    return f"{min(values):.2f} to {max(values):.2f}" if values else "none"


def _measured(args: argparse.Namespace, output: Output) -> list[Any]:
    path = Path(args.rounds) if args.rounds else None
    rounds = read_rounds(path) if path else []
    if not args.validate:
        return rounds
    if not args.clock:
        raise SettingError("--validate needs --clock FILE; write the file first with --learn FILE")
    with _engine(args, output) as engine:
        _check_clock(args.clock, clock.read(args.clock)[0], engine)
        _calibrated(engine)
        args.model = None  # from here on it is the clock's
        for n, agents in enumerate(args.validate):
            one = Round.of(_agents(args, engine, max(1, agents), args.seed + len(rounds) + n))
            rounds.append(one)
            if path:
                with path.open("a", encoding="utf-8") as file:
                    file.write(one.as_json() + "\n")
    return rounds


def _show_compared(args: argparse.Namespace, output: Output, compared: list[Compared]) -> None:
    if not compared:
        raise SettingError(f"--rounds {args.rounds}: the file has no rounds")
    for one in compared:
        plain(output, COMPARED_HEAD, one.lines())
        met = "all goals met" if one.met else "not all goals met"
        output.line(f"{len(one.rounds)} rounds of {one.agents} agents: {met}")
        output.line()
    if args.svg:
        with atomic_write(args.svg) as file:
            file.write(side_by_side(validation(compared), width=900))
    output.json(
        {str(one.agents): {name: error for name, error, _ in one.errors()} for one in compared}
    )
