"""What a module of questions is made of: phrases, each with a way to find its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..gold import Found, Tree

Kind = Literal[
    "value",  # of a key
    "line",  # by its number, or its place
    "which",  # file holds something
    "log",  # errors and failures
    "count",
    "group",  # most often
    "table",  # sum, mean, largest
    "list",  # all of them
    "names",  # in a folder
    "source",  # definitions and defaults
    "doc",  # what a page says
    "version",  # and dates
    "absent",  # cannot be answered
    "follow",  # a second question that refers to the first
    "plain",  # needs no file
    "edit",  # changes files
]
Find = Callable[[Tree], Found]
Change = Callable[[Tree], Mapping[str, str | None]]
"""What files hold afterward, by path; None: they are gone."""


@dataclass(frozen=True)
class Asked:
    """One question: its turns, and how the answer of each is found."""

    kind: Kind
    tree: str
    turns: tuple[tuple[str, Find], ...]
    language: Literal["en", "de", "es", "zh"] = "en"
    change: Change | None = None


def ask(
    kind: Kind, tree: str, text: str, find: Find, language: Literal["en", "de", "es", "zh"] = "en"
) -> Asked:
    """A single question."""
    return Asked(kind, tree, ((text, find),), language)


def follow(
    tree: str,
    first: tuple[str, Find],
    second: tuple[str, Find],
    language: Literal["en", "de", "es", "zh"] = "en",
) -> Asked:
    """Two questions, of which the second refers to the first."""
    return Asked("follow", tree, (first, second), language)


def edit(
    tree: str, text: str, change: Change, language: Literal["en", "de", "es", "zh"] = "en"
) -> Asked:
    """A task that changes files."""
    return Asked("edit", tree, ((text, lambda _: Found(())),), language, change)
