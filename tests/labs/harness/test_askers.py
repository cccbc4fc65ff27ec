"""Oracle, rival and agent: what the model is shown, and one run of each end to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from labs.harness import ask, oracle, rival
from labs.harness.gold import Line, Tree
from labs.harness.questions import Turn, frozen
from labs.harness.rival import Index, evidence, terms
from labs.harness.runner import Asker, ask_all
from labs.harness.trees import files_of
from triplepoint import Engine

PI = Tree(files_of("pi"))


def test_the_oracle_shows_gold_lines_with_neighbors() -> None:
    """Two lines on each side, the line again, what was computed, then the question."""
    gold = Line("thermostat.ini", 11, "broker = 192.168.178.40")
    turn = Turn("Which host?", (("192.168.178.40",),), lines=(gold,), note="1 line matches")

    shown = oracle.laid_out(turn, PI, alone=False)

    assert shown.startswith("--- thermostat.ini\n9: \n10: [mqtt]\n11: broker = 192.168.178.40\n")
    assert "13: topic" in shown
    assert "14:" not in shown
    again = "Most relevant lines:\nthermostat.ini:11: broker = 192.168.178.40\n\n"
    assert shown.endswith(again + "Computed: 1 line matches\n\nQuestion: Which host?")


def test_the_oracle_of_what_has_no_lines() -> None:
    """Names of files where nothing is gold; nothing at all where no file is needed."""
    assert "todo.txt" in oracle.laid_out(Turn("Who?"), PI, alone=False)
    assert oracle.laid_out(Turn("hello"), PI, alone=True) == "hello"
    named = Turn("Which files?", lines=(Line("todo.txt", 0, ""),))
    assert oracle.laid_out(named, PI, alone=False).startswith("Files:\ntodo.txt")


def test_terms_of_several_scripts() -> None:
    """Endings off, compounds of camel case parted, pairs of signs in Chinese."""
    assert list(terms("failed readTimeout Schlüssel 8080")) == [
        "fail", "read", "timeout", "schlüssel", "8080",
    ]  # fmt: skip
    assert list(terms("端口是多少")) == ["端口", "口是", "是多", "多少"]


def test_rare_words_rank_first() -> None:
    """Also in a language without spaces; marks of failure count where one is asked for."""
    index, chinese = Index(PI), Index(Tree(files_of("shipu")))

    assert index.ranked("who is Maarten?")[0].text == "- ask Maarten about the antenna"
    assert "FATAL" in index.ranked("what went wrong?")[0].text
    assert chinese.ranked("冰箱门封条怎么了")[0].path == "笔记/维修.md"


def test_files_that_are_named_and_that_are_not_there() -> None:
    """By path or name, longest match first; what looks like a file and is none is told."""
    index = Index(Tree(files_of("host")))

    assert index.named("what does ssh/sshd_config say") == ["ssh/sshd_config"]
    assert index.missing("what is in ssh/ssh_config.bak and smb.conf") == ["ssh/ssh_config.bak"]
    assert "There is no file my.cnf in this folder." in evidence(index, "port in my.cnf?")


def test_evidence_keeps_to_its_room() -> None:
    """A small folder is shown whole; of a large one names, excerpts and the best lines."""
    small = evidence(Index(PI), "which port?")
    assert "--- todo.txt (whole)\n1: - replace" in small

    shop = Index(Tree(files_of("shop")))
    large = evidence(shop, "What is on line 1205 of syslog, any unreadable sectors?")
    assert len(large) < rival.ROOM + 2_500
    assert "--- syslog (2500 lines, excerpt)" in large
    assert large.rstrip().endswith(f"syslog:1205: {shop.tree.texts['syslog'][1204]}")


@pytest.mark.parametrize("make", [oracle.asker, rival.asker, ask.asker])
def test_each_asks_a_real_model(
    make: Callable[[Engine], Asker], engine: Engine, tmp_path: Path
) -> None:
    """One question, one follow-up and, for the agent, one task; tokens and seconds are counted."""
    kinds = ("value", "follow", "edit") if make is ask.asker else ("value", "follow")
    mine = [next(q for q in frozen() if q.tree == "pi" and q.kind == kind) for kind in kinds]

    rows = ask_all("x", "nano", make(engine), mine, tmp_path, None, lambda _: None)

    assert [row.error for row in rows] == [""] * len(rows)
    for question, row in zip(mine, rows, strict=True):
        assert row.result in ("right", "wrong", "declined", "limit")
        assert row.prefilled > 0
        assert row.generated > 0
        assert len(row.answers) == len(question.turns)
    assert (rows[1].first is not None) == (len(rows[1].answers) == 2)
    assert make is not ask.asker or sum(row.calls for row in rows) > 0
