"""table: SQL over any dialect, right figures, and errors that say which columns there are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import time
from contextlib import closing
from pathlib import Path

import pytest
from helpers.refusals import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.tools import Workspace
from triplepoint.tools import table as table_module
from triplepoint.tools.table import ask_table, open_table

SALES = """id,customer,date,euro,state
R-1,Ann,2026-01-05,100.10,paid
R-2,Bob,2026-02-07,0.20,open
R-3,"Carl, sons",2026-02-09,"1,000.00",paid
R-4,Ann,2026-03-01,n/a,void
R-5,Trinidad and Tobago,2026-03-02,,paid
"""
COLUMNS = (
    'columns: "id" (R-1), "customer" (Ann), "date" (2026-01-05), "euro" (100.10), "state" (paid)'
)


def ask(workspace: Workspace, query: str, path: str = "sales.csv", chars: int = 4000) -> list[str]:
    """The result, without its last line, which says what the table is."""
    *lines, told = ask_table(workspace, path, query, max_chars=chars).split("\n")
    assert told.startswith("[the table t has the ")
    return lines


@pytest.fixture
def sales(root: Path, workspace: Workspace) -> Workspace:
    (root / "sales.csv").write_text(SALES)
    return workspace


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT sum(euro), avg(euro), min(euro), max(euro) FROM t", "1100.3 366.766667 0.2 1000"),
        ("select id from t where state = 'paid' and euro > 100.1", "R-3"),
        ("select id from t where euro = '1000';", "R-3"),
        ("select id from t where date between '2026-02' and '2026-03'", "R-2 R-3"),
        ("select state, count(*) from t group by 1 order by 2 desc, 1", "paid 3 open 1 void 1"),
        ("select count(euro), count(*), sum(euro) / count(*) from t", "3 5 220.06"),
        ("select id from t where euro is null", "R-4 R-5"),
        ('select count(*) from "sales.csv"', "5"),
        ("with x as (select * from Sales) select count(*) from x", "5"),
        ("select id, sum(euro) over (order by id) s from t limit 2", "R-1 100.1 R-2 100.3"),
    ],
)
def test_queries(sales: Workspace, query: str, rows: str) -> None:
    """Numbers are numbers, what says nothing is NULL, and a file's name is its table's, too."""
    lines = ask(sales, query)[1:]

    assert " ".join(" ".join(line.split(" | ")) for line in lines) == rows


def test_a_result(sales: Workspace) -> None:
    """A header, the rows, and how many more there are."""
    lines = ask(sales, "SELECT id, euro AS e FROM t WHERE id > 'R-2'")
    assert lines == ["id | e", "R-3 | 1000", "R-4 | NULL", "R-5 | NULL"]
    many = ask(sales, "SELECT a.id FROM t a, t b, t c")
    assert (len(many), many[-1]) == (table_module.MAX_ROWS + 2, "[cut: 75 more rows]")
    few = ask(sales, "SELECT * FROM t", chars=80)
    assert few[1:] == [
        "R-1 | Ann | 2026-01-05 | 100.1 | paid",
        "R-2 | Bob | 2026-02-07 | 0.2 | open",
        "[cut: 3 more rows]",
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT sum(amount) FROM t", "bad query: no such column: amount; "),
        ("SELECT * FROM orders", "bad query: no such table: orders; "),
        ("SELECT median(euro) FROM t", "bad query: no such function: median; "),
        ("sum(euro)", 'bad query: near "sum": syntax error; '),
        ("SELECT '\0'", "bad query: "),
        *((text, "bad query: query must be one SELECT; ") for text in (
            "", "-- x", "DELETE FROM t", "UPDATE t SET id = 1", "DROP TABLE t", "BEGIN",
            "CREATE TABLE x (y)", "ATTACH '/tmp/x' AS x", "PRAGMA temp_store = 1",
            "SELECT load_extension('x')", "SELECT * FROM pragma_database_list",
        )),
        ("VACUUM INTO '/tmp/x'", "bad query: authorization denied; "),
        ("SELECT 1; DROP TABLE t", "bad query: You can only execute one statement at a time"),
        ("SELECT hex(zeroblob(1000000000))", "bad query: string or blob too big; "),
    ],
)  # fmt: skip
def test_refused_queries(sales: Workspace, query: str, message: str) -> None:
    """Nothing but a SELECT runs; the error names the table and its columns with examples."""
    told = refusal(lambda: ask(sales, query))

    assert told.startswith(message)
    assert told.endswith(f"; the table t has the 5 rows of sales.csv; {COLUMNS}")


def test_refused_arguments(sales: Workspace) -> None:
    """Too long, no Unicode, no file."""
    assert refusal(lambda: ask(sales, "x" * 4001)).startswith("query has 4001 characters")
    assert refusal(lambda: ask(sales, "\ud800")).startswith("query is not valid Unicode")
    assert refusal(lambda: ask(sales, "", "no.csv")) == "no such file: no.csv"
    assert refusal(lambda: ask(sales, "", "../x")).startswith("outside the workspace")


def test_each_result_tells_what_the_table_is(sales: Workspace) -> None:
    """So that a value that is written otherwise, or a condition that was left out, is seen."""
    for query in ("SELECT * FROM t WHERE state = 'Paid'", "SELECT sum(euro) FROM t"):
        told = ask_table(sales, "sales.csv", query, max_chars=4000).split("\n")[-1]
        assert told == f"[the table t has the 5 rows of sales.csv; {COLUMNS}]"


def test_what_counts_as_text_is_told(workspace: Workspace, root: Path) -> None:
    """A name in quotes that no column has, and a column of numbers and other things."""
    (root / "a.csv").write_text("n,m,k\n1,$5,x\n2,€6,y\napprox 3,$7,1\n")

    assert ask(workspace, 'SELECT count(*) FROM "a" WHERE k = "x"', "a.csv")[1:] == [
        "1",
        "[note: no column is called x; it counts as text]",
    ]
    assert ask(workspace, "SELECT max(n) FROM t", "a.csv")[-1] == (
        '[note: "n" counts as text; not all of it is one kind of number: approx 3]'
    )
    assert "one kind of number: $ €]" in ask(workspace, "SELECT max(m) FROM t", "a.csv")[-1]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234.50", "2"], [1234.5, 2.0]),
        (["1.234,50", "0,5"], [1234.5, 0.5]),
        (["$5", "-$1,000"], [5.0, -1000.0]),
        (["5 €", "6 €"], [5.0, 6.0]),
        (["12%", "3.5%", "n/a", "-"], [12.0, 3.5, None, None]),
        (["1e-3", ".5", "-0", "+7"], [0.001, 0.5, 0.0, 7.0]),
        (["2025", "1999"], [2025.0, 1999.0]),
        (["007", "12"], ["007", "12"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["1,5", "2.5"], ["1,5", "2.5"]),
        (["12%", "5"], ["12%", "5"]),
        (["1.2.3", "2"], ["1.2.3", "2"]),
        (["-", "x"], ["-", "x"]),
        (["2026-01-02", "3"], ["2026-01-02", "3"]),
    ],
)
def test_numbers(
    workspace: Workspace, root: Path, cells: list[str], expected: list[object]
) -> None:
    """They are so where a whole column is, in one notation and with one unit; else all is text."""
    (root / "a.tsv").write_text("k\tn\n" + "".join(f"x\t{cell}\n" for cell in cells))
    whole = "SELECT json_group_array(n) FROM (SELECT n FROM t)"

    assert json.loads(ask(workspace, whole, "a.tsv")[1]) == expected


@pytest.mark.parametrize(
    ("name", "text", "columns", "total"),
    [
        ("a.csv", "who;sum\nA;1.000,50\nB;0,50\n", "who, sum", "1001"),
        ("a.tsv", "who\tsum\nA\t1,000\nB\t1\n", "who, sum", "1001"),
        ("a.txt", "who|sum\nA|1000\nB|1\n", "who, sum", "1001"),
        ("a.csv", "A,1000\nB,1\n", "column_1, column_2", "1001"),
        ("a.csv", "who,2025\nA,1000\nB,1\n", "who, 2025", "1001"),
        ("a.csv", "who,who,WHO\nA,B,1000\nB,C,1\n", "who, who_2, WHO_2_2", "1001"),
        ("a.csv", "sep=;\nwho;sum\nA;1000\nB;1\n", "who, sum", "1001"),
        ("a.csv", "# made by hand\nwho,sum\nA,1000\nB,1\n", "who, sum", "1001"),
        ("a.tab", "#who\tsum\nA\t1000\nB\t1\n", "who, sum", "1001"),
        ("a.log", "#x\n#fields\twho\tsum\n#types\ta\tb\nA\t1000\nB\t1\n#end\n", "who, sum", "1001"),
        ("a.csv", '"who","the sum"\n"A ""x""","1000"\n"B\nb",1\n', "who, the sum", "1001"),
        ("a.csv", "sum\n1000\n1\n", "sum", "1001"),
        ("a.jsonl", '{"who":"A","sum":1000}\n\n{"sum":1.00}\n', "who, sum", "1001"),
        ("a.jsonl", '{"a":1}\n{"a":2,"sum":1001}\n', "a, sum", "1001"),
        ("a.json", '[\n {"sum": 1000},\n {"sum":\n 1}\n]\n', "sum", "1001"),
    ],
)  # fmt: skip
def test_dialects(
    workspace: Workspace, root: Path, name: str, text: str, columns: str, total: str
) -> None:
    """Delimiter, header, comments, decimals and objects are found out from the text."""
    (root / name).write_text(text)
    last = columns.rpartition(", ")[2]

    assert ask(workspace, "SELECT * FROM t", name)[0] == columns.replace(", ", " | ")
    assert ask(workspace, f'SELECT sum("{last}") FROM t', name)[1:] == [total]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "latin-1"])
