"""Globs: ``*`` and ``?`` match within one name, ``**`` matches any number of folders.

They are matched by the same linear-time engine as `search`: no pattern can make it hang.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..errors import ToolError
from .paths import check_text, shown

MAX_GLOB = 500  # characters


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a case-sensitive predicate that matches a whole text with a glob.

    Args:
        pattern: ``*`` any characters but "/", ``**`` any at all (``**/`` also none), ``?`` one,
            ``[abc]`` and ``[!abc]`` one of a set.

    Raises:
        ToolError: the pattern is empty, too long, or a set in it does not end.
    """
    check_text("the pattern", pattern, MAX_GLOB)
    if not pattern:
        raise ToolError("the pattern is empty")
    return _matcher(pattern)


@lru_cache(maxsize=256)  # a policy asks for the same ones at every call
def _matcher(pattern: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    regex = rf"(?s)\A(?:{_regex(pattern)})\z"
    try:
        schema = core_schema.str_schema(pattern=regex, regex_engine="rust-regex")
        fits = SchemaValidator(schema).isinstance_python
    except SchemaError:
        raise ToolError(f"the pattern cannot be used: {shown(pattern)}") from None

    def matches(text: str) -> bool:
        # The engine takes no lone surrogate, which represents a byte of a name that is not UTF-8.
        return fits(text) or (not text.isascii() and fits(text.encode(errors="replace").decode()))

    return matches


def _regex(glob: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif glob[at] == "[":
            text, at = _set(glob, at)
            out.append(text)
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(glob[at]) or _literal(glob[at]))
            at += 1
    return "".join(out)


def _set(glob: str, start: int) -> tuple[str, int]:
    """Parse a character set; return it and the index after it."""
    at = start + 1
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    end = glob.find("]", at + 1)  # a "]" that comes first is one of the characters
    if end < 0:
        raise ToolError(f"the pattern has a '[' that does not end: {shown(glob)}")
    parts = [char if char == "-" else _literal(char) for char in glob[at:end]]
    for edge in (0, -1):  # a dash at an edge is a dash
        if parts[edge] == "-":
            parts[edge] = r"\-"
    return f"[{'^/' if negated else ''}{''.join(parts)}]", end + 1


def _literal(char: str) -> str:
    return char if char.isalnum() or char == "_" else rf"\x{{{ord(char):x}}}"
