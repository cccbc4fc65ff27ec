"""A tool defined by a JSON schema instead of a function's signature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import SettingError, ToolDefinitionError, ToolError
from .schema import brief
from .timed_regex import RegexTimeoutError, searched
from .tool import Effect, Tool, as_text

MAX_REFS = 1000  # references within a schema that are followed to check one call
MAX_VALUE = 120  # characters of a complaint about an argument


class SchemaTool(Tool[..., str]):
    """A tool of another program, such as an MCP server, defined by its JSON schema.

    Args:
        name: what the model calls it.
        description: what it does.
        schema: JSON schema of its arguments, an object.
        effect: what it can do at worst.
        run: takes the arguments by name.

    Raises:
        ToolDefinitionError: the schema is not one of an object with named arguments.
    """

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        effect: Effect,
        run: Callable[[dict[str, Any]], str],
    ) -> None:
        def call(**arguments: Any) -> str:
            return run(arguments)

        super().__init__(_unnamed, name=name, effect=effect)
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if schema.get("type", "object") != "object" or not isinstance(properties, dict):
            raise ToolDefinitionError(f"tool {name}: its schema must describe an object")
        if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
            raise ToolDefinitionError(f"tool {name}: required must be a list of names")
        self.function = call
        self.description = description
        self.__dict__["parameters"] = dict(schema)
        self.__dict__["defaults"] = {
            key: value["default"]
            for key, value in properties.items()
            if isinstance(value, dict) and "default" in value
        }

    def validate(self, arguments: object) -> dict[str, Any]:
        """Return the arguments if they match the schema.

        Raises:
            ToolError: one is unknown, missing or of a wrong form; for the model.
        """
        if not isinstance(arguments, dict):
            raise ToolError(f"{self.name}: the arguments must be a JSON object")
        known = self.parameters.get("properties", {})
        for name in self.parameters.get("required", []):
            if name not in arguments:
                raise ToolError(f"{self.name}: missing argument {brief(name)}")
        for name in arguments:
            if known and name not in known and not self.parameters.get("additionalProperties"):
                takes = ", ".join(known)
                raise ToolError(f"{self.name}: unknown argument {brief(name)}; it takes {takes}")
        if problem := schema_problem(self.parameters, arguments, "argument "):
            raise ToolError(f"{self.name}: {problem}")
        try:
            json.dumps(arguments, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:  # e.g. half of a surrogate pair
            raise ToolError(f"{self.name}: the arguments are not JSON: {error}") from None
        return arguments

    def run(self, arguments: dict[str, Any]) -> str:
        """Run the tool with validated arguments; return its result as text."""
        return as_text(self.function(**arguments))


def _unnamed() -> str:
    """Stand in until the function is known."""
    return ""


def schema_problem(schema: Mapping[str, Any], value: Any, what: str = "") -> str:
    """Return a value's violation of a schema; empty if none, or without jsonschema.

    The schema is another program's: no address in it is fetched, and none takes hours.
    """
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend
        from referencing import Registry
    except ImportError:
        return ""  # the other program checks too
    left = MAX_REFS

    def counted(keyword: str) -> Any:
        follow = Draft202012Validator.VALIDATORS[keyword]

        def ref(validator: Any, target: Any, value: Any, within: Any) -> Iterator[Any]:
            # Two references to one place, thirty times in a row, are a billion steps.
            nonlocal left
            left -= 1
            if left < 0:
                raise RecursionError
            yield from follow(validator, target, value, within) or ()

        return ref

    known = {key: counted(key) for key in ("$ref", "$dynamicRef")} | {"pattern": _pattern}
    # Python's expressions may take hours: the other program checks these itself.
    known |= {"patternProperties": _unchecked, "uniqueItems": _unique}
    if "patternProperties" in json.dumps(schema):
        known |= {"additionalProperties": _unchecked, "unevaluatedProperties": _unchecked}
    kind = extend(Draft202012Validator, known)
    try:
        checker = kind(schema, registry=Registry())  # the usual one fetches what it lacks
        error = next(checker.iter_errors(value), None)
    except Exception:  # a schema that is none: the other program has to judge
        return ""
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{f'{what}{where}: ' if where else ''}{error.message[:MAX_VALUE]}"


def _unchecked(*_: Any) -> Iterator[Any]:
    return iter(())


def _unique(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[Any]:
    """Check uniqueness in linear time."""
    from jsonschema import ValidationError

    items = value if wanted and isinstance(value, list) else []
    if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
        yield ValidationError("an item is there twice")


def _pattern(validator: Any, pattern: str, value: Any, within: Any) -> Iterator[Any]:
    """Match a pattern in linear time; one that this engine lacks, in bounded time."""
    from jsonschema import ValidationError
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        known = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
        fits = not isinstance(value, str) or SchemaValidator(known).isinstance_python(value)
    except SchemaError:
        try:
            fits = searched(pattern, value, re.RegexFlag(0))
        except (RegexTimeoutError, SettingError, re.error):
            return
    if not fits:
        yield ValidationError(f"{value!r} does not match {pattern!r}")
