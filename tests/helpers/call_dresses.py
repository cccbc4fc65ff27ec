"""Calls as small models write them, and texts that only look like calls."""

from __future__ import annotations

import json
from typing import Any

from triplepoint.runtime.conversation.call_dress import DressWatch
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, Tools
from triplepoint.tools import ToolSet, tool


@tool
def read_file(path: str, start: int = 1, end: int | None = None, encoding: str = "") -> str:
    """Reads a file."""
    return path


@tool
def now() -> str:
    """Takes nothing."""
    return ""


@tool
def edit(path: str, changes: list[dict[str, str]], really: bool = False) -> str:
    """Takes values of many kinds."""
    return path


TOOLSET = ToolSet([read_file, now, edit])
TOOLS = TOOLSET.schemas()
CHANGES = [{"old": 'a "b" {[(', "new": "it's\n```\n}"}]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "read_file": {"path": "logs/app.log", "start": 3},
    "now": {},
    "edit": {"path": "é漢.txt", "changes": CHANGES, "really": True},
}


def written(name: str, key: str = "arguments", first: str = "name", **style: Any) -> str:
    """A call as an object of JSON."""
    call = {first: name, key: ARGUMENTS[name]}
    return json.dumps(call, ensure_ascii=False, **style)


def python(name: str, prefix: str = "") -> str:
    """A call as Python writes it."""
    values = (f"{key}={value!r}" for key, value in ARGUMENTS[name].items())
    return f"{prefix}{name}({', '.join(values)})"


def doubled(name: str) -> str:
    """A call in the braces of a template that escapes what needs no escape."""
    return "{" + written(name) + "}"


def positional(name: str) -> str:
    """A call as Python writes it, without names of arguments."""
    return f"{name}({', '.join(map(repr, ARGUMENTS[name].values()))})"


DRESSES = {
    "bare": written,
    "spread over lines": lambda name: written(name, indent=2),
    "parameters": lambda name: written(name, "parameters"),
    "args of a function": lambda name: written(name, "args", "function"),
    "a tool's input": lambda name: written(name, "tool_input", "tool"),
    "an action": lambda name: written(name, "action_input", "action"),
    "doubled braces": doubled,
    "all braces doubled": lambda name: (
        f'{{{{"name": "{name}", "arguments": {{{json.dumps(ARGUMENTS[name])}}}}}}}'
    ),
    "in a list": lambda name: f"[{written(name)}]",
    "fenced": lambda name: f"```json\n{written(name, indent=2)}\n```",
    "fenced without a language": lambda name: f"```\n{doubled(name)}\n```\n",
    "a fence that is not closed": lambda name: f"```json\n{written(name)}",
    "tools": lambda name: f"<tools>\n{written(name)}\n</tools>",
    "function_call": lambda name: f"<function_call> {written(name)} </function_call>",
    "a tag that is not closed": lambda name: f"<tool_call>\n{written(name)}",
    "tag in a fence": lambda name: f"```xml\n<tool_call>\n{written(name)}\n</tool_call>\n```",
    "python": python,
    "python in a list": lambda name: f"[{python(name)}]",
    "python by place": positional,
    "tool_code": lambda name: f"```tool_code\n{python(name, 'default_api.')}\n```",
    "one brace too many": lambda name: written(name) + "}",
    "further keys": lambda name: written(name)[:-1] + ', "id": "7", "why": {"a": "}"}}',
    "after a lead-in": lambda name: f"I will look at it.\n\n```json\n{written(name)}\n```",
    "a lead-in in Chinese": lambda name: f"我先看一下：\n{written(name)}",
    "a lead-in and python": lambda name: f"Let me see:\n{python(name)}",
    "a lead-in of two lines": lambda name: f"Of course!\nI call a tool:\n\n{doubled(name)}",
}

CALL = written("read_file")
LONG = "This is how it works. " * 12
TEXTS = {
    "nothing": "",
    "prose": "It is full.\n\nNothing else is wrong.",
    "prose that names a tool": "read_file is what I used.\nnow is the time",
    "signs": "{} is empty, [] too, `app.log` says {{x}}",
    "a remark": f"{CALL}\n\nThe file says that all is well.\nIt is {{}}.",
    "fence and remark": f"```json\n{CALL}\n```\nThis reads it.",
    "assigned": f"```python\nresult = {python('read_file')}\n```",
    "cut before the last brace": CALL[:-1],
    "of a server": json.dumps({"function": {"name": "now", "arguments": "{}"}}),
    "a call within a line": f"Here: {CALL}",
    "and so on": f"{CALL} is how to call.",
    "a fence and so on": f"```json\n{CALL}\n``` is how to call.",
    "tags and so on": f"<tool_call>\n{CALL}\n</tool_call> is how to call.",
    "an example": f"For example:\n```json\n{CALL}\n```",
    "a format": f"You would use the following format:\n\n```json\n{CALL}\n```",
    "an example in the middle": f"To call it, write this:\n\n```json\n{CALL}\n```\n\nIt reads it.",
    "behind an explanation": f"{LONG}\n```json\n{CALL}\n```",
    "an enumeration": f"1. Look.\n2. Think.\n3. Write.\n4. Call:\n{CALL}",
    "package.json": '```json\n{\n  "name": "read_file",\n  "version": "1.0.0"\n}\n```',
    "a package that is named as a tool": '{"name": "now", "version": "1", "dependencies": {}}',
    "a call in a list of steps": f"- first\n- {CALL}",
    "an argument of OpenAPI": '{"name": "read_file", "in": "query", "schema": {"type": "string"}}',
    "OpenAPI": '{"openapi": "3.1.0", "paths": {"/now": {"parameters": []}}}',
    "a tool's definition": json.dumps(TOOLS[0]),
    "a function's definition": json.dumps(TOOLS[0]["function"]),
    "a schema": '{"name": "read_file", "parameters": {"type": "object", "properties": {"a": {}}}}',
    "settings": '{"now": {"parameters": {"a": 1}}}',
    "no arguments": '{"name": "now"}',
    "no object": '{"name": "now", "arguments": [1]}',
    "a text that is none": '{"name": "now", "arguments": "soon"}',
    "a definition in Python": "def read_file(path):\n    return open(path).read()",
    "a program": '```python\nimport tools\n\nread_file("app.log")\n```',
    "a program that goes on": '```python\ntext = read_file("app.log")\nprint(len(text))\n```',
    "a program without a fence": 'import tools\nread_file("app.log")',
    "a name with its parameters": "read_file(path) reads a file.\n",
    "a name with brackets": "now() tells the time",
    "a bare name": "read_file(path)",
    "a link": "[read_file](docs/tools.md)",
    "broken Python": "read_file('it's')",
    "cut": CALL[:40],
    "cut behind a call": f"{python('read_file')}\nread_file('app",
    "an argument twice": "read_file(path='a', path='b')",
    "too many arguments": "now(1)",
    "another tool in prose": 'Then:\n{"name": "open_folder", "arguments": {"path": "logs"}}',
    "another function": 'open_folder("logs")',
}


def calls_in(answer: str, tools: Tools = TOOLS) -> tuple[list[ToolCall], list[str]]:
    """The calls that a whole answer is, and what was left out."""
    watch = DressWatch(tools)
    watch.push(answer)
    return watch.found()
