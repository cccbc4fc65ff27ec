"""Plain loops: their tools, and what comes of a loop that gives up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from labs.harness.gold import Tree
from labs.harness.plain_loops import LONGEST, Tools, asker, tools_over
from labs.harness.questions import Question, Turn

TWO = Question("q", "value", "en", "pi", (Turn("Which port?"), Turn("And the host?")))


def test_tools(tmp_path: Path) -> None:
    """They list, read and search; what is not there is told."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "a.ini").write_text("[server]\nPort = 22\n")
    (tmp_path / "long.txt").write_text("x" * (LONGEST + 1))
    list_dir, read_file, search = tools_over(tmp_path)

    assert list_dir() == "a.ini\nlong.txt\nnotes/"
    assert list_dir("notes") == "(empty)"
    assert list_dir("none").startswith("error: none:")
    assert read_file("a.ini") == "[server]\nPort = 22\n"
    assert read_file("long.txt").endswith("x\n[the rest is cut off]")
    assert read_file("b.ini").startswith("error: b.ini:")
    assert search("port") == "a.ini:2: Port = 22"
    assert search("host") == "no line has it"


def test_a_loop_is_asked_both_questions(tmp_path: Path) -> None:
    """In one conversation; one that raises has given up, and what it said before is kept."""
    made: list[tuple[str, str]] = []

    def loop(url: str, model: str, tools: Tools) -> Callable[[str], tuple[str, int]]:
        made.append((url, model))

        def ask(text: str) -> tuple[str, int]:
            if model == "lost" and text != "Which port?":
                raise RuntimeError("too many steps")
            return text.upper(), len(tools)

        return ask

    reply = asker(loop, "http://x", "m")(TWO, tmp_path, Tree({}))
    assert (reply.answers, reply.calls) == (["WHICH PORT?", "AND THE HOST?"], 6)
    lost = asker(loop, "http://x", "lost")(TWO, tmp_path, Tree({}))
    assert (lost.status, lost.answers[-1]) == ("limit", "RuntimeError: too many steps")
    assert made == [("http://x", "m"), ("http://x", "lost")]
