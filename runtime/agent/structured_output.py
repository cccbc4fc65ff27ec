"""Structured output: the schema of a declared type, and parsing of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Generic

from typing_extensions import TypeVar

from ...errors import AgentError
from ...tools.schema import without
from ...tools.schema_tool import schema_problem

T = TypeVar("T")

MAX_ERROR = 300  # characters of what is wrong with an answer

_ASK = "Answer with JSON that fits this schema, and nothing else: "


class OutputType(Generic[T]):
    """Declared type of answers: a pydantic model, a dataclass, ``list[int]``, or a JSON schema.

    Attributes:
        schema: JSON schema of the answer.

    Raises:
        AgentError: the type has no schema.
    """

    def __init__(self, kind: type[T] | Mapping[str, Any]) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        from .output_schema import OutputSchema

        self._is_schema = isinstance(kind, Mapping)
        if isinstance(kind, Mapping):
            self._adapter: TypeAdapter[Any] = TypeAdapter(Any)
            try:
                self.schema: dict[str, Any] = json.loads(json.dumps(dict(kind), allow_nan=False))
            except (TypeError, ValueError, RecursionError) as error:
                raise AgentError(f"output_type is not a JSON schema: {error}") from None
            return
        try:
            self._adapter = TypeAdapter(kind)
            # No grammar counts what was there before: a set takes what is there twice once.
            made = self._adapter.json_schema(schema_generator=OutputSchema)
            self.schema = without(made, ("title", "uniqueItems"))
        except (PydanticUserError, ValueError, TypeError, SyntaxError, LookupError) as error:
            # The last four: a text is taken for Python that names a type.
            raise AgentError(f"output_type {kind!r} has no JSON schema: {error}") from None

    @property
    def prompt(self) -> str:
        """Return the prompt that describes the schema."""
        from .output_schema import shown

        return _ASK + json.dumps(shown(self.schema), ensure_ascii=False)

    def added_to(self, system: str) -> str:
        """Append the schema prompt to a system message."""
        return f"{system}\n\n{self.prompt}".lstrip()

    def removed_from(self, system: str) -> str:
        """Remove the schema prompt from a system message, such as a recorded one."""
        return system.removesuffix(self.prompt).removesuffix("\n\n")

    def read(self, text: str) -> T:
        """Parse an answer as the declared type.

        Raises:
            ValueError: it does not fit; says where.
        """
        from pydantic import ValidationError

        try:
            value = self._adapter.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{f'{where}: ' if where else ''}{first['msg']}"[:MAX_ERROR]) from None
        if self._is_schema and (problem := schema_problem(self.schema, value)):
            raise ValueError(problem[:MAX_ERROR])
        return value
