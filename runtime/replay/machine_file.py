"""Reads another machine's limits from a file of any known kind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import ReplayError
from ..physics.latency_model import Efficiency
from ..physics.machine import MachineProfile

_NEEDED = ("cpu", "cores", "target", "threads", "read_gbps", "int8_gops", "fp32_gflops")
_NEEDED += ("bf16_gflops", "barrier_s")
_SHARES = ("read", "attention_read", "products", "attention")  # of limits, which are divided by
_MIN, _MAX = 1e-15, 1e18
_PATHS = (("machine", "profile"), ("machine",), ("run", "machine", "profile"))


def read_machine(path: str | Path) -> tuple[MachineProfile, Efficiency | None]:
    """Read a machine's limits, and the kernels' efficiency if the file has it.

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
    for path_in in ((), *_PATHS):
        inside: Any = found
        for key in path_in:
            inside = inside.get(key) if isinstance(inside, Mapping) else None
        if isinstance(inside, Mapping) and "read_gbps" in inside:
            return _profile(inside, path), _efficiency(found, path)
    raise ReplayError(
        f"machine differs: {path} has no read_gbps, so it does not describe a machine; give the "
        "output of `triplepoint doctor --json` on that machine"
    )


def _object(text: str) -> dict[str, Any] | None:
    """Parse the file's JSON object, or the first line's if it is a trace."""
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
    rates, caches = fields["read_gbps"], fields.get("caches") or {}
    if not isinstance(rates, Mapping) or "DRAM" not in rates:
        raise ReplayError(f"machine differs: {path} has no read_gbps of DRAM")
    if not isinstance(caches, Mapping):
        raise ReplayError(f"machine differs: {path}: caches is {caches!r}, not bytes by level")
    for name in ("cpu", "target"):
        if not isinstance(fields[name], str):
            raise ReplayError(f"machine differs: {path}: {name} is {fields[name]!r}, not a name")
    for name in ("cores", "threads"):
        _check(name, fields[name], path, whole=True)
    for name in ("int8_gops", "fp32_gflops", "bf16_gflops", "barrier_s"):
        _check(name, fields[name], path)
    for level, rate in rates.items():
        _check(f"read_gbps.{level}", rate, path)
    for level, size in caches.items():
        _check(f"caches.{level}", size, path, zero=True)
    _check("w8a8_gops", fields.get("w8a8_gops", 0.0), path, zero=True)
    for name in ("spread", "run_delay"):
        shares = fields.get(name, {})
        if not isinstance(shares, Mapping):
            raise ReplayError(f"machine differs: {path}: {name} is {shares!r}, not shares by probe")
        for probe, share in shares.items():
            _check(f"{name}.{probe}", share, path, zero=True)
    return MachineProfile(**{**{k: v for k, v in fields.items() if k in known}, "caches": caches})


def _check(name: str, value: Any, path: Path, *, zero: bool = False, whole: bool = False) -> None:
    """Return a number above 0, or from 0 on with `zero`, that is small enough to compute with."""
    good = isinstance(value, int) if whole else isinstance(value, int | float)
    if not good or not (_MIN < value < _MAX or (zero and value == 0)):
        kind = f"a {'whole ' * whole}number {'from' if zero else 'above'} 0"
        raise ReplayError(f"machine differs: {path}: {name} is {value!r}, not {kind}")


def _efficiency(found: Mapping[str, Any], path: Path) -> Efficiency | None:
    fields = found.get("efficiency")
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        raise ReplayError(f"machine differs: {path}: efficiency is {fields!r}, not an object")
    try:
        reached = Efficiency(**fields)
    except TypeError as error:
        raise ReplayError(f"machine differs: {path}: efficiency: {error}") from None
    for name, value in dataclasses.asdict(reached).items():
        _check(f"efficiency.{name}", value, path, zero=name not in _SHARES)
    return reached
