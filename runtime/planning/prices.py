"""Prices of hardware, rented machines and APIs, from files with the date and source of each.

`prices.toml` beside this has the defaults. A file of the user's has the same form; its entries
replace those of the same name and add to them.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ...arguments import is_file
from ...errors import SettingError

Billing = Literal["always", "hour", "second"]
OLD_DAYS = 180  # after which prices are called old


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """The prices of an API, in dollars for a million tokens."""

    name: str
    input: float
    output: float
    """Prices of input and output tokens, as the API counts them."""
    cached: float | None = None
    """Price of input that the API finds in its cache; by default `input`."""
    written: float | None = None
    """Price of input that the API writes to its cache: all that it does not find there; by default
    `input`."""
    date: datetime.date | None = None
    source: str = ""
    """Date and source of the prices."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine and its price: bought (`price`) or rented (`hourly`)."""

    name: str
    kind: Literal["cpu", "gpu"] = "cpu"
    price: float = 0.0
    years: float = 3.0
    """Dollars to buy it, and years until it is written off."""
    hours: float = 24.0
    """Hours a day that it is on; of a rented one with billing ``always``, too."""
    watts: float = 0.0
    idle_watts: float = 0.0
    """Watts under load, and when idle; only of a bought one."""
    hourly: float = 0.0
    billing: Billing = "always"
    """Dollars an hour to rent it, and the billed time: each ``second`` in use, each begun ``hour``
    of a day in use, or ``always``."""
    memory_gb: float = 0.0
    read_gbps: float = 0.0
    tflops: float = 0.0
    """Memory, read bandwidth and arithmetic peak of a GPU, for estimates of speeds."""
    prefill_tps: float = 0.0
    decode_tps: float = 0.0
    """Prefill and decode tokens per second; 0: unknown."""
    date: datetime.date | None = None
    source: str = ""

    @property
    def rented(self) -> bool:
        """Whether the machine is rented."""
        return self.hourly > 0


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The prices of hardware, power and APIs."""

    checked: datetime.date
    """When the file of default prices was last checked."""
    kwh: float
    """Dollars for a kilowatt-hour."""
    prefill_share: float
    decode_share: float
    weight_bytes: float
    step_s: float
    """Estimates for GPUs of unknown speed: shares of arithmetic and bandwidth that they reach,
    bytes of a weight, and minimum seconds of a pass."""
    hardware: Mapping[str, Hardware]
    apis: Mapping[str, ApiPrice]

    def age(self, today: datetime.date | None = None) -> int:
        """Return the days since the last check."""
        return ((today or datetime.date.today()) - self.checked).days

    def machine(self, name: str) -> Hardware:
        """Return the hardware of this name.

        Raises:
            SettingError: there is none; names those that there are.
        """
        if name not in self.hardware:
            known = ", ".join(self.hardware)
            raise SettingError(f"no hardware {name!r} in the price list; choose from {known}")
        return self.hardware[name]


def load_prices(path: str | Path | None = None) -> PriceBook:
    """Load the default prices, with a file's entries in place of those of the same name.

    Raises:
        SettingError: the file cannot be read, or a field is not what it should be; names it.
    """
    default = _read(Path(__file__).with_name("prices.toml"))
    own = _read(Path(path)) if path is not None else {}
    where = str(path)
    _check_known(own, default, where)
    merged = {**default, **own}
    figures: dict[str, float] = {}
    shares = ("prefill_share", "decode_share", "weight_bytes")
    for name, keys in (("power", ("kwh",)), ("gpu", (*shares, "step_s"))):
        table = _table(own.get(name, {}), where, name)
        _check_known(table, default[name], f"{where}: {name}")
        for key in keys:
            figures[key] = value = table.get(key, default[name][key])
            _check(float, value, f"{where}: {name}.{key}")
            if not value and key in shares:
                raise SettingError(f"{where}: {name}.{key} must be above 0")
    hardware = _named(Hardware, default, "hardware", "the defaults")
    hardware |= _named(Hardware, own, "hardware", where)
    apis = _named(ApiPrice, default, "apis", "the defaults")
    apis |= _named(ApiPrice, own, "apis", where)
    _check(datetime.date, merged["checked"], f"{where}: checked")
    if merged["currency"] != "USD":
        raise SettingError(
            f"{where}: currency must be USD, as all prices are shown in dollars, "
            f"not {merged['currency']!r}"
        )
    return PriceBook(merged["checked"], **figures, hardware=hardware, apis=apis)


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    if not is_file(path, "cannot read the prices", SettingError):
        raise SettingError(f"cannot read the prices {path}: it is not a file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise SettingError(f"cannot read the prices {path}: {reason}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingError(f"the prices {path} are not TOML: {error}") from None


T = TypeVar("T", ApiPrice, Hardware)


def _named(kind: type[T], found: Mapping[str, Any], key: str, where: str) -> dict[str, T]:
    entries = found.get(key, [])
    if not isinstance(entries, list):
        raise SettingError(f"{where}: {key} must be written as [[{key}]]")
    return {one.name: one for one in (_entry(kind, entry, key, where) for entry in entries)}


def _entry(kind: type[T], entry: Any, key: str, where: str) -> T:
    table = _table(entry, where, key)
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise SettingError(f"{where}: an entry of {key} has no name")
    what, hints = f"{where}: {key} {name!r}", get_type_hints(kind)
    _check_known(table, hints, what)
    for one, value in table.items():
        _check(hints[one], value, f"{what}: {one}")
    needed = {"input", "output"} if kind is ApiPrice else set()
    if missing := needed - set(table):
        raise SettingError(f"{what} has no {min(missing)}")
    if kind is Hardware and not (table.get("price") or table.get("hourly")):
        raise SettingError(f"{what} has neither price nor hourly")
    if kind is Hardware and not (0 < table.get("hours", 24) <= 24 and table.get("years", 3) > 0):
        raise SettingError(f"{what}: hours must be at most 24 per day, and years above 0")
    return kind(**table)


def _check_known(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    for name in given:
        if name not in known:
            raise SettingError(f"{where} has {name!r}; known: {', '.join(known)}")


def _check(hint: Any, value: Any, what: str) -> None:
    """Raise unless a value has its field's type; numbers are not negative."""
    if get_origin(hint) is UnionType:  # with None, which no file can say
        hint = get_args(hint)[0]
    if choices := get_args(hint):
        good, kind = value in choices, f"one of {', '.join(choices)}"
    elif hint is str:
        good, kind = isinstance(value, str), "a string"
    elif hint is datetime.date:  # a day, not a time of it: they cannot be compared
        good, kind = type(value) is hint, "a date such as 2026-11-23"
    else:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good, kind = good and 0 <= value < math.inf, "a number from 0"
    if not good:
        raise SettingError(f"{what} must be {kind}, not {value!r}")


def _table(value: Any, where: str, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingError(f"{where}: {key} must be a table, not {value!r}")
    return value
