"""The table of words by language."""

from __future__ import annotations

from triplepoint.runtime.evidence.languages import (
    COMMON,
    FAULT,
    FAULTS,
    HERE,
    LINES,
    POINTS,
    REMOVES,
    SMALL,
)
from triplepoint.runtime.evidence.words import fold


def test_faults_are_found_fast() -> None:
    """Each mark of a failure has one of the texts that are looked for."""
    for mark in (
        "err: x", "ERROR", "timed out", "time-out", "timeout", "Fehlermeldung", "échec", "FATAL",
        "Traceback (most", "refused", "ошибка", "失败", "critical", "crit", "abort",
        "Schwerwiegend",
    ):  # fmt: skip
        assert FAULT.search(mark), mark
        assert any(text in fold(mark) for text in FAULTS), mark


def test_sets_are_folded() -> None:
    """They are compared with folded words."""
    for word in (*COMMON, *FAULTS, *HERE, *LINES, *POINTS, *SMALL):
        assert fold(word) == word


def test_words_are_bounded_where_a_script_has_spaces() -> None:
    """Chinese has none: a word may be a part of any run."""
    assert REMOVES.search("please delete it")
    assert not REMOVES.search("undeleted")
    assert REMOVES.search("把文件删除吧")