def test_encodings(workspace: Workspace, root: Path, encoding: str) -> None:
    """Names of columns and values are found in each."""
    (root / "a.csv").write_bytes("Straße;Zahl\nÄcker;1\nÖl;2\n".encode(encoding))

    assert ask(workspace, "SELECT Zahl FROM t WHERE Straße = 'Öl'", "a.csv")[1] == "2"


def test_packed(workspace: Workspace, root: Path) -> None:
    """A table in a gzip file is read as one."""
    (root / "a.csv.gz").write_bytes(gzip.compress(SALES.encode()))

    assert ask(workspace, "SELECT count(*) FROM a", "a.csv.gz")[1] == "5"


def test_a_quote_that_does_not_end(workspace: Workspace, root: Path) -> None:
    """It counts as a character: no row is swallowed."""
    for many in (3, 500, 100_000):
        (root / "a.csv").write_text("id,text\n" + '1,"open\n' + "2,x\n" * many)

        lines = ask(workspace, "SELECT count(*) FROM t", "a.csv")

        assert lines[1] == f"{many + 1}"
        assert lines[-1] == "[note: quotes are not those of csv; they count as characters]"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "no table: a.csv is empty"),
        ("a.csv", b"\n\n", "no table: a.csv is empty"),
        ("a.csv", b"a,b\n", "no table: a.csv has no rows"),
        ("a.csv", b"a\0b,c\n", "binary file: a.csv"),
        ("a.txt", b"just some words\nand some more\n", "no table: the lines of a.txt have no col"),
        ("a.json", b"[" * 60_000, "no table: a.json has no rows"),
        ("a.json", b"[1, 2]", "no table: a.json has no rows"),
        ("a.csv", b",".join(b"c%d" % n for n in range(501)), "a.csv has more than 500 columns"),
        ("a.csv.gz", b"a,b\n1,2\n", "cannot read a.csv.gz: "),
    ],
)
def test_what_is_no_table(
    workspace: Workspace, root: Path, name: str, content: bytes, message: str
) -> None:
    """It is an error that says so."""
    (root / name).write_bytes(content)

    assert refusal(lambda: ask(workspace, "SELECT 1", name)).startswith(message)


