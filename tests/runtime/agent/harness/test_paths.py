"""Paths that are there: what a model may name, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, run_all

from triplepoint import Engine
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.harness import paths
from triplepoint.runtime.agent.harness.merged import Harness
from triplepoint.runtime.agent.harness.paths import ExistingPaths
from triplepoint.runtime.agent.harness.policy import Context, Decision
from triplepoint.runtime.agent.harness.policy import Policy as HarnessPolicy
from triplepoint.runtime.replay.replay import verify
from triplepoint.tools import EditTools, FileTools
from triplepoint.tools.policy import Policy, Rule
from triplepoint.traces import Trace
from triplepoint.traces.events import ContentEvent

ONLY = {"evidence": False, "no_repeats": False, "claims": False}


def asked(
    scripted: MakeEngine, folder: Path, *replies: str, question: str = "Which?", **more: Any
) -> Agent:
    """An agent after a question; each reply must be one that may be written."""
    agent = Agent(
        scripted(*(one + END for one in (*replies, "Done."))),
        **{"workspace": folder, "harness": ONLY, "trace": False, **more},
    )
    run_all(agent, question)
    return agent


def refused(scripted: MakeEngine, folder: Path, reply: str, **more: Any) -> bool:
    """Whether a reply may not be written."""
    try:
        asked(scripted, folder, reply, **more)
    except AssertionError as error:
        return "is not allowed" in str(error)
    return False


@pytest.mark.parametrize(
    ("tool", "path", "there"),
    [
        ("read_file", "app.log", True),
        ("read_file", "./logs/old.log", True),
        ("read_file", "old.log", False),
        ("list_dir", ".", True),
        ("list_dir", "logs/", True),
        ("list_dir", "log", False),
        ("search", "logs", True),
        ("search", "lib", False),
    ],
)
def test_what_is_looked_at_is_there(
    scripted: MakeEngine, folder: Path, tool: str, path: str, there: bool
) -> None:
    """A name that is not cannot be written; without the setting it can."""
    more = {"pattern": "x"} if tool == "search" else {}
    reply = call(tool, **more, path=path)
    assert refused(scripted, folder, reply) != there
    assert not refused(scripted, folder, reply, harness={**ONLY, "paths": False})


def test_a_bare_model_is_held_to_nothing(scripted: MakeEngine, folder: Path) -> None:
    """Its harness is off, and its recipes are as they were."""
    agent = asked(scripted, folder, call("read_file", path="old.log"), harness=False)
    assert not any("names" in (phase.recipe or {}) for phase in agent.trace.phases)


def test_a_name_of_the_question_may_be_written(scripted: MakeEngine, folder: Path) -> None:
    """Also in the next question; so the tool says that it is not there."""
    reply = call("read_file", path="logs/missing.log")
    question = "What is in logs/missing.log?"
    agent = asked(scripted, folder, reply, question=question)
    assert agent.trace.tools[0].result.startswith("error: no such file: logs/missing.log")
    assert refused(scripted, folder, reply, question="What is in logs/other.log?")
    later = Agent(
        scripted("Hm." + END, reply + END, "No." + END),
        workspace=folder, harness=ONLY, trace=False,
    )  # fmt: skip
    run_all(later, question)
    run_all(later, "Please read it.")


def test_names_of_new_files_are_free_and_count_at_once(scripted: MakeEngine, folder: Path) -> None:
    """The next reply may read what a tool has made; what it took away it may not."""
    more: dict[str, Any] = {"tools": EditTools(folder), "policy": "yes"}
    made = call("write_file", path="new/a b.txt", content="x")
    asked(scripted, folder, made, call("read_file", path="new/a b.txt"), **more)
    gone = call("delete", path="app.log")
    with pytest.raises(AssertionError, match="is not allowed"):
        asked(scripted, folder, gone, call("read_file", path="app.log"), **more)
    assert not (folder / "app.log").exists()
    edit = call("edit_file", path="app.log", old="a", new="b")
    assert refused(scripted, folder, edit, **more)


def test_what_the_permissions_hide_is_not_named(scripted: MakeEngine, folder: Path) -> None:
    """A denied one tells nobody that it is there; one that is asked about can be asked for."""
    policy = Policy(rules=[Rule("*", "deny", {"path": "logs/**"})])
    reply = call("read_file", path="logs/old.log")
    assert refused(scripted, folder, reply, policy=policy)
    agent = asked(scripted, folder, policy=policy)
    texts = [e.value["paths"] for e in agent.trace.events if isinstance(e, ContentEvent)]
    assert texts == ["./\napp.log"]
    asks = Policy(rules=[Rule("*", "ask", {"path": "logs/**"})])
    assert not refused(scripted, folder, reply, policy=asks)


def test_what_a_walk_passes_over_can_be_named(scripted: MakeEngine, folder: Path) -> None:
    """Ignored files, what is in ignored folders, and links that stay inside."""
    (folder / ".gitignore").write_text("made/\n*.tmp\n")
    (folder / "made").mkdir()
    (folder / "made" / "out.txt").write_text("x")
    (folder / "a.tmp").write_text("x")
    (folder / "latest").symlink_to("app.log")
    (folder / "linked").symlink_to("logs")
    (folder / "outside").symlink_to("/")
    for path in ("made/out.txt", "a.tmp", "latest", "linked/old.log", ".gitignore"):
        assert not refused(scripted, folder, call("read_file", path=path))
    assert refused(scripted, folder, call("read_file", path="outside/etc"))


def test_of_too_many_none_is_held(
    scripted: MakeEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where the folder takes too long to walk."""
    other = call("read_file", path="other")
    monkeypatch.setattr(paths, "MAX_PATHS", 4)
    assert refused(scripted, folder, other)
    monkeypatch.setattr(paths, "MAX_PATHS", 3)
    assert not refused(scripted, folder, other)
    monkeypatch.setattr(paths, "MAX_PATHS", 4)
    monkeypatch.setattr(paths, "WALK", -1.0)
    assert not refused(scripted, folder, other)


