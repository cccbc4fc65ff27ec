"""Planted inventions: how many the checker of facts marks, over trees that need no download."""

from __future__ import annotations

import pytest

from labs.harness.inventions import Case, all_cases, report


@pytest.fixture(scope="module")
def planted() -> list[Case]:
    """The cases of the own trees."""
    return all_cases(None)


def share(cases: list[Case], sort: str, which: str = "") -> float:
    """The share of answers of a sort that have a marked fact."""
    part = [one for one in cases if one.sort == sort and one.set in (which or one.set)]
    assert len(part) > 40
    return sum(bool(one.marked) for one in part) / len(part)


def test_inventions_are_marked(planted: list[Case]) -> None:
    """What stands nowhere; and where the question names a key, a true value of another."""
    assert share(planted, "nowhere") >= 0.9
    assert share(planted, "other", "keys") >= 0.7  # 76 % of 182 over all trees
    assert share(planted, "other", "frozen") >= 0.3  # other words than the files': a known limit


def test_true_facts_are_not(planted: list[Case]) -> None:
    """Of all facts in answers that are right, 3 % at most."""
    part = [one for one in planted if one.sort == "true"]
    assert sum(len(one.marked) for one in part) / sum(one.facts for one in part) <= 0.03
    assert "frozen other" in "\n".join(report(planted))
