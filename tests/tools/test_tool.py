"""Functions become tools: schema, validation, results; and what cannot be one."""

from __future__ import annotations

import enum
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from helpers.refusals import refusal
from pydantic import BaseModel, Field

from triplepoint.errors import ToolError
from triplepoint.tools import FileTools, ToolSet, tool
from triplepoint.tools.schema import Arguments


@tool
def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather.

    It knows every city, and
    some villages.

    Args:
        city: Name of the place, as on
            a map.
        days (int): How many days ahead.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit}"


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    title: str
    x: float = 0.0


@tool(name="draw-it", effect="write")
def draw(
    points: list[Point],
    title: str,
    copy: Annotated[int, Field(ge=1, le=9)] = 1,
    color: Color | None = None,
    *,
    schema: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Draw points."""
    return {"n": len(points), "first": points[0], "title": title, "color": color}


def test_schema() -> None:
    """Order of the signature, descriptions from the docstring, no titles, nothing else allowed."""
    assert weather.name == "weather"
    assert weather.effect == "read"
    assert weather.description == "Tell the weather.\n\nIt knows every city, and some villages."
    assert weather.schema() == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": weather.description,
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Name of the place, as on a map."},
                    "days": {
                        "type": "integer",
                        "default": 1,
                        "description": "How many days ahead.",
                    },
                    "unit": {"type": "string", "default": "C", "enum": ["C", "F"]},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    assert list(weather.parameters) == ["type", "properties", "required", "additionalProperties"]
    assert list(weather.parameters["properties"]) == ["city", "days", "unit"]


def plain(
    a: str, b: int, c: float, d: bool, e: str = "é", f: int | None = None, g: float = 0.5,
    h: bool | None = True,
) -> str:  # fmt: skip
    """Take plain types.

    Args:
        a: The first.
        f: Perhaps
            a number.
        b:
    """
    return repr((a, b, c, d, e, f, g, h))


def nothing() -> str:
    """Take nothing."""
    return ""


def odd_default(a: int = True, b: float = math.inf) -> str:
    """Have defaults that JSON lacks, or of other types."""
    return f"{a}{b}"


@pytest.mark.parametrize("function", [plain, nothing, odd_default, FileTools.read_file])
def test_a_plain_schema_is_as_pydantic_writes_it(
    function: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signature of plain types has the same schema, to the order of its keys, as by pydantic."""
    if function is FileTools.read_file:
        function = FileTools(Path()).read_file
    ours = json.dumps(tool(function).parameters)
    monkeypatch.setattr(Arguments, "_plain", None)

    assert ours == json.dumps(tool(function).parameters)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"e": "日本", "f": 3},
        {"f": None, "h": None},
        {"a": 5},
        {"b": "7"},
        {"b": True},
        {"b": 2**70},
        {"c": 1},
        {"c": math.nan},
        {"d": "yes"},
        {"d": 1},
        {"a": "\ud800"},
        {"a": None},
        {"f": 1.5},
        {"z": 1},
        {1: 1},
    ],
    ids=repr,
)
def test_plain_arguments_are_taken_as_by_pydantic(
    change: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments of plain types become the same values, or are refused in the same words."""
    given = {"d": False, "a": "x", "b": 1, "c": 2.5} | change

    def outcome() -> str:
        try:
            return repr(tool(plain).validate(given))
        except ToolError as error:
            return str(error)

    ours = outcome()
    monkeypatch.setattr(Arguments, "_plain", None)

    assert ours == outcome()


def test_schema_of_nested_types() -> None:
    """Titles go, but a property that is called title stays; odd names of parameters work."""
    parameters = draw.parameters

    assert (draw.name, draw.effect) == ("draw-it", "write")
    assert list(parameters["properties"]) == ["points", "title", "copy", "color", "schema"]
    assert parameters["properties"]["title"] == {"type": "string"}
    assert parameters["properties"]["copy"]["minimum"] == 1
    point = parameters["$defs"]["Point"]
    assert list(point["properties"]) == ["title", "x"]
    assert '"title": "' not in json.dumps(parameters)


def test_schema_without_parameters() -> None:
    """A tool may take nothing."""

    @tool
    def now() -> str:
        """Tell the time."""
        return "noon"

    assert now.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.call({}) == "noon"
    message = refusal(lambda: now.call({"x": 1}))
    assert message == "now: unknown argument 'x'; it takes no arguments"


def test_the_function_stays_a_function() -> None:
    """Calling the tool calls the function, with its own defaults and types."""
    assert weather("Bern", unit="F") == "Bern 1 F"
    assert weather.function("Bern") == "Bern 1 C"


def test_validate_converts() -> None:
    """Arguments become the declared types; those not given are not invented."""
    assert weather.validate({"days": "3", "city": "Bern"}) == {"city": "Bern", "days": 3}
    assert weather.validate({"city": 404}) == {"city": "404"}
    assert weather.validate({"city": "Bern", "days": 2.0}) == {"city": "Bern", "days": 2}
    arguments = draw.validate({"points": [{"title": "a", "x": 1}], "title": "t", "color": "red"})
    assert arguments == {"points": [Point(title="a", x=1)], "title": "t", "color": Color.RED}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing argument 'city'"),
        ({"city": None}, "argument 'city' should be a valid string (got None)"),
        (
            {"city": "Bern", "town": "x"},
            "unknown argument 'town'; it takes city, days, unit",
        ),
        (
            {"city": "Bern", "days": "two"},
            "argument 'days' should be a valid integer, unable to parse string as an integer "
            "(got 'two')",
        ),
        (
            {"city": "Bern", "unit": "K"},
            "argument 'unit' should be 'C' or 'F' (got 'K')",
        ),
        (
            {"city": ["x" * 100], "days": 1},
            f"argument 'city' should be a valid string (got ['{'x' * 58}…)",
        ),
        ([], "the arguments must be a JSON object"),
        ("city", "the arguments must be a JSON object"),
        (None, "the arguments must be a JSON object"),
    ],
)
def test_wrong_arguments(arguments: object, message: str) -> None:
    """The model is told which argument and why, in one short line; nothing is dropped."""
    assert refusal(lambda: weather.call(arguments)) == f"weather: {message}"


def test_many_wrong_arguments() -> None:
    """Three errors are told and the rest is counted; deep ones are named by their path."""
    arguments = {"points": [{"title": "a", "x": "y", "z": 1}], "title": 1, "copy": 99, "more": 1}
    assert refusal(lambda: draw.validate(arguments)).split("; ") == [
        "draw-it: argument 'points.0.x' should be a valid number, unable to parse string as a "
        "number (got 'y')",
        "argument 'copy' should be less than or equal to 9 (got 99)",
        "unknown argument 'more'",
        "it takes points, title, copy, color, schema",
    ]
    many = {f"a{n}": 1 for n in range(5)} | {"city": "x"}
    assert refusal(lambda: weather.validate(many)).endswith("; and 2 more")


def test_results_as_text() -> None:
    """A string is given as it is, anything else as JSON; what is no text is replaced."""

    @dataclass
    class Found:
        name: str
        size: float

    results = {
        "text\n": "text\n",
        "é": "é",
        "a\udcffb😀": "a\ufffdb😀",
    }
    for result, text in results.items():
        assert tool(_returning(result)).call({}) == text
    assert tool(_returning(None)).call({}) == "null"
    assert tool(_returning([1, "é", True])).call({}) == '[1, "é", true]'
    assert tool(_returning(Found("a", 1.5))).call({}) == '{"name": "a", "size": 1.5}'
    assert tool(_returning(Path("a/b"))).call({}) == '"a/b"'
    points = {"points": [{"title": "a"}], "title": "t"}
    drawn = '{"n": 1, "first": {"title": "a", "x": 0.0}, "title": "t", "color": null}'
    assert draw.call(points) == drawn


def _returning(result: Any) -> Callable[[], Any]:
    def returning() -> Any:
        """Return it."""
        return result

    return returning


def test_errors_of_the_function() -> None:
    """A ToolError is for the model; any other exception is a bug and comes out as it is."""

    @tool
    def fails(kind: str) -> str:
        """Fail."""
        raise ToolError("no such thing") if kind == "tool" else KeyError(kind)

    assert refusal(lambda: fails.call({"kind": "tool"})) == "no such thing"
    with pytest.raises(KeyError):
        fails.call({"kind": "bug"})


def test_what_cannot_be_a_tool() -> None:
    """The reason is told where the tool is written."""

    def star(*names: str) -> str:
        return ""

    def untyped(name) -> str:
        return ""

    def positional(name: str, /) -> str:
        return ""

    def misdocumented(name: str) -> str:
        """Do.

        Args:
            nmae: A name.
        """
        return ""

    async def later() -> str:
        return ""

    for function, reason in [
        (star, "tool star: parameter 'names' cannot be given by name"),
        (untyped, "tool untyped: parameter 'name' has no type hint"),
        (positional, "tool positional: parameter 'name' cannot be given by name"),
        (misdocumented, "tool misdocumented: the docstring describes 'nmae', which it lacks"),
        (later, "tool later: async functions and generators cannot be tools"),
    ]:
        with pytest.raises(TypeError) as refused:
            tool(function)
        assert str(refused.value) == reason
    with pytest.raises(ValueError, match="'two words' is not a tool name"):
        tool(name="two words")(weather.function)
    with pytest.raises(ValueError, match="effect 'magic' is not one of"):
        tool(effect="magic")(weather.function)  # type: ignore[call-overload]


def test_type_hints_that_cannot_be_read() -> None:
    """A type known only inside a function is named as the reason, when the schema is made."""

    class Local:
        pass

    def odd(thing: Local) -> str:
        return ""

    with pytest.raises(TypeError, match="tool odd: a type hint cannot be read: name 'Local'"):
        _ = tool(odd).parameters


def test_tool_set(tmp_path: Path) -> None:
    """Tools keep their order and are found by name; an unknown name is answered with the known."""
    tools = ToolSet([*FileTools(tmp_path), weather, _returning(1)])

    assert tools.names == ["list_dir", "read_file", "search", "weather", "returning"]
    assert len(tools) == 5
    assert "weather" in tools
    assert tools.get("weather") is weather
    assert [schema["function"]["name"] for schema in tools.schemas()] == tools.names
    known = "no such tool: rm; the tools are list_dir, read_file, search, weather, returning"
    assert refusal(lambda: tools.get("rm")) == known
    assert refusal(lambda: ToolSet().get("x")) == "no such tool: x; the tools are none"
    with pytest.raises(ValueError, match="two tools have the name 'weather'"):
        ToolSet([weather, weather])


def test_file_tools_as_tools(tmp_path: Path) -> None:
    """The three tools take a model's JSON and keep the signatures that nano was trained on."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    tools = ToolSet(FileTools(tmp_path))

    properties = [list(one.parameters["properties"]) for one in tools]
    assert properties == [["path"], ["path", "start", "end"], ["pattern", "path", "regex"]]
    assert [one.effect for one in tools] == ["read"] * 3
    assert tools.get("list_dir").call({}) == "a.txt"
    assert tools.get("read_file").call({"path": "a.txt", "start": "2", "end": None}) == "2\ttwo"
    assert tools.get("search").call({"pattern": "ONE"}) == "a.txt:1:one"
    assert refusal(lambda: tools.get("read_file").call({"path": "b"})) == "no such file: b"
    for one in tools:
        described = one.parameters["properties"].values()
        assert all(argument["description"] for argument in described)


def test_importing_the_tools_is_cheap() -> None:
    """pydantic and ctypes are loaded when they are needed, not before."""
    heavy = "{'pydantic', 'pydantic_core', 'ctypes', 'numpy'}"
    code = f"import triplepoint.tools, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
