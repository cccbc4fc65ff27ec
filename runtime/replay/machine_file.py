"""Another machine's limits, from whatever file they were written to."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ReplayError
from ..physics.latency_model import Efficiency
from ..physics.machine import LEVELS, MachineProfile

_NEEDED = ("cpu", "cores", "target", "threads", "read_gbps", "int8_gops", "fp32_gflops")
_NEEDED += ("bf16_gflops", "barrier_s")
_PLACES = (("machine", "profile"), ("machine",), ("run", "machine", "profile"))


def read_machine(path: str | Path) -> tuple[MachineProfile, Efficiency | None]:
    """The limits of a machine, and what kernels reach of them if the file says that too.

    Args:
        path: what ``doctor --json`` printed; a trace, whose header has the limits of its machine;
            or a file of limits or of a calibration that triplepoint keeps in its cache.

    Raises:
        ReplayError: the file cannot be read or has no limits in it; names the field.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ReplayError(f"cannot read the machine {path}: {reason}") from None
    found = _object(text)
    if found is None:
        raise ReplayError(
            f"{path} is not a JSON object; give the output of `triplepoint doctor --json`"
        )
    for place in ((), *_PLACES):
        inside: Any = found
        for key in place:
            inside = inside.get(key) if isinstance(inside, Mapping) else None
        if isinstance(inside, Mapping) and "read_gbps" in inside:
            return _profile(inside, path), _efficiency(found, path)
    raise ReplayError(
        f"machine differs: {path} has no read_gbps, so it does not describe a machine; give the "
        "output of `triplepoint doctor --json` on that machine"
    )


def _object(text: str) -> dict[str, Any] | None:
    """The file's object, or its first line's if it is a trace."""
    for part in (text, text.split("\n", 1)[0]):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _profile(fields: Mapping[str, Any], path: Path) -> MachineProfile:
    known = {field.name for field in dataclasses.fields(MachineProfile)}
    for name in _NEEDED:
        if name not in fields:
            raise ReplayError(f"machine differs: {path} has no {name}")
    numbers = ("cores", "threads", "int8_gops", "fp32_gflops", "bf16_gflops", "barrier_s")
    rates = fields["read_gbps"]
    values = {name: fields[name] for name in numbers}
    if not isinstance(rates, Mapping) or "DRAM" not in rates:
        raise ReplayError(f"machine differs: {path} has no read_gbps of DRAM")
    values |= {f"read_gbps.{level}": rates[level] for level in LEVELS if level in rates}
    for name, value in values.items():
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise ReplayError(f"machine differs: {path}: {name} is {value!r}, not a number above 0")
    caches = fields.get("caches") or {}
    return MachineProfile(**{**{k: v for k, v in fields.items() if k in known}, "caches": caches})


def _efficiency(found: Mapping[str, Any], path: Path) -> Efficiency | None:
    fields = found.get("efficiency")
    if fields is None:
        return None
    try:
        return Efficiency(**fields)
    except TypeError as error:
        raise ReplayError(f"machine differs: {path}: efficiency: {error}") from None
