"""`ablation`: each policy the other way round, in files that can be gone on with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from labs.harness.ablation import WHOLE, ablate, settings, table
from labs.harness.questions import frozen
from labs.harness.runner import Row, read
from triplepoint import Engine
from triplepoint.runtime.agent.harness.defaults import DEFAULTS, checked

PI = [one for one in frozen() if one.tree == "pi" and one.kind == "value"][:1]


def test_each_switch_once() -> None:
    """Every setting changes one switch of the defaults, and every switch is changed."""
    made = settings()

    changed = []
    for given in made.values():
        now = checked(given)
        changed.append([name for name, value in DEFAULTS.items() if now[name] != value])
    switches = [[name] for name, value in DEFAULTS.items() if isinstance(value, bool)]
    assert changed == [[], *switches]
    assert made["without-evidence"] == {"evidence": False}
    assert made["with-grounded"] == {"grounded": True}


def test_settings_are_asked_once_and_pay_for_themselves(tmp_path: Path) -> None:
    """Who comes back asks nothing; no setting finds the prompts of another in its cache."""
    heard: list[object] = []

    def load() -> Engine:
        return Engine.load("nano", threads=1)

    rows = ablate(load, "nano", PI, tmp_path, tmp_path / "out", heard.append)
    count = len(heard)
    again = ablate(load, "nano", PI, tmp_path, tmp_path / "out", heard.append)

    assert again == rows
    assert len(heard) - count == len(settings())  # their names alone
    assert [row.by for part in rows.values() for row in part] == list(settings())
    assert read(tmp_path / "out" / "nano-without-claims.jsonl") == rows["without-claims"]
    whole, same = rows[WHOLE][0], rows["without-claims"][0]
    assert (same.answers, same.prefilled) == (whole.answers, whole.prefilled)
    assert rows["without-evidence"][0].answers != []


def test_a_policy_that_decides_nothing_is_not_asked_again(tmp_path: Path) -> None:
    """Its row is the whole's; that of one which decided something is its own."""
    heard: list[object] = []

    def load() -> Engine:
        return Engine.load("nano", threads=1)

    rows = ablate(load, "nano", PI, tmp_path, tmp_path / "out", heard.append)

    decided = (tmp_path / "out" / "nano-decided.jsonl").read_text()
    assert json.dumps([PI[0].id, "evidence"]) in decided
    assert json.dumps([PI[0].id, "claims"]) not in decided
    assert rows["without-claims"] == [replace(rows[WHOLE][0], by="without-claims")]
    assert rows["without-evidence"][0].calls != rows[WHOLE][0].calls


def test_the_table_is_of_differences_from_the_whole() -> None:
    """A policy whose being off costs right answers has a negative one."""
    row = Row(
        WHOLE, "m", "s", "", "value", "en", True, False, "right", None, ["x"], 1, 100, 10, 2.0
    )  # fmt: skip
    right = [replace(row, id=str(place)) for place in range(4)]
    worse = [replace(one, by="without-evidence", result="wrong") for one in right]

    lines = table({WHOLE: right, "without-evidence": worse})

    assert "100.0%" in lines[1]
    assert "-100.0 [-100.0, -100.0]" in lines[2]
    assert lines[2].endswith("+100.0 [+100.0, +100.0]")
