"""Checks: what passes and what does not, kind by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triplepoint.runtime.suites.checks import Outcome, run_check, snapshot
from triplepoint.runtime.suites.definition import Check


def result(check: dict[str, Any], answer: str, **more: Any) -> dict[str, Any]:
    return run_check(Check.model_validate(check), Outcome("Which port?", answer, **more))


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"contains": "8080"}, "port 8080", "port 80"),
        ({"contains": ["a", "b"]}, "b a", "a"),
        ({"contains": [["a", "b"], "c"]}, "bc", "ab"),
        ({"contains": "OK", "ignore_case": True}, "ok", "no"),
        ({"lacks": ["error", "sorry"]}, "fine", "sorry!"),
        ({"equals": "42"}, " 42\n", "42."),
        ({"equals": ["yes", "ja"], "ignore_case": True}, "JA", "no"),
        ({"regex": r"^port \d+$"}, "x\nport 80\ny", "port x"),
        ({"regex": "PORT", "ignore_case": True}, "port", "harbor"),
        ({"called": "search"}, "", None),
        ({"facts": {"has": ["8080"]}}, "It is 8080.", "It is 80801."),
        ({"facts": {"none": True}}, "There is none.", "It is 8080."),
    ],
    ids=str,
)
def test_answers(check: dict[str, Any], right: str, wrong: str | None) -> None:
    """One answer passes, another fails and says why."""
    calls = [("search", True), ("read_file", False)]
    assert result(check, right, calls=calls) == {"check": next(iter(check)), "passed": True}
    found = result(check, wrong or "", calls=calls if wrong is not None else [("search", False)])
    assert not found["passed"]
    assert found["why"]


def test_facts_in_a_long_answer() -> None:
    """Whoever copies a whole file has not answered; that is said, not that facts are missing."""
    answer = "It is 8080." + " word" * 200
    found = result({"facts": {"has": ["8080"]}}, answer)
    assert found["why"] == "it is longer than 700 characters"


def test_schema() -> None:
    """JSON that fits, in a fence or not; the message says where it does not."""
    pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    check = {"schema": {"type": "object", "properties": {"port": {"type": "integer"}}}}

    assert result(check, '{"port": 1}')["passed"]
    assert result(check, '```json\n{"port": 1}\n```')["passed"]
    assert "port: 'x'" in result(check, '{"port": "x"}')["why"]
    assert "not JSON" in result(check, "port 1")["why"]
    assert "not JSON" in result(check, "[" * 200_000)["why"]


def test_grounded() -> None:
    """What stands in a result or in the question is known; anything else with a digit is not."""
    known = {"questions": ["Which port?"], "results": ["port = 8080"]}

    assert result({"grounded": True}, "It is 8080.", **known)["passed"]
    assert result({"grounded": True}, "It is 9090.", **known)["why"] == "invented: 9090"


def test_files(tmp_path: Path) -> None:
    """Exactly the files that were to change, and what stands in them."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "sub" / "b.txt").write_text("two\n")
    more: dict[str, Any] = {"root": tmp_path, "before": snapshot(tmp_path)}
    assert result({"changed": []}, "", **more)["passed"]
    (tmp_path / "a.txt").write_text("ONE\n")
    (tmp_path / "c.txt").symlink_to("a.txt")
    (tmp_path / "sub" / "b.txt").unlink()

    assert result({"changed": ["a.txt", "*.txt", "**/b.txt"]}, "", **more)["passed"]
    found = result({"changed": ["a.txt", "d.txt"]}, "", **more)
    assert found["why"] == "also changed: c.txt, sub/b.txt; not changed: d.txt"

    for rule, passed in (
        ({"contains": "ONE", "lacks": "one", "regex": "^O"}, True),
        ({"equals": "ONE"}, True),
        ({"equals": "one"}, False),
        ({"contains": ["ONE", "x"]}, False),
        ({"lacks": "ONE"}, False),
        ({"regex": "^N"}, False),
        ({"absent": True}, False),
    ):
        assert result({"files": {"a.txt": rule}}, "", **more)["passed"] is passed
    assert result({"files": {"sub/b.txt": {"absent": True}}}, "", **more)["passed"]
    assert not result({"files": {"sub/b.txt": {"contains": "x"}}}, "", **more)["passed"]
    assert "outside" in result({"files": {"../x": {"absent": True}}}, "", **more)["why"]
    assert "no folder" in result({"changed": []}, "")["why"]


def test_a_judge_is_asked() -> None:
    """It gets the rubric, the question and the answer; its reason is why."""
    asked: list[tuple[str, ...]] = []

    def judge(*given: str) -> tuple[bool, str]:
        asked.append(given)
        return "8080" in given[2], "it names another port"

    check = {"judge": "names port 8080", "name": "port"}
    assert result(check, "8080", judge=judge) == {"check": "port", "passed": True}
    assert result(check, "80", judge=judge)["why"] == "it names another port"
    assert asked[0] == ("names port 8080", "Which port?", "8080")
