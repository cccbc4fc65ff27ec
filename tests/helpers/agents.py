"""What the tests of the agent share: calls as a model writes them, and whole runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import (
    AgentEvent,
    RunFinished,
)
from triplepoint.runtime.agent.local_conversation import LocalConversation
from triplepoint.runtime.agent.result import RunResult
from triplepoint.runtime.remote.engine import RemoteEngine

MakeEngine = Callable[..., Any]
END = "<|im_end|>"
LOG = "10:00 start\n10:05 ERROR disk full\n"


def call(name: str, **arguments: Any) -> str:
    """A tool call as the model writes it."""
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def run_all(agent: Agent, task: str) -> tuple[list[AgentEvent], RunResult]:
    """All events of a run, and its result."""
    events = list(agent.stream(task))
    assert isinstance(events[-1], RunFinished)
    return events, events[-1].result


def conversation_of(agent: Agent[Any]) -> LocalConversation:
    """The conversation of an agent on a local engine."""
    conversation = agent.setup.conversation
    assert isinstance(conversation, LocalConversation)
    return conversation


def agent_on(url: str, folder: Path, **more: Any) -> Agent:
    """An agent whose model is on a server."""
    engine = RemoteEngine(url, model="m", **{k: more.pop(k) for k in ("silence",) if k in more})
    return Agent(engine, workspace=folder, **{"trace": False, "harness": False, **more})