def test_hostile_tables(workspace: Workspace, root: Path) -> None:
    """Long lines, NUL, nested JSON, names with line ends and quotes: bounded, and printable."""
    (root / "a.csv").write_bytes(
        b"id,t\n1," + b"x" * 3_000_000 + b"\n2,y\n" + b"3,z\n" * 5000 + b"4,\0\x1b[2J\n5\n"
    )
    lines = ask(workspace, "SELECT count(*) FROM t", "a.csv")
    assert lines[1] == "5003"
    assert lines[2:] == [
        "[note: 1 rows do not fit the columns]",
        "[cut: 1 very long lines left out]",
    ]
    assert ask(workspace, "SELECT * FROM t WHERE id = 4", "a.csv")[1] == r"4 | \x00\x1b[2J"
    deep = '{"id":1}\n' + '{"a":' * 5000 + "1" + "}" * 5000 + "\n"
    odd = {"id": 2, 'a\n"b': {"c": [1]}, "k": "\ud800"}
    (root / "a.jsonl").write_text(deep + json.dumps(odd) + "\n")
    assert ask(workspace, "SELECT sum(id) FROM t", "a.jsonl")[1] == "3"
    assert ask(workspace, "SELECT * FROM t", "a.jsonl")[0] == r'id | a\n"b | k'
    (root / "b.jsonl").write_text(json.dumps({f"k{n}": n for n in range(3000)}) + "\n")
    assert refusal(lambda: ask(workspace, "SELECT 1", "b.jsonl")).endswith("more than 500 columns")
    (root / "c.csv").write_text("id," + "n" * 1000 + "\n" + "1,2\n")
    assert len(ask(workspace, "SELECT * FROM t", "c.csv")[0]) < 1000


