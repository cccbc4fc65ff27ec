"""`runner`: rows that survive, questions that are not asked twice, and the figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labs.harness import runner
from labs.harness.gold import Tree
from labs.harness.questions import Question, frozen
from labs.harness.runner import Reply, Row, ask_all, is_call, read, report
from triplepoint.errors import ContextOverflowError, EngineError

PI = [one for one in frozen() if one.tree == "pi" and one.kind == "value"]


def _silent(_: str) -> None:
    """For the lines of a run."""


class Scripted:
    """An asker that answers everything in one way, and counts."""

    def __init__(self, *answers: str, raises: Exception | None = None) -> None:
        self.answers, self.raises, self.asked = list(answers), raises, 0

    def __call__(self, question: Question, folder: Path, tree: Tree) -> Reply:
        self.asked += 1
        assert folder.name == question.tree
        assert sorted(tree.files) == sorted(p.name for p in folder.iterdir())
        if self.raises is not None:
            raise self.raises
        return Reply(self.answers, calls=2, prefilled=100, generated=10)


def test_rows_are_kept_and_not_asked_again(tmp_path: Path) -> None:
    """Who comes back asks what is missing; a torn line counts as missing."""
    out = tmp_path / "rows.jsonl"
    first, second = Scripted("1884"), Scripted("1884")

    ask_all("scripted", "m", first, PI[:2], tmp_path, out, _silent)
    out.write_text(out.read_text() + '{"by": "scri')
    rows = ask_all("scripted", "m", second, PI, tmp_path, out, _silent)

    assert (first.asked, second.asked) == (2, len(PI) - 2)
    assert [row.id for row in rows] == [one.id for one in PI]
    assert read(out) == rows


def test_another_model_or_asker_asks_for_itself(tmp_path: Path) -> None:
    """Rows of others in the same file do not count."""
    out, asker = tmp_path / "rows.jsonl", Scripted("1884")

    for name, model in (("a", "m"), ("a", "n"), ("b", "m"), ("a", "m")):
        ask_all(name, model, asker, PI[:1], tmp_path, out, _silent)

    assert asker.asked == 3


@pytest.mark.parametrize(
    ("raised", "result"),
    [(ContextOverflowError("too long"), "limit"), (EngineError("it is closed"), "error")],
)
def test_what_ends_a_question_early(tmp_path: Path, raised: Exception, result: str) -> None:
    """What does not fit is a limit; what is broken is an error of ours."""
    (row,) = ask_all("s", "m", Scripted(raises=raised), PI[:1], tmp_path, None, _silent)

    assert row.result == result
    assert bool(row.error) == (result == "error")


def test_a_run_that_a_limit_ended_is_not_judged(tmp_path: Path) -> None:
    """Also where what there is of its answer is right."""

    def asker(question: Question, folder: Path, tree: Tree) -> Reply:
        return Reply(["1884", "16", "3"], status="limit")

    (row,) = ask_all("s", "m", asker, PI[:1], tmp_path, None, _silent)
    assert row.result == "limit"


ROW = Row(
    "s", "m", "set", "id", "value", "en", True, False, "right", None, ["x"], 1, 100, 10, 2.0
)  # fmt: skip


def test_figures() -> None:
    """Shares with their interval, by kind and origin; refusals where there is an answer."""
    rows = [
        ROW,
        ROW,
        replace(ROW, result="declined", package=False),
        replace(ROW, result="wrong", kind="absent", unanswerable=True, language="de"),
    ]

    lines = report(rows)
    found = {line[:12].strip(): line[12:].split() for line in lines}

    assert found["all"] == ["4", "50.0%", "15.0%", "85.0%", "25.0%", "25.0%", "0.0%"]
    assert found["absent"][:2] == ["1", "0.0%"]
    assert found["package"][:2] == ["3", "66.7%"]
    assert found["not English"][0] == "1"
    assert "false refusals 1 of 3" in lines[-2]
    assert "4.0 s per right answer" in lines[-1]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('{"name": "search", "arguments": {}}', True),
        ('```json\n{"name": "search", "arguments": {}}\n```', True),
        ('<tool_call>\n{"name": "search"}', True),
        ('The name is {"name": "esbuild"}', False),
        ("It is 8080.", False),
    ],
)
def test_a_call_that_is_shown_as_an_answer(text: str, call: bool) -> None:
    """Only what is nothing but a call."""
    assert is_call(text) == call


def test_the_command_tells_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Kinds that an asker cannot be asked are told with the reason, and nothing is asked."""
    argv = ["nano", "--trees", str(tmp_path), "--kind", "edit"]

    assert runner.command("s", "", lambda _: Scripted("x"), {"edit": "it has no hands"}, argv) == 0

    shown = capsys.readouterr().out
    edits = sum(one.kind == "edit" for one in frozen())
    assert f"{edits} of kind edit are not asked: it has no hands" in shown
    assert "s, nano, set " in shown
