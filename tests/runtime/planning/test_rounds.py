"""Files of measured rounds: what is read again is what was written, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.planning.programs import Program, Request
from triplepoint.runtime.planning.validate import Round, read_rounds

MEASURED = {"throughput": 20.0, "TTFT p50": 1.0, "TTFT p99": 2.0, "TPOT p50": 0.1, "TPOT p99": 0.2}
PROGRAMS = (Program((Request(0.0, 100, 20), Request(0.5, 50, 20)), 50, 0, kept=False),)


def test_a_round_is_read_as_it_was_written(tmp_path: Path) -> None:
    """All of its fields, line by line."""
    one = Round(2, PROGRAMS, MEASURED)
    path = tmp_path / "rounds.jsonl"
    path.write_text(2 * (one.as_json() + "\n"))
    assert read_rounds(path) == [one, one]
    assert read_rounds(tmp_path / "none") == []


@pytest.mark.parametrize(
    "wrong",
    [
        Round(2, (), MEASURED),
        Round(0, PROGRAMS, MEASURED),
        Round(2, (Program(()),), MEASURED),
        Round(2, (Program((Request(0.0, -5, 20),)),), MEASURED),
        Round(2, (Program((Request(0.0, 5, 0),)),), MEASURED),
        Round(2, (Program((Request(float("nan"), 5, 3),)),), MEASURED),
        Round(2, (Program((Request(0.0, 5, 3),), "x"),), MEASURED),  # pyright: ignore[reportArgumentType]
        Round(2, PROGRAMS, {"throughput": 20.0}),
        Round(2, PROGRAMS, {**MEASURED, "TTFT p50": 0.0}),
        Round(2, PROGRAMS, {**MEASURED, "TTFT pxx": 1.0}),
    ],
)
def test_what_cannot_be_compared_is_no_round(wrong: Round, tmp_path: Path) -> None:
    """Told by the file's name, before anything is simulated."""
    path = tmp_path / "rounds.jsonl"
    path.write_text(wrong.as_json() + "\n")
    with pytest.raises(SettingError, match=r"rounds\.jsonl has no rounds"):
        read_rounds(path)
