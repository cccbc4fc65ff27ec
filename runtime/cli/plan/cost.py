"""``triplepoint plan cost``: what questions cost on a CPU, a rented GPU and through an API."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ....errors import SettingError
from ....traces.find import resolve
from ...bench.reach import USUAL, here
from ...physics import many_cores
from ...planning import cost
from ...planning.cost import Choice, Sensitivity, Speeds, Usage, gpu_speeds, machine_choice
from ...planning.forecaster import Forecaster, of_engine, of_name
from ...planning.prices import OLD_DAYS, Hardware, PriceBook, load_prices
from ...planning.usage import Recorded, read_recorded
from ..atomic_write import atomic_write, check_outputs
from ..load_engine import model_path
from ..output import Output
from ..tables import paragraph, plain, rate
from ..traces import default_folder
from .options import HITS, INPUT, OUTPUT, TURNS

_RANGES = 4  # of questions a day that a line shows at most
_HEAD = ("WHAT", "TOK/S IN", "OUT", "$/M IN", "CACHED", "OUT", "¢/QUESTION", "$/MONTH", "IN USE")


def run(args: argparse.Namespace, output: Output) -> None:
    """Compute the cost of questions on CPU, GPU and API, and print it."""
    check_outputs(args.svg)
    book = load_prices(args.prices)
    book = replace(book, kwh=args.kwh or book.kwh)
    recorded = _recorded(args.files)
    hardware, power = _measured_power(args, own_hardware(args, book), recorded)
    forecaster = _forecaster(args, output)
    usage = _usage(args, recorded)
    found = _speeds(args, recorded, forecaster, usage)
    mine = cost.machine_choice(hardware, found, usage, book.kwh)
    gpus, notes = _gpus(book, recorded, forecaster, usage)
    choices = [mine, *gpus, *(cost.api_choice(api, usage) for api in book.apis.values())]
    evens = {one.name: cost.cheaper(mine.day, one.day) for one in choices[1:]}
    moves = cost.sensitivities(hardware, found, usage, book.kwh)
    use = (args.questions, args.input_tokens, args.output_tokens, args.cache_hits, args.steps)
    changed = any(one is not None for one in use)
    _show(output, usage, recorded, changed, choices, evens, moves)
    for note in (*power, *notes):
        output.note(note)
    age = book.age()
    paragraph(output, _ages(book, hardware), width=100)
    if age > OLD_DAYS:
        output.note(f"the prices are {age} days old; give newer ones with --prices FILE")
    if args.svg:
        from ...planning.pages import cost_svg

        about = f"prices as of {book.checked}"
        with atomic_write(args.svg) as file:
            file.write(cost_svg(choices, evens, moves, usage, about))
    output.json(_json(usage, book, choices, evens, moves))


def own_hardware(args: argparse.Namespace, book: PriceBook) -> Hardware:
    """Return the CPU's machine with the prices and hours of the arguments."""
    hardware = book.machine(args.hardware)
    if args.rent is not None and args.buy is not None:
        raise SettingError("--rent and --buy exclude each other; give one of them")
    if args.hours is not None and args.hours > 24:
        raise SettingError(f"--hours must be at most 24, not {args.hours:g}")
    rented = args.rent is not None or (args.buy is None and hardware.rented)
    of_own = ["years", "watts"]
    if hardware.billing != "always":
        of_own.append("hours")
    if all(one.rented for one in book.hardware.values() if one.kind == "gpu"):
        of_own.append("kwh")
    given = next((name for name in of_own if getattr(args, name) is not None), None)
    if rented and given is not None:
        raise SettingError(
            f"--{given} has no effect on a machine that is rented by the hour; leave it out, or "
            "give the price of a machine of your own with --buy"
        )
    changes: dict[str, Any] = {
        "hourly": args.rent,
        "price": args.buy,
        "years": args.years,
        "hours": args.hours,
        "watts": args.watts,
    }
    if args.buy is not None:
        changes["hourly"] = 0.0
    return replace(hardware, **{k: v for k, v in changes.items() if v is not None})


