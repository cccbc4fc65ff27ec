"""The clock: the latency model for few lengths, corrected by what was seen, kept in a file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.planned import forecaster

from triplepoint.errors import SettingError
from triplepoint.runtime.physics.costs import Part
from triplepoint.runtime.planning.clock import (
    Clock,
    Corrections,
    Seen,
    as_json,
    learn,
    middle,
    predicted_s,
    read,
)


def test_as_the_latency_model_says() -> None:
    """Within 8 % of the model for any pass: lengths are rounded, rows interpolated."""
    one, chance = forecaster(), random.Random(3)
    clock = Clock(one)
    for _ in range(60):
        parts = [Part(1, chance.randrange(4000), 1) for _ in range(chance.randrange(9))]
        if not parts or chance.random() < 0.7:
            parts.append(Part(chance.randint(2, 500), chance.randrange(4000), chance.randrange(2)))
        assert clock.seconds(parts)[0] == pytest.approx(predicted_s(one, parts), rel=0.08)


def test_lengths_that_count_as_alike() -> None:
    """No further off than an eighth, or 64; none for an empty cache; far lengths as well."""
    assert [middle(n) for n in (0, 1, 127, 128, 2047, 2048)] == [0, 64, 64, 192, 1920, 2304]
    for start in (5000, 70_000, 3_000_000):
        assert abs(middle(start) - start) <= start / 8


def test_learning() -> None:
    """Passes that take 1.5 times as long give factors of 1.5; the host's line is found."""
    one = forecaster()
    seen = []
    for n in range(200):
        parts = tuple([Part(1, 500, 1)] * (1 + n % 8) + ([Part(20, 900, 0)] if n % 3 else []))
        seen.append(Seen(parts, 1.5 * predicted_s(one, parts), 0.001 + 0.0002 * len(parts)))
    found = learn(one, seen, "today")
    assert found.pass_s == pytest.approx(0.001, rel=1e-6)
    assert found.row_s == pytest.approx(0.0002, rel=1e-6)
    assert (found.passes, found.date) == (200, "today")
    assert found.typical == pytest.approx(1.0)
    for known in (found.alone, found.shared):
        assert list(known.values()) == pytest.approx([1.5] * len(known))
    parts = [Part(1, 500, 1)] * 4
    plain, slow = Clock(one).seconds(parts)[0], Clock(one, found).seconds(parts)[0]
    assert slow == pytest.approx(1.5 * plain)


def test_slow_passes_count_but_not_for_the_policy() -> None:
    """One pass of ten takes six times as long: the mean is 1.5, what is expected stays at 1."""
    one, parts = forecaster(), (Part(1, 500, 1), Part(30, 500, 0))
    each = predicted_s(one, parts)
    seen = [Seen(parts, each * (6 if n % 10 == 0 else 1), 0.001, each) for n in range(100)]
    found = learn(one, seen)
    assert found.factor(31, 2) == pytest.approx(1.5)
    assert found.factor(31, 2) * found.typical == pytest.approx(1.0)


def test_nothing_seen() -> None:
    """No corrections, and what the host takes as a rule."""
    assert learn(forecaster(), []) == Corrections()


def test_a_file_of_it(tmp_path: Path) -> None:
    """What was written is read again: model, machine, passes."""
    one = forecaster("gemma3:4b")
    seen = [Seen((Part(1, 5, 1), Part(7, 0, 0)), 0.25, 0.001, 0.2)]
    path = tmp_path / "clock.json"
    path.write_text(as_json(one, seen, "then"))
    found, passes, date = read(path)
    assert (found.cost, found.machine, found.reached) == (one.cost, one.machine, one.reached)
    assert (passes, date, found.basis) == (seen, "then", "learned")


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("cost", "layers"), "many"),
        (("cost", "kv_bytes"), float("nan")),
        (("machine", "read_gbps", "L2"), 0),
        (("efficiency", "read"), 0),
        (("passes", "chunk"), []),
        (("seen", 0, 0, 0, 0), 0),
        (("seen", 0, 0, 0, 1), 10**400),
        (("seen", 0, 1), 0.0),
        (("seen", 0, 2), float("inf")),
    ],
    ids=str,
)
def test_a_file_that_was_damaged(place: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    """Every field is looked at before anything is predicted by it."""
    seen = [Seen((Part(1, 5, 1), Part(7, 0, 0)), 0.25, 0.001, 0.2)]
    whole = fields = json.loads(as_json(forecaster(), seen, "then"))
    for key in place[:-1]:
        fields = fields[key]
    fields[place[-1]] = value
    path = tmp_path / "clock.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(SettingError, match=r"clock\.json is not a valid clock"):
        read(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cost": 3}', "\x00"])
def test_files_that_are_none(text: str, tmp_path: Path) -> None:
    """Each is an error that names the file."""
    path = tmp_path / "clock.json"
    path.write_text(text)
    with pytest.raises(SettingError, match=r"clock\.json"):
        read(path)
    with pytest.raises(SettingError, match="not a file"):
        read(tmp_path)
