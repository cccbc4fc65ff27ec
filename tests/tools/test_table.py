"""table: any dialect, exact figures, and errors that say what is there."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import Workspace
from triplepoint.tools import table as table_module
from triplepoint.tools.table import ask_table

SALES = """id,customer,date,euro,state
R-1,Ann,2026-01-05,100.10,paid
R-2,Bob,2026-02-07,0.20,open
R-3,"Carl, sons",2026-02-09,"1,000.00",paid
R-4,Ann,2026-03-01,n/a,void
R-5,Trinidad and Tobago,2026-03-02,,paid
"""


def ask(workspace: Workspace, path: str = "sales.csv", **given: object) -> list[str]:
    return ask_table(workspace, path, max_chars=4000, **given).split("\n")  # type: ignore[arg-type]


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ToolError) as refused:
        call()
    return str(refused.value)


@pytest.fixture
def sales(root: Path, workspace: Workspace) -> Workspace:
    (root / "sales.csv").write_text(SALES)
    return workspace


def test_figures(sales: Workspace) -> None:
    """Sums are exact; what is no number is told; the rows can be cited."""
    assert ask(sales, where="state = paid", value="euro", do="sum") == [
        "sales.csv: 3 of 5 rows with state = paid",
        "sum of euro: 1100.10 (over 2 numbers)",
        "first rows: sales.csv:2, sales.csv:4, sales.csv:6",
        "[left out, empty: 1 cells]",
    ]
    assert ask(sales, value="Euro") == [
        "sales.csv: 5 rows",
        "sum of euro: 1100.30 (over 3 numbers)",
        "mean of euro: 366.7667 (rounded) (over 3 numbers)",
        "min of euro: 0.20 (sales.csv:3)",
        "max of euro: 1000.00 (sales.csv:4)",
        "first rows: sales.csv:2, sales.csv:3, sales.csv:4",
        "[left out, no numbers: 1 cells, such as n/a]",
        "[left out, empty: 1 cells]",
    ]


def test_the_row_of_the_largest(sales: Workspace) -> None:
    """With it comes its row, or as many as were asked for."""
    first = "sales.csv:4: id=R-3, customer=Carl, sons, date=2026-02-09, euro=1,000.00, state=paid"

    assert ask(sales, value="euro", do="maximum")[2] == first
    assert [line[:11] for line in ask(sales, value="euro", do="min", top=2)[2:4]] == [
        "sales.csv:3",
        "sales.csv:2",
    ]


def test_groups(sales: Workspace) -> None:
    """The largest is first, for the least figure the smallest; a count needs no value."""
    assert ask(sales, group="state", value="euro")[1:4] == [
        "sum of euro by state, 3 different:",
        "1100.10  paid  (3 rows, first: sales.csv:2)",
        "0.20  open  (1 rows, first: sales.csv:3)",
    ]
    assert ask(sales, group="state", value="euro", do="min")[2].startswith("0.20  open")
    assert ask(sales, group="customer")[2] == "2  Ann  (first: sales.csv:2)"
    assert ask(sales, group="customer", top=1)[3] == "[cut: 3 more]"


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("state = PAID", "135"),
        ("state != paid", "24"),
        ("state is not paid", "24"),
        ("euro > 0.2", "13"),
        ("euro >= 0.20", "123"),
        ("euro = 1000", "3"),
        ("euro < 100.1 and state=open", "2"),
        ("date >= 2026-02 and date < 2026-03", "23"),
        ("date = 2026-03", "45"),
        ("date <= 2026-02-07", "12"),
        ("customer contains N", "1345"),
        ("customer = Trinidad and Tobago", "5"),
        ('customer = "Carl, sons" and state = paid', "3"),
        ("customer=Ann, state=void", "4"),
        ("id == R-2", "2"),
        ("'id' <> R-2 && state == open", ""),
    ],
)
def test_conditions(sales: Workspace, where: str, ids: str) -> None:
    """Numbers compare as numbers, dates as dates, all else as text without case."""
    rows = [
        line for line in ask(sales, where=where) if line.startswith("sales.csv:") and "id=" in line
    ]

    assert "".join(line.partition("id=R-")[2][0] for line in rows) == ids


def test_no_such_column(sales: Workspace) -> None:
    """The error names the columns with a value of each."""
    columns = "columns: id (R-1), customer (Ann), date (2026-01-05), euro (100.10), state (paid)"
    missing = f"no column 'amount' in sales.csv; {columns}"

    assert refusal(lambda: ask(sales, value="amount", do="sum")) == missing
    assert refusal(lambda: ask(sales, where="amount > 3")) == missing
    assert refusal(lambda: ask(sales, where="state = paid and amount > 3")) == missing
    assert refusal(lambda: ask(sales, group="amount")) == missing
    assert columns in ask(sales)[0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"do": "median"}, "do=median is not known; it is one of sum, mean, min, max, count, list"),
        ({"do": "sum"}, "do=sum needs value: a column of numbers; columns: id (R-1)"),
        ({"value": "state"}, "column 'state' of sales.csv holds no numbers (paid, open, void)"),
        ({"where": "paid"}, "where=paid has no comparison; write a column, one of ="),
        ({"where": "state=paid or state=open"}, "where joins conditions with and only"),
        ({"top": 51}, "top must be a number up to 50"),
        ({"where": "x" * 1001}, "where has 1001 characters"),
        ({"path": "no.csv"}, "no such file: no.csv"),
        ({"path": "../x"}, "outside the workspace: ../x"),
    ],
)
def test_refusals(sales: Workspace, given: dict[str, object], message: str) -> None:
    """What makes no sense is an error that says what does."""
    assert refusal(lambda: ask(sales, **given)).startswith(message)  # type: ignore[arg-type]


def test_no_row_that_fits(sales: Workspace) -> None:
    """Then the values that the column has are told, the nearest first."""
    assert ask(sales, where="state = payed")[1] == "column state has near values: paid"
    assert ask(sales, where="state = zz")[1] == "column state has: paid, open, void"


def test_a_list_of_some_columns(sales: Workspace) -> None:
    """For a list, value names what is shown."""
    lines = ask(sales, where="state = open", do="list", value="id, euro")

    assert lines[1] == "sales.csv:3: id=R-2, euro=0.20"


@pytest.mark.parametrize(
    ("name", "text", "columns", "total"),
    [
        ("a.csv", "who;sum\nA;1.000,50\nB;0,50\n", "who (A), sum (1.000,50)", "1001.00"),
        ("a.tsv", "who\tsum\nA\t€ 1,000\nB\t€ 1\n", "who (A), sum (€ 1,000)", "1001 €"),
        ("a.txt", "who|sum\nA|1000\nB|1\n", "who (A), sum (1000)", "1001"),
        ("a.csv", "A,1000\nB,1\n", "1 (A), 2 (1000)", "1001"),
        ("a.csv", "who,2025\nA,1000\nB,1\n", "who (A), 2025 (1000)", "1001"),
        ("a.csv", "sep=;\nwho;sum\nA;1000\nB;1\n", "who (A), sum (1000)", "1001"),
        ("a.csv", "# made by hand\nwho,sum\nA,1000\nB,1\n", "who (A), sum (1000)", "1001"),
        ("a.log", "#x\n#fields\twho\tsum\nA\t1000\nB\t1\n#close\n", "who (A), sum (1000)", "1001"),
        ("a.csv", '"who","sum"\n"A ""x""","1000"\n"B\nb",1\n', 'who (A "x"), sum (1000)', "1001"),
        ("a.csv", "sum\n1000\n1\n", "sum (1000)", "1001"),
        ("a.jsonl", '{"who":"A","sum":1000}\n\n{"sum":1.00}\n', "who (A), sum (1000)", "1001.00"),
        ("a.jsonl", '{"a":{"sum":1000}}\n{"a":{"sum":1}}\n', "a.sum (1000)", "1001"),
        ("a.json", '[\n {"sum": 1000},\n {"sum":\n 1}\n]\n', "sum (1000)", "1001"),
    ],
)
def test_dialects(
    workspace: Workspace, root: Path, name: str, text: str, columns: str, total: str
) -> None:
    """Delimiter, header, comments, decimals and objects are found out from the text."""
    (root / name).write_text(text)
    value = columns.rpartition(" (")[0].rpartition(", ")[2]

    assert ask(workspace, name)[0].partition("columns: ")[2] == columns
    assert (
        ask(workspace, name, value=value, do="sum")[1]
        == f"sum of {value}: {total} (over 2 numbers)"
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_encodings(workspace: Workspace, root: Path, encoding: str) -> None:
    """Names of columns and values are found in each."""
    (root / "a.csv").write_bytes("Straße;Zahl\nÄcker;1\nÖl;2\n".encode(encoding))

    assert ask(workspace, "a.csv", where="straße = öl", value="zahl", do="sum")[1].startswith(
        "sum of Zahl: 2 "
    )


def test_packed(workspace: Workspace, root: Path) -> None:
    """A table in a gzip file is read as one."""
    (root / "a.csv.gz").write_bytes(gzip.compress(SALES.encode()))

    assert ask(workspace, "a.csv.gz", where="id = R-2")[1].startswith("a.csv.gz:3: id=R-2")


def test_lines_of_rows_with_line_ends(workspace: Workspace, root: Path) -> None:
    """A row is cited by the line that it starts in."""
    (root / "a.csv").write_text('id,text\n1,"a\nb"\n2,c\n')
    (root / "a.json").write_text('[\n{"id": 1,\n"text": "a"},\n{"id": 2}]')

    assert ask(workspace, "a.csv", where="id=2")[1] == "a.csv:4: id=2, text=c"
    assert ask(workspace, "a.json", where="id=2")[1] == "a.json:4: id=2, text="


def test_a_quote_that_does_not_end(workspace: Workspace, root: Path) -> None:
    """It counts as a character: no row is swallowed."""
    for many in (3, 500, 200_000):
        (root / "a.csv").write_text("id,text\n" + '1,"open\n' + "2,x\n" * many)

        lines = ask(workspace, "a.csv", do="count")

        assert lines[0].startswith(f"a.csv: {many + 1} rows")
        assert lines[-1] == "[note: a quote in the file does not end; all are plain characters]"


def test_units_and_odd_rows_are_told(workspace: Workspace, root: Path) -> None:
    """What was added up all the same is said."""
    (root / "a.csv").write_text("id,price\n1,€5\n2,$6\n3,7,8\n")

    assert ask(workspace, "a.csv", value="price", do="sum") == [
        "a.csv: 3 rows",
        "sum of price: 18 (over 3 numbers)",
        "first rows: a.csv:2, a.csv:3, a.csv:4",
        "[note: cells with different units are added up as they are: € 1, $ 1]",
        "[note: 1 rows do not fit the columns, the first at a.csv:4]",
    ]


def test_numbers_that_can_be_meant_in_two_ways_are_told(workspace: Workspace, root: Path) -> None:
    """Only if no other cell tells which way it is."""
    told = "[note: 1.234 can be thousands or decimals; read as 1.234]"
    (root / "a.csv").write_text("id;n\n1;1.234\n2;2.345\n")
    assert ask(workspace, "a.csv", value="n", do="sum")[-1] == told
    (root / "a.csv").write_text("id;n\n1;1.234\n2;2,5\n")
    assert ask(workspace, "a.csv", value="n", do="sum")[1:] == [
        "sum of n: 1236.5 (over 2 numbers)",
        "first rows: a.csv:2, a.csv:3",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no table: a.csv is empty"),
        ("a.csv", b"\n\n", "no table: a.csv is empty"),
        ("a.csv", b"a\0b,c\n", "binary file: a.csv"),
        ("a.txt", b"just some words\nand some more\n", "no table: the lines of a.txt have no col"),
        ("a.json", b"[" * 60_000, "a.json is bad JSON from line 1 on"),
        ("a.json", b"[" * 100_000, "no table: a.json is empty, or of very long lines"),
        ("a.json", b"[]", "no table: a.json has no rows"),
        ("a.json", b"[1, 2]", "no table: a.json:1 is no JSON object"),
        ("a.csv", b",".join(b"c%d" % n for n in range(3000)), "a.csv has more than 2000 columns"),
        ("a.csv.gz", b"a,b\n1,2\n", "cannot read a.csv.gz: a damaged gzip file"),
    ],
)
def test_what_is_no_table(
    workspace: Workspace, root: Path, name: str, content: bytes, message: str
) -> None:
    """It is an error that says so."""
    (root / name).write_bytes(content)

    assert refusal(lambda: ask(workspace, name)).startswith(message)


