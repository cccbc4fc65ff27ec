"""The plan as one HTML page that needs no network: figures, pictures, what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...traces.html_page import markup
from .charts import Bar, Bars, Lines, Series, document, number
from .cost import day_cost
from .fleet import Result
from .prices import Hardware
from .validate import Compared
from .what_if import Change, bottleneck

_STYLE = (
    "body{margin:0 auto;max-width:1240px;padding:24px;background:#0e1013;color:#e8e8e4;"
    "font:15px/1.5 system-ui,sans-serif}h1{font-size:26px}h2{font-size:19px;margin-top:34px}"
    "table{border-collapse:collapse;margin:10px 0}td,th{padding:4px 14px 4px 0;text-align:right;"
    "border-bottom:1px solid #2c3138}td:first-child,th:first-child{text-align:left}"
    "svg{width:100%;height:auto}p{color:#c4c8cd}"
)
HEAD = (
    "", "tok/s", "requests/s", "TTFT p50 s", "p99", "TPOT p50 ms", "p99", "in time", "in use",
    "KV GB mean", "peak", "$/day", "$/M tokens",
)  # fmt: skip
_COLORS = {"compute": 0, "memory": 1, "dispatch": 2, "host": 4, "idle": 8}


@dataclass
class Plan:
    """What a page shows.

    Attributes:
        title, told: of the whole, and lines of what was assumed.
        base: the scenario as it was asked for; rows: that and others, by name.
        hardware, kwh: what a machine is paid by.
        sweep: what was swept, with results by value; changes: what would help.
        compared: forecasts beside what was measured.
    """

    title: str
    told: Sequence[str]
    base: Result
    hardware: Hardware
    kwh: float
    rows: Sequence[tuple[str, Result]]
    sweep: str = ""
    changes: Sequence[Change] = ()
    compared: Sequence[Compared] = field(default=())


def row(name: str, result: Result, plan: Plan) -> list[str]:
    """A line of the table of results."""
    day = day_of(result, plan.hardware, plan.kwh)
    tokens = result.tokens_per_s * 86_400
    return [
        name,
        number(result.tokens_per_s),
        number(result.requests / result.seconds),
        *(f"{result.quantile('ttft', q):.3g}" for q in (0.5, 0.99)),
        *(f"{1e3 * result.quantile('tpot', q):.3g}" for q in (0.5, 0.99)),
        f"{result.good:.0%}",
        f"{result.used:.0%}",
        f"{result.kv_mean / 1e9:.2f}",
        f"{result.tally.peak / 1e9:.2f}",
        f"{day:,.2f}",
        f"{1e6 * day / tokens:.3g}" if tokens else "–",
    ]


def day_of(result: Result, hardware: Hardware, kwh: float) -> float:
    """Dollars of a day like what was simulated: each machine is there all day, busy for its share.

    What that costs is as of `cost`: the time in use of one that is rented by it, else all of the
    time; idle power of a bought one.
    """
    hardware = replace(hardware, hours=24.0)
    return result.scenario.machines * day_cost(hardware, 24 * min(1.0, result.used), kwh)[0]


def page(plan: Plan) -> str:
    """The whole page."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f'<meta name="viewport" content="width=device-width"><title>{markup(plan.title)}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{markup(plan.title)}</h1>",
        *(f"<p>{markup(line)}</p>" for line in plan.told),
        f"<p><b>Next bottleneck:</b> {markup(bottleneck(plan.base, plan.changes))}.</p>",
        _table(HEAD, [row(name, one, plan) for name, one in plan.rows]),
        document([_latencies(plan.base), _time(plan)], 620, 400),
    ]
    if len(plan.rows) > 1:
        parts += [f"<h2>Sweep over {markup(plan.sweep)}</h2>", sweep_svg(plan)]
    if plan.changes:
        parts += ["<h2>What would help</h2>", _changes(plan)]
    if plan.compared:
        parts += ["<h2>Validation</h2>", _validation(plan.compared)]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    out = ["<table><tr>", *(f"<th>{markup(cell)}</th>" for cell in head), "</tr>"]
    for cells in rows:
        out += ["<tr>", *(f"<td>{markup(cell)}</td>" for cell in cells), "</tr>"]
    return "".join([*out, "</table>"])


def _latencies(result: Result) -> Lines:
    shares = [n / 200 for n in range(1, 200)] + [0.999]
    lines = []
    for name, scale in (("ttft", 1.0), ("tpot", 1.0)):
        values = np.frombuffer(getattr(result.tally, name), np.float32)
        if len(values):
            points = [(float(np.quantile(values, s)) * scale, 100 * s) for s in shares]
            lines.append(Series(name.upper(), points))
    return Lines("Requests by latency", "seconds", "% of requests", lines, log_x=True)


def _time(plan: Plan) -> Bars:
    bars = [
        Bar(name, 0.0, 100 * share, ("", f"{share:.0%}"), _COLORS.get(name, 5))
        for name, share in plan.base.bounds.items()
    ]
    return Bars("Where the machines' time goes", "% of the time", bars)


def sweep_svg(plan: Plan) -> str:
    """Latencies and use over what was swept."""
    try:
        at = [float(name) for name, _ in plan.rows]
    except ValueError:
        at = [float(n) for n in range(len(plan.rows))]
    results = [one for _, one in plan.rows]

    def line(name: str, values: Sequence[float]) -> Series:
        return Series(name, sorted(zip(at, values, strict=True)), dots=True)

    ttft = [
        line(f"TTFT {label}", [one.quantile("ttft", q) for one in results])
        for label, q in (("p50", 0.5), ("p99", 0.99))
    ]
    ttft.append(line("TPOT p99", [one.quantile("tpot", 0.99) for one in results]))
    use = [
        line("in use", [100 * one.used for one in results]),
        line("in time", [100 * one.good for one in results]),
    ]
    charts = [
        Lines("Latency", plan.sweep, "seconds", ttft, log_y=True),
        Lines("Use, and requests in time", plan.sweep, "%", use),
    ]
    return document(charts, 620, 380)


def _changes(plan: Plan) -> str:
    more = Bars(
        "Extra work that the same machines could do",
        "% more",
        [
            Bar(one.name, 0.0, 100 * one.gain, ("", f"{one.gain:+.0%}"), n)
            for n, one in enumerate(plan.changes)
        ],
    )
    base = plan.base.quantile("ttft", 0.99)
    late = [(one.name, one.result.quantile("ttft", 0.99)) for one in plan.changes]
    ends = Bars(
        "TTFT p99",
        "seconds",
        [Bar(name, base, now, ("", f"{now:.3g} s"), n) for n, (name, now) in enumerate(late)],
        base=base,
    )
    rows = [row(one.name, one.result, plan) for one in plan.changes]
    return document([more, ends], 620, 340) + _table(HEAD, rows)


def _validation(compared: Sequence[Compared]) -> str:
    head = ("agents", "what", "measured", "min … max", "simulated", "error", "goal")
    rows = [line for one in compared for line in one.lines()]
    return _table(head, rows) + document([validation_chart(compared)], 1240, 340)


def validation_chart(compared: Sequence[Compared]) -> Bars:
    """Errors of the simulation beside their goals."""
    bars = []
    for one in compared:
        for n, (name, error, goal) in enumerate(one.errors()):
            words = f"{error:+.0%} (goal {goal:.0%})"
            bars.append(Bar(f"{one.agents} agents: {name}", 0.0, 100 * error, ("", words), n))
    return Bars("Simulated against measured", "error, %", bars)
