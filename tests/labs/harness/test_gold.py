"""`gold`: answers are computed, and refused where the tree does not have the one."""

from __future__ import annotations

import gzip

import pytest

from labs.harness.gold import Found, Line, Tree, Unclear, amount, dated


def tree(**files: str) -> Tree:
    """A tree; ``__`` stands for a dot in names."""
    return Tree({name.replace("__", "."): text.encode() for name, text in files.items()})


LOG = "1 INFO a\n2 FATAL db: down\n3 INFO b\n4 FATAL mail: late\n"


def test_the_only_line_that_matches() -> None:
    """The groups of one line are the answer; two lines or none are refused."""
    log = tree(app__log=LOG)

    assert log.the("app.log", r"FATAL db: (\w+)") == Found(
        (("down",),), (Line("app.log", 2, "2 FATAL db: down"),)
    )
    for regex in ("FATAL", "PANIC"):
        with pytest.raises(Unclear, match="lines of app"):
            log.the("app.log", regex)


def test_first_and_last_know_the_others() -> None:
    """What stands in other such lines must not be told."""
    log = tree(app__log=LOG)

    assert log.first("app.log", r"FATAL (\w+: \w+)").need == (("db: down",),)
    assert log.first("app.log", r"FATAL (\w+: \w+)").none == ("mail: late",)
    assert log.last("app.log", r"FATAL (\w+: \w+)").first == "mail: late"


def test_a_key_of_one_section() -> None:
    """The same key of other sections is the near miss."""
    found = tree(a__ini="[x]\nport = 1\n[y]\nport = 2\n").under("a.ini", "y", r"port = (\d)")

    assert found.need == (("2",),)
    assert found.none == ("1",)
    assert found.lines == (Line("a.ini", 4, "port = 2"),)


def test_a_key_of_one_file() -> None:
    """The same key of other files, with another value, is one too."""
    found = tree(a__ini="port = 1\n", b__ini="port = 2\n", c__ini="port = 1").key(
        "a.ini", r"port = (\d)"
    )

    assert found.first == "1"
    assert found.none == ("2",)


def test_lines_by_number() -> None:
    """From the front and from the end; one that stands twice cannot be asked for."""
    log = tree(app__log=LOG + "the same\nthe same\n")

    assert log.line("app.log", 2).first == "2 FATAL db: down"
    assert log.line("app.log", -3).lines == (Line("app.log", 4, "4 FATAL mail: late"),)
    with pytest.raises(Unclear, match="cannot be told"):
        log.line("app.log", -1)


def test_counts_and_groups() -> None:
    """A tie has no most frequent; runners-up are near misses."""
    log = tree(app__log=LOG)

    assert log.count("*.log", "FATAL").need == (("#2",),)
    assert log.count("app.log").need == (("#4",),)
    with pytest.raises(Unclear, match="no most frequent"):
        log.most("app.log", r"\d (\w+) ")
    found = tree(x="a\na\nb\n").most("x", "(.)")
    assert (found.first, found.none) == ("a", ("b",))


TABLE = "name,city,eur\nAnn,Ulm,10.50\nBob,Ulm,2\nCy,Bonn,7\n"


def test_tables() -> None:
    """Sums, extremes, cells and groups, with the line of the row."""
    table = tree(t__csv=TABLE)

    assert table.total("t.csv", "eur", "sum").need == (("#19.5",),)
    assert table.total("t.csv", "eur", "mean", lambda r: r["city"] == "Ulm").need == (("#6.25",),)
    assert table.cell("t.csv", "city", lambda r: r["name"] == "Cy").lines[0].number == 4
    assert table.extreme("t.csv", "eur", "max", "name").first == "Ann"
    assert table.group("t.csv", "city").first == "Ulm"
    assert table.group("t.csv", "city", "eur").first == "Ulm"
    assert table.number_of_rows("t.csv").need == (("#3",),)


def test_forms_of_tables() -> None:
    """Semicolons, tabs, JSON lines, JSON lists and Zeek's logs are read alike."""
    zeek = "#separator \\x09\n#fields\tname\teur\n#types\tstring\tint\nAnn\t3\n#close\tx\n"
    forms = tree(
        a="name;eur\nAnn;1.003,50\n",
        b="name\teur\nAnn\t3\n",
        c='{"name": "Ann", "eur": 3}\n',
        d='[\n{"name": "Ann", "eur": 3}\n]\n',
        e=zeek,
    )

    assert forms.cell("a", "eur", lambda r: r["name"] == "Ann").first == "#1003.50"
    for path in "bcde":
        assert forms.rows(path) == [{"name": "Ann", "eur": "3"}]
    assert forms.cell("e", "eur", lambda r: True).lines[0].number == 4
    assert [amount(one) for one in ("1,234.5", "1.234,50", "-3", "1e3")] == [
        1234.5,
        1234.5,
        -3,
        1e3,
    ]


SOURCE = "class A:\n    def go(self, n=3, *, mode='x'):\n        ...\n    def stop(self): ...\n"


def test_sources() -> None:
    """Defaults by position and keyword, the place of a definition, the methods of a class."""
    source = tree(a__py=SOURCE, b__py="def go(n=4): ...\n")

    assert source.default("a.py", "A.go", "n").first == "3"
    assert source.default("a.py", "A.go", "mode").first == "x"
    assert source.default("b.py", "go", "n").first == "4"
    assert source.methods("a.py", "A").need == (("go",), ("stop",))
    assert source.defined("stop").first == "a.py"
    with pytest.raises(Unclear, match="defined 2 times"):
        source.defined("go")


def test_files_are_named_by_what_is_theirs() -> None:
    """A name that two files have is no answer without its folder."""
    files = Tree({"a/x.conf": b"port\n", "b/x.conf": b"none\n", "b/y.conf": b"user\n"})

    assert files.files_with("port").need == (("a/x.conf",),)
    assert files.files_with("user").need == (("b/y.conf", "y.conf"),)
    assert files.names("b/*").need == (("x.conf", "b/x.conf", "x"), ("y.conf", "b/y.conf", "y"))


def test_absence_is_proved() -> None:
    """In names and in all text, packed files included; of one file where that is meant."""
    files = Tree({"a.log": b"port 1\n", "b.log.gz": gzip.compress(b"Redis is down\n")})

    assert files.absent(r"mysql|\bmaria").note == "Not found in any file: mysql, maria."
    assert files.absent("redis", path="a.log").note == "Not found in a.log: redis."
    assert files.no_file("c.log") == Found((), note="There is no file c.log in this folder.")
    for made in (lambda: files.absent("redis"), lambda: files.absent("A.LOG")):
        with pytest.raises(Unclear, match="is there"):
            made()
    with pytest.raises(Unclear, match="is there"):
        files.no_file("a.log")


def test_a_date_is_marked_as_one() -> None:
    """So that it may be told in any form."""
    assert dated(Found((("2026/3/9",),))).first == "@2026-03-09"
