"""Rows in every form: how figures are written, and that each CSV cell is one value."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triplepoint import SettingError
from triplepoint.runtime.cli.bench import agents, speed
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import Column, Row, notes, rate, show
from triplepoint.runtime.physics.machine import MachineProfile
from triplepoint.runtime.physics.timed_passes import Case
from triplepoint.runtime.replay.together import Job, Turns


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (0.003, "0.003"), (0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"),
     (123.4, "123"), (1234.5, "1,234"), (-0.5, "-0.500")],
)  # fmt: skip
def test_three_digits_that_count(value: float, text: str) -> None:
    """3 ms are not 0.00 s."""
    assert rate(value) == text


def test_fields_of_fields_have_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A CSV cell is one value, not a dict as Python writes it."""
    row = Row((), {"n": 1, "effects": {"memory": 0.5, "of": {"compute": 0.25}}})
    show(Output(), "csv", [], [row])

    (found,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert found == {"n": "1", "effects.memory": "0.5", "effects.of.compute": "0.25"}


def test_rows_that_fail_at_once_leave_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    """The head is printed with the first row."""

    def rows() -> Iterator[Row]:
        raise SettingError("no such kernel")
        yield Row((), {})

    with pytest.raises(SettingError):
        show(Output(), "md", [Column("n", 3)], rows())

    assert capsys.readouterr().out == ""


def test_the_median_of_an_even_number_of_rounds() -> None:
    """It is between the two in the middle."""
    turns = Turns(together=True, seconds=[3600.0, 1200.0], jobs=[Job(1.0), Job(1.0)])

    (row,) = agents._rows([turns], 1)
    assert turns.jobs_per_hour == pytest.approx([1.0, 3.0])
    assert row.fields["jobs_per_hour"] == pytest.approx(2.0)


def test_the_size_of_a_split_model() -> None:
    """It is that of all its parts, not of the file that was named."""
    model = SimpleNamespace(
        path=Path(__file__), nbytes=3 << 30, parameters=7, architecture="a", name="b", quant="c"
    )
    engine: Any = SimpleNamespace(
        model=model, machine=SimpleNamespace(cpu="x"), target="t", threads=1, kv="bf16"
    )
    assert speed._about(engine, Case(prompt=1))["model_size"] == 3 << 30
    assert speed._size(3 << 30) == "3.00 GiB"


@pytest.mark.parametrize(("target", "name"), [("amx-bf16", "int8 without tiles"), ("avx2", "int8")])
def test_which_int8_peak_it_is(target: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tiles have a higher one, which no product with scales comes near."""
    limits = MachineProfile(
        "a CPU", 2, target, 2, {}, {"DRAM": 40.0}, 1000.0, 100.0, 200.0, 1e-6
    )  # fmt: skip
    notes(Output(), "bf16", 3, [limits])
    assert f"median (min … max): {name} 1,000 GOP/s" in capsys.readouterr().out
