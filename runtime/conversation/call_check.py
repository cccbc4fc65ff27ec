"""Checks tool calls that were decoded without a grammar against their tools' schemas."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .formats.schemas import DEFINITIONS, HARD, strict
from .formats.toolcalls import ToolCall, json_rule
from .matcher_tables import matcher_tables

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer


def fits(call: ToolCall, tools: Sequence[Mapping[str, Any]], tokenizer: Tokenizer) -> bool:
    """Return whether a call names a tool and its arguments fit the schema, in any order."""
    from llguidance import LLMatcher

    functions = (tool["function"] for tool in tools)
    function = next((one for one in functions if one["name"] == call.name), None)
    if function is None:
        return False
    whole = function.get("parameters") or {"type": "object"}
    tables = matcher_tables(tokenizer)
    rules = (f"start: {json_rule(strict(whole, drop), bool(drop))}" for drop in ((), HARD))
    rule = next((one for one in rules if not LLMatcher.validate_grammar(one, tables)), None)
    if rule is None:
        return False
    matcher = LLMatcher(tables, rule, log_level=0)
    arguments = json.dumps(_ordered(call.arguments, whole, whole), ensure_ascii=False)
    return matcher.consume_tokens(tokenizer.encode(arguments)) and matcher.is_accepting()


def _ordered(value: Any, schema: Any, whole: Mapping[str, Any], seen: Collection[str] = ()) -> Any:
    """Return a value with its keys in the order of a schema's grammar.

    Args:
        value: of JSON.
        schema: of the value.
        whole: where pointers begin.
        seen: pointers that were followed for this value; a schema may name itself.
    """
    if not isinstance(schema, Mapping) or schema.get("$ref") in seen:
        return value
    at = str(schema.get("$ref", "")).split("/")
    if len(at) == 3 and at[1] in DEFINITIONS:
        seen = {*seen, schema["$ref"]}
        target = whole.get(at[1], {}).get(at[2])
        schema = target if isinstance(target, Mapping) else {}  # true: anything
    for name in ("allOf", "anyOf", "oneOf"):
        for one in schema.get(name, ()):
            value = _ordered(value, one, whole, seen)
    if isinstance(value, list):
        return [_ordered(item, schema.get("items"), whole) for item in value]
    if not isinstance(value, Mapping):
        return value
    known = schema.get("properties", {})
    keys = [key for key in known if key in value]
    keys += [key for key in value if key not in known]
    return {key: _ordered(value[key], known.get(key), whole) for key in keys}
