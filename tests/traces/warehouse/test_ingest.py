"""Traces into a warehouse: each once, whatever a file holds, and again when it has grown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.many_traces import PHASES, write, write_many
from helpers.pages import names, read, section, table_of

from triplepoint.errors import TraceError
from triplepoint.traces import Trace, export_tables, tables
from triplepoint.traces.warehouse.ingest import Summary, find, ingest
from triplepoint.traces.warehouse.reading import Warehouse, is_warehouse
from triplepoint.traces.warehouse.schema import COLUMNS, CONTENT, USABLE, error_kind
from triplepoint.traces.warehouse.store import Store, connect, database_of

pytest.importorskip("duckdb", reason="duckdb is not installed")

ROOT = Path(__file__).parents[3]
COUNT = 22
FORMS = ("traces.duckdb", "parquet")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some synthetic traces."""
    folder = tmp_path_factory.mktemp("many")
    write_many(folder, COUNT)
    return folder


@pytest.fixture(params=FORMS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where to: a database, or a folder of Parquet files."""
    return tmp_path / str(request.param)


def asked(target: Path, sql: str) -> list[tuple]:
    with Warehouse(target) as opened:
        return opened.ask(sql)[1]


def everything(target: Path) -> dict[str, list[tuple]]:
    """All rows of all tables but the times of ingests."""
    with Warehouse(target) as opened:
        return {
            table: sorted(
                opened.ask(
                    f'SELECT * {"EXCLUDE (ingested_s)" if table == "files" else ""} FROM "{table}"'
                )[1],
                key=repr,
            )
            for table in COLUMNS
        }


def test_synthetic_traces_are_traces(many: Path) -> None:
    """The project's own reader takes what the generator writes, and finds what it should hold."""
    traces = [Trace.load(path) for path in find([str(many)])]

    assert [len(trace.phases) for trace in traces] == [PHASES] * len(traces)
    assert {trace.end.status if trace.end else None for trace in traces} > {"answered", None}
    assert not [trace for trace in traces if trace.torn]


def test_a_table_is_that_of_the_traces(many: Path, target: Path) -> None:
    """Each row is what `trace query` over the files would show, without content and token ids."""
    done = ingest([str(many)], target, jobs=1)

    assert (done.files, done.new, done.problems) == (COUNT, COUNT, [])
    traces = [Trace.load(path) for path in find([str(many)])]
    with Warehouse(target) as opened:
        for table, columns in tables.COLUMNS.items():
            names = [name for name in columns if name not in CONTENT.get(table, ())]
            shown = ", ".join(f'"{name}"' for name in names)
            found = opened.ask(f'SELECT {shown} FROM "{table}"')[1]
            expected = [tuple(row[n] for n in names) for row in tables.rows(traces, table)]
            assert sorted(found, key=repr) == sorted(expected, key=repr), table
        for table, hidden in CONTENT.items():
            for column in hidden:
                assert opened.ask(f'SELECT count("{column}") FROM "{table}"')[1] == [(0,)]
        assert opened.ask("SELECT count(token_ids) FROM phases")[1] == [(0,)]


@pytest.mark.slow
def test_texts_and_tokens_are_asked_for(many: Path, target: Path) -> None:
    """Asked for later, they are read again; a later ingest without them keeps them."""
    sources = [str(path) for path in find([str(many)])[:3]]
    ingest(sources, target)
    done = ingest(sources, target, texts=True, tokens=True)
    assert (done.replaced, done.unchanged) == (3, 0)
    assert ingest(sources, target).unchanged == 3

    traces = [Trace.load(path) for path in sources]
    found = asked(target, "SELECT token_ids FROM phases ORDER BY file, number")
    assert [row[0] for row in found] == [p.token_ids for t in traces for p in t.phases]
    found = asked(target, "SELECT result FROM tools ORDER BY file, number")
    assert [row[0] for row in found] == [tool.result for t in traces for tool in t.tools]


@pytest.mark.slow
def test_unchanged_is_skipped_and_grown_is_replaced(many: Path, target: Path) -> None:
    """What is there is not read again; what grew is there once, as a fresh ingest has it."""
    folder = target.parent / "growing"
    shutil.copytree(many, folder)
    ingest([str(folder)], target)
    again = ingest([str(folder)], target)
    assert (again.new, again.replaced, again.unchanged, again.rows) == (0, 0, COUNT, 0)

    grown = find([str(folder)])[7]
    write(Path(grown), 7, turns=2)  # the same run goes on
    write_many(folder, COUNT + 2)
    done = ingest([str(folder)], target)

    assert (done.new, done.replaced, done.unchanged) == (2, 1, COUNT - 1)
    fresh = target.with_name(f"fresh-{target.name}")
    ingest([str(folder)], fresh)
    assert everything(target) == everything(fresh)
    rows = asked(target, f"SELECT count(*) FROM phases WHERE file = '{os.path.realpath(grown)}'")
    assert rows == [(PHASES + 12,)]


@pytest.mark.slow
def test_a_copy_of_what_a_trace_was_counts(tmp_path: Path, target: Path) -> None:
    """The original changes: then copies, new and known, are traces, as a fresh ingest has it."""
    folder = tmp_path / "copies"
    folder.mkdir()
    original, after = folder / "m.jsonl", folder / "z-copy.jsonl"
    write(original, 1)
    shutil.copy(original, after)
    ingest([str(folder)], target)
    assert asked(target, "SELECT status FROM files ORDER BY file") == [("ok",), ("duplicate",)]

    shutil.copy(original, folder / "a-copy.jsonl")
    original.unlink()
    write(original, 2)
    ingest([str(folder)], target)
    fresh = target.with_name(f"fresh-{target.name}")
    ingest([str(folder)], fresh)

    assert everything(target) == everything(fresh)
    assert asked(target, "SELECT status FROM files ORDER BY file") == [
        ("ok",),
        ("ok",),
        ("duplicate",),
    ]


def test_a_copy_of_what_is_gone_counts(tmp_path: Path, target: Path) -> None:
    """The original is deleted: of its copies, which have not changed, one takes its place."""
    for name in ("a", "b", "c"):
        write(tmp_path / f"{name}.jsonl", 1)
    ingest([str(tmp_path)], target)
    (tmp_path / "a.jsonl").unlink()

    for _ in range(2):
        done = ingest([str(tmp_path)], target)
        found = asked(target, "SELECT file, status, problem FROM files ORDER BY file")
        assert [(Path(name).name, status) for name, status, _ in found] == [
            ("b.jsonl", "ok"),
            ("c.jsonl", "duplicate"),
        ]
        assert found[1][2] == f"the same as {found[0][0]}"
        assert done.left_out == 1
    assert asked(target, "SELECT count(*) FROM runs") == [(1,)]


def test_a_problem_does_not_repeat_the_name(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the folder is given as it is where one stands."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "foreign.jsonl").write_text("no trace\n")
    monkeypatch.chdir(tmp_path / "here")
    (record,) = ingest(["."], target).problems
    assert record.problem == "is not a trace: its first line is not a complete JSON object"


def test_a_folder_whose_name_is_a_pattern(many: Path, tmp_path: Path) -> None:
    """Brackets in the paths of traces, tables and their copies mean nothing."""
    folder, target = tmp_path / "some[1]", tmp_path / "to[ab]*"
    shutil.copytree(many, folder)
    ingest([str(many)], tmp_path / "toa_")  # which the pattern would mean
    for turns in (1, 2):
        write(Path(find([str(folder)])[3]), 3, turns=turns)
        ingest([str(folder)], target)
    assert asked(target, "SELECT count(DISTINCT file) FROM phases") == [(COUNT,)]


def broken(folder: Path, whole: Path) -> dict[str, str]:
    """Files that are no whole traces, and what is to be said of each."""
    text = whole.read_text()
    lines = text.splitlines(keepends=True)
    old = json.dumps({**json.loads(lines[0]), "v": 1}) + "\n"
    later = json.dumps({**json.loads(lines[-1]), "v": 3, "event": "summary"}) + "\n"
    huge = json.loads(next(line for line in lines if '"event":"phase"' in line))
    huge["kv_after"] = 10**30
    files = {
        "torn.jsonl": ("torn", text[: len(text) // 2]),
        "corrupt.jsonl": ("corrupt", lines[0] + "}{\n" + "".join(lines[1:])),
        "wrong.jsonl": ("corrupt", lines[0] + '{"v":2,"event":"phase","phase":7}\n'),
        "foreign.jsonl": ("foreign", '{"question": "a row of something else"}\n' * 3),
        "words.jsonl": ("foreign", "no JSON at all\n" * 3),
        "number.jsonl": ("foreign", "17\n"),
        "old.jsonl": ("old", old + "".join(lines[1:])),
        "newer.jsonl": ("newer", text + later),
        "empty.jsonl": ("empty", ""),
        "huge.jsonl": ("unreadable", lines[0] + json.dumps(huge) + "\n"),
        "copy.jsonl": ("duplicate", text),
        "it's\n\x1b[2J.jsonl": ("foreign", "\x00\x01"),
    }
    for name, (_, body) in files.items():
        (folder / name).write_text(body)
    (folder / "gone.jsonl").symlink_to("nowhere.jsonl")
    os.mkfifo(folder / "pipe.jsonl")
    bad = {"gone.jsonl": "unreadable", "pipe.jsonl": "unreadable"}
    return bad | {name: status for name, (status, _) in files.items()}


@pytest.mark.slow
def test_what_is_no_whole_trace_is_named(tmp_path: Path, target: Path) -> None:
    """Nothing is fatal and nothing disappears; it is told again by the next ingest."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    write(folder / "a-whole.jsonl", 3)
    expected = broken(folder, folder / "a-whole.jsonl")

    for number in range(2):
        done = ingest([str(folder)], target)
        told = {Path(r.file).name: r.status for r in done.problems}
        assert {n for n in expected if n.isprintable()} <= {*told, "gone.jsonl"}
        assert sorted(told.values()) == sorted(expected.values())
        assert all(told.get(name, status) == status for name, status in expected.items())
        assert all(record.problem for record in done.problems)
        usable = sum(status in USABLE for status in expected.values()) + 1
        assert (done.new, done.unchanged) == ((usable, 0) if number == 0 else (0, usable))
    rows = asked(target, "SELECT count(*), count(DISTINCT file) FROM runs")
    assert rows == [(3, 3)]
    statuses = asked(target, "SELECT status, count(*) FROM files GROUP BY status")
    assert dict(statuses)["ok"] == 1


@pytest.mark.slow
def test_a_moved_trace_is_counted_once(tmp_path: Path, target: Path) -> None:
    """The folder has another name now: the rows follow."""
    write_many(tmp_path / "before", 3)
    ingest([str(tmp_path / "before")], target)
    (tmp_path / "before").rename(tmp_path / "after")

    done = ingest([str(tmp_path / "after")], target)

    assert (done.new, done.left_out) == (3, 0)
    assert asked(target, "SELECT count(*), bool_and(file LIKE '%/after/%') FROM runs") == [
        (3, True)
    ]
    assert asked(target, "SELECT count(*) FROM files") == [(3,)]


def test_the_library_ingests(target: Path) -> None:
    """The recorded runs of the examples, by a pattern."""
    if not (ROOT / "examples").exists():
        pytest.skip("the examples are not installed")
    done = ingest([str(ROOT / "examples" / "r*" / "*.jsonl")], target)

    assert done.new == len(list((ROOT / "examples" / "runs").glob("*.jsonl"))) > 3
    assert done.problems == []


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    """A word that means nothing is an error, a folder without traces too; each file counts once."""
    for word in ("nothing", str(tmp_path / "*.jsonl"), str(tmp_path)):
        with pytest.raises(TraceError, match="no trace"):
            find([word])
    write(tmp_path / "a.jsonl", 1)
    (tmp_path / "b.jsonl").symlink_to("a.jsonl")
    (tmp_path / "[x].jsonl").write_text("")
    words = [str(tmp_path), str(tmp_path / "a.jsonl"), str(tmp_path / "*.jsonl")]
    assert len(find(words)) == 2
    assert find([str(tmp_path / "[x].jsonl")]) == [str(tmp_path / "[x].jsonl")]


def test_a_target_that_is_something_else(tmp_path: Path, many: Path) -> None:
    """Nothing of another program is written to."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "wrong.duckdb").write_text("mine" * 5000)
    with export_tables.need_duckdb().connect(str(tmp_path / "other.duckdb")) as other:
        other.execute("CREATE TABLE mine (a INTEGER)")
    for name in ("notes", "file", "wrong.duckdb", "other.duckdb", "no/folder/x.duckdb"):
        with pytest.raises(TraceError, match=name):
            ingest([str(many)], tmp_path / name)
        with pytest.raises(TraceError, match=name):
            Warehouse(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list((tmp_path / "notes").iterdir())) == 1


def copied(folder: Path) -> list[tuple]:
    """What any reader of Parquet finds in a folder."""
    sql = "SELECT count(*), count(DISTINCT file) FROM read_parquet(?)"
    with export_tables.need_duckdb().connect() as reader:
        return reader.execute(sql, [str(folder / "phases" / "*.parquet")]).fetchall()


def test_a_folder_has_parquet(tmp_path: Path, many: Path) -> None:
    """The copies are those of the tables, also after an ingest that was killed before it."""
    target = tmp_path / "parquet"
    sources = [str(path) for path in find([str(many)])]
    ingest(sources[:5], target)
    assert copied(target) == [(5 * PHASES, 5)]
    stamp = (target / "phases" / "part-000001.parquet").stat().st_mtime_ns
    ingest(sources[:5], target)
    assert (target / "phases" / "part-000001.parquet").stat().st_mtime_ns == stamp

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "copy_tables", lambda _: None)
        ingest(sources, target)
    assert copied(target) == [(5 * PHASES, 5)]
    ingest(sources, target)
    assert copied(target) == [(COUNT * PHASES, COUNT)]
    shutil.rmtree(target)
    target.mkdir()
    ingest(sources[:1], target)
    assert copied(target) == [(PHASES, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_killed_ingest_leaves_whole_traces(tmp_path: Path, many: Path, form: str) -> None:
    """What a killed one wrote is whole, and the next one makes it what a fresh one would be."""
    script = (
        "import sys, triplepoint.traces.warehouse.ingest as i\n"
        "i._BATCH_FILES = 2\n"
        "i.ingest([sys.argv[1]], sys.argv[2], jobs=1)\n"
    )
    target, fresh = tmp_path / form, tmp_path / f"fresh-{form}"
    for wait in (0.2, 0.3):
        child = subprocess.Popen([sys.executable, "-c", script, str(many), str(target)])
        end = time.monotonic() + 20
        while not target.exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(wait)
        child.kill()
        child.wait()
    done = ingest([str(many)], target)
    ingest([str(many)], fresh)

    assert isinstance(done, Summary)
    assert everything(target) == everything(fresh)


@pytest.mark.slow
def test_columns_that_an_older_version_lacked(many: Path, target: Path) -> None:
    """They are empty for what is there, and have values for what comes."""
    first, second = find([str(many)])[:2]
    ingest([first], target)
    with export_tables.need_duckdb().connect(str(database_of(target))) as made:
        made.execute("ALTER TABLE phases DROP COLUMN reread_tokens")
    with pytest.raises(TraceError, match="ingest into it again"):
        Warehouse(target)
    ingest([second], target)

    sql = "SELECT count(*), count(reread_tokens) FROM phases"
    assert asked(target, sql) == [(2 * PHASES, PHASES)]


@pytest.mark.slow
def test_a_query_writes_nothing(many: Path, target: Path) -> None:
    """Only one SELECT, over the tables alone."""
    ingest([str(find([str(many)])[0])], target)
    before = everything(target)
    evil = [
        *("DELETE FROM files", "DROP TABLE files", "SELECT 1; SELECT 2", "", "nonsense"),
        *("SELECT * FROM read_csv('/etc/passwd')", "COPY files TO '/tmp/x.csv'"),
        *("SET enable_external_access = true", "ATTACH '/tmp/other.db'", "INSTALL httpfs"),
        f"COPY files TO '{target}/files/part-000001.parquet'",
    ]
    with Warehouse(target) as opened:
        for sql in evil:
            with pytest.raises(TraceError, match="the query failed"):
                opened.ask(sql)
    assert everything(target) == before


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("no such file: secret/app.log", "no such file"),
        ("read_file: missing argument 'path'", "missing argument …"),
        ("end=3 is before start=9", "… is before …"),
        ("no such text in config/a.ini; the nearest is x", "no such text in …"),
        ("the policy denies 'rm -rf /': rule 2", "the policy denies …"),
        ("[redacted: 12 characters]", "[redacted]"),
        ("", None),
        (None, None),
    ],
)
def test_kinds_of_errors(text: str | None, kind: str | None) -> None:
    """Errors that differ in names and numbers are of one kind."""
    assert error_kind(text, "read_file") == kind


@pytest.mark.slow
def test_many_processes_read(many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes give what one does."""
    from triplepoint.traces.warehouse import ingest as module

    ingest([str(many)], tmp_path / "one.duckdb", jobs=1)
    monkeypatch.setattr(module, "_ALONE", 5)
    ingest([str(many)], tmp_path / "two.duckdb", jobs=2)

    assert everything(tmp_path / "one.duckdb") == everything(tmp_path / "two.duckdb")


@pytest.mark.parametrize("table", COLUMNS)
def test_the_tables_are_documented(table: str) -> None:
    """docs/analysis.md names every column of every table once."""
    page = read("docs/analysis.md").partition("\n## Tables\n")[2]
    rows = table_of(section(page, table), "columns")
    named = [name for row in rows for name in names(row[0])]

    assert sorted(named) == sorted(COLUMNS[table])


def test_a_full_disk_leaves_no_database(tmp_path: Path) -> None:
    """Duckdb makes the file before it writes it, and would refuse the empty one the next time."""
    target = tmp_path / "all.duckdb"
    code = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9, 9))
from triplepoint.errors import TraceError
from triplepoint.traces.warehouse.store import connect
try:
    connect({str(target)!r})
except TraceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert done.stdout.startswith(f"cannot open {target}: ")
    assert not target.exists()
    connect(target).close()


def test_a_name_that_is_no_folders(tmp_path: Path) -> None:
    """Who writes `-o traces.sqlite` wants no folder of that name; who has one may go on with it."""
    with pytest.raises(TraceError, match="or called as one; name a folder"):
        Store(tmp_path / "traces.sqlite")
    (tmp_path / "old.csv").mkdir()
    for name in ("old.csv", "traces.v2"):
        Store(tmp_path / name).close()
        assert is_warehouse(tmp_path / name)
