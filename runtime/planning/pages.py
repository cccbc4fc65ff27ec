"""The HTML page of a capacity plan, and charts of plans and prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...traces.charts import COLORS, Bar, Bars, Lines, Series, figures, number, side_by_side
from ...traces.html_page import header, markup, page, section, table
from .cost import DAYS, Choice, Sensitivity, Usage, day_cost
from .fleet import Result
from .prices import Hardware
from .validate import HEAD as COMPARED
from .validate import Compared
from .what_if import Change, bottleneck

HEAD = (
    "", "tok/s", "requests/s", "TTFT p50 s", "p99", "TPOT p50 ms", "p99", "in time", "in use",
    "KV GB mean", "peak", "$/day", "$/M tokens",
)  # fmt: skip
_COLORS = {"host": "s4", "idle": "idle"}  # of what is no bound


@dataclass
class Plan:
    """The contents of the page of a capacity plan."""

    title: str
    about: Sequence[str]
    """Assumptions, one a line."""
    base: Result
    """The requested scenario."""
    hardware: Hardware
    kwh: float
    rows: Sequence[tuple[str, Result]]
    """The scenario and its variants, by name."""
    sweep: str = ""
    changes: Sequence[Change] = ()
    compared: Sequence[Compared] = ()


def row(name: str, result: Result, plan: Plan) -> list[str]:
    """Format a result as a row of the table of results."""
    busy_h = 24 * result.used  # of each machine, which is there all day
    each, _ = day_cost(replace(plan.hardware, hours=24.0), busy_h, plan.kwh)
    day = each * result.scenario.machines
    tokens = result.tokens_per_s * 86_400
    return [
        name,
        number(result.tokens_per_s),
        number(result.requests / result.seconds),
        *(_short(result.quantile("ttft", q)) for q in (0.5, 0.99)),
        *(_short(1e3 * result.quantile("tpot", q)) for q in (0.5, 0.99)),
        f"{result.good:.0%}",
        f"{result.used:.0%}",
        f"{result.kv_mean / 1e9:.2f}",
        f"{result.tally.peak / 1e9:.2f}",
        f"{day:,.2f}",
        _short(1e6 * day / tokens) if tokens else "–",
    ]


def _short(value: float) -> str:
    """Format three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def plan_page(plan: Plan) -> str:
    """Render the HTML page of a plan."""
    found = bottleneck(plan.base, plan.changes)
    parts = [
        header(plan.title, *plan.about),
        f"<main><section><p><b>Next bottleneck:</b> {markup(found)}.</p>",
        table(HEAD, [row(name, one, plan) for name, one in plan.rows]),
        figures(_latencies(plan.base), _time(plan.base)),
        "</section>",
    ]
    if len(plan.rows) > 1:
        parts.append(section(f"Sweep over {plan.sweep}", figures(*_sweep(plan))))
    if plan.changes:
        rows = [row(one.name, one.result, plan) for one in plan.changes]
        parts.append(section("What would help", figures(*_changes(plan)), table(HEAD, rows)))
    if plan.compared:
        rows = [line for one in plan.compared for line in one.lines()]
        chart = figures(validation(plan.compared))
        parts.append(section("Validation", table(COMPARED, rows, (0, 1)), chart))
    return page(plan.title, *parts, "</main>")


def sweep_svg(plan: Plan) -> str:
    """Draw latencies and utilization over the swept setting, as an SVG file."""
    return side_by_side(*_sweep(plan))


def _latencies(result: Result) -> Lines:
    shares = [n / 200 for n in range(1, 200)] + [0.999]
    lines = []
    for name in ("ttft", "tpot"):
        values = np.frombuffer(getattr(result.tally, name), np.float32)
        if len(values):
            points = zip(np.quantile(values, shares).tolist(), shares, strict=True)
            lines.append(Series(name.upper(), [(value, 100 * share) for value, share in points]))
    return Lines("Requests by latency", "seconds", "% of requests", lines, log_x=True)


def _time(result: Result) -> Bars:
    bars = [
        Bar(name, 0.0, 100 * share, ("", f"{share:.0%}"), _COLORS.get(name, name))
        for name, share in result.bounds.items()
    ]
    return Bars("Where the machines' time goes", "% of the time", bars)


