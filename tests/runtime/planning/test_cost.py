"""Costs of machines and APIs: closed forms, monotone where they must be, break-even exact."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triplepoint.errors import SettingError
from triplepoint.runtime.planning.cost import (
    Speeds,
    Usage,
    api_choice,
    cheaper,
    day_cost,
    gpu_speeds,
    machine_choice,
    sensitivities,
)
from triplepoint.runtime.planning.prices import ApiPrice, Hardware, load_prices

USE = Usage(100, 6000, 3600, 300)
OWN = Hardware("own", price=1095, years=3, hours=24, watts=200, idle_watts=50)


def test_own_machine_by_hand() -> None:
    """$1 a day of wear, and power: 2 hours at 200 W, 22 at 50 W, at 20 cents."""
    day, machines = day_cost(OWN, 2.0, 0.20)
    assert (day, machines) == (pytest.approx(1.0 + (0.4 + 1.1) * 0.20), 1)
    assert day_cost(OWN, 25.0, 0.0) == (pytest.approx(2.0), 2)


def test_what_is_paid_of_a_rented_one() -> None:
    """By the second, by begun hours, or always; more machines where a day is too short."""
    rented = Hardware("r", hourly=2.0)
    assert day_cost(replace(rented, billing="second"), 1.5, 0)[0] == 3.0
    assert day_cost(replace(rented, billing="hour"), 1.5, 0)[0] == 4.0
    assert day_cost(replace(rented, billing="always"), 1.5, 0) == (48.0, 1)
    assert day_cost(replace(rented, billing="always", hours=8), 12, 0) == (32.0, 2)


def test_share_of_the_paid_time() -> None:
    """Hours of work among those that are paid, whatever power costs beside."""
    speeds = Speeds(2400 / 36, 300 / 36)  # 72 seconds a question, 2 hours a day
    assert machine_choice(OWN, speeds, USE, 0.20).used == pytest.approx(2 / 24)
    many = replace(USE, turns=1500)  # 30 hours: two machines
    assert machine_choice(OWN, speeds, many, 0.20).used == pytest.approx(30 / 48)
    rented = Hardware("r", hourly=2.0)
    more = replace(USE, turns=120)
    for billing, share in (("second", 1.0), ("hour", 2.4 / 3), ("always", 2.4 / 24)):
        used = machine_choice(replace(rented, billing=billing), speeds, more, 0.2).used
        assert used == pytest.approx(share)


def test_api_question() -> None:
    """New input at the price of a write where there is one, cached input at its own."""
    api = ApiPrice("a", 1.0, 5.0, cached=0.1, written=1.25)
    assert api_choice(api, USE).question == pytest.approx(
        (2400 * 1.25 + 3600 * 0.1 + 300 * 5) / 1e6
    )
    plain = ApiPrice("a", 1.0, 5.0)
    assert api_choice(plain, USE).question == pytest.approx((6000 * 1.0 + 300 * 5) / 1e6)


def test_break_even_in_closed_form() -> None:
    """A fixed price of a day against a price of each question: their ratio, less its power."""
    speeds, api = Speeds(400, 20), ApiPrice("a", 1.0, 5.0)
    (found, _), *_ = cheaper(machine_choice(OWN, speeds, USE, 0.2).day, api_choice(api, USE).day)
    slope = 0.150 * speeds.busy_s(USE) / 3600 * 0.2
    assert found == pytest.approx((1.0 + 24 * 0.05 * 0.2) / (api_choice(api, USE).question - slope))
    slow, cheap = machine_choice(OWN, Speeds(40, 2), USE, 0.2), ApiPrice("a", 0.01, 0.05)
    assert cheaper(slow.day, api_choice(cheap, USE).day) == []


def test_cheaper_ends() -> None:
    """Where a machine is cheaper only up to some use, that is said."""
    assert cheaper(lambda t: 5.0 + t, lambda t: 10.0) == [(1.0, pytest.approx(5.0))]
    stepped = cheaper(lambda t: 3.0 if t < 77 else 200.0, lambda t: t)
    assert stepped == [(pytest.approx(3.0), pytest.approx(77.0)), (pytest.approx(200), math.inf)]
    assert cheaper(lambda t: 5.0, lambda t: t) == [(pytest.approx(5.0), math.inf)]
    assert cheaper(lambda t: 2 * t, lambda t: t) == []


@given(st.floats(1, 1e5), st.floats(10, 1e5), st.floats(0, 1), st.floats(1, 1e4), st.floats(1, 1e4))
def test_more_use_is_never_dearer(
    turns: float, tokens: float, hits: float, written: float, speed: float
) -> None:
    """More questions cost more a month and no more each, but for the step to one more machine."""
    use = Usage(turns, tokens, tokens * hits, written)
    now = machine_choice(OWN, Speeds(speed * 10, speed), use, 0.2)
    more = machine_choice(OWN, Speeds(speed * 10, speed), replace(use, turns=2 * turns), 0.2)
    assert more.month >= now.month * (1 - 1e-9)
    assert more.question <= now.question * (1 + 1e-9)
    assert 0 < now.used <= 1


def test_sensitivities_go_both_ways() -> None:
    """Faster is cheaper, dearer is dearer, and the first moves the price most."""
    found = sensitivities(OWN, Speeds(400, 20), USE, 0.2)
    named = {one.name: one for one in found}
    assert named["decode speed"].low > named["decode speed"].high
    assert named["price of the machine"].low < named["price of the machine"].high
    assert named["no cache / as now"].low > named["no cache / as now"].high
    spans = [abs(math.log(one.high / one.low)) for one in found]
    assert spans == sorted(spans, reverse=True)
    rented = sensitivities(Hardware("r", hourly=1, billing="second"), Speeds(400, 20), USE, 0.2)
    assert "price of an hour" in {one.name for one in rented}


def test_answers_of_use() -> None:
    """Half of the answers right: a right one costs twice as much; none: no price at all."""
    half = machine_choice(OWN, Speeds(400, 20), replace(USE, answered=0.5), 0.2)
    assert half.answer == pytest.approx(2 * half.question)
    assert math.isinf(machine_choice(OWN, Speeds(1, 1), replace(USE, answered=0), 0.2).answer)


def test_gpus_that_do_not_fit() -> None:
    """A model that is too large is refused with both sizes; speeds in the file are taken."""
    book = load_prices()
    with pytest.raises(SettingError, match="24 GB"):
        gpu_speeds(book.machine("l4"), book, 70e9, 70e9, 0, USE)
    known = replace(book.machine("l4"), prefill_tps=900, decode_tps=30)
    assert gpu_speeds(known, book, 70e9, 70e9, 0, USE).decode == 30
    with pytest.raises(SettingError, match="neither speeds nor peaks"):
        gpu_speeds(OWN, book, 1e9, 1e9, 0, USE)


@pytest.mark.parametrize(
    "wrong",
    [{"turns": 0}, {"input": -1}, {"cached": 7000}, {"concurrency": 0}, {"steps": math.nan}],
)
def test_profiles_that_make_no_sense(wrong: dict[str, float]) -> None:
    """Refused with the value."""
    with pytest.raises(SettingError):
        replace(USE, **wrong)
    with pytest.raises(SettingError):
        Speeds(0, 1)
