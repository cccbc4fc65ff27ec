"""Converts a function's signature to a JSON schema and a validator, by pydantic.

pydantic is imported when it is needed. The schema of a signature of plain types, and arguments that
are just what it declares, do not need it: most tools are such, and a run of them starts sooner.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import ToolDefinitionError, ToolError

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

MAX_ERRORS = 3  # shown to the model at once
MAX_VALUE = 60  # characters of a wrong value in a message

_ORDER = ("type", "properties", "required", "additionalProperties")
_NAMED_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then")


PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
"""Python types with a counterpart in JSON, and the names of those in a JSON schema."""


class Arguments:
    """The parameters of a function: their JSON schema, and the validation of arguments.

    The signature is judged at once, so that a mistake shows where the tool is written; types are
    read when they are first needed.
    """

    def __init__(self, function: Callable[..., Any], name: str, docs: Mapping[str, str]) -> None:
        """Read the signature; `docs` describe its parameters.

        Raises:
            ToolDefinitionError: there is none, or a parameter cannot be given by name, has no
                type, or is documented and not there.
        """
        self._function = function
        self._name, self._docs = name, docs
        try:
            self._parameters = inspect.signature(function).parameters
        except (ValueError, TypeError) as error:
            raise ToolDefinitionError(f"tool {name}: it has no signature: {error}") from None
        for parameter in self._parameters.values():
            _check_parameter(parameter, name)
        for documented in self._docs:
            if documented not in self._parameters:
                raise ToolDefinitionError(
                    f"tool {name}: the docstring describes {documented!r}, which it lacks"
                )

    @cached_property
    def _model(self) -> type[BaseModel]:
        from pydantic import ConfigDict, Field, create_model

        hints = self._hints()
        fields: dict[str, Any] = {}
        for index, (name, parameter) in enumerate(self._parameters.items()):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            # Own field names with the parameter as alias: pydantic refuses some names, "copy".
            info = Field(default, alias=name, description=self._docs.get(name))
            fields[f"argument_{index}"] = (hints[name], info)
        config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
        with self._readable():
            return create_model(self._name, __config__=config, **fields)

    @cached_property
    def _plain(self) -> dict[str, tuple[type, ...]] | None:
        """Return the allowed types of each parameter; None if one is not of `PLAIN`."""
        found: dict[str, tuple[type, ...]] = {}
        for name, hint in self._hints().items():
            if name not in self._parameters:
                continue
            of_union = isinstance(hint, types.UnionType)
            kinds = typing.get_args(hint) if of_union else (hint,)
            if kinds[0] not in PLAIN or kinds[1:] not in ((), (types.NoneType,)):
                return None
            default = self._parameters[name].default
            absent = default is inspect.Parameter.empty
            if not absent and not (type(default) in kinds and _is_json(default)):
                return None
            found[name] = kinds
        return found

    def _plain_schema(self, plain: dict[str, tuple[type, ...]]) -> dict[str, Any]:
        """Return the schema as pydantic writes it, with keys in alphabetical order."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        for name, parameter in self._parameters.items():
            kinds = [{"type": PLAIN.get(kind, "null")} for kind in plain[name]]
            shape: dict[str, Any] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            if parameter.default is inspect.Parameter.empty:
                required.append(name)
            else:
                shape["default"] = parameter.default
            if name in self._docs:
                shape["description"] = self._docs[name]
            properties[name] = dict(sorted(shape.items()))
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            schema["required"] = required
        return schema | {"additionalProperties": False}

    def _exact(self, arguments: dict[Any, Any]) -> dict[str, Any] | None:
        """Return the arguments if each has exactly its declared type."""
        plain = self._plain
        if plain is None or not arguments.keys() <= plain.keys():
            return None
        for name, parameter in self._parameters.items():
            if name not in arguments:
                if parameter.default is inspect.Parameter.empty:
                    return None
            elif type(arguments[name]) not in plain[name] or not _is_json(arguments[name]):
                return None
        return {name: arguments[name] for name in self._parameters if name in arguments}

    def _hints(self) -> dict[str, Any]:
        with self._readable():
            hints = typing.get_type_hints(self._function, include_extras=True)
        if missing := [name for name in self._parameters if name not in hints]:
            raise ToolDefinitionError(
                f"tool {self._name}: the type hint of {missing[0]!r} cannot be read: "
                "wrap it in a plain function"
            )
        return hints

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Translate errors of evaluating hints, which are foreign code."""
        try:
            yield
        except Exception as error:
            why = str(error).split("\n")[0][:200]
            raise ToolDefinitionError(
                f"tool {self._name}: a type hint cannot be read: {why}"
            ) from error

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of an object of the arguments, without titles."""
        if self._plain is not None:
            return self._plain_schema(self._plain)
        model = self._model
        with self._readable():
            schema = without_titles(model.model_json_schema(by_alias=True))
        schema.setdefault("properties", {})
        return {key: schema.pop(key) for key in _ORDER if key in schema} | schema

    def validate(self, arguments: object) -> dict[str, Any]:
        """Convert the given arguments to the types that the function declares.

        Raises:
            ToolError: one is unknown, missing, or of a wrong type; for the model.
        """
        if not isinstance(arguments, dict):
            raise ToolError(f"{self._name}: the arguments must be a JSON object")
        if (exact := self._exact(arguments)) is not None:
            return exact
        from pydantic import ValidationError

        try:
            model = self._model.model_validate(arguments)
        except ValidationError as error:
            raise ToolError(f"{self._name}: {self._explain(error)}") from None
        except (ValueError, RecursionError) as error:  # what is met on the way to a type
            raise ToolError(f"{self._name}: the arguments cannot be read: {error}") from None
        given = model.model_fields_set
        return {
            name: getattr(model, f"argument_{index}")
            for index, name in enumerate(self._parameters)
            if f"argument_{index}" in given
        }

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_context=False)
        problems = [self._explain_one(one) for one in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            problems.append(f"and {len(errors) - MAX_ERRORS} more")
        return "; ".join(problems)

    def _explain_one(self, error: ErrorDetails) -> str:
        where = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            takes = ", ".join(self._parameters) or "no arguments"
            return f"unknown argument {brief(where)}; it takes {takes}"
        if error["type"] == "missing":
            return f"missing argument {brief(where)}"
        problem = error["msg"].removeprefix("Input ").removeprefix("Value error, ")
        return f"argument {brief(where)} {problem} (got {brief(error['input'])})"


def _is_json(value: object) -> bool:
    """Return whether a plain value has a JSON form: no NaN, no lone surrogate."""
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
    return not isinstance(value, float) or math.isfinite(value)


def _check_parameter(parameter: inspect.Parameter, tool: str) -> None:
    where = f"tool {tool}: parameter {parameter.name!r}"
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        raise ToolDefinitionError(f"{where} cannot be given by name")
    if parameter.annotation is inspect.Parameter.empty:
        raise ToolDefinitionError(f"{where} has no type hint")


def brief(value: object) -> str:
    """Format the beginning of an invalid value for an error message."""
    if isinstance(value, str | bytes):
        value = value[: MAX_VALUE + 1]
    try:
        text = repr(value)
    except Exception:  # such as a list in lists in lists, or a number of many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def without_titles(schema: Any) -> Any:
    """Return the schema without pydantic's titles; a property called title stays."""
    return without(schema, ("title",))


def without(schema: Any, keywords: Container[str]) -> Any:
    """Return the schema without some keywords at any depth; properties of these names stay.

    Keywords that are null go, too: generators write them for absent ones.
    """
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in keywords or (value is None and key not in ("const", "default")):
            continue
        if key in _NAMED_SCHEMAS and isinstance(value or {}, dict):  # PHP writes {} as []
            inner = {n: {} if one is None else one for n, one in (value or {}).items()}
            out[key] = {n: without(one, keywords) for n, one in inner.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            out[key] = [without(inner, keywords) for inner in value]
        elif key in _SCHEMAS:
            out[key] = without(value, keywords)
        else:
            out[key] = value
    return out
