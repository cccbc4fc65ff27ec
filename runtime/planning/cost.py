"""The price of a question: on an owned machine, on a rented one, through an API.

A machine that costs c dollars for an hour and computes r tokens a second takes

    c / (3600 r) * 1e6      dollars for a million tokens, when it is busy all the time it is paid,

and as many times more as it is paid longer than it is busy. A question with P prompt tokens, C of
them cached, and O tokens of output keeps it busy for (P - C) / r_prefill + O / r_decode seconds,
where r_decode is what all concurrent sequences get together. Through an API it costs

    (P - C) written + C cached + O output.

So a machine has a price of a day that hardly depends on its use, an API none, and where both are
equal is the break-even: below so many questions a day the API is cheaper.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import SettingError
from .prices import ApiPrice, Hardware, PriceBook

DAYS = 30  # of a month
YEAR_DAYS = 365
HOUR_S = 3600.0
MAX_QUESTIONS = 1e9  # questions a day up to which a break-even is looked for
_STEPS = 250  # of the search, for each decade: ranges of less than 1 % may be missed


@dataclass(frozen=True, slots=True)
class Usage:
    """A profile of use; tokens are those of one question, over all its steps."""

    turns: float
    """Number of questions a day."""
    input: float
    """Tokens of prompts as an API counts them: each step's whole context."""
    cached: float
    """Prompt tokens found in a prefix cache, which neither we nor APIs compute again."""
    output: float
    """Output tokens."""
    steps: float = 1.0
    """Replies of the model that a question takes; each has the whole context before it."""
    concurrency: int = 1
    """Number of concurrent questions while there are any."""
    answered: float = 1.0
    """Share of the questions with useful answers."""

    def __post_init__(self) -> None:
        for name in ("turns", "input", "output", "steps"):
            value = getattr(self, name)
            if not (0 < value < math.inf):
                raise SettingError(f"{name} must be above 0, not {value!r}")
        if not 0 <= self.cached <= self.input:
            raise SettingError(f"cached tokens must be 0 to {self.input:g}, not {self.cached:g}")
        if self.concurrency < 1 or not 0 <= self.answered <= 1:
            raise SettingError("concurrency must be at least 1, and answered a share from 0 to 1")

    @property
    def computed(self) -> float:
        """Prompt tokens to compute, those not cached."""
        return self.input - self.cached


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens a second of prefill, and of decode over all sequences, with their source."""

    prefill: float
    decode: float
    basis: str = "given"

    def __post_init__(self) -> None:
        if not (0 < self.prefill < math.inf and 0 < self.decode < math.inf):
            raise SettingError(f"speeds must be above 0, not {self.prefill:g} and {self.decode:g}")

    def busy_s(self, usage: Usage) -> float:
        """Return the machine-seconds that a question takes."""
        return usage.computed / self.prefill + usage.output / self.decode


def per_million(hourly: float, tokens_per_s: float) -> float:
    """Return the dollars for a million tokens on a machine that is fully busy."""
    return hourly / (HOUR_S * tokens_per_s) * 1e6


def owned_hourly(hardware: Hardware, kwh: float) -> float:
    """Return the dollars for a busy hour of an owned machine: depreciation and power."""
    wear = hardware.price / (hardware.years * YEAR_DAYS * hardware.hours)
    return wear + hardware.watts / 1e3 * kwh


def paid_hours(hardware: Hardware, busy_h: float) -> tuple[float, int]:
    """Return the paid machine-hours a day for `busy_h` hours of work, and the machines needed."""
    billing = hardware.billing if hardware.rented else "always"
    max_hours = 24.0 if billing != "always" else hardware.hours
    machines = max(1, math.ceil(busy_h / max_hours - 1e-9))
    paid = {
        "second": busy_h,
        "hour": math.ceil(busy_h - 1e-9),
        "always": machines * hardware.hours,
    }[billing]
    return paid, machines


def day_cost(hardware: Hardware, busy_h: float, kwh: float) -> tuple[float, int]:
    """Return the dollars a day for `busy_h` hours of work, and the machines needed."""
    paid, machines = paid_hours(hardware, busy_h)
    if hardware.rented:
        return paid * hardware.hourly, machines
    wear = hardware.price / (hardware.years * YEAR_DAYS)
    idle = max(0.0, paid - busy_h)
    energy = (hardware.watts * busy_h + hardware.idle_watts * idle) / 1e3 * kwh
    return machines * wear + energy, machines


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to compute the answers, a machine or an API, and its price."""

    name: str
    kind: str
    """Name and kind of the machine or API: ``cpu``, ``gpu`` or ``api``."""
    question: float
    """Dollars for a question."""
    answer: float
    """Dollars for a useful answer."""
    month: float
    """Dollars for 30 days."""
    input: float
    cached: float
    output: float
    """Dollars for a million tokens: an API's prices; of a machine, the price of its time when it is
    busy all the time that it is paid. Cached tokens take no time."""
    day: Callable[[float], float]
    """Function from questions a day to dollars a day."""
    used: float = 1.0
    """Share of the paid time in which a machine is busy."""
    speeds: Speeds | None = None
    """Speeds of the machine; None for an API."""
    machines: int = 0
    """Number of machines; 0 for an API."""


def api_choice(api: ApiPrice, usage: Usage) -> Choice:
    """Price a profile on an API; cached and written input costs as other input by default."""
    cached = api.input if api.cached is None else api.cached
    written = api.input if api.written is None else api.written
    question = usage.computed * written + usage.cached * cached + usage.output * api.output
    question /= 1e6
    return Choice(
        api.name,
        "api",
        question,
        question / usage.answered if usage.answered else math.inf,
        question * usage.turns * DAYS,
        api.input,
        cached,
        api.output,
        lambda turns: turns * question,
    )


