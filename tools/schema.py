"""From a function's signature to a JSON schema and a validator, by pydantic.

pydantic is imported when the first schema is needed: a program that only imports the tools does
not pay for it.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ToolError
from .docstrings import parse_docstring

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

MAX_ERRORS = 3  # told to the model at once
MAX_VALUE = 60  # characters of a wrong value in a message

_ORDER = ("type", "properties", "required", "additionalProperties")
_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then")


class Arguments:
    """The arguments that a function takes.

    The signature is judged at once, so that a mistake shows where the tool is written; types are
    read when they are first needed.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Read the signature.

        Raises:
            TypeError: a parameter cannot be given by name, has no type, or is documented and
                not there.
        """
        self._function = function
        self._name = name
        self._parameters = inspect.signature(function).parameters
        self._docs = parse_docstring(function.__doc__).args
        for parameter in self._parameters.values():
            _check_parameter(parameter, name)
        for documented in self._docs:
            if documented not in self._parameters:
                raise TypeError(
                    f"tool {name}: the docstring describes {documented!r}, which it lacks"
                )

    @cached_property
    def _model(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model

        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except NameError as error:
            raise TypeError(f"tool {self._name}: a type hint cannot be read: {error}") from None
        fields: dict[str, Any] = {}
        for index, (name, parameter) in enumerate(self._parameters.items()):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            # Own field names with the parameter as alias: pydantic refuses some names, "copy".
            info = Field(default, alias=name, description=self._docs.get(name))
            fields[f"argument_{index}"] = (hints[name], info)
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
        return create_model(self._name, __config__=config, **fields)

    def schema(self) -> dict[str, Any]:
        """JSON schema of an object with the arguments, without titles."""
        schema = without_titles(self._model.model_json_schema(by_alias=True))
        schema.setdefault("properties", {})
        return {key: schema.pop(key) for key in _ORDER if key in schema} | schema

    def validate(self, arguments: object) -> dict[str, Any]:
        """The arguments that are given, as the types that the function declares.

        Raises:
            ToolError: one is unknown, missing, or of a wrong type; for the model.
        """
        from pydantic import ValidationError

        if not isinstance(arguments, dict):
            raise ToolError(f"{self._name}: the arguments must be a JSON object")
        try:
            model = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(f"{self._name}: {self._explain(error)}") from None
        given = model.model_fields_set
        return {
            name: getattr(model, f"argument_{index}")
            for index, name in enumerate(self._parameters)
            if f"argument_{index}" in given
        }

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_context=False)
        told = [self._explain_one(one) for one in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            told.append(f"and {len(errors) - MAX_ERRORS} more")
        return "; ".join(told)

    def _explain_one(self, error: ErrorDetails) -> str:
        where = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            takes = ", ".join(self._parameters) or "no arguments"
            return f"unknown argument {_short(where)}; it takes {takes}"
        if error["type"] == "missing":
            return f"missing argument {_short(where)}"
        problem = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
        return f"argument {_short(where)} {problem} (got {_short(error['input'])})"


def _check_parameter(parameter: inspect.Parameter, tool: str) -> None:
    where = f"tool {tool}: parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise TypeError(f"{where} cannot be given by name")
    if parameter.annotation is inspect.Parameter.empty:
        raise TypeError(f"{where} has no type hint")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def without_titles(schema: Any) -> Any:
    """The schema without the titles that pydantic makes; a property called title stays."""
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS:
            out[key] = {name: without_titles(inner) for name, inner in value.items()}
        elif key in _SCHEMA_LISTS:
            out[key] = [without_titles(inner) for inner in value]
        elif key in _SCHEMAS:
            out[key] = without_titles(value)
        elif key != "title":
            out[key] = value
    return out
