"""Escapes text for display, so that no character controls a terminal or is invisible."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

# C0 and C1 controls and DEL drive terminals; line and paragraph separators break lines; direction
# marks reorder what is shown; what has no width, variation selectors and tag characters are
# invisible; lone surrogates cannot be encoded, and the last two of the plane are invalid in XML.
# Joiners (U+200C, U+200D) stay, and U+FE0F behind a sign: scripts and emoji are written with them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|(?<![#*0-9\xa9\xae\u2000-\u33ff\U0001f000-\U0001faff])\ufe0f"
)
_UNSAFE_IN_BLOCK = re.compile(rf"(?![\n\t])(?:{_UNSAFE.pattern})")


def printable(text: str, *, block: bool = False) -> str:
    """Escape every unsafe character, as in ``\\x1b``.

    Args:
        text: any text, also one with lone surrogates.
        block: keep newlines and tabs, for text that may span lines.
    """
    return (_UNSAFE_IN_BLOCK if block else _UNSAFE).sub(_escape, text)


def short(text: str, width: int) -> str:
    """Return one printable line of at most ``width`` characters, cut with ``…``."""
    line = printable(text[: width + 1])
    return line if len(line) <= width and len(text) <= width else line[: max(width - 1, 0)] + "…"


def converted(value: Any, leaf: Callable[[Any], Any], key: Callable[[Any], str] = str) -> Any:
    """Convert the keys and leaves of nested JSON objects and lists."""
    if isinstance(value, Mapping):
        return {key(name): converted(item, leaf, key) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [converted(item, leaf, key) for item in value]
    return leaf(value)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code == 0x0A:
        return "\\n"
    if code == 0x0D:
        return "\\r"
    if code == 0x09:
        return "\\t"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
