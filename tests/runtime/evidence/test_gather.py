"""Evidence for a question."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.workspaces import write

from triplepoint.errors import ToolError
from triplepoint.runtime.evidence import Evidence, Gatherer
from triplepoint.tools import FileTools, Policy, Rule, Workspace

LOG = "".join(f"10:{n % 60:02} INFO request {n} served\n" for n in range(1, 4001))
FILES = {
    "README.md": "# Shop\nAll about the shop.\n",
    "config/server.ini": "[http]\nport = 8080\n[smtp]\nport = 2525\nhost = mail.example.org\n",
    "logs/app.log": LOG + "11:00 FATAL the disk is full\n" + LOG,
    "names.txt": "".join(f"name {n}\n" for n in range(1, 31)),
}


def count(text: str) -> int:
    return len(text) // 3 + 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "shop", FILES)
    return tmp_path / "shop"


@pytest.fixture
def gatherer(root: Path, tmp_path: Path) -> Iterator[Gatherer]:
    made = Gatherer(Workspace(root), cache=tmp_path / "cache", background=False)
    yield made
    made.close()


def gather(gatherer: Gatherer, question: str, *earlier: str, budget: int = 1500) -> Evidence:
    return gatherer.gather(question, earlier, budget=budget, count=count)


def text(evidence: Evidence) -> str:
    return "\n".join(call.result for call in evidence.calls)


@pytest.mark.parametrize(
    "question",
    ["Which smtp port?", "errors in logs/app.log", "what is line 7 of names.txt", "list names.txt"],
)
@pytest.mark.parametrize("budget", [40, 200, 800, 3000])
def test_within_the_budget(gatherer: Gatherer, question: str, budget: int) -> None:
    """It costs no more than it may, and says what it costs."""
    found = gather(gatherer, question, budget=budget)
    price = sum(
        count(f"{json.dumps(dict(call.arguments))}\n{call.result}") for call in found.calls
    ) + sum(count(f"{one.path}:{one.number}:{one.text}\n") for one in found.best)
    assert found.tokens == price <= budget


def test_results_are_those_of_the_tools(gatherer: Gatherer, root: Path) -> None:
    """Names and whole files stand as the tools tell them."""
    tools = FileTools(root)
    found = gather(gatherer, "Which smtp port is in config/server.ini?")
    calls = {(c.tool, json.dumps(dict(c.arguments))): c.result for c in found.calls}
    assert calls["list_dir", '{"path": "."}'] == tools.list_dir()
    assert calls["read_file", '{"path": "config/server.ini"}'] == tools.read_file(
        "config/server.ini"
    )
    assert found.named == ("config/server.ini",)
    assert (found.best[0].path, found.best[0].number) == ("config/server.ini", 4)
    assert found.needs_files


@pytest.mark.parametrize(
    "question",
    [
        "Which smtp port?",
        "errors in logs/app.log",
        "line 7 of names.txt",
        "what is in logs/",
        "失败",
    ],
)
def test_rerun(gatherer: Gatherer, question: str) -> None:
    """Each call gives the same again, from its arguments and the workspace alone."""
    found = gather(gatherer, question)
    assert found.calls
    for call in found.calls:
        again = json.loads(json.dumps(dict(call.arguments)))
        assert gatherer.rerun(call.tool, again) == call.result


def test_index_and_scan_agree(gatherer: Gatherer, root: Path) -> None:
    """What is found does not depend on whether the index is warm."""
    questions = ("Which smtp port?", "is the disk full", "host of the mail server", "which shop")
    cold = [gather(gatherer, one) for one in questions]
    assert gatherer.warm()
    for one, before in zip(questions, cold, strict=True):
        after = gather(gatherer, one)
        assert [(b.path, b.number) for b in after.best[:2]] == [
            (b.path, b.number) for b in before.best[:2]
        ]


@pytest.mark.parametrize(
    ("question", "number"),
    [("What is line 17 of names.txt?", 17), ("Was steht in Zeile 17 von names.txt?", 17),
     ("names.txt的第17行是什么?", 17), ("the last line of names.txt", 30)],
)  # fmt: skip
def test_a_line_by_number_stands_alone(gatherer: Gatherer, question: str, number: int) -> None:
    """Exactly that line, so that none beside it can be taken for it."""
    found = gather(gatherer, question)
    reads = [call for call in found.calls if call.tool != "list_dir"]
    assert [call.result for call in reads] == [f"{number}\tname {number}"]
    assert [(b.number, b.text) for b in found.best] == [(number, f"name {number}")]


def test_long_files(gatherer: Gatherer) -> None:
    """First and last lines, failures, and how many lines there are."""
    found = gather(gatherer, "What went wrong in logs/app.log?")
    (shown,) = [c.result for c in found.calls if "lines" in c.arguments]
    assert shown.startswith("1\t10:01 INFO request 1 served")
    assert "4001\t11:00 FATAL the disk is full" in shown
    assert "8001\t" in shown
    assert shown.endswith("of 8001 lines shown]")
    assert found.best[0].text == "11:00 FATAL the disk is full"


def test_missing(gatherer: Gatherer) -> None:
    """A file that is not there is told, and no other is laid out in its place."""
    found = gather(gatherer, "What is the error in logs/ap.log?")
    assert [(m.name, m.nearest) for m in found.missing] == [("logs/ap.log", ("logs/app.log",))]
    assert {call.tool for call in found.calls} == {"list_dir"}
    assert not found.best


def test_what_needs_no_file(gatherer: Gatherer) -> None:
    """Small talk and questions about the world are cheap."""
    for question in ("hello", "thanks!"):
        assert gather(gatherer, question) == Evidence(small_talk=True)
    world = gather(gatherer, "What is the capital of Italy?")
    assert not world.calls
    assert not world.needs_files


def test_going_on(gatherer: Gatherer) -> None:
    """A question that goes on is about what was asked before, and about what was read last."""
    found = gather(gatherer, "and the host?", "Which port does smtp use in server.ini?")
    assert (found.best[0].path, found.best[0].number) == ("config/server.ini", 5)
    read_last = gatherer.gather(
        "and the last one?", ["Who comes first?", "name 1"], (), ["names.txt"],
        budget=1500, count=count,
    )  # fmt: skip
    assert any(call.arguments["path"] == "names.txt" for call in read_last.calls)


def test_documents(gatherer: Gatherer, tmp_path: Path) -> None:
    """What is piped or attached is looked at without being named."""
    (tmp_path / "given").write_text("The contract starts on 2026-04-01.\n")
    with (tmp_path / "given").open("rb") as file:
        name = gatherer.workspace.attach("stdin.txt", file)
    found = gatherer.gather("When does it start?", documents=[name], budget=1500, count=count)
    assert "1\tThe contract starts on 2026-04-01." in text(found)
    assert found.best[0].path == "stdin.txt"


def test_packed_files(gatherer: Gatherer, root: Path) -> None:
    """What is packed is read as text, and can be read again."""
    (root / "old.log.gz").write_bytes(gzip.compress(b"Tuesday: zebra escaped\n"))
    found = gather(gatherer, "When did the zebra escape?")
    assert (found.best[0].path, found.best[0].text) == ("old.log.gz", "Tuesday: zebra escaped")
    assert gatherer.rerun("read_file", {"path": "old.log.gz"}) == "1\tTuesday: zebra escaped"
    with pytest.raises(ToolError, match="has 1 line"):
        gatherer.rerun("read_file", {"path": "old.log.gz", "start": 4})


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_hidden_files(root: Path, tmp_path: Path, action: str) -> None:
    """What the policy hides or asks about is neither read, indexed nor named."""
    write(root, {"secret/zebra.txt": "zebra smtp port 4711\n"})
    policy = Policy(rules=[Rule("*", action, {"path": "secret/**"})])  # type: ignore[arg-type]
    gatherer = Gatherer(Workspace(root), policy, cache=tmp_path / "cache", background=False)
    assert gatherer.warm()
    for question in ("Which smtp port?", "what is in secret/zebra.txt?", "where is the zebra here"):
        found = gather(gatherer, question)
        assert "4711" not in repr(found)
        named = repr([c.result for c in found.calls]) + repr(found.best) + repr(found.notes)
        assert "secret" not in named
        assert not any("secret" in one for miss in found.missing for one in miss.nearest)
    for arguments in ({"path": "secret/zebra.txt"}, {"path": "./secret//zebra.txt", "lines": "1"}):
        with pytest.raises(ToolError):
            gatherer.rerun("read_file", arguments)
    data = b"".join(one.read_bytes() for one in (tmp_path / "cache").iterdir())
    assert b"4711" not in data
    gatherer.close()


def test_passed_over_and_not_searched(gatherer: Gatherer, root: Path) -> None:
    """What was not looked at is told."""
    write(root, {"node_modules/x.js": "zebra", ".gitignore": "*.tmp\n", "a.tmp": "zebra"})
    notes = gather(gatherer, "Which smtp port?").notes
    assert notes == ("passed over (ignored, or made by programs): a.tmp and 1 more",)
    assert "zebra" not in text(gather(gatherer, "where is the zebra in these files"))
    assert "1\tzebra" in text(gather(gatherer, "what is in node_modules/x.js?"))


def test_changes_are_seen(gatherer: Gatherer, root: Path) -> None:
    """The next question is about the files as they are then."""
    assert gatherer.warm()
    gather(gatherer, "Which smtp port?")
    (root / "config" / "server.ini").write_text("[smtp]\nport = 26\n")
    write(root, {"more.ini": "[zebra]\nport = 27\n"})
    assert gather(gatherer, "Which smtp port?").best[0].text == "port = 26"
    assert gather(gatherer, "Which zebra port?").best[0].text == "port = 27"


def test_background(root: Path, tmp_path: Path) -> None:
    """A thread brings the index up to date after a question; closing ends it."""
    gatherer = Gatherer(Workspace(root), cache=tmp_path / "cache")
    gather(gatherer, "Which smtp port?")
    end = time.monotonic() + 20
    other = Gatherer(Workspace(root), cache=tmp_path / "cache", background=False)
    while time.monotonic() < end:
        other.refresh()
        if other._index is not None and not other._index.fresh(other._catalog)[1]:
            break
        time.sleep(0.05)
    assert other._index is not None
    assert other._index.fresh(other._catalog)[1] == []
    gatherer.close()
    assert gatherer._thread is not None
    assert not gatherer._thread.is_alive()


def test_wrong_reruns(gatherer: Gatherer) -> None:
    """What is no call of an evidence is refused."""
    for tool, arguments in (
        ("search", {"pattern": "x"}), ("write_file", {"path": "a"}), ("list_dir", {"path": "none"}),
        ("read_file", {"path": 3}), ("read_file", {"path": "README.md", "lines": "all"}),
        ("read_file", {"path": "README.md", "start": "1"}), ("read_file", {"path": "../x"}),
    ):  # fmt: skip
        with pytest.raises(ToolError):
            gatherer.rerun(tool, arguments)


def test_odd_questions_and_names(gatherer: Gatherer, root: Path) -> None:
    """No question and no name is an error, or does harm to the index."""
    (root / os.fsdecode(b"bad\xff.txt")).write_text("zebra\n")
    (root / "line\nfeed.txt").write_text("zebra\n")
    (root / "stairs.txt").write_text("".join(f"{' ' * n}zebra {n}\n" for n in range(2000)))
    assert gatherer.warm()
    for question in (
        "", '"', "zebra\0", "\ud800 zebra", 'say "a\0b" AND (OR) NEAR/3 * zebra', "zebra " * 40_000,
        "' OR 1=1; --", "zebra " + " ".join(f"word{n}" for n in range(5000)), "?" * 9000,
    ):  # fmt: skip
        found = gather(gatherer, question)
        repr(found).encode()
        assert all(call.result.encode() is not None for call in found.calls)
    assert gather(gatherer, "Where is the zebra?").best[0].path == "stairs.txt"
    index = gatherer._index
    assert index is not None
    assert index.fresh(gatherer._catalog)[1] == []


def test_failures_are_asked_for(gatherer: Gatherer) -> None:
    """A question about failures is one also where its telling words do not say so."""
    found = gather(gatherer, "Why is it so, with the requests?")
    assert found.best[0].text == "11:00 FATAL the disk is full"
