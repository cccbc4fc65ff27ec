"""What code reckons for a question."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from helpers.workspaces import write

from triplepoint.runtime.evidence import Evidence, Gatherer, reckoned
from triplepoint.tools import Policy, Rule, Workspace

SALES = [
    ("R-001", "Ines", "2026-01-03", "lamp", 40.5, "paid"),
    ("R-002", "Ben", "2026-01-05", "rug", 120, "open"),
    ("R-003", "Ines", "2026-02-01", "lamp", 99.5, "paid"),
    *(
        (f"R-{n:03}", "Ada", "2026-03-01", "desk", n / 2, "void" if n % 3 else "paid")
        for n in range(4, 40)
    ),
]
FILES = {
    "README.txt": "invoices.csv: one row per invoice\n",
    "invoices.csv": "invoice,seller,date,item,amount,state\n"
    + "".join(",".join(map(str, row)) + "\n" for row in SALES),
    "app.log": "".join(
        f"10:0{n % 10} {'ERROR' if n % 4 == 0 else 'INFO'} 10.0.0.{n % 3} request {n} took 404 ms\n"
        for n in range(40)
    ),
    "src/shop.py": "class Shop:\n    def open(self):\n        pass\n\n\nclass Till:\n    pass\n",
    "shares.ini": "[a]\npath = 1\n[b]\npath = 2\n[c]\npath = 3\n",
}


@pytest.fixture
def gatherer(tmp_path: Path) -> Iterator[Gatherer]:
    write(tmp_path / "shop", FILES)
    made = Gatherer(Workspace(tmp_path / "shop"), index=False, background=False)
    yield made
    made.close()


def ask(gatherer: Gatherer, question: str) -> Evidence:
    return gatherer.gather(question, budget=1500, count=lambda text: len(text) // 3 + 1)


def figures(evidence: Evidence) -> list[dict[str, str]]:
    """The rows of all queries, by column."""
    found: list[dict[str, str]] = []
    for call in evidence.reckoned:
        found += csv.DictReader(StringIO(call.result.replace(" | ", "|")), delimiter="|")
    return found


def total(state: str) -> float:
    return sum(row[4] for row in SALES if row[5] == state)  # type: ignore[misc]


def test_sums_over_rows_that_are_named(gatherer: Gatherer) -> None:
    """A cell that a question names is a condition; the file need not be named."""
    (row,) = figures(ask(gatherer, "What do all paid invoices add up to?"))
    assert float(row['sum("amount")']) == total("paid")
    assert int(row["count(*)"]) == sum(one[5] == "paid" for one in SALES)


def test_the_largest_row(gatherer: Gatherer) -> None:
    """With its other cells, so that what it belongs to can be told."""
    rows = figures(ask(gatherer, "Which invoice has the highest amount in invoices.csv?"))
    assert any(row.get("invoice") == "R-002" for row in rows)


def test_few_rows_are_shown(gatherer: Gatherer) -> None:
    """What a key tells apart stands as it is."""
    (row,) = figures(ask(gatherer, "Who sold invoice R-002?"))
    assert row["seller"] == "Ben"
    assert row["amount"] == "120"


def test_groups(gatherer: Gatherer) -> None:
    """The most frequent cell of a column that is named, with how often."""
    rows = figures(ask(gatherer, "Which item do most invoices have?"))
    assert rows[0] == {"item": "desk", "count(*)": "36"}


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("How many ERROR lines are in app.log?", "10 lines with `error`"),
        ("How often does 404 stand in app.log?", "40 lines with"),
        ("How many classes are in src/shop.py?", "2 lines with"),
        ("How many shares are there in shares.ini?", "3 lines with"),
        ("How many lines does README.txt have?", "1 line in README.txt"),
        ("Wie viele Zeilen hat README.txt?", "1 line in README.txt"),
        ("Which ip shows up most in app.log?", "14  10.0.0.0"),
    ],
)
def test_lines_are_counted(gatherer: Gatherer, question: str, told: str) -> None:
    """By a word of the question, by what defines something, by a group, or by the structure."""
    found = ask(gatherer, question)
    assert any(told in call.result for call in found.reckoned), [
        (dict(call.arguments), call.result) for call in found.reckoned
    ]
    for call in found.reckoned:
        assert gatherer.rerun(call.tool, call.arguments) == call.result
        assert call in found.calls


def test_figures_that_stand_in_a_line_are_not_counted(tmp_path: Path) -> None:
    """Nor is what a file or a line says of something else, nor what asks which file it is."""
    log = "".join(f"09:{n:02} visit of the club, {n} people\n" for n in range(9))
    write(
        tmp_path,
        {
            "server.conf": "# workers start at once\nworker_processes 4;\n",
            "notes.log": log,
            "backup.sh": "KEEP=8\n",
        },
    )
    with closing(Gatherer(Workspace(tmp_path), index=False, background=False)) as gatherer:
        for question in (
            "How many worker processes does server.conf start?",
            "How many beekeepers are in the club?",
            "How much did the visit cost?",
            "Which file decides how many visits are kept?",
        ):
            assert ask(gatherer, question).reckoned == (), question
        found = ask(gatherer, "How many visits are in notes.log?")
    assert found.reckoned[0].result.startswith("9 lines with `visit`")


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (
            "How many files are there?",
            "5 files in this folder and the folders in it; 1 without these",
        ),
        ("How many python files are in src?", "2 .py, .pyi files in src and"),
        ("Wie viele Dateien hat src?", "3 files in src and the folders in it; 2 without these"),
        ("How many toml files are in src?", "1 .toml files in src"),
        ("¿Cuántos archivos python hay en src?", "2 .py, .pyi files in src"),
        ("src 里有多少个 python 文件?", "2 .py, .pyi files in src"),
        ("How many unicorn files are in src?", ""),
        ("How many lines are in src/a.py?", ""),
    ],
)
def test_files_are_counted(tmp_path: Path, question: str, told: str) -> None:
    """Those of a kind or all, with what is below; a kind that nothing is of is not guessed at."""
    files = ("src/a.py", "src/b.toml", "src/deep/c.py", "docs/d.md", "e.txt")
    write(tmp_path, dict.fromkeys(files, "x = 1\n"))
    with closing(Gatherer(Workspace(tmp_path), index=False, background=False)) as gatherer:
        found = ask(gatherer, question)
    assert found.files.startswith(told)
    assert bool(found.files) == bool(told)


def test_lines_of_a_folder_are_counted(tmp_path: Path) -> None:
    """All its files together, where the folder is named and no file."""
    write(tmp_path, {"src/a.py": "# TODO\nx\n", "src/deep/b.py": "# TODO\n", "c.py": "# TODO\n"})
    with closing(Gatherer(Workspace(tmp_path), index=False, background=False)) as gatherer:
        found = ask(gatherer, "How many TODO are in src?")
    assert found.reckoned[0].result.startswith("2 lines with `todo` in src (2 files, 3 lines")


def test_cells_of_a_long_table(tmp_path: Path) -> None:
    """One among many thousands is found, by its first word or as a number."""
    rows = "".join(f"{n},Item {n:x} of many\n" for n in range(1000, 31_000))
    write(tmp_path / "shop", {"parts.csv": f"number,part\n{rows}"})
    gatherer = Gatherer(Workspace(tmp_path / "shop"), index=False, background=False)
    for question in ("Which number has Item 7531 of many?", "Which part has the number 30001?"):
        (row,) = figures(ask(gatherer, question))
        assert row == {"number": "30001", "part": "Item 7531 of many"}
    gatherer.close()


def test_a_table_that_changed(gatherer: Gatherer) -> None:
    """One that stays open is read again once its file is another."""
    question = "Who sold invoice R-002?"
    assert figures(ask(gatherer, question))[0]["seller"] == "Ben"
    path = gatherer.workspace.root / "invoices.csv"
    path.write_text(path.read_text().replace(",Ben,", ",Amal,"))
    assert figures(ask(gatherer, question))[0]["seller"] == "Amal"


def test_open_tables_are_bounded(gatherer: Gatherer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last ones stay, as long as their files are small enough together."""
    tables = reckoned.Tables(gatherer.workspace)
    write(gatherer.workspace.root, {"b.csv": "b,n\nx,1\n", "c.csv": "c,n\ny,2\n"})
    first = tables.get("b.csv")
    tables.get("c.csv")
    assert tables.get("b.csv") is first

    monkeypatch.setattr(reckoned, "MAX_OPEN", 12)
    tables.get("c.csv")
    with pytest.raises(sqlite3.ProgrammingError):
        first.table.rows("SELECT * FROM t")
    assert tables.get("b.csv") is not first
    tables.close()


def test_what_is_no_such_question(gatherer: Gatherer) -> None:
    """Nothing is reckoned where no cell, no column and no number is asked for."""
    assert not ask(gatherer, "What does the class Shop do?").reckoned
    assert not ask(gatherer, "path of b in shares.ini?").reckoned


def test_rules_hold(tmp_path: Path) -> None:
    """What may not be read is not reckoned with."""
    write(tmp_path / "shop", FILES)
    policy = Policy(rules=[Rule("*", "deny", {"path": "invoices.csv"})])
    gatherer = Gatherer(Workspace(tmp_path / "shop"), policy, index=False, background=False)
    found = ask(gatherer, "What do all paid invoices add up to?")
    assert "120" not in repr(found)
    counted = gatherer.rerun("count", {"path": ".", "pattern": "paid"})
    assert "invoices.csv" not in counted
    gatherer.close()


def test_unknown_names(gatherer: Gatherer) -> None:
    """What is written as a name and stands in no file is told as missing, and no line for it."""
    found = ask(gatherer, "What is MAX_RETRIES in src/shop.py?")
    assert [one.name for one in found.missing] == ["MAX_RETRIES"]
    assert not found.best
    assert not ask(gatherer, "What does the class Shop do?").missing
