"""`compare`: askers in pairs, question by question, and beside the oracle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from labs.harness import compare
from labs.harness.compare import Asked, bootstrap, difference, load, paired, share
from labs.harness.runner import Result, Row

ROW = Row(
    "ask", "m", "set", "id", "value", "en", True, False, "right", None, ["x"], 1, 100, 10, 2.0
)  # fmt: skip


RESULTS: dict[str, Result] = {"r": "right", "w": "wrong", "l": "limit", "e": "error"}


def rows_of(by: str, results: str, model: str = "m") -> list[Row]:
    """A row for each letter of `RESULTS`, with the questions named by their places."""
    return [
        replace(ROW, by=by, model=model, id=str(place), result=RESULTS[letter])
        for place, letter in enumerate(results)
    ]


def asked(by: str, results: str) -> Asked:
    """An asker with these results."""
    return Asked(by, by, "m", {(row.set, row.id): row for row in rows_of(by, results)})


def write(path: Path, rows: Sequence[Row]) -> Path:
    """A file of rows."""
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")
    return path


def test_intervals_are_paired() -> None:
    """Of 100 questions 10 differ: that is 10 points ± 5.9, however hard the others are."""
    a, b = asked("a", "r" * 60 + "w" * 40), asked("b", "r" * 50 + "w" * 50)

    found = difference(paired(a, b), "right")

    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.041, 0.159), abs=0.011)
    assert difference(paired(a, b), "right") == found  # the draws are the same ones each time
    assert found.points.startswith("+10.0 [+")
    assert difference(paired(a, b), "wrong").value == pytest.approx(-0.1)


def test_a_share_of_the_oracle() -> None:
    """The ratio of the rates; draws in which the oracle has none right do not count."""
    one, oracle = asked("ask", "rw" * 40), asked("oracle", "r" * 80)
    found = share(paired(one, oracle))
    assert found.value == 0.5
    assert 0.38 < found.low < 0.42
    assert 0.58 < found.high < 0.62

    few = bootstrap(np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.divide)
    assert (few.value, few.low, few.high) == (1.0, 0.0, 1.0)
    none = bootstrap(np.array([1.0, 0.0]), np.zeros(2), np.divide)
    assert np.isnan([none.value, none.low, none.high]).all()


def test_what_pairs() -> None:
    """The same question of the same set, without those that an error of ours ended."""
    a, b = asked("a", "rel"), asked("b", "wrr")
    assert [x.id for x, _ in paired(a, b)] == ["0", "2"]

    other = Asked("b", "b", "m", {("other", row.id): row for row in b.rows.values()})
    assert paired(a, other) == []


def test_askers_of_files(tmp_path: Path) -> None:
    """One file may hold several, and one asker stand in two files; the last row of a question."""
    first = rows_of("ask", "r") + rows_of("rival", "w") + rows_of("ask", "l")
    second = rows_of("ask", "r")
    paths = [write(tmp_path / "a.jsonl", first), write(tmp_path / "b.jsonl", second)]

    found = load(paths)

    assert [one.name for one in found] == ["ask (a)", "rival", "ask (b)"]
    assert [row.result for one in found for row in one.rows.values()] == ["limit", "wrong", "right"]
    with pytest.raises(OSError, match="none"):
        load([tmp_path / "none.jsonl"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each asker, each pair, and shares of the oracle of the same model alone."""
    paths = [
        write(tmp_path / "oracle.jsonl", rows_of("oracle", "rrwr")),
        write(tmp_path / "ask.jsonl", rows_of("ask", "rrr")),
        write(tmp_path / "other.jsonl", rows_of("ask", "w", "n")),
        write(tmp_path / "elsewhere.jsonl", [replace(ROW, by="far", id="else")]),
    ]

    assert compare.main([str(path) for path in paths]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:5] == ["ask", "m", "3", "100.0%", "43.9%"]
    (line,) = [line for line in lines if line.startswith("oracle m − ask m")]
    assert "n 3, right -33.3 [-100.0, +0.0], wrong as fact +33.3 [+0.0, +100.0]" in line
    assert "ask m − far m: no question in common" in lines
    assert lines[-1].startswith("ask m: n 3, share of oracle m: 1.50 [1.00, ")

    compare.main([str(paths[0]), str(paths[1]), "--kind", "log"])
    assert "oracle − ask: no question in common" in capsys.readouterr().out
