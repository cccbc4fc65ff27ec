"""Sources of an answer, and answers that must have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, run_all

from triplepoint import Engine, Policy
from triplepoint.errors import SettingError
from triplepoint.runtime.agent.absence import says_absent
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import Notice, TextDelta
from triplepoint.runtime.agent.harness.grounded import NOT_FOUND
from triplepoint.runtime.agent.harness.merged import Harness
from triplepoint.runtime.agent.harness.policy import Context, Decision
from triplepoint.runtime.agent.harness.policy import Policy as HarnessPolicy
from triplepoint.runtime.conversation.reply import Reply
from triplepoint.runtime.replay.replay import verify
from triplepoint.tools import EditTools
from triplepoint.traces import Trace

QUESTION = "What port does the server use?"


@pytest.fixture
def ports(folder: Path) -> Path:
    """A folder with two ports."""
    (folder / "app.ini").write_text("[server]\nport = 8080\n\n[database]\nport = 5432\n")
    return folder


def grounded(scripted: MakeEngine, folder: Path, *replies: str, **more: Any) -> Agent:
    """An agent that says these things, grounded."""
    engine = scripted(*(reply + END for reply in replies))
    return Agent(engine, workspace=folder, grounded=True, **{"trace": False, **more})


def told(events: list[Any]) -> str:
    """The text of an answer, as it was streamed."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def test_sources_are_told(scripted: MakeEngine, ports: Path) -> None:
    """Of each fact the file and line, and which have none; also in the trace, unless redacted."""
    path = ports.parent / "t.jsonl"
    agent = Agent(scripted("Port 8080 of 7777." + END), workspace=ports, trace=path)
    result = agent.run(QUESTION)

    assert [(one.fact, one.place) for one in result.sources] == [("8080", "app.ini:2")]
    assert (result.unsupported, result.found) == (("7777",), True)
    agent.close()
    end = Trace.load(path).turns[-1].end
    assert end is not None
    assert (end.sources, end.unsupported) == ([["8080", "app.ini", 2]], ["7777"])

    agent = Agent(scripted("Port 8080." + END), workspace=ports, trace=path, redact=True)
    assert agent.run(QUESTION).sources
    agent.close()
    assert "8080" not in path.read_text().splitlines()[-2]


def test_no_sources_without_a_harness_or_files(scripted: MakeEngine, ports: Path) -> None:
    """Nothing is looked up where the harness is off, or nothing was read."""
    agent = Agent(scripted("Port 7777." + END), workspace=ports, trace=False, harness=False)
    result = agent.run(QUESTION)
    assert (result.sources, result.unsupported) == ((), ())
    result = Agent(scripted("7777" + END), trace=False).run("How many sheep are there?")
    assert (result.sources, result.unsupported, result.found) == ((), (), True)


def test_the_model_extracts_once_more(scripted: MakeEngine, ports: Path) -> None:
    """A value of another key is not taken; the lines that answer are shown again."""
    agent = grounded(scripted, ports, "It is 5432.", "It is 8080.")
    events, result = run_all(agent, QUESTION)

    assert (result.answer, result.found, result.unsupported) == ("It is 8080.", True, ())
    assert told(events) == "It is 8080.", "what was not taken is not told"
    asked = agent.messages[-2]
    assert asked.by == "harness"
    assert "No line says that it is 5432." in asked.content
    assert "app.ini:2: port = 8080" in asked.content
    assert any(isinstance(one, Notice) and "not taken" in one.message for one in events)


def test_what_no_line_says_is_not_found(scripted: MakeEngine, ports: Path) -> None:
    """After the second answer; each question has its two."""
    agent = grounded(scripted, ports, "It is 7777.", "It is 7778.", "Port 1.", "It is 8080.")
    result = agent.run(QUESTION)
    assert (result.answer, result.found, result.sources) == (NOT_FOUND, False, ())
    assert agent.trace.turns[-1].end is not None
    assert agent.trace.turns[-1].end.by == "harness"
    assert agent.run("Which port does the server have?").answer == "It is 8080."


def test_what_is_right_of_an_answer_stays(scripted: MakeEngine, ports: Path) -> None:
    """As the line that says it; what no line says does not stand beside it."""
    agent = grounded(scripted, ports, "Ports 8080 and 7777.", "Ports 8080 and 7777.")
    result = agent.run(QUESTION)
    assert (result.answer, result.found) == ("app.ini:2: port = 8080", True)
    assert (result.sources[-1].place, result.unsupported) == ("app.ini:2", ())


def test_grounded_needs_no_harness(scripted: MakeEngine, ports: Path) -> None:
    """It holds on whatever else is off, and then for what was never looked at, too."""
    agent = grounded(scripted, ports, "It is 7777.", "It is 7777.", harness=False)
    assert agent.run(QUESTION).answer == NOT_FOUND
    agent = grounded(
        scripted, ports, call("read_file", path="app.ini"), "It is 8080.", harness=False
    )
    assert agent.run(QUESTION).answer == "It is 8080."
    wrong: Any = 1
    with pytest.raises(SettingError, match="grounded"):
        Agent(scripted(), grounded=wrong)


def test_what_a_tool_did_is_a_source(scripted: MakeEngine, ports: Path) -> None:
    """The text that was written need not stand in anything that was read."""
    agent = grounded(
        scripted, ports, call("write_file", path="new.txt", content="limit = 4711"),
        "I wrote `limit = 4711` to new.txt.", tools=EditTools(ports), policy=Policy("yes"),
    )  # fmt: skip
    result = agent.run("Write the limit to new.txt")
    assert [one.place for one in result.sources] == ["new.txt"]
    assert (ports / "new.txt").read_text() == "limit = 4711"


class Refuses(HarnessPolicy):
    """Takes no answer."""

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """See `Policy`."""
        return Decision(answer=NOT_FOUND)


def test_an_answer_of_the_harness_verifies(ports: Path, tmp_path: Path) -> None:
    """Its tokens say what the model said, and the trace that the harness answered."""
    path = tmp_path / "trace.jsonl"
    with Engine.load("nano", threads=1) as engine:
        agent = Agent(engine, workspace=ports, harness=Harness([Refuses()]), trace=path)
        assert agent.run("Which files are here?").answer == NOT_FOUND
        agent.close()
        assert verify(Trace.load(path), engine).ok


@pytest.mark.parametrize(
    "answer",
    [
        "There is no file missing.log.", "No matches found.", "The port is not specified.",
        "I couldn't find it.", "It doesn't mention a port.", "Das steht nicht da, keine Angabe.",
        "Es gibt hier: Es gibt es nicht", "No se encuentra en el archivo.", "没有找到端口。",
    ],
)  # fmt: skip
def test_says_absent(answer: str) -> None:
    """In plain words, in four languages."""
    assert says_absent(answer)


@pytest.mark.parametrize(
    "answer",
    ["The port is 8080.", 'The log says "no such file".', "It notes `not found`.", "Nicht nur 3."],
)
def test_says_not_absent(answer: str) -> None:
    """What is quoted is not said, and neither is what a line says."""
    assert not says_absent(answer)
    line = "a.log:2:10:05 ERROR template not found\n"
    assert not says_absent("The error is: template not found", line)
    assert says_absent("The template was not found", line)


def test_absence_is_not_found_only_without_a_fact(scripted: MakeEngine, ports: Path) -> None:
    """An answer that says what it found, and what it did not, has found something."""
    for said, found in (
        ("The port is not specified.", False),
        ("The server uses port 8080; a host is not specified.", True),
    ):
        agent = Agent(scripted(said + END), workspace=ports, trace=False)
        assert agent.run(QUESTION).found is found
