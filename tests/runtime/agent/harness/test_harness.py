"""Policies around the loop: what they decide, how that is merged, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, call, conversation_of, run_all

from triplepoint import Engine
from triplepoint.errors import SettingError
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import ToolCallFinished, ToolCallStarted
from triplepoint.runtime.agent.harness.defaults import DEFAULTS, harness_of
from triplepoint.runtime.agent.harness.merged import Harness, merged
from triplepoint.runtime.agent.harness.no_repeats import NoRepeats
from triplepoint.runtime.agent.harness.policy import Context, Decision, Looked, Policy
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.messages import Message
from triplepoint.runtime.conversation.reply import Reply
from triplepoint.tools import tool
from triplepoint.traces import Trace

LISTED = Looked(ToolCall("list_dir", {"path": "."}), "app.log")


@dataclass(slots=True)
class Looks(Policy):
    """Lists the folder before each question, and says something."""

    def before_turn(self, context: Context) -> Decision | None:
        """See `Policy`."""
        if context.step != 1:
            return None
        said = Message("user", f"Again: {context.question}", by="harness")
        return Decision(looked=(LISTED,), messages=(said,))


@dataclass(slots=True)
class Bounces(Policy):
    """Takes no answer without a full stop."""

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """See `Policy`."""
        return None if reply.answer.endswith(".") else Decision(bounce="End with a full stop.")


def test_what_the_harness_looks_at_stands_as_results(scripted: MakeEngine, folder: Path) -> None:
    """In the messages, the trace and the events, each told as the harness's."""
    path = folder / "trace.jsonl"
    agent = Agent(
        scripted("It is app.log." + END), workspace=folder, harness=Harness([Looks()]), trace=path
    )
    events, result = run_all(agent, "Which file?")

    question, said, listed, again, answer = agent.messages[1:]
    assert (question.content, said.calls[0].name, listed.content) == (
        "Which file?",
        "list_dir",
        "app.log",
    )
    assert (said.by, listed.by, again.by, answer.by) == ("harness", "harness", "harness", "")
    assert again.content == "Again: Which file?"
    assert result.answer == "It is app.log."
    assert [e.by for e in events if isinstance(e, ToolCallStarted)] == ["harness"]
    assert any(isinstance(e, ToolCallFinished) and e.result == "app.log" for e in events)
    trace = Trace.load(path)
    assert [(tool.name, tool.by, tool.decision) for tool in trace.tools] == [
        ("list_dir", "harness", "allowed")
    ]
    origins = {span.origin for span in agent.ledger.spans if span.message is not None}
    assert {"harness", "tool_result", "user"} <= origins
    tokens = conversation_of(agent).grammar.tokenizer.decode(agent.session.tokens, special=True)
    assert tokens.count("Which file?") == 2
    assert tokens.index("app.log") < tokens.index("Again: Which file?")


def test_it_looks_again_at_the_next_question(scripted: MakeEngine, folder: Path) -> None:
    """The history stays as it was read: nothing is recomputed."""
    replies = [text + END for text in ("One.", "Two.")]
    agent = Agent(scripted(*replies), workspace=folder, harness=Harness([Looks()]), trace=False)
    run_all(agent, "First?")
    first = list(agent.session.tokens)
    _, result = run_all(agent, "Second?")

    assert result.answer == "Two."
    assert agent.session.tokens[: len(first)] == first
    assert result.usage.reread_tokens == 0
    assert len([tool for tool in agent.trace.tools if tool.by]) == 2


def test_a_reply_that_is_bounced_is_asked_again(scripted: MakeEngine, folder: Path) -> None:
    """With the reason, as the harness's words."""
    agent = Agent(
        scripted("No" + END, "No." + END),
        workspace=folder,
        harness=Harness([Bounces()]),
        trace=False,
    )
    _, result = run_all(agent, "Is it?")
    assert result.answer == "No."
    assert [m.content for m in agent.messages if m.by] == ["End with a full stop."]


def test_a_call_that_gives_the_same_again_ends_the_looking(
    scripted: MakeEngine, folder: Path
) -> None:
    """The next reply is held to text: a call is not allowed there, and the model answers."""
    looks = call("list_dir", path=".") + END
    agent = Agent(
        scripted(looks, looks, "There are two." + END),
        workspace=folder,
        harness=Harness([NoRepeats()]),
        trace=False,
    )
    _, result = run_all(agent, "What is here?")

    assert result.answer == "There are two."
    recipes = [phase.recipe or {} for phase in agent.trace.phases if phase.phase == "decode"]
    assert [one.get("calls") for one in recipes] == [None, None, "none"]
    assert [one.get("prose") for one in recipes] == [None, None, True]


def test_a_tool_that_acts_or_polls_may_be_called_again(scripted: MakeEngine, folder: Path) -> None:
    """The same result does not say that the same was meant."""

    @tool(effect="exec")
    def is_done() -> str:
        """Whether the build is done."""
        return "not yet"

    polls = call("is_done") + END
    agent = Agent(
        scripted(polls, polls, "It is not done." + END),
        workspace=folder,
        tools=[is_done],
        policy="yes",
        harness=Harness([NoRepeats()]),
        trace=False,
    )
    run_all(agent, "Is the build done?")
    recipes = [phase.recipe or {} for phase in agent.trace.phases if phase.phase == "decode"]
    assert [one.get("calls") for one in recipes] == [None, None, None]


def test_decisions_are_merged_by_one_rule() -> None:
    """Calls and messages in order; the strictest choice; the first tools and the first reason."""
    names = {"also": ["x"]}
    one = Decision(looked=(LISTED,), calls="required", bounce="a", names=names)
    two = Decision(
        messages=(Message("user", "x"),), calls="none", tools=frozenset({"search"}), bounce="b"
    )
    assert merged([one, two, Decision(tools=frozenset({"other"}))]) == Decision(
        (LISTED,), two.messages, "none", two.tools, "a", names=names
    )
    assert merged([]) == Decision()


def test_settings_and_defaults(scripted: MakeEngine) -> None:
    """Each policy can be switched off by its name; what is no setting is refused."""
    engine = scripted()
    assert [one.name for one in harness_of(None, engine).policies] == [
        "evidence",
        "no_repeats",
        "paths",
        "claims",
    ]
    assert harness_of(False, engine).policies == ()
    only = harness_of({"evidence": False}, engine)
    assert [one.name for one in only.policies] == ["no_repeats", "paths", "claims"]
    assert only.settings == {**DEFAULTS, "evidence": False}
    assert [one.name for one in harness_of(False, engine, grounded=True).policies] == ["grounded"]
    own = Harness([Looks()])
    assert harness_of(own, engine) is own
    wrongs: list[Any] = [{"magic": True}, {"evidence": 1}, {"evidence_tokens": 1}, "on"]
    for wrong in wrongs:
        with pytest.raises(SettingError, match="harness"):
            harness_of(wrong, engine)


def test_a_model_trained_on_the_bare_loop_has_none() -> None:
    """nano was: its prompt and tokens stay what they are."""
    with Engine.load("nano", threads=1) as engine:
        assert harness_of(None, engine).policies == ()
        assert harness_of(True, engine).policies != ()
