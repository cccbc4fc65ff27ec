"""Redacts traces: sizes, hashes, counts and times stay; texts and token ids are removed.

What stays says so by its type: numbers, words from a fixed list, and what is marked as `Own`. Of
other fields the shape is written. An event or a field that this version does not know is taken for
text: of such an event only its name is written, and such a field is left out. The hashes are
made with a key that is thrown away, so that no one can find a short text by trying candidates;
equal texts of a run still have equal hashes.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Container, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from .events import EVENT_TYPES, HEAD
from .records import MissRecord, ModelRecord, Own, Record
from .sanitize import converted
from .text_dedup import EMPTY

_IDENTIFIER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_SECRET = ("kv", "format")  # settings whose values are words of our own
_BY_DIGEST = ("tools", "output", "names")  # fields of recipes
_VALUES = ("default", "const", "enum", "examples")  # of a JSON schema: what arguments may be


def safe_fields(name: str) -> frozenset[str]:
    """Return the fields and properties of an event that hold no conversation text."""
    return _own_fields(EVENT_TYPES[name]) if name in EVENT_TYPES else frozenset()


@functools.cache
def _own_fields(kind: type[Record]) -> frozenset[str]:
    hints = get_type_hints(kind, include_extras=True)
    own = {field.name for field in fields(kind) if _is_own(hints[field.name])}
    return frozenset(own | {*kind.COMPUTED})


@functools.cache
def _known(name: str) -> frozenset[str]:
    return (
        frozenset(f.name for f in fields(EVENT_TYPES[name])) if name in EVENT_TYPES else frozenset()
    )


def _is_own(hint: Any) -> bool:
    """Return whether a type holds no foreign text; a container needs a mark for that."""
    if set(get_args(Own)[1:]) & set(getattr(hint, "__metadata__", ())):
        return True
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_own, get_args(hint)))
    return get_origin(hint) is Literal or hint in (int, float, bool, NoneType)


def blank(value: Any) -> Any:
    """Return the shape of a value: text lengths, and containers of shapes.

    Keys of an object go too, since they may hold anything.
    """
    if isinstance(value, str):
        return f"[redacted: {len(value):,} characters]" if value else ""
    if isinstance(value, Mapping):
        return _keyed(value, blank)
    if isinstance(value, list | tuple):
        return [blank(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    return "[redacted: a number]" if isinstance(value, int | float) else "[redacted]"


def _keyed(
    value: Mapping[str, Any], item: Callable[[Any], Any], known: Container[str] = ()
) -> dict[str, Any]:
    """Return the object's known keys with the values that `item` returns."""
    return {
        key if key in known else f"[redacted key {n}]": item(part)
        for n, (key, part) in enumerate(value.items(), 1)
    }


