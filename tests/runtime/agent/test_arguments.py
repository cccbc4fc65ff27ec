"""What an agent, an engine or a trace is not given by mistake: errors that name it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import MakeEngine

from triplepoint import (
    Agent,
    AgentError,
    Engine,
    ModelError,
    RemoteEngine,
    Sampling,
    SettingError,
    ToolError,
    Trace,
    TraceError,
    tool,
)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("nano", r"write Agent\(Engine.load\('nano'\), …\)"),
        ("http://x/v1", r"write Agent\(RemoteEngine\('http://x/v1'\), …\)"),
        (Path("m.gguf"), "Engine.load"),
        (None, "engine is None, not an Engine"),
        (Engine, "not an Engine"),
    ],
)
def test_an_engine_is_no_name(engine: Any, says: str) -> None:
    """The error says what to write instead."""
    with pytest.raises(AgentError, match=says):
        Agent(engine)


@pytest.mark.parametrize("task", [None, 3, b"Hello", ["Hello"], "", " \n"])
def test_a_question_is_a_text(scripted: MakeEngine, task: Any) -> None:
    """However it is asked, before anything is; the agent can be asked afterwards."""
    agent = Agent(scripted("Hi.<|im_end|>"), trace=False)

    for ask in (agent.run, agent.stream, lambda one: asyncio.run(agent.run_async(one))):
        with pytest.raises(AgentError, match=r"the question (must be a string|is empty)"):
            ask(task)
    assert agent.run("Hello").answer == "Hi."


@pytest.mark.parametrize(
    "settings",
    [
        {"max_steps": "3"},
        {"max_tokens": 0},
        {"thinking_tokens": -1},
        {"thinking_seconds": 0},
        {"max_steps": True},
        {"timeout": "3"},
        {"timeout": 0},
        {"context": "3"},
        {"result_tokens": -3},
        {"sampling": {"temperature": 1}},
        {"sampling": Sampling},
        {"compact": "no"},
        {"repetition_stop": None},
        {"answer_forms": 0},
        {"thinking": "off"},
        {"trace": 3},
        {"trace": ""},
    ],
    ids=str,
)
def test_a_setting_is_named(scripted: MakeEngine, settings: dict[str, Any]) -> None:
    """The error has the name of the parameter and the value that it got."""
    ((name, value),) = settings.items()
    given: dict[str, Any] = {"trace": False, **settings}
    with pytest.raises(SettingError, match=f"^{name} ") as raised:
        Agent(scripted(), **given)
    assert repr(value) in str(raised.value)


def test_a_tool_is_a_function(scripted: MakeEngine) -> None:
    """A name of one is not, nor a number."""
    for given in ("search", ["search"], 3, [3], [None]):
        with pytest.raises(AgentError, match="not a tool"):
            Agent(scripted(), trace=False, tools=given)  # pyright: ignore
    for given in (3, "search"):
        with pytest.raises(TypeError, match="a tool is made from a function, not from"):
            tool(given)  # pyright: ignore
    for folder in (3, ""):
        with pytest.raises(ToolError, match="the workspace must be the path of a folder"):
            Agent(scripted(), trace=False, workspace=folder)  # pyright: ignore


def test_a_schema_of_answers_is_json(scripted: MakeEngine) -> None:
    """What JSON cannot say is no schema; nothing has been asked yet."""
    loop: dict[str, Any] = {"type": "object"}
    loop["properties"] = {"again": loop}
    for schema in ({"enum": {1, 2}}, {"maximum": float("nan")}, loop):
        with pytest.raises(AgentError, match="output_type is not a JSON schema: "):
            Agent(scripted(), trace=False, output_type=schema)


def test_other_ways_in() -> None:
    """Models, servers and traces by something that is no name."""
    for model in (3, "", " ", b"nano"):
        with pytest.raises(ModelError, match="is not a model; give nano"):
            Engine.load(model)  # pyright: ignore
    for settings in ({"threads": "2"}, {"threads": 0}, {"context": "3"}):
        with pytest.raises(SettingError, match=next(iter(settings))):
            Engine.load("nano", **settings)  # pyright: ignore
    for address in (None, 3, "", "localhost"):
        with pytest.raises(SettingError, match="http://localhost:8080/v1"):
            RemoteEngine(address)  # pyright: ignore
    for path in (None, 3, ""):
        with pytest.raises(TraceError, match="path of its file"):
            Trace.load(path)  # pyright: ignore
        with pytest.raises(TraceError, match="path of its file"):
            Trace.to_file(path)  # pyright: ignore