def test_time_and_memory_are_bounded(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endless query ends; of a file that is too large the first rows count, and it is said."""
    (root / "a.csv").write_text("id,n\n" + "".join(f"{n},1\n" for n in range(20_000)))
    endless = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT max(x) FROM r"
    told = "[cut: too large; only the first 2000 rows were read]"
    monkeypatch.setattr(table_module, "MAX_CELLS", 3000)
    assert ask(workspace, "SELECT count(*) FROM t", "a.csv")[1:] == ["2000", told]
    monkeypatch.setattr(table_module, "MAX_SECONDS", 0.3)

    began = time.monotonic()

    assert "it takes more than 0.3 seconds" in refusal(lambda: ask(workspace, endless, "a.csv"))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@given(
    st.lists(
        st.lists(st.text("ab,;|\t\"' \n.", max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_what_csv_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, delimiter: str, rows: list[list[str]]
) -> None:
    """Every cell that the module of Python writes, in quotes, comes back from each delimiter."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["one", "two", "three"], *rows])
    folder = tmp_path_factory.mktemp("table")
    (folder / "t.csv").write_text(out.getvalue())
    expected = [[cell.strip() or None for cell in row] for row in rows if any(row)]

    with Workspace(folder) as workspace, pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_module, "MAX_CELL", 4000)
        if not expected:
            assert "no rows" in refusal(lambda: ask(workspace, "SELECT 1", "t.csv"))
            return
        found = ask(
            workspace, "SELECT json_group_array(json_array(one, two, three)) FROM t", "t.csv"
        )

    assert json.loads(found[1]) == expected


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_figures_are_those_of_other_libraries(
    workspace: Workspace, root: Path, module: str
) -> None:
    """Sums, means, least, largest and counts of groups."""
    library = pytest.importorskip(module, reason=f"{module} is not installed")
    rng = random.Random(7)
    rows = [
        f"{rng.choice('abcdef')},{rng.uniform(-1000, 9999):.2f},{rng.randint(0, 10**6)}"
        for _ in range(5000)
    ]
    (root / "a.csv").write_text("\n".join(["k,x,n", *rows]) + "\n")
    frame = library.read_csv(root / "a.csv")
    if module == "pandas":
        whole = frame.groupby("k").agg({"x": ["sum", "mean", "min", "max"], "n": ["sum", "count"]})
        expected = [[key, *one] for key, one in zip(whole.index, whole.values, strict=True)]
    else:
        x, n = library.col("x"), library.col("n")
        made = [x.sum(), x.mean().alias("m"), x.min().alias("l"), x.max().alias("h")]
        whole = frame.group_by("k").agg(*made, n.sum(), n.count().alias("c")).sort("k")
        expected = [list(row) for row in whole.rows()]

    lines = ask(
        workspace, "SELECT k, sum(x), avg(x), min(x), max(x), sum(n), count(n) FROM t GROUP BY k",
        "a.csv",
    )  # fmt: skip

    assert len(lines) == 7
    for line, row in zip(lines[1:], expected, strict=True):
        key, *figures = line.split(" | ")
        assert key == row[0]
        assert [float(one) for one in figures] == pytest.approx([float(one) for one in row[1:]])


def test_an_open_table_answers_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time limit is that of one query, not of all that are asked of an open table."""
    (tmp_path / "t.csv").write_text("name,n\n" + "".join(f"a{n},{n}\n" for n in range(2000)))
    with closing(open_table(Workspace(tmp_path), "t.csv")) as table:
        assert table.columns == {"name": False, "n": True}
        assert table.answer("SELECT sum(n) FROM t", 400, told=False) == "sum(n)\n1999000"
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
        assert len(table.rows("SELECT a.n FROM t a JOIN t b WHERE b.n < 20")) == 40_000
