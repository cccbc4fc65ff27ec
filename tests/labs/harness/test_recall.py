"""Whether gold lines stand in an evidence."""

from __future__ import annotations

from labs.harness.gold import Line as Gold
from labs.harness.questions import Question, Turn
from labs.harness.recall import Row, is_shown, report
from triplepoint.runtime.evidence import Call, Evidence, Line

EVIDENCE = Evidence(
    calls=(
        Call("list_dir", {"path": "logs"}, "app.log\nold/"),
        Call("read_file", {"path": "a.ini", "lines": "2,12"}, "2\tport = 22\n12\thost = x\n[cut]"),
        Call("search", {"pattern": "x", "path": ".", "ranked": True}, "b.ini:3:smtp = mail"),
    ),
    best=(Line("c.ini", 7, "user = ann"),),
)


def test_is_shown() -> None:
    """By file, number and text: in a read, in a search, among the best lines, in a listing."""
    for line in (
        Gold("a.ini", 2, "port = 22"), Gold("b.ini", 3, "smtp"), Gold("c.ini", 7, "ann"),
        Gold("logs/app.log", 0, ""),
    ):  # fmt: skip
        assert is_shown(line, EVIDENCE), line
    for line in (
        Gold("a.ini", 1, "port = 22"), Gold("b.ini", 2, "port = 22"), Gold("a.ini", 2, "port = 23"),
        Gold("b.ini", 30, "smtp"), Gold("c.ini", 8, "ann"), Gold("app.log", 0, ""),
    ):  # fmt: skip
        assert not is_shown(line, EVIDENCE), line


def row(found: int, note: str = "", kind: str = "value") -> Row:
    turn = Turn("?", lines=(Gold("a", 1, "x"), Gold("a", 2, "y")), note=note)
    question = Question("id", kind, "en", "etc", (turn,))  # type: ignore[arg-type]
    return Row(question, turn, 2, found, 100, (0.2, 0.1), (0.02, 0.01), True)


def test_report() -> None:
    """All gold lines have to stand there; counts over many lines are told apart."""
    assert row(2, "312 lines of a match /x/").many
    assert row(2, "/x/ in a by number: GET 400, POST 3").many
    assert not row(2, "18 lines of a match /x/").many
    lines = report([row(2), row(1), row(2), row(0, "312 lines of a match /x/")])
    assert lines[1].split()[:3] == ["all", "3", "66.7%"]
    assert next(line for line in lines if line.startswith("over 20")).split()[3:5] == ["1", "0.0%"]
    assert "index warm: median 20.0 ms" in "\n".join(lines)
