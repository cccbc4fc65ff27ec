"""Parses Google docstrings: a function's description and its arguments."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass, field

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Warnings?|See Also"
    r"|Attributes|References|Todo):$"
)
_ARGS = ("Args", "Arguments", "Parameters")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


@dataclass
class Docstring:
    """The parts of a docstring that go into a tool's schema."""

    description: str = ""
    args: dict[str, str] = field(default_factory=dict)


@functools.lru_cache(maxsize=256)  # each agent makes the file tools anew
def parse_docstring(text: str | None) -> Docstring:
    """Split a docstring; line breaks within a paragraph become spaces."""
    before: list[str] = []
    args: list[str] = []
    section = ""
    for line in inspect.cleandoc(text or "").split("\n"):
        if found := _SECTION.match(line):
            section = found[1]
        elif not section:
            before.append(line)
        elif section in _ARGS:
            args.append(line)
    return Docstring(_paragraphs(before), _entries(args))


def _paragraphs(lines: list[str]) -> str:
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _entries(lines: list[str]) -> dict[str, str]:
    """Parse ``name: text`` or ``name (type): text``; deeper lines continue an entry."""
    entries: dict[str, str] = {}
    name = ""
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    for line in lines:
        found = _ENTRY.match(line[indent:])
        if found:
            name = found[1]
            entries[name] = found[2].strip()
        elif name and line.strip():
            entries[name] = f"{entries[name]} {line.strip()}".strip()
    return entries
