"""Energy counters of packages, from sysfs trees made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.runtime.physics.energy import EnergyMeter

RANGE = 262_143_328_850  # of an i9-13900K


def _zone(root: Path, folder: str, name: str, microjoules: int) -> Path:
    zone = root / folder
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "name").write_text(f"{name}\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE}\n")
    counter = zone / "energy_uj"
    counter.write_text(f"{microjoules}\n")
    return counter


def test_packages_add_up(tmp_path: Path) -> None:
    """Two sockets count; parts of a package, the platform and the copy over MMIO do not."""
    first = _zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    second = _zone(tmp_path, "intel-rapl:1", "package-1", 500_000)
    core = _zone(tmp_path, "intel-rapl:0:0", "core", 0)
    whole = _zone(tmp_path, "intel-rapl:2", "psys", 0)
    again = _zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    meter = EnergyMeter(tmp_path)
    assert meter.joules() == 0

    first.write_text("3500000\n")
    second.write_text("750000\n")
    for other in (core, whole, again):
        other.write_text("9000000\n")
    assert meter.joules() == pytest.approx(2.75)


def test_a_counter_starts_again(tmp_path: Path) -> None:
    """The distance over the counter's range is added: by hand 2 + 3 J."""
    counter = _zone(tmp_path, "intel-rapl:0", "package-0", RANGE - 2_000_000)
    meter = EnergyMeter(tmp_path)
    counter.write_text("3000000\n")

    assert meter.joules() == pytest.approx(5.0)


def test_no_counters(tmp_path: Path) -> None:
    """Most virtual machines have none: nothing is known, and nothing is raised."""
    assert EnergyMeter(tmp_path).joules() is None
    assert EnergyMeter(tmp_path / "none").joules() is None


@pytest.mark.parametrize("text", ["", "no number"])
def test_counters_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    """If one package of two gives nothing there is no sum, from the start or from then on."""
    _zone(tmp_path, "intel-rapl:0", "package-0", 5)
    counter = _zone(tmp_path, "intel-rapl:1", "package-1", 5)
    meter = EnergyMeter(tmp_path)
    counter.write_text(text)

    assert meter.joules() is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read all")
def test_only_root_may_read(tmp_path: Path) -> None:
    """As on most systems: no joules, and no noise."""
    _zone(tmp_path, "intel-rapl:0", "package-0", 5).chmod(0)

    assert EnergyMeter(tmp_path).joules() is None


def test_one_that_is_unreadable_from_the_start(tmp_path: Path) -> None:
    """A zone without a readable counter, whoever asks."""
    _zone(tmp_path, "intel-rapl:0", "package-0", 5).unlink()

    assert EnergyMeter(tmp_path).joules() is None
