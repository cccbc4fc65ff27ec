"""Rows from files: what is read, what is passed through, what is refused and where."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from triplepoint import RowError
from triplepoint.runtime.fleet.rows import Row, folder_rows, make_rows, read_rows


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_json_lines_keep_what_they_do_not_know(tmp_path: Path) -> None:
    """Known fields are read, blank lines skipped, others passed through in their order."""
    schema = '{"type": "object"}'
    lines = (
        f'{{"z": [1], "question": "a", "dir": "d", "schema": {schema}, "tools": "exec,find"}}\n\n'
        '{"question": "b", "model": "m", "id": 7, "note": null}\n'
    )
    one, two = read_rows(write(tmp_path / "q.jsonl", lines))

    assert (one.number, one.question, one.dir, one.tools) == (0, "a", "d", ("find", "exec"))
    assert one.schema == {"type": "object"}
    assert list(one.fields) == ["z", "question", "dir", "schema", "tools"]
    assert (two.model, two.fields) == ("m", {"question": "b", "model": "m", "id": 7})


def test_a_key_is_what_a_row_says(tmp_path: Path) -> None:
    """The order of fields and of rows does not change it; equal rows are told apart."""
    a, b, again, other = make_rows(
        ("", {"question": "q", "n": n, "m": 2} if n else {"m": 2, "n": 1, "question": "q"})
        for n in (1, 0, 1, 3)
    )

    assert a.key == b.key.partition("-")[0] == again.key.partition("-")[0]
    assert len({a.key, b.key, again.key, other.key}) == 4
    assert [row.key for row in make_rows([("", again.fields)])] == [a.key]


def test_csv_and_a_template(tmp_path: Path) -> None:
    """Cells are texts, empty ones are not there; a template makes the questions of them."""
    path = write(tmp_path / "q.csv", '\ufeffname,dir,year\n"a, b",x,2020\nc,,\n')
    one, two = read_rows(path, "What of {{{name}}}?")

    assert (one.question, one.dir, one.fields["year"]) == ("What of {a, b}?", "x", "2020")
    assert (two.question, two.dir, "year" in two.fields) == ("What of {c}?", None, False)


def test_a_long_cell(tmp_path: Path) -> None:
    """A document in a cell is read; the limit of other users of `csv` is as it was."""
    limit = csv.field_size_limit()
    (row,) = read_rows(write(tmp_path / "q.csv", f"question,text\na,{'x' * 200_000}\n"))

    assert len(row.fields["text"]) == 200_000
    assert csv.field_size_limit() == limit


def test_a_schema_is_as_json_has_it() -> None:
    """What its own types become in a result is what an agent gets, and rows alike are found."""
    (row,) = make_rows([("", {"question": "q", "schema": {"enum": {1: "a", "b": 2}}})])

    assert row.schema == {"enum": {"1": "a", "b": 2}}
    assert row.affinity


def test_a_schema_in_a_file_counts_by_its_content(tmp_path: Path) -> None:
    """The row is another one once the file says something else, and the same as with the object;
    the result keeps what was given."""
    path = tmp_path / "s.json"

    def row(schema: Any) -> Row:
        return make_rows([("", {"question": "q", "schema": schema})])[0]

    path.write_text('{"enum": ["a"]}')
    before = row(str(path))
    assert before.key == row({"enum": ["a"]}).key
    assert before.fields["schema"] == str(path)
    path.write_text('{"enum": ["b"]}')
    assert row(str(path)).key != before.key


def test_parquet(tmp_path: Path) -> None:
    """Parquet is read by duckdb; its own types become JSON."""
    duckdb = pytest.importorskip("duckdb", reason="the analysis extra is not installed")
    path = tmp_path / "q[1].parquet"
    duckdb.sql("SELECT 'of another file' AS question").write_parquet(str(tmp_path / "q1.parquet"))
    duckdb.sql(
        "SELECT 'q' || i AS question, DATE '2026-01-02' AS day, i FROM range(3) t(i)"
    ).write_parquet(str(path))
    rows = read_rows(path)

    assert [row.question for row in rows] == ["q0", "q1", "q2"]
    assert rows[2].fields == {"question": "q2", "day": "2026-01-02", "i": 2}
    with pytest.raises(RowError, match="not Parquet"):
        read_rows(write(tmp_path / "bad.parquet", "x"))


def test_folders(tmp_path: Path) -> None:
    """A row for each folder, in order; files and hidden folders are none."""
    for name in ("b", "a", ".git"):
        (tmp_path / name).mkdir()
    write(tmp_path / "file", "")
    rows = folder_rows(tmp_path, "Why did {name} fail?")

    assert [row.question for row in rows] == ["Why did a fail?", "Why did b fail?"]
    assert rows[0].dir == str(tmp_path / "a")
    with pytest.raises(RowError, match="no folders"):
        folder_rows(tmp_path / "a", "x")


def test_affinity() -> None:
    """Rows of a folder are alike whatever they ask; those without one by how they begin."""
    same = make_rows([("", {"question": q, "dir": "d"}) for q in "ab"])
    text = "x" * 300
    long = make_rows([("", {"question": text + q}) for q in "ab"])
    short = make_rows([("", {"question": q}) for q in "ab"])

    assert len({row.affinity for row in same}) == len({row.affinity for row in long}) == 1
    assert len({row.affinity for row in short}) == 2


BAD: dict[str, tuple[Any, str]] = {
    "no question": ({"dir": "d"}, "the row has no question; give one"),
    "a number": ({"question": 3}, "it must be a string"),
    "blank": ({"question": " "}, "the row has no question"),
    "a name of ours": ({"question": "q", "answer": "x"}, "'answer': results have one"),
    "a folder": ({"question": "q", "dir": 3}, "dir must be a string"),
    "a schema": ({"question": "q", "schema": [1]}, "schema must be"),
    "no schema": ({"question": "q", "schema": "missing.json"}, "cannot read the schema"),
    "a deep schema": ({"question": "q", "schema": '{"a":' * 100_000}, "cannot read the schema"),
    "a schema without end": ({"question": "q", "schema": "/dev/zero"}, "cannot read the schema"),
    "a tool": ({"question": "q", "tools": ["hammer"]}, "tools must be a list of find, edit"),
    "an id": ({"question": "q", "id": [1]}, "id must be"),
    "no id": ({"question": "q", "id": False}, "id must be"),
    "half a character": ({"question": "\ud800"}, "cannot be written as JSON"),
    "no number": ({"question": "q", "x": float("inf")}, "the field 'x' cannot be written as JSON"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_asked_is_refused_with_its_line(name: str) -> None:
    """The message has the place and the reason."""
    fields, why = BAD[name]
    with pytest.raises(RowError, match=f"^q.jsonl, line 4: .*{why}"):
        make_rows([("q.jsonl, line 4", fields)])


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("q.jsonl", '{"question": "a"}\n{oops\n', "q.jsonl, line 2: not JSON"),
        ("q.jsonl", '{"question": "a"}\n[1]\n', "q.jsonl, line 2: not a JSON object"),
        ("q.jsonl", '{"question": "a", "id": 1}\n\n{"question": "b", "id": 1}', "line 3: the id 1"),
        ("q.jsonl", "\n", "has no rows"),
        ("q.csv", "question\na,b\n", "line 2: it has more cells"),
        ("q.csv", "question,note,note\na,b,c\n", "two columns are called 'note'"),
        ("q.csv", b"question\nfine\n\xff\n", "q.csv, line 3: not UTF-8: invalid start byte"),
    ],
)
def test_a_file_with_a_bad_line_is_refused(
    name: str, text: str | bytes, why: str, tmp_path: Path
) -> None:
    """Nothing is asked of a file that is wrong somewhere."""
    with pytest.raises(RowError, match=why):
        read_rows(write(tmp_path / name, text))


def test_a_template_names_what_it_lacks() -> None:
    """And which fields there are."""
    with pytest.raises(RowError, match=r"line 1: the question needs the field 'nam'; .* name"):
        make_rows([("line 1", {"name": "x"})], "{nam}")


def test_a_folder_is_not_a_file_of_rows(tmp_path: Path) -> None:
    """The error names the option that makes rows of folders."""
    with pytest.raises(RowError, match=r"is a folder.*use --dir-from and --question"):
        read_rows(tmp_path)