class Requires(HarnessPolicy):
    """Holds the first reply to calls of one tool."""

    def before_turn(self, context: Context) -> Decision | None:
        """See `Policy`."""
        tools = frozenset({"read_file"})
        return Decision(calls="required", tools=tools) if context.step == 1 else None


@pytest.mark.parametrize(("path", "fits"), [("app.log", True), ("", True), ("old.log", False)])
def test_a_required_call_has_a_way_out(
    scripted: MakeEngine, folder: Path, path: str, fits: bool
) -> None:
    """It may name nothing at all; else, where a call need not come, it may not."""
    harness = Harness([Requires(), ExistingPaths()])
    reply = call("read_file", path=path)
    assert refused(scripted, folder, reply, harness=harness) != fits
    assert refused(scripted, folder, reply) != (path == "app.log")


def test_tools_of_another_folder_are_free(
    scripted: MakeEngine, folder: Path, tmp_path: Path
) -> None:
    """What is there is not known."""
    (tmp_path / "other").mkdir()
    tools = [one for one in EditTools(tmp_path / "other") if one.name == "edit_file"]
    edit = call("edit_file", path="x.txt", old="a", new="b")
    assert not refused(scripted, folder, edit, tools=tools, policy="yes")
    alone = FileTools(tmp_path / "other")
    reply = call("read_file", path="x.txt")
    assert not refused(scripted, folder, reply, workspace=None, tools=alone)


def test_a_redacted_trace_has_no_names(scripted: MakeEngine, folder: Path, tmp_path: Path) -> None:
    """Neither of the folder nor of the question."""
    path = tmp_path / "trace.jsonl"
    agent = asked(scripted, folder, question="What is in a/secret.x?", trace=path, redact=True)
    agent.close()
    text = path.read_text()
    assert '"names"' in text
    assert '"also"' in text
    assert not any(name in text for name in ("app.log", "old.log", "secret"))


def test_it_verifies_after_the_folder_has_changed(folder: Path, tmp_path: Path) -> None:
    """From the trace alone, which has the names once for each state of the folder."""
    path = tmp_path / "trace.jsonl"
    with Engine.load("nano", threads=1) as engine:
        agent = Agent(engine, workspace=folder, harness=ONLY, trace=path)
        agent.run("What's the error in app.log?")
        (folder / "extra.log").write_text("one more\n")
        agent.run("What is in extra.log?")
        agent.close()
        for one in sorted(folder.rglob("*"), reverse=True):
            one.rmdir() if one.is_dir() else one.unlink()
        trace = Trace.load(path)
        report = verify(trace, engine)
    assert report.ok
    assert report.sampled
    named = [e.value["paths"] for e in trace.events if isinstance(e, ContentEvent)]
    assert named == [
        "./\napp.log\nlogs/\nlogs/old.log",
        "./\napp.log\nextra.log\nlogs/\nlogs/old.log",
    ]
    decodes = [phase for phase in trace.phases if phase.phase == "decode"]
    assert all("names" in (phase.recipe or {}) for phase in decodes)
    assert [tool.arguments["path"] for tool in trace.tools] == ["app.log", "extra.log"]