def _measured_power(
    args: argparse.Namespace, hardware: Hardware, recorded: Recorded | None
) -> tuple[Hardware, list[str]]:
    """Replace assumed watts by those of the traces, if speeds are theirs too, and say so."""
    watts = recorded.watts if recorded else None
    if watts is None or hardware.rented or args.watts or args.model or args.speeds:
        return hardware, []
    note = f"power: {watts:.3g} W, as the traces measured it for the CPU packages alone, not the "
    note += f"{hardware.watts:g} W of {hardware.name}; --watts gives that of the whole machine"
    return replace(hardware, watts=watts), [note]


def _recorded(names: Sequence[str]) -> Recorded | None:
    if not names:
        return None
    from ...replay import examples

    paths: list[Path] = []
    for name in names:
        library = name in examples.names()
        path = examples.folder() / f"{name}{examples.SUFFIX}" if library else None
        paths.append(path or resolve(name, default_folder()))
    return read_recorded(paths)


def _usage(args: argparse.Namespace, recorded: Recorded | None) -> Usage:
    prompt, written, hits, answered, steps = INPUT, OUTPUT, HITS, 1.0, 1.0
    if recorded is not None:
        n = recorded.questions
        prompt, written = recorded.input / n, recorded.output / n
        hits, answered = recorded.cached / recorded.input, min(1.0, recorded.answered / n)
        steps = max(1.0, recorded.steps / n)
    prompt = args.input_tokens or prompt
    return Usage(
        args.questions or TURNS,
        prompt,
        prompt * (hits if args.cache_hits is None else args.cache_hits),
        args.output_tokens or written,
        args.steps or steps,
        args.parallel,
        answered,
    )


def _forecaster(args: argparse.Namespace, output: Output) -> Forecaster | None:
    if args.model is None:
        if args.machine is not None:
            raise SettingError("--machine needs -m MODEL: speeds are predicted for a model")
        return None
    return forecaster(args.model, args.machine, output)


def forecaster(model: str, machine: str | None, output: Output) -> Forecaster:
    """Build the forecaster of a model on a machine; load the model only if its name is unknown."""
    from ...replay.machine_file import read_machine

    known = many_cores.simulated(machine) if machine else None
    if known is not None:
        output.note(f"machine: {known.cpu}; from public figures, not measured (docs/planning.md)")
        if (found := of_name(model, known, reached=USUAL)) is None:
            raise SettingError(f"{machine} is simulated; give -m an alias or synthetic:NAME:TYPE")
        return replace(found, basis="simulated")
    limits, reached = read_machine(machine) if machine else (here(), None)
    found = of_name(model, limits, reached=reached)
    if found is not None:
        return found
    from ...engine.engine import Engine
    from ...engine.engine_timer import EngineTimer
    from ...physics.calibrate import calibrated

    with Engine.load(model_path(model, output)) as engine:
        found = of_engine(engine, calibrated(EngineTimer(engine)))
        return found if machine is None else found.with_machine(limits)


def _speeds(
    args: argparse.Namespace,
    recorded: Recorded | None,
    forecaster: Forecaster | None,
    usage: Usage,
) -> Speeds:
    if args.speeds is not None:
        return Speeds(*args.speeds)
    if forecaster is not None:
        return forecaster.speeds(usage)
    if recorded is not None and recorded.speeds is not None:
        return recorded.speeds
    raise SettingError("speeds are not known; give traces, a model with -m, or --speeds IN,OUT")


def _gpus(
    book: PriceBook, recorded: Recorded | None, forecaster: Forecaster | None, usage: Usage
) -> tuple[list[Choice], list[str]]:
    """Return the costs of rented GPUs, and why some are left out."""
    weights = active = float(recorded.weights) if recorded else 0.0
    kv_bytes = 0.0
    if forecaster is not None:
        weights, active = forecaster.weights, forecaster.active
        kv_bytes = forecaster.cost.kv_bytes
    found: list[Choice] = []
    notes: list[str] = []
    for gpu in (one for one in book.hardware.values() if one.kind == "gpu"):
        if not weights and not (gpu.prefill_tps and gpu.decode_tps):
            note = "GPUs are left out because the model's size is not known; name the model with -m"
            notes = [note]
            continue
        try:
            reached = gpu_speeds(gpu, book, weights, active, kv_bytes, usage)
        except SettingError as error:
            notes.append(f"{gpu.name} is left out: {error}")
            continue
        found.append(machine_choice(gpu, reached, usage, book.kwh))
    return found, notes


