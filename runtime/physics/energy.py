"""The energy of the CPU packages, counted by hardware (Linux powercap), where it may be read.

The counters are those of whole packages: other processes' work is in them, and memory, disks and
the power supply are not. Since Linux 5.10 only root can read them by default.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Literal, NamedTuple

POWERCAP = Path("/sys/class/powercap")


class _Zone(NamedTuple):
    """A package's counter: its file, and the microjoules at which it starts again from 0."""

    path: str
    wraps_at: int


class EnergyMeter:
    """A meter of the energy of all CPU packages, from now on."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._before = [(zone, _microjoules(zone.path)) for zone in _zones(root)]

    def joules(self) -> float | None:
        """Return the joules since this object was made; None where they cannot be read.

        A counter may have started again once; that takes half an hour at 150 W.
        """
        total = 0
        for zone, before in self._before:
            now = _microjoules(zone.path)
            if now is None or before is None:
                return None
            total += now - before if now >= before else now - before + zone.wraps_at
        return total / 1e6 if self._before else None


def readable(root: Path = POWERCAP) -> Literal["yes", "no permission", "no counters"]:
    """Return whether this process can read the packages' energy counters."""
    packages = _packages(root)
    if not packages:
        return "no counters"
    return "yes" if len(_zones(root)) == len(packages) else "no permission"


def _packages(root: Path) -> list[Path]:
    """Return the zones of whole packages; their parts are in them, and so is ``psys`` of others."""
    found = []
    for folder in sorted(root.glob("intel-rapl:*")):  # AMD's have that name, too
        try:
            name = (folder / "name").read_text(encoding="ascii")
        except OSError:
            continue
        if name.startswith("package-") and folder.name.count(":") == 1:
            found.append(folder)
    return found


@functools.cache
def _zones(root: Path) -> tuple[_Zone, ...]:
    """Return the packages' counters; none if one of them cannot be read."""
    zones = []
    for folder in _packages(root):
        path, wraps_at = str(folder / "energy_uj"), _microjoules(folder / "max_energy_range_uj")
        if wraps_at is None or _microjoules(path) is None:
            return ()
        zones.append(_Zone(path, wraps_at))
    return tuple(zones)


def _microjoules(path: str | Path) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY)  # half the price of `open`
        try:
            return int(os.read(file, 100))
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None
