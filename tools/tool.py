"""Tools: Python functions that a model may call."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from ..arguments import as_list, is_number, without_surrogates
from ..errors import ToolDefinitionError, ToolError
from .docstrings import parse_docstring
from .paths import shown
from .schema import Arguments, brief

P = ParamSpec("P")
R = TypeVar("R")

Effect = Literal["read", "write", "exec", "net"]
Named = Literal["file", "folder", "any"]  # what a path may be of
EFFECTS: tuple[Effect, ...] = ("read", "write", "exec", "net")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Tool(Generic[P, R]):
    """A function with its name, description and schema for the model.

    Attributes:
        name: what the model calls it.
        description: what it does, from the docstring.
        effect: what it can do at worst: "read", "write", "exec" (run programs), "net".
        function: the function itself.
        self_truncates: whether it limits its own results and says how to get the rest.
        timeout: seconds that an agent waits for one call; None for as long as it takes.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        effect: Effect = "read",
        preview: Callable[..., str] | None = None,
        reaches: Callable[..., Iterable[str]] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Read the function's signature and docstring.

        Raises:
            ToolDefinitionError: the function cannot be a tool, or the name, effect or timeout
                cannot be one; the message says why.
        """
        if not callable(function):
            raise ToolDefinitionError(f"a tool is made from a function, not from {brief(function)}")
        self.function = function
        if name is None and not (name := getattr(function, "__name__", None)):
            raise ToolDefinitionError(f"{brief(function)} has no name; give one with tool(name=…)")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ToolDefinitionError(
                f"{brief(name)} is not a tool name: use up to 64 letters, digits, _ and -, not "
                "starting with a digit; give a name with tool(name=…)"
            )
        self.name = name
        if effect not in EFFECTS:
            raise ToolDefinitionError(
                f"tool {name}: effect {brief(effect)} is not one of {', '.join(EFFECTS)}"
            )
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction)
        if any(is_kind(function) for is_kind in (*kinds, inspect.isasyncgenfunction)):
            raise ToolDefinitionError(
                f"tool {name}: async functions and generators cannot be tools"
            )
        if timeout is not None and not (is_number(timeout) and timeout > 0):
            raise ToolDefinitionError(
                f"tool {name}: timeout must be above 0 seconds, not {brief(timeout)}"
            )
        self.effect: Effect = effect
        self.timeout = timeout
        self.self_truncates = False
        self.unshown: Collection[str] = ()
        """Arguments that code may give and that a model does not see."""
        self.acts_as: Collection[str] = ()
        """Names of other tools whose deny and ask rules in a policy also apply to this one."""
        self.existing: Mapping[str, Named] = {}
        """Arguments that must be existing paths, by name, and whether of a file or a folder."""
        self.whole_file: Literal["", "moves", "removes"] = ""
        """Whether a call moves or removes a whole file: offered only if the task requests that."""
        self.declined: Callable[..., object] | None = None
        """Callback for a call that was previewed and then not run, with its arguments."""
        self.normalize: Callable[[dict[str, Any]], dict[str, Any]] = dict
        """Function that normalizes validated arguments for the policy and the tool's function."""
        self.group: object = None
        """Owner of the tool's resources, referenced here so that it lives as long as the tool."""
        text = function.__doc__  # which can be set to anything
        docs = parse_docstring(text if isinstance(text, str) else None)
        self.description = docs.description
        self._preview, self._reaches = preview, reaches
        self._arguments = Arguments(function, self.name, docs.args)

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Return the arguments' JSON schema: properties in signature order, no titles.

        Raises:
            ToolDefinitionError: a type hint has none.
        """
        schema = self._arguments.schema()
        for name in self.unshown:
            del schema["properties"][name]
        return schema

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Return the optional arguments with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.default is not p.empty}

    def schema(self) -> dict[str, Any]:
        """Return the tool in the form of OpenAI's API and of chat templates."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}

    def validate(self, arguments: object) -> dict[str, Any]:
        """Convert the given arguments to the declared types; defaults are not filled in.

        Raises:
            ToolError: an argument is unknown, missing or of a wrong type; for the model.
        """
        return self.normalize(self._arguments.validate(arguments))

    def call(self, arguments: object) -> str:
        """Validate, run, and return the result as text for the model: JSON unless it is a string.

        Raises:
            ToolError: the arguments are wrong, or the function says so. What else it raises is
                not caught.
        """
        return self.run(self.validate(arguments))

    def preview(self, arguments: dict[str, Any]) -> str:
        """Describe to the user what a validated call would do; may be empty.

        Raises:
            ToolError: the call would fail; says why.
        """
        return "" if self._preview is None else self._preview(**arguments)

    def reaches(self, arguments: Mapping[str, Any]) -> Iterable[str]:
        """Return the paths that a call affects in addition to those that it names.

        Raises:
            ToolError: the call would fail, or they are too many to check.
        """
        return () if self._reaches is None else self._reaches(**arguments)

    def run(self, arguments: dict[str, Any]) -> str:
        """Run the function with arguments from `validate`; return text as `call` does."""
        function: Callable[..., Any] = self.function
        return as_text(function(**arguments))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name} ({self.effect})>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect = "read",
    preview: Callable[..., str] | None = None,
    reaches: Callable[..., Iterable[str]] | None = None,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect = "read",
    preview: Callable[..., str] | None = None,
    reaches: Callable[..., Iterable[str]] | None = None,
    timeout: float | None = None,
) -> Any:
    """Make a tool of a function with type hints and a Google docstring.

        @tool
        def add(a: int, b: int = 1) -> int:
            \"\"\"Add two numbers.

            Args:
                a: The first number.
                b: The second number.
            \"\"\"
            return a + b

    Args:
        function: the function, when the decorator is used without parentheses.
        name: its name for the model; default: the function's name.
        effect: what it can do at worst, for the policy that allows calls.
        preview: function that shows what a call with the same arguments would do, such as a diff,
            to the user who decides.
        reaches: function that gives the paths that a call with the same arguments is about besides
            those that it names, such as what is in a folder that it moves: rules of a policy that
            deny or ask hold for them, too.
        timeout: seconds that an agent waits for one call. After that the model learns that it
            took longer. The function still runs until it returns; its result is dropped.
    """

    def make(decorated: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(
            decorated, name=name, effect=effect, preview=preview, reaches=reaches, timeout=timeout
        )

    return make if function is None else make(function)


class ToolGroup:
    """Tools that share a resource; iterating yields them."""

    _tools: Sequence[Tool[..., Any]]

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


class ToolSet:
    """Tools in a fixed order, with unique names."""

    def __init__(self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()) -> None:
        """Collect the tools; plain functions become tools.

        Raises:
            ToolDefinitionError: two tools have the same name, or one cannot be a tool.
        """
        self._tools: dict[str, Tool[..., Any]] = {}
        for item in as_list(tools, "a ToolSet takes functions and tools", ToolDefinitionError):
            one = item if isinstance(item, Tool) else Tool(item)
            if one.name in self._tools:
                raise ToolDefinitionError(f"two tools have the name {one.name!r}")
            self._tools[one.name] = one

    @property
    def names(self) -> list[str]:
        """Return the names in order."""
        return list(self._tools)

    def get(self, name: str) -> Tool[..., Any]:
        """Return the tool of that name.

        Raises:
            ToolError: there is none; the message names those that there are.
        """
        if not isinstance(name, str) or name not in self._tools:
            known = ", ".join(self._tools) or "none"
            raise ToolError(f"no such tool: {shown(str(name))}; the tools are {known}")
        return self._tools[name]

    def schemas(self) -> list[dict[str, Any]]:
        """Return the OpenAI form of every tool, in order."""
        return [one.schema() for one in self]

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._tools)})"


def as_text(value: object) -> str:
    """Convert a tool's result to text for the model: strings as is, anything else as JSON.

    Raises:
        ToolError: it has no JSON form.
    """
    if not isinstance(value, str):
        from pydantic_core import to_jsonable_python

        try:
            value = json.dumps(to_jsonable_python(value), ensure_ascii=False)
        except (ValueError, TypeError, RecursionError) as error:
            why = str(error).split("\n")[0][:200]
            raise ToolError(f"the result cannot be written as JSON: {why}") from error
    return without_surrogates(value)
