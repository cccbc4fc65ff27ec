"""The price file: dated entries, a user's own over them, errors that name what is wrong."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.planning.prices import load_prices


def test_every_default_is_dated_and_has_a_source() -> None:
    """No price stands there that nobody can check."""
    book = load_prices()
    for one in (*book.hardware.values(), *book.apis.values()):
        assert isinstance(one.date, datetime.date), one.name
        assert len(one.source) > 10, one.name
        assert one.date <= book.checked
    assert book.age(book.checked + datetime.timedelta(days=40)) == 40


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    """Its entries replace those of the same name and add to them."""
    path = tmp_path / "own.toml"
    path.write_text(
        "checked = 2027-01-02\n[power]\nkwh = 0.4\n"
        '[[apis]]\nname = "gpt-4o-mini"\ninput = 1\noutput = 2\n'
        '[[hardware]]\nname = "rack"\nprice = 9000\nwatts = 500\n'
    )
    book = load_prices(path)
    assert (book.kwh, str(book.checked)) == (0.4, "2027-01-02")
    assert (book.apis["gpt-4o-mini"].output, book.machine("rack").price) == (2, 9000)
    assert "claude-haiku-4.5" in book.apis
    assert book.prefill_share == load_prices().prefill_share


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("checked = 3", "a date"),
        ("[power]\nkwh = -1", "power.kwh"),
        ("power = 3", "a table"),
        ("[[apis]]\ninput = 1", "no name"),
        ('[[apis]]\nname = "a"\ninput = 1', "has no output"),
        ('[[apis]]\nname = "a"\ninput = nan\noutput = 1', "input must be a number"),
        ('[[apis]]\nname = "a"\nfoo = 1', "'foo'"),
        ('[[hardware]]\nname = "a"', "neither price nor hourly"),
        ('[[hardware]]\nname = "a"\nprice = 1\nhours = 25', "hours must be"),
        (
            '[[hardware]]\nname = "a"\nhourly = 1\nbilling = "week"',
            "billing must be one of always, hour, second",
        ),
        ("[hardware]\na = 1", "[[hardware]]"),
        ("= 3", "not TOML"),
        ("checked = 2027-01-02T10:00:00", "a date"),
        ('[[apis]]\nname = "a"\ninput = 1\noutput = 1\ndate = 2027-01-02T10:00:00', "a date"),
        ('[[apis]]\nname = "a"\ninput = 1\noutput = 1\nsource = 3', "source must be a string"),
        ('[[api]]\nname = "a"\ninput = 1\noutput = 1', "'api'; known: checked,"),
        ("[power]\nkw = 1", "power has 'kw'; known: kwh"),
        ("[gpu]\nprefill_share = 0", "gpu.prefill_share must be above 0"),
        ("[gpu]\ndecode_share = 0", "gpu.decode_share must be above 0"),
        ("[gpu]\nweight_bytes = 0.0", "gpu.weight_bytes must be above 0"),
        ('currency = "EUR"', "currency must be USD"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str, tmp_path: Path) -> None:
    """Each mistake is an error with the file and the field."""
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(SettingError) as raised:
        load_prices(path)
    assert told in str(raised.value)
    assert "bad.toml" in str(raised.value)


def test_unknown_hardware() -> None:
    """Names what there is."""
    with pytest.raises(SettingError, match="desktop"):
        load_prices().machine("abacus")
    with pytest.raises(SettingError, match="cannot read"):
        load_prices("/nowhere/prices.toml")
