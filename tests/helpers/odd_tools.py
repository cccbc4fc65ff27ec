"""Definitions of tools in which any JSON may be at any place."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

SOUND: dict[str, Any] = {
    "name": "look",
    "description": "Look at something.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "pattern": "^a+$", "description": "A text."},
            "many": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "kind": {"enum": ["a", "b", None], "default": None},
            "deep": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
            "all": {"allOf": [{"$ref": "#/$defs/Point"}], "title": "All"},
        },
        "required": ["text"],
        "additionalProperties": False,
        "$defs": {
            "Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
        },
    },
}
KEYWORDS = [
    *("type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not"),
    *("$ref", "$defs", "definitions", "pattern", "format", "minimum", "maximum", "minLength"),
    *("maxLength", "minItems", "maxItems", "additionalProperties", "patternProperties", "default"),
    *("if", "then", "multipleOf", "prefixItems", "propertyNames", "description", "name", "$schema"),
    *("exclusiveMinimum", "uniqueItems", "$id", "$anchor", "nullable", "title", "x-guidance"),
]
WORDS = [
    *(
        "",
        "object",
        "string",
        "int",
        "integer",
        "array",
        "null",
        "#",
        "#/$defs/Point",
        "#/$defs/No",
    ),
    *("https://example.com/a.json", "[", "(?!x)a", "^a{1,3}$", "date", "a b", "查询", "a>b", 'a"b'),
    *("user.get", "x" * 70, "\n", "</tool_call>", "<|im_end|>"),
]
NUMBERS = st.sampled_from([0, 1, -1, 2, 3.5, -0.0, 10, 2**31, 2**63, 1e300])
SCALARS = st.none() | st.booleans() | NUMBERS | st.sampled_from(WORDS) | st.text(max_size=3)
KEYS = st.sampled_from(KEYWORDS) | st.sampled_from(WORDS)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = list(value.items()) if isinstance(value, dict) else []
    items = list(enumerate(value)) if isinstance(value, list) else items
    return [at, *(place for key, one in items for place in _places(one, (*at, key)))]


@st.composite
def odd_tools(draw: st.DrawFn) -> Any:
    """A sound definition of a tool with one to three values replaced or added."""
    whole = {"": {**copy.deepcopy(SOUND), "name": "odd"}}
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from([p for p in _places(whole) if p]))
        holder: Any = whole
        for key in path:
            holder = holder[key]
        if isinstance(holder[last], dict) and draw(st.booleans()):
            holder[last][draw(KEYS)] = draw(JSON)
        else:
            holder[last] = draw(JSON)
    return whole[""]
