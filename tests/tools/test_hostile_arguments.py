"""Whatever a model or a caller gives to a tool: it works, or the error is one of ours."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint.errors import ToolDefinitionError, ToolError, TriplepointError
from triplepoint.tools import (
    CommandTools,
    EditTools,
    FetchTools,
    FileTools,
    FindTools,
    PlainFileTools,
    Policy,
    Rule,
    Tool,
    ToolSet,
    tool,
)
from triplepoint.tools.paths import printable
from triplepoint.tools.policy import PermissionRequest
from triplepoint.tools.schema_tool import SchemaTool

MAX_MESSAGE = 1000  # characters: an error is read by a model


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


VALUES: dict[str, Any] = {
    "empty": "",
    "surrogate": "\ud800",
    "surrogate inside": "a\ud800b",
    "escaped byte": "\udcff",
    "surrogate in a set": "[\ud800]",
    "open set": "[",
    "look-behind": "(?<=a)b",
    "counted": "a{999999999}",
    "nul": "a\0b",
    "line ends": "a\r\nb\u2028c",
    "escape": "\x1b[2J",
    "private use": "\U0010ffff",
    "long": "x" * 3_000_000,
    "long name": "a" * 300,
    "deep": "d/" * 3000 + "x",
    "outside": "../../etc/passwd",
    "absolute": "/etc/passwd",
    "device": "/dev/zero",
    "address": "http://[::1",
    "private": "http://127.0.0.1:1/",
    "many dots": "http://a" + ".b" * 900,
    "digits": "9" * 5000,
    "huge": 10**400,
    "too many digits": 10**5000,
    "negative": -1,
    "past 64 bits": 2**64,
    "nan": math.nan,
    "infinity": math.inf,
    "none": None,
    "true": True,
    "bytes": b"x",
    "list": [],
    "words": ["\ud800"],
    "nul word": ["a\0"],
    "no words": [None, 3],
    "many": ["x"] * 50_000,
    "nested": _nested(100_000),
    "object": {"a": {"b": []}},
    "odd keys": {1: 2, None: 3},
    "no repr": _Unprintable(),
}

GOOD: dict[str, Any] = {
    "path": "a.txt",
    "to": "b.txt",
    "pattern": "hi",
    "content": "c",
    "old": "hi",
    "new": "ho",
    "start": 1,
    "end": None,
    "regex": False,
    "command": ["true"],
    "url": "http://127.0.0.1:1/",
    "by": "",
    "query": "SELECT * FROM t",
}


def _tools(root: Path) -> list[Tool[..., Any]]:
    return [
        *FileTools(root),
        *FindTools(root),
        *EditTools(root),
        *CommandTools(root, max_seconds=5),
        *FetchTools(max_seconds=5),
    ]


CASES = [
    (one.name, name)
    for one in _tools(Path(__file__).parent)
    for name in one.parameters["properties"]
]


def _told(call: Callable[[], object]) -> None:
    """It works, or its error is one of ours, and can be read."""
    try:
        call()
    except TriplepointError as error:
        message = str(error)
        assert 0 < len(message) < MAX_MESSAGE
        assert message == printable(message)


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(("name", "argument"), CASES)
def test_every_tool_with_every_argument(
    tmp_path: Path, name: str, argument: str, value: Any
) -> None:
    """Called by an agent, as a method, and shown before it may run."""
    (tmp_path / "a.txt").write_text("hi\n")
    one = ToolSet(_tools(tmp_path)).get(name)
    good = GOOD | ({"path": "."} if name in ("list_dir", "find") else {})
    arguments = {key: good[key] for key in one.parameters["properties"]} | {argument: value}

    _told(lambda: one.call(arguments))
    _told(lambda: one.function(**arguments))
    _told(lambda: one.preview(arguments))
    assert not [path for path in tmp_path.rglob("*") if len(path.relative_to(tmp_path).parts) > 70]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("name", ["list_dir", "read_file", "search", "count", "table"])
def test_plain_tools_with_every_argument(tmp_path: Path, name: str, value: Any) -> None:
    """Also with those that only code may give."""
    (tmp_path / "a.txt").write_text("hi,there\n1,2\n")
    one = ToolSet(PlainFileTools(tmp_path)).get(name)
    known = (*one.parameters["properties"], *one.unshown)
    good = GOOD | ({"path": "."} if name == "list_dir" else {})
    one.call({key: good[key] for key in known})
    for argument in known:
        arguments = {key: good[key] for key in known} | {argument: value}
        _told(lambda arguments=arguments: one.call(arguments))
        _told(lambda arguments=arguments: one.function(**arguments))


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_is_no_object_of_arguments(tmp_path: Path, value: Any) -> None:
    """Arguments as a whole, names of arguments and of tools, and a foreign schema's arguments."""
    tools = ToolSet(_tools(tmp_path))
    foreign = SchemaTool(
        "x",
        "",
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        "read",
        lambda arguments: "done",
    )
    for one in (*tools, foreign):
        _told(lambda one=one: one.call(value))
        if isinstance(value, str | int | None):
            _told(lambda one=one: one.call({value: 1}))
    _told(lambda: foreign.call({"a": value}))
    if isinstance(value, str):
        _told(lambda: tools.get(value))
        _told(lambda: Rule(value, "allow", {"path": value}))


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_person_is_asked_about_it(tmp_path: Path, value: Any) -> None:
    """A rule and the question to a person take every validated argument."""
    asked: list[PermissionRequest] = []

    def ask(request: PermissionRequest) -> Any:
        asked.append(request)
        return "no"

    rules = [Rule("delete", "deny", {"path": "**/secret"}), Rule("move", "allow", {"to": "*.txt"})]
    policy = Policy("ask", rules, ask)
    for one in _tools(tmp_path):
        for argument in one.parameters["properties"]:
            given = {key: GOOD[key] for key in one.parameters["properties"]} | {argument: value}

            def decide(one: Tool[..., Any] = one, given: dict[str, Any] = given) -> None:
                policy.decide(one, one.validate(given), given)

            _told(decide)