def machine_choice(hardware: Hardware, speeds: Speeds, usage: Usage, kwh: float) -> Choice:
    """Price a profile on a machine."""
    each_h = speeds.busy_s(usage) / HOUR_S
    busy_h = usage.turns * each_h
    day, machines = day_cost(hardware, busy_h, kwh)
    hourly = hardware.hourly if hardware.rented else owned_hourly(hardware, kwh)
    paid, _ = paid_hours(hardware, busy_h)
    return Choice(
        hardware.name,
        hardware.kind,
        day / usage.turns,
        day / usage.turns / usage.answered if usage.answered else math.inf,
        day * DAYS,
        per_million(hourly, speeds.prefill),
        0.0,
        per_million(hourly, speeds.decode),
        lambda turns: day_cost(hardware, turns * each_h, kwh)[0],
        min(1.0, busy_h / paid) if paid else 1.0,
        speeds,
        machines,
    )


def gpu_speeds(
    hardware: Hardware,
    book: PriceBook,
    weights: float,
    active: float,
    kv_bytes: float,
    usage: Usage,
) -> Speeds:
    """Estimate a GPU's speeds to first order: a roofline and two shares of its limits.

    weights, active: weights of the model, and those that a token uses. kv_bytes: of a position.

    Raises:
        SettingError: the model does not fit, or nothing is known of the GPU.
    """
    if hardware.prefill_tps and hardware.decode_tps:
        return Speeds(hardware.prefill_tps, hardware.decode_tps, "the price file")
    if not (hardware.tflops and hardware.read_gbps):
        raise SettingError(
            f"hardware {hardware.name!r} has neither speeds nor peaks in the prices; add "
            "prefill_tps and decode_tps, or tflops and read_gbps"
        )
    nbytes = weights * book.weight_bytes
    cache = usage.concurrency * kv_bytes * (usage.input + usage.output) / usage.steps
    if hardware.memory_gb and nbytes + cache > hardware.memory_gb * 1e9:
        raise SettingError(
            f"{nbytes / 1e9:.0f} GB of weights and {cache / 1e9:.1f} GB of KV cache do not fit "
            f"in the {hardware.memory_gb:g} GB of {hardware.name}"
        )
    tokens = max(1.0, usage.computed / usage.steps)
    prefill_s = 2.0 * active * tokens / (book.prefill_share * hardware.tflops * 1e12)
    decode_s = (active * book.weight_bytes + cache) / (book.decode_share * hardware.read_gbps * 1e9)
    return Speeds(
        tokens / max(prefill_s, book.step_s),
        usage.concurrency / max(decode_s, book.step_s),
        "roofline",
    )


def cheaper(
    one: Callable[[float], float], other: Callable[[float], float]
) -> list[tuple[float, float]]:
    """Return the ranges of questions a day in which `one` costs no more than `other`.

    The first begins at the break-even; the end of the last one is infinite if none is found.
    """
    found: list[tuple[float, float]] = []
    first: float | None = None
    before = 1.0
    for step in range(round(_STEPS * math.log10(MAX_QUESTIONS)) + 1):
        at = 10 ** (step / _STEPS)
        low = one(at) <= other(at)
        if low and first is None:
            first = at if not step else _border(before, at, lambda n: one(n) > other(n))[1]
        elif not low and first is not None:
            found.append((first, _border(before, at, lambda n: one(n) <= other(n))[0]))
            first = None
        before = at
    return found if first is None else [*found, (first, math.inf)]


def _border(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return both sides of where `holds`, true at `low` and false at `high`, changes."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The sensitivity of a question's price to one input."""

    name: str
    low: float
    high: float
    """Dollars with half of the input and with twice as much, or at its lower and upper bound."""


def sensitivities(
    hardware: Hardware, speeds: Speeds, usage: Usage, kwh: float
) -> Sequence[Sensitivity]:
    """Price a question with each input halved and doubled; the largest change first."""

    def price(
        h: Hardware = hardware, s: Speeds = speeds, u: Usage = usage, k: float = kwh
    ) -> float:
        return machine_choice(h, s, u, k).question

    scale = dataclasses.replace
    tries: dict[str, Callable[[float], float]] = {
        "questions a day": lambda x: price(u=scale(usage, turns=usage.turns * x)),
        "output tokens": lambda x: price(u=scale(usage, output=usage.output * x)),
        "computed input tokens": lambda x: price(
            u=scale(usage, input=usage.cached + usage.computed * x)
        ),
        "prefill speed": lambda x: price(s=scale(speeds, prefill=speeds.prefill * x)),
        "decode speed": lambda x: price(s=scale(speeds, decode=speeds.decode * x)),
    }
    if usage.cached:
        tries["no cache / as now"] = lambda x: price(u=usage if x > 1 else scale(usage, cached=0.0))
    if hardware.rented:
        tries["price of an hour"] = lambda x: price(scale(hardware, hourly=hardware.hourly * x))
    else:
        tries["price of the machine"] = lambda x: price(scale(hardware, price=hardware.price * x))
        tries["years of use"] = lambda x: price(scale(hardware, years=hardware.years * x))
        tries["price of power"] = lambda x: price(k=kwh * x)
        tries["idle power"] = lambda x: price(scale(hardware, idle_watts=hardware.idle_watts * x))
    found = [Sensitivity(name, at(0.5), at(2.0)) for name, at in tries.items()]
    return sorted(found, key=lambda one: -abs(math.log((one.high + 1e-30) / (one.low + 1e-30))))
