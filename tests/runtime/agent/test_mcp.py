"""An agent with tools of another program: prompted, decoded under the grammar, decided, traced."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import pytest
from helpers.agents import END, call, conversation_of
from helpers.families import FAMILIES, Family
from helpers.odd_tools import SOUND, odd_tools
from hypothesis import HealthCheck, given, settings
from pydantic import Field

from triplepoint import Agent, Policy, Rule, tool
from triplepoint.errors import GrammarError
from triplepoint.runtime.conversation import grammar
from triplepoint.runtime.conversation.chat import Message
from triplepoint.tools.mcp import McpServers, ServerConfig
from triplepoint.tools.mcp.servers import _Server

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp extra is not installed")
HOSTILE = Path(__file__).parents[2] / "helpers" / "mcp_hostile.py"


def test_an_agent_calls_a_server(scripted: Callable[..., Any]) -> None:
    """Schemas are in the ledger as tools, calls under the policy, failures told to the model."""
    engine = scripted(
        call("bad_echo", text="hi", times=2) + END,
        call("bad_crash") + END,
        call("bad_image") + END,
        "Done." + END,
    )
    policy = Policy("yes", [Rule("bad_image", "deny")])
    with McpServers([ServerConfig("bad", sys.executable, (str(HOSTILE), "ok"))]) as servers:
        agent = Agent(engine, tools=servers, policy=policy, trace=False)
        assert agent.run("Echo hi").answer == "Done."

    events = [(t.name, t.effect, t.decision) for t in agent.trace.tools]
    assert events == [
        ("bad_echo", "exec", "allowed"),
        ("bad_crash", "exec", "allowed"),
        ("bad_image", "exec", "denied"),
    ]
    assert agent.trace.tools[0].result == "echo: hi"
    assert agent.trace.tools[1].result.startswith("error: the server bad failed: it ended")
    ledger = agent.ledger
    ids = [t for s in ledger.spans if s.origin == "tools" for t in ledger.ids[s.start : s.end]]
    said = engine.tokenizer.decode(ids, special=True)
    assert "bad_echo" in said
    assert "read_result" in said
    assert agent.trace.header is not None
    names = [tool["function"]["name"] for tool in agent.trace.header.tools]
    assert names == agent.tools.names
    assert names[-1] == "read_result"


def listed(*tools: Any, server: str = "a", taken: set[str] | None = None) -> list[Any]:
    """The tools that an agent gets from such a list of a server."""
    loop = asyncio.new_event_loop()
    made = _Server(ServerConfig(server, "none"), loop, [])
    loop.close()
    made._listed = json.loads(json.dumps(tools))
    return made.tools(set() if taken is None else taken)


@pytest.mark.parametrize("background", [0, 10**6], ids=["in a thread", "at once"])
@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"type": "int"}, "argument 'n': .*Invalid type: int"),
        ({"$ref": "#/$defs/No"}, r"argument 'n': .*'/\$defs/No' does not exist"),
        ({"items": [3], "type": "array"}, "argument 'n': "),
    ],
)
def test_a_tool_without_a_grammar_is_left_out(
    scripted: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    argument: Any,
    problem: str,
    background: int,
) -> None:
    """By name, with the argument at fault; the other tools are called as ever."""
    monkeypatch.setattr(grammar, "_BACKGROUND", background)
    odd = {"name": "odd", "inputSchema": {"properties": {"ok": {}, "n": argument}}}
    engine = scripted("Done." + END)

    agent = Agent(engine, tools=listed(SOUND, odd, odd | {"name": "odd2"}), trace=False)

    assert agent.tools.names == ["a_look", "read_result"]
    for note, name in zip(agent.setup.notes, ("a_odd", "a_odd2"), strict=False):
        assert re.match(f"left out: tool {name}: no grammar can be made from its {problem}", note)
    assert agent.run("Look").answer == "Done."
    assert agent.trace.header is not None
    assert "odd" not in json.dumps(agent.trace.header.tools)
    said = engine.tokenizer.decode(agent.ledger.ids, special=True)
    assert "a_look" in said
    assert "odd" not in said


def test_an_own_tool_without_a_grammar_is_an_error(scripted: Callable[..., Any]) -> None:
    """It is the caller's to mend; so is what is wrong with no tool alone."""

    @tool
    def own(n: Annotated[int, Field(json_schema_extra={"type": "int"})]) -> str:
        """Mine."""
        return ""

    odd = {"name": "odd", "inputSchema": {"properties": {"n": {"type": "int"}}}}
    with pytest.raises(
        GrammarError, match="tool own: no grammar can be made from its argument 'n'"
    ):
        Agent(scripted(), tools=[own, *listed(odd)], trace=False)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(odd=odd_tools())
def test_an_odd_tool_takes_no_other_one_away(
    scripted: Callable[..., Any], make_tokenizer: Callable[..., Any], family: Family, odd: Any
) -> None:
    """Whatever a server says of one tool, the sound ones of all servers are the agent's."""
    tokenizer = make_tokenizer(family.tags, None, family.control, family.eot)
    taken = set[str]()
    tools = [*listed(SOUND, odd, taken=taken), *listed(SOUND, server="b", taken=taken)]

    agent = Agent(
        scripted(tokenizer=tokenizer), tools=tools, trace=False, chat_template=family.template
    )

    names = [one for one in agent.tools.names if one != "read_result"]
    assert {"a_look", "b_look"} <= {*names} <= {one.name for one in tools}
    assert len(names) == len(tools) or any(
        "left out: tool a_" in note for note in agent.setup.notes
    )
    conversation_of(agent).grammar.check()
    conversation_of(agent).chat.open([Message("user", "hello")])
