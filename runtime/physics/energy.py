"""The energy of the CPU packages, counted by hardware (Linux powercap), where it may be read.

The counters are those of whole packages: other processes' work is in them, and memory, disks and
the power supply are not. Since Linux 5.10 only root can read them by default.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """A meter of the energy of all CPU packages, from now on."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._before = [(path, wrap, _microjoules(path)) for path, wrap in _packages(root)]

    def joules(self) -> float | None:
        """Return the joules since this object was made; None where they cannot be read.

        A counter may have started again once; that takes half an hour at 150 W.
        """
        total = 0
        for path, wraps_at, before in self._before:
            now = _microjoules(path)
            if now is None or before is None:
                return None
            total += now - before if now >= before else now - before + wraps_at
        return total / 1e6 if self._before else None


@functools.cache
def _packages(root: Path) -> tuple[tuple[str, int], ...]:
    """Return each package's counter and its range; nothing if one of them cannot be read.

    Parts of a package have zones of their own, and so has ``psys``, of which packages are parts.
    """
    found = []
    for folder in sorted(root.glob("intel-rapl:*")):  # AMD's have that name, too
        try:
            name = (folder / "name").read_text(encoding="ascii")
        except OSError:
            continue
        if name.startswith("package-") and folder.name.count(":") == 1:
            path, wraps_at = str(folder / "energy_uj"), _microjoules(folder / "max_energy_range_uj")
            if wraps_at is None or _microjoules(path) is None:
                return ()
            found.append((path, wraps_at))
    return tuple(found)


def _microjoules(path: str | Path) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY)  # half the price of `open`
        try:
            return int(os.read(file, 100))
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None
