"""Evidence before the question: what stands before the model when it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.agents import END, MakeEngine, run_all

from triplepoint.runtime.agent.agent import Agent
from triplepoint.tools import EditTools
from triplepoint.tools.policy import Policy, Rule


def asked(scripted: MakeEngine, folder: Path, *questions: str) -> Agent:
    """An agent after these questions."""
    agent = Agent(scripted(*["Yes." + END] * len(questions)), workspace=folder, trace=False)
    for question in questions:
        run_all(agent, question)
    return agent


def test_the_line_that_answers_stands_before_the_question(
    scripted: MakeEngine, folder: Path
) -> None:
    """With its file and number, and once more right before the answer."""
    agent = asked(scripted, folder, "What is the error in app.log?")
    last = agent.messages[-2]

    assert last.by == "harness"
    assert "app.log:2: 10:05 ERROR disk full" in last.content
    assert last.content.endswith("it is not there.")
    results = [message for message in agent.messages if message.role == "tool"]
    assert any("ERROR disk full" in one.content for one in results)
    assert all(tool.by == "harness" for tool in agent.trace.tools)


def test_the_model_answers_first_where_it_need_not_act(scripted: MakeEngine, folder: Path) -> None:
    """The first reply is text where lines were found, or counted; where it may act, it is free."""
    agent = asked(
        scripted, folder, "What is the error in app.log?", "How many lines does app.log have?"
    )
    decodes = [phase for phase in agent.trace.phases if phase.phase == "decode"]
    assert [(one.recipe or {}).get("calls") for one in decodes] == ["none", "none"]
    assert "Computed:\n2 lines in app.log (1 file, 2 lines looked at)" in agent.messages[-2].content


def test_a_task_is_done_before_it_is_told(scripted: MakeEngine, folder: Path) -> None:
    """The first reply is a call of a tool that acts; the task stands again below what it did."""
    edit = (
        '<tool_call>\n{"name": "edit_file", "arguments": {"path": "app.log", '
        '"old": "ERROR disk full", "new": "fixed"}}\n</tool_call>'
    )
    agent = Agent(
        scripted(edit + END, "The error was fixed." + END),
        workspace=folder, tools=EditTools(folder), policy="yes", trace=False,
    )  # fmt: skip
    run_all(agent, "Fix the error in app.log")

    first, second = [phase.recipe or {} for phase in agent.trace.phases if phase.phase == "decode"]
    assert first["calls"] == "required"
    assert second.get("calls") is None
    assert first["tools"] != second.get("tools")
    assert "fixed" in (folder / "app.log").read_text()
    assert agent.messages[-2].by == "harness"
    assert "say what was changed" in agent.messages[-2].content


@pytest.mark.parametrize(
    "question",
    ["What is the error in app.log?", "Summarize app.log", "Add up the errors in app.log, please",
     "Fasse app.log zusammen", "app.log"],
)  # fmt: skip
def test_what_changes_nothing_is_not_forced_to_act(
    scripted: MakeEngine, folder: Path, question: str
) -> None:
    """Also where the tools could."""
    agent = Agent(
        scripted("Yes." + END), workspace=folder, tools=EditTools(folder), policy="yes", trace=False
    )
    run_all(agent, question)
    (decode,) = [phase for phase in agent.trace.phases if phase.phase == "decode"]
    assert (decode.recipe or {}).get("calls") is None
    assert "Do it with the tools" in agent.messages[-2].content


def test_what_is_not_there_is_told(scripted: MakeEngine, folder: Path) -> None:
    """A file that the question names and that does not exist."""
    agent = asked(scripted, folder, "What does ap.log say about disks?")
    assert "There is no ap.log in this folder. Near it: app.log" in agent.messages[-2].content


def test_small_talk_stays_cheap(scripted: MakeEngine, folder: Path) -> None:
    """Nothing is looked at, and no call is allowed."""
    agent = asked(scripted, folder, "Hello!")
    assert [message.role for message in agent.messages] == ["system", "user", "assistant"]
    assert agent.trace.tools == []
    (decode,) = [phase for phase in agent.trace.phases if phase.phase == "decode"]
    assert (decode.recipe or {}).get("calls") == "none"


def test_what_no_file_can_answer(scripted: MakeEngine, folder: Path) -> None:
    """It is answered without a look where all tools look at files; else they are free."""
    agent = asked(scripted, folder, "Which planet has rings?")
    assert agent.trace.tools == []
    assert agent.messages[-2].content.endswith("Answer briefly, from what you know.")
    (decode,) = [phase for phase in agent.trace.phases if phase.phase == "decode"]
    assert (decode.recipe or {}).get("calls") == "none"

    def planets(name: str) -> str:
        """Tell about a planet."""
        return name

    free = Agent(scripted("Saturn." + END), workspace=folder, tools=[planets], trace=False)
    run_all(free, "Which planet has rings?")
    assert free.messages[-2].content == "Which planet has rings?"


def test_what_the_policy_hides_is_not_shown(scripted: MakeEngine, folder: Path) -> None:
    """Neither read nor named."""
    (folder / "secret.log").write_text("ERROR the password is hunter2\n")
    policy = Policy("read-only", [Rule("*", "deny", {"path": "secret*"})])
    agent = Agent(scripted("Yes." + END), workspace=folder, policy=policy, trace=False)
    run_all(agent, "What is the error?")
    shown = "\n".join(message.content for message in agent.messages)
    assert "ERROR disk full" in shown
    assert "hunter2" not in shown
    assert "secret" not in shown
