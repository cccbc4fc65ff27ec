"""A tool that is described by a JSON schema, not by a function's signature."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ToolDefinitionError, ToolError
from .schema import brief
from .tool import Effect, Tool, as_text

MAX_VALUE = 120  # characters of a complaint about an argument


class SchemaTool(Tool[..., str]):
    """A tool of another program.

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
        """The arguments, if they fit the schema.

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
        if problem := _problem(self.parameters, arguments):
            raise ToolError(f"{self.name}: {problem}")
        try:
            json.dumps(arguments, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:  # e.g. half of a surrogate pair
            raise ToolError(f"{self.name}: the arguments are not JSON: {error}") from None
        return arguments

    def run(self, arguments: dict[str, Any]) -> str:
        """Run with validated arguments."""
        return as_text(self.function(**arguments))


def _unnamed() -> str:
    """Stands for the function until the real one is known."""
    return ""


def _problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """What the schema says against the arguments, where its checker is installed."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        return ""  # the other program checks too
    try:
        error = next(Draft202012Validator(schema).iter_errors(arguments), None)
    except Exception:  # a schema that is none: the other program has to judge
        return ""
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{f'argument {where}: ' if where else ''}{error.message[:MAX_VALUE]}"