def _sweep(plan: Plan) -> tuple[Lines, Lines]:
    try:
        at = [float(name) for name, _ in plan.rows]
    except ValueError:
        at = [float(n) for n in range(len(plan.rows))]
    results = [one for _, one in plan.rows]

    def line(name: str, value: Callable[[Result], float]) -> Series:
        values = map(value, results)
        return Series(name, sorted(zip(at, values, strict=True)), "dotted line")

    times = [
        line("TTFT p50", lambda one: one.quantile("ttft", 0.5)),
        line("TTFT p99", lambda one: one.quantile("ttft", 0.99)),
        line("TPOT p99", lambda one: one.quantile("tpot", 0.99)),
    ]
    use = [
        line("in use", lambda one: 100 * one.used),
        line("in time", lambda one: 100 * one.good),
    ]
    return (
        Lines("Latency", plan.sweep, "seconds", times, log_y=True),
        Lines("Use, and requests in time", plan.sweep, "%", use),
    )


def _changes(plan: Plan) -> tuple[Bars, Bars]:
    base = plan.base.quantile("ttft", 0.99)
    gains = [
        Bar(one.name, 0.0, 100 * one.gain, ("", f"{one.gain:+.0%}"), f"s{n}")
        for n, one in enumerate(plan.changes)
    ]
    late = [(one.name, one.result.quantile("ttft", 0.99)) for one in plan.changes]
    ends = [
        Bar(name, base, now, ("", f"{_short(now)} s"), f"s{n}")
        for n, (name, now) in enumerate(late)
    ]
    return (
        Bars("Extra work that the same machines could do", "% more", gains),
        Bars("TTFT p99", "seconds", ends, base=base),
    )


def validation(compared: Sequence[Compared]) -> Bars:
    """Draw the errors of the simulation and their tolerances, as bars."""
    bars = []
    for one in compared:
        for n, (name, error, goal) in enumerate(one.errors()):
            words = f"{error:+.0%} (goal {goal:.0%})"
            bars.append(Bar(f"{one.agents} agents: {name}", 0.0, 100 * error, ("", words), f"s{n}"))
    return Bars("Simulated against measured", "error, %", bars)


def cost_svg(
    choices: Sequence[Choice],
    evens: Mapping[str, Sequence[tuple[float, float]]],
    moves: Sequence[Sensitivity],
    usage: Usage,
    about: str,
) -> str:
    """Draw dollars a month over questions a day, and a price's sensitivities, as an SVG file.

    Args:
        choices: what is compared, the own machine first.
        evens: by name of another, between which questions a day the own one costs no more.
    """
    mine = choices[0]
    low, high = min(1.0, usage.turns / 100), max(1e5, usage.turns * 100)
    turns = np.geomspace(low, high, 121).tolist()
    firsts = [(one.name, evens[one.name][0][0]) for one in choices[1:] if evens[one.name]]
    apis = {one.name for one in choices if one.kind == "api"}
    lines = Lines(
        "Cost per month",
        "questions per day",
        "dollars per month",
        [
            Series(one.name, [(n, DAYS * one.day(n)) for n in turns], dashed=one.name in apis)
            for one in choices
        ],
        log_x=True,
        log_y=True,
        notes=[
            f"per question: {number(usage.computed)} + {number(usage.cached)} cached in, "
            f"{number(usage.output)} out; {about}"
        ],
        marks=[
            (even, DAYS * mine.day(even), f"{number(even)} per day: {name}")
            for name, even in firsts
            if name in apis and 1.01 < even < high
        ],
    )
    cents = [(one.name, 100 * one.low, 100 * one.high) for one in moves]
    changes = Bars(
        f"What changes the cost per question on {mine.name}",
        "cents per question",
        [
            Bar(name, low, high, (number(low), number(high)), f"s{n % COLORS}")
            for n, (name, low, high) in enumerate(cents)
        ],
        base=100 * mine.question,
        log=True,
        notes=[
            "each at half and twice its value, the rest unchanged: "
            f"{number(100 * mine.question)} cents now"
        ],
    )
    return side_by_side(lines, changes, height=460)
