"""The JSON Schema of a trace's lines, derived from the event models.

    python -m triplepoint.traces.schema > docs/trace.schema.json

It says what a line must have, and what its fields are where they are there. More is allowed: a
later version may add fields and events.
"""

from __future__ import annotations

import json
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from .events import EVENT_TYPES, HEAD, SCHEMA_VERSION
from .records import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def line_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of one line of a trace."""
    models = list(EVENT_TYPES.values())
    _, schema = TypeAdapter.json_schemas([(m, "validation", TypeAdapter(m)) for m in models])
    definitions: dict[str, Any] = schema["$defs"]
    for name, model in EVENT_TYPES.items():
        own = definitions[model.__name__]
        own["properties"] |= computed(model)  # a line has them, readers need not ask for them
        own["required"] = [*HEAD, *own.get("required", [])]
        own["properties"]["event"] = {"const": name}
    unknown = {
        "description": "An event that this version does not know.",
        "type": "object",
        "properties": {"event": {"type": "string", "not": {"enum": list(EVENT_TYPES)}}},
        "required": ["event"],
    }
    definitions["UnknownEvent"] = unknown
    return {
        "$schema": DIALECT,
        "title": f"One line of a triplepoint trace, version {SCHEMA_VERSION}",
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in models]
        + [{"$ref": "#/$defs/UnknownEvent"}],
        "$defs": _untitled(definitions, named=True),
    }


def computed(model: type[Record]) -> dict[str, Any]:
    """Return the JSON Schema of a line's computed properties, by name."""
    getters = {name: getattr(model, name).fget for name in model.COMPUTED}
    return {
        name: TypeAdapter(get_type_hints(getter)["return"]).json_schema()
        | {"description": getter.__doc__, "readOnly": True}
        for name, getter in getters.items()
    }


def _untitled(value: Any, named: bool = False) -> Any:
    """Drop pydantic's generated titles; with ``named``, the keys are names."""
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _untitled(item, key in ("properties", "$defs"))
        for key, item in value.items()
        if named or key != "title"
    }


def text() -> str:
    """Return the schema as JSON text, as it is in docs/trace.schema.json."""
    return json.dumps(line_schema(), indent=1, sort_keys=True, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")