def _show(
    output: Output,
    usage: Usage,
    recorded: Recorded | None,
    changed: bool,
    choices: Sequence[Choice],
    evens: dict[str, list[tuple[float, float]]],
    moves: Sequence[Sensitivity],
) -> None:
    told = f"mean of {recorded.questions:,} recorded" if recorded else "default profile"
    told += ", with your values" * changed
    steps = f"{usage.steps:.3g} step{'s' * (usage.steps != 1)}"
    paragraph(
        output,
        f"A question ({told}): {usage.input:,.0f} tokens of input, {usage.cached:,.0f} of them "
        f"cached, {usage.output:,.0f} of output, in {steps}; {usage.turns:,.0f} per day, "
        f"{usage.concurrency} at once.",
        width=100,
    )
    output.line()
    rows = [_row(choice) for choice in choices]
    plain(output, _HEAD, rows)
    output.line()
    mine = choices[0]
    for name, ranges in evens.items():
        output.line(_compared(mine.name, name, ranges))
    if usage.answered < 1:
        output.line(
            f"{usage.answered:.0%} of the answers were useful; a useful one costs "
            f"{dollars(100 * mine.answer)} ¢ on {mine.name}"
        )
    top = ", ".join(
        f"{one.name} ({dollars(100 * one.low)} to {dollars(100 * one.high)} ¢)" for one in moves[:3]
    )
    output.line(f"what changes the cost most, from half to twice the value: {top}")
    output.line()


def _compared(mine: str, other: str, ranges: Sequence[tuple[float, float]]) -> str:
    """Describe, in a sentence, when the first is cheaper."""
    if not ranges:
        return f"{mine} is never cheaper than {other}"
    parts = [_range(*one) for one in ranges]
    if len(parts) > _RANGES:
        parts[_RANGES - 1 : -1] = ["…"]
    return f"{mine} is cheaper than {other} at {', '.join(parts)} questions per day"


def _range(first: float, last: float) -> str:
    end = "and more" if math.isinf(last) else f"to {last:,.0f}"
    return f"{first:,.0f} {end}"


def _row(one: Choice) -> tuple[str, ...]:
    machines = f" × {one.machines}" if one.machines > 1 else ""
    speeds = ("", "") if one.speeds is None else (rate(one.speeds.prefill), rate(one.speeds.decode))
    return (
        one.name + machines,
        *speeds,
        dollars(one.input),
        dollars(one.cached),
        dollars(one.output),
        dollars(100 * one.question),
        dollars(one.month),
        f"{one.used:.1%}" if one.speeds is not None else "",
    )


def dollars(value: float) -> str:
    """Format an amount with three significant digits."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def _ages(book: PriceBook, hardware: Hardware) -> str:
    dates = [one.date for one in (*book.hardware.values(), *book.apis.values()) if one.date]
    return (
        f"Prices of {min(dates)} to {max(dates)}, checked on {book.checked}; {hardware.name}: "
        f"{hardware.source or 'as given'}. GPU speeds are estimated from peak figures. Prices go "
        "out of date: give your own with `--prices FILE` (docs/planning.md)."
    )


def _json(
    usage: Usage,
    book: PriceBook,
    choices: Sequence[Choice],
    evens: dict[str, list[tuple[float, float]]],
    moves: Sequence[Sensitivity],
) -> dict[str, Any]:
    return {
        "usage": asdict(usage),
        "prices": {"checked": str(book.checked), "age_days": book.age(), "kwh": book.kwh},
        "choices": [{k: v for k, v in asdict(one).items() if k != "day"} for one in choices],
        "cheaper_turns": evens,
        "sensitivities": [asdict(one) for one in moves],
    }