# --- functions that are to become tools


def _plain(text: str) -> str:
    """Do."""
    return text


def _hinted(hint: Any, default: Any = ...) -> Callable[..., str]:
    def function(value: Any) -> str:
        return str(value)

    function.__annotations__["value"] = hint
    if default is not ...:
        function.__defaults__ = (default,)
    return function


class _Callable:
    def __call__(self, text: str) -> str:
        return text


class _Signature:
    __name__ = "odd"
    __signature__ = "no signature"

    def __call__(self) -> str:
        return ""


class _Hint:
    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> Any:
        raise KeyError("hostile")


async def _later() -> AsyncIterator[str]:
    yield ""


FUNCTIONS: dict[str, Any] = {
    "number": 3,
    "text": "x",
    "list": [],
    "no repr": _Unprintable(),
    "module": math,
    "lambda": lambda text: text,
    "partial": functools.partial(_plain, "x"),
    "object": _Callable(),
    "bad signature": _Signature(),
    "builtin": dict.get,
    "type": type,
    "class": Path,
    "async generator": _later,
    "a lock": _hinted(threading.Lock),
    "a value as hint": _hinted(3),
    "syntax in a hint": _hinted("a b"),
    "attribute in a hint": _hinted("Path.nope"),
    "call in a hint": _hinted("1 / 0"),
    "hint that raises": _hinted(_Hint),
    "hint without a schema": _hinted(Callable[[int], int]),
    "default without a form": _hinted(object, default=object()),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")
def test_what_is_made_a_tool(function: Any) -> None:
    """Whatever is decorated: a tool, or an error of ours when it is made or its schema is read."""

    def use(**settings: Any) -> None:
        made = tool(**settings)(function) if settings else tool(function)
        assert made.schema()
        made.validate({"value": 1})

    _told(use)
    _told(lambda: use(name="named"))
    _told(lambda: ToolSet([function]).schemas())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"name": 3}, "3 is not a tool name"),
        ({"name": ""}, "'' is not a tool name"),
        ({"name": "a" * 300}, "aaa… is not a tool name"),
        ({"name": "a\ud800"}, "is not a tool name"),
        ({"effect": ["read"]}, "effect ['read'] is not one of read, write, exec, net"),
        ({"timeout": "soon"}, "timeout must be above 0 seconds, not 'soon'"),
        ({"timeout": math.nan}, "timeout must be above 0 seconds, not nan"),
    ],
)
def test_settings_of_a_tool(settings: dict[str, Any], reason: str) -> None:
    """What is wrong is named."""
    with pytest.raises(ToolDefinitionError) as refused:
        tool(**settings)(_plain)
    assert reason in str(refused.value)


def test_what_is_no_function() -> None:
    """The error is one of ours, and for others the one that Python would raise."""
    with pytest.raises(ToolDefinitionError, match="a tool is made from a function, not from 3"):
        tool(3)  # type: ignore[call-overload]
    with pytest.raises(ToolDefinitionError, match="has no name; give one"):
        tool(functools.partial(_plain))
    assert issubclass(ToolDefinitionError, TypeError)
    assert issubclass(ToolDefinitionError, ValueError)


def test_a_docstring_that_is_no_text() -> None:
    """It describes nothing."""

    def odd(text: str) -> str:
        return text

    odd.__doc__ = 3  # type: ignore[assignment]
    assert tool(odd).description == ""


def _given(value: Any) -> Any:
    return value


def test_results_that_have_no_form() -> None:
    """What cannot be written as JSON is an error for the model, and does no harm."""
    circular: list[Any] = []
    circular.append(circular)
    for value in (object(), b"\xff", circular, _nested(100_000), {"a": lambda: 1}):
        one = tool(name="gives")(functools.partial(_given, value))
        with pytest.raises(ToolError, match="the result cannot be written as JSON"):
            one.run({})