def test_hostile_tables(workspace: Workspace, root: Path) -> None:
    """Long lines, NUL, nested JSON, names with line ends: all are bounded, and printable."""
    (root / "a.csv").write_bytes(
        b"id,t\n1," + b"x" * 3_000_000 + b"\n2,y\n" + b"3,z\n" * 5000 + b"4,\0\x1b[2J\n"
    )
    assert ask(workspace, "a.csv", do="count")[0].startswith("a.csv: 5002 rows")
    assert ask(workspace, "a.csv", do="count")[-1] == "[cut: 1 very long lines left out]"
    assert ask(workspace, "a.csv", where="id=4")[1] == r"a.csv:5004: id=4, t=\x00\x1b[2J"
    deep = '{"id":1}\n' + '{"a":' * 5000 + "1" + "}" * 5000 + "\n"
    (root / "a.jsonl").write_text(deep + json.dumps({"id": 2, "a\nb": {"c": {"d": [1]}}}) + "\n")
    assert ask(workspace, "a.jsonl", value="id", do="sum")[1] == "sum of id: 3 (over 2 numbers)"
    assert r"a\nb.c.d" in ask(workspace, "a.jsonl")[0]
    many = {f"k{n}": n for n in range(3000)}
    (root / "b.jsonl").write_text(json.dumps(many) + "\n")
    assert len("\n".join(ask(workspace, "b.jsonl"))) < 8000
    (root / "c.csv").write_text("id," + "n" * 1000 + "\n" + "1,2\n")
    assert len(ask(workspace, "c.csv")[0]) < 1000


def test_time_and_groups_are_bounded(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not read, or is in no group, is told."""
    (root / "a.csv").write_text("id,n\n" + "".join(f"{n},1\n" for n in range(100_000)))
    monkeypatch.setattr(table_module, "MAX_GROUPS", 10)
    lines = ask(workspace, "a.csv", group="id")
    assert "[cut: 99990 rows of further groups; more than 10]" in lines
    monkeypatch.setattr(table_module, "MAX_SECONDS", 0.05)

    began = time.monotonic()
    lines = ask(workspace, "a.csv", value="n", do="sum")

    assert time.monotonic() - began < 2
    assert lines[-1].startswith("[cut: stopped after 0.05 seconds at line ")


def test_a_table_that_is_too_large(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start is used, and that is said."""
    monkeypatch.setattr(table_module, "MAX_BYTES", 300_000)
    (root / "a.csv").write_text("id,n\n" + "1,1\n" * 200_000)

    assert (
        ask(workspace, "a.csv", do="count")[-1] == "[cut: a.csv read only at the start: too large]"
    )