class Redactor:
    """Processor that removes the text from the events of one run as they are written."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)  # never written
        self._parameters: set[str] = set()
        self._tools: set[str] = set()

    def __call__(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of the event without conversation text."""
        name = str(event["event"])
        safe, known = safe_fields(name), _known(name)
        if name == "run_start":
            self._parameters = set(_property_names(event.get("tools", [])))
            self._tools = set(_tool_names(event.get("tools", [])))
        body: dict[str, Any] = {}
        for field, value in event.items():
            if (of_object := _OBJECTS.get((name, field))) is not None:
                body[field] = of_object(self, value) if isinstance(value, Mapping) else blank(value)
            elif (special := _SPECIAL.get((name, field))) is not None:
                body[field] = special(self, value)
            elif field in HEAD or field in safe:
                body[field] = value
            elif field in known and field.endswith("_sha256"):
                body[field] = self._hash(str(event.get(field.removesuffix("_sha256"), "")))
            elif field in known:
                body[field] = blank(value)
        return body

    def _hash(self, text: str) -> str:
        if not text:
            return EMPTY
        raw = text.encode("utf-8", "surrogatepass")
        return hmac.new(self._key, raw, hashlib.sha256).hexdigest()

    def arguments(self, value: Mapping[str, Any]) -> Any:
        """Return a call's parameter names with the shapes of their values."""
        return _keyed(value, blank, self._parameters)

    def called(self, value: Any) -> Any:
        """Return a tool's name if it exists; a model may have written any text there."""
        return value if value in self._tools else blank(value)

    def call_id(self, value: Any) -> Any:
        """Return a call's identifier if it is ours; a server's may be any text."""
        return value if _IDENTIFIER.fullmatch(str(value)) else blank(value)

    def totals(self, value: Mapping[str, Any]) -> Any:
        """Return a run's totals, including the calls of tools that exist."""
        return {
            key: (
                _keyed(item, _settings, self._tools)
                if isinstance(item, Mapping)
                else _settings(item)
            )
            for key, item in value.items()
        }

    def config(self, value: Mapping[str, Any]) -> Any:
        """Return the numeric, boolean and sampling settings."""
        of_objects: dict[str, Callable[[Any], Any]] = {
            "sampling": self.sampling,
            "output": _schema,
            "options": _options,
        }
        found = dict(value)
        for key in value.keys() - _NOT_SECRET:
            of_object = of_objects.get(key) if isinstance(value[key], Mapping) else None
            found[key] = (of_object or _settings)(value[key])
        return found

    def sampling(self, value: Mapping[str, Any]) -> Any:
        """Return the sampling settings without texts and token ids."""
        found = {**_settings(value)}
        if "order" in value:  # names of samplers
            found["order"] = value["order"]
        if isinstance(bias := value.get("logit_bias"), Mapping):  # its keys are token ids
            found["logit_bias"] = _without_keys(bias)
        return found

    def miss(self, value: Mapping[str, Any]) -> Any:
        """Return a record of a prefix cache miss without its token ids."""
        own = _own_fields(MissRecord)
        return {key: item for key, item in value.items() if key in own}

    def digest(self, value: Any) -> str:
        """Return a keyed digest of a digest, from which no content can be found."""
        return self._hash(str(value))[:32]

    def recipe(self, value: Mapping[str, Any]) -> Any:
        """Return a prompt recipe with its contents replaced by keyed digests."""
        own = {name: value[name] for name in ("format", "calls") if name in value}
        named = {name: self.digest(value[name]) for name in _BY_DIGEST if name in value}
        rest = {k: v for k, v in value.items() if k not in own.keys() | named.keys()}
        return own | named | _settings(rest)

    def model(self, value: Mapping[str, Any]) -> Any:
        """Return the model's record without its path, which holds the user's name."""
        own = _own_fields(ModelRecord)
        return {key: item if key in own else blank(item) for key, item in value.items()}


_OBJECTS: dict[tuple[str, str], Callable[[Redactor, Mapping[str, Any]], Any]] = {
    ("run_start", "model"): Redactor.model,
    ("run_start", "config"): Redactor.config,
    ("phase", "sampling"): Redactor.sampling,
    ("phase", "recipe"): Redactor.recipe,
    ("phase", "miss"): Redactor.miss,
    ("tool", "arguments"): Redactor.arguments,
    ("run_end", "totals"): Redactor.totals,
}
_SPECIAL: dict[tuple[str, str], Callable[[Redactor, Any], Any]] = {
    ("run_start", "redacted"): lambda _, value: True,
    ("run_start", "tools"): lambda _, value: _schema(value),
    **{("history", name): lambda _, value: [] for name in ("messages", "ids", "spans", "marks")},
    ("content", "digest"): Redactor.digest,
    ("content", "value"): lambda _, value: None,
    ("message", "ids"): lambda _, value: None,
    ("phase", "token_ids"): lambda _, value: [],
    ("phase", "dropped"): lambda _, value: _settings(value),
    ("phase", "server_timings"): lambda _, value: _settings(value),
    ("tool", "name"): Redactor.called,
    ("tool", "call_id"): Redactor.call_id,
}


def _settings(value: Any) -> Any:
    """Return numbers and booleans under their names."""
    return converted(value, lambda one: one if isinstance(one, int | float) else blank(one))


def _options(value: Mapping[str, Any]) -> Any:
    """Return template variables; only the names of known ones are kept."""
    return {name: _without_keys(item) for name, item in value.items()}


def _without_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _keyed(value, _without_keys)
    if isinstance(value, list | tuple):
        return [_without_keys(item) for item in value]
    return _settings(value)


def _schema(value: Any, inside: str = "") -> Any:
    if inside in _VALUES:
        return blank(value)
    if isinstance(value, Mapping):
        named = inside in ("properties", "$defs")  # its keys are names, not words of JSON Schema
        return {key: _schema(item, "" if named else key) for key, item in value.items()}
    if isinstance(value, list):
        return [_schema(item, inside) for item in value]
    if isinstance(value, str) and inside not in ("type", "name", "required", "$ref"):
        return blank(value)
    return value


def _tool_names(tools: Any) -> list[str]:
    functions = [one.get("function", one) for one in tools if isinstance(one, Mapping)]
    return [str(one.get("name", "")) for one in functions if isinstance(one, Mapping)]


def _property_names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for item in value for name in _property_names(item)]
    if not isinstance(value, Mapping):
        return []
    own = value.get("properties")
    names = [str(key) for key in own] if isinstance(own, Mapping) else []
    return names + [name for item in value.values() for name in _property_names(item)]
