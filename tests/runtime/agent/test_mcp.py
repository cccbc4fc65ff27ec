"""An agent with tools of another program: prompted, decoded under the grammar, decided, traced."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import call

from triplepoint import Agent, Policy, Rule
from triplepoint.tools.mcp import McpServers, ServerConfig

pytest.importorskip("mcp", reason="the mcp extra is not installed")

HOSTILE = Path(__file__).parents[2] / "helpers" / "mcp_hostile.py"
END = "<|im_end|>"


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
