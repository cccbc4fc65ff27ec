"""Groups of options, declared as fields of a class; the string under a field is its help.

    class Speed(OptionGroup):
        how = Section("how it runs")
        threads: int | None = option("-t")
        \"""number of threads (default: the physical cores)\"""

`verb_options` lists the groups of each verb, and `options` in its package those of its commands.
`inspect` and `dataclasses` are not imported: that takes longer than building a parser.
"""

from __future__ import annotations

import argparse
import ast
import linecache
import sys
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

from .arguments import group_of, numbers, positive

_READ: dict[str, dict[str, Any]] = {
    "bool": {"action": "store_true"},
    "int": {"type": positive, "metavar": "N"},
    "list[int]": {"type": numbers, "metavar": "N,…"},
    "list[str]": {"action": "append"},
}
"""Settings of `argparse` by the field's type, for options without type, action or nargs."""


class Section(NamedTuple):
    """A section of the help: its title, and a line under it; the options below belong to it."""

    title: str
    about: str | None = None


class Option(NamedTuple):
    """An option, or an argument without a flag."""

    flags: tuple[str, ...]
    settings: dict[str, Any]
    """Keyword arguments of `add_argument`."""
    help: str
    """Help text, if it is not the string under the option's field."""
    one_of: str = ""
    """Name of a set of mutually exclusive options that the option belongs to."""
    section: Section | None = None
    field: tuple[str, ...] = ()
    """Field that declares the option: module, class and name."""

    def text(self) -> str:
        """Return the help, with the default at its end."""
        module, *field = self.field
        text = self.help or _texts(module)[tuple(field)]
        default = self.settings.get("default")
        if default in (None, (), {}) or "(default:" in text:
            return text
        values = default if isinstance(default, list | tuple) else [default]
        return f"{text} (default: {','.join(map(_shown, values))})"


def option(*words: str, help: str = "", one_of: str = "", **settings: Any) -> Any:
    """Declare an option; its long flag is the name of its field.

    Args:
        words: other flags (a long one replaces the field's name), and the name of its value.
        help, one_of: see `Option`.
        settings: as `argparse` takes them.
    """
    flags = [word for word in words if word.startswith("-")]
    if len(words) > len(flags):
        settings["metavar"] = words[-1]
    if not any(flag.startswith("--") for flag in flags):
        flags.append("--")  # and the name of the field
    return Option(tuple(flags), settings, help, one_of)


def argument(metavar: str | None = None, help: str = "", **settings: Any) -> Any:
    """Declare an argument, which has no flag."""
    return Option((), {"metavar": metavar, **settings}, help)


class OptionGroup:
    """A group of related command options, declared as fields of a subclass."""

    options: ClassVar[dict[str, Option]] = {}

    def __init_subclass__(cls) -> None:
        cls.options, title = {**cls.options}, None
        for name, one in vars(cls).items():
            if isinstance(one, Section):
                title = one
            elif isinstance(one, Option):
                settings = one.settings
                if not settings.keys() & {"type", "action", "nargs"}:
                    kind = cls.__annotations__[name].removesuffix(" | None")
                    settings = _READ.get(kind, {}) | settings
                cls.options[name] = one._replace(
                    settings=settings, section=title, field=(cls.__module__, cls.__name__, name)
                )

    @classmethod
    def only(cls, *names: str) -> type[OptionGroup]:
        """Return a group with only the named options."""
        return _group({name: cls.options[name] for name in names})

    @classmethod
    def omit(cls, *names: str) -> type[OptionGroup]:
        """Return a group without the named options."""
        return cls.only(*(name for name in cls.options if name not in names))

    @classmethod
    def but(cls, **changes: dict[str, Any]) -> type[OptionGroup]:
        """Return a group with other settings or help texts of some options."""
        changed = dict(cls.options)
        for name, change in changes.items():
            settings = {**changed[name].settings, **change}
            text = settings.pop("help", changed[name].help)
            changed[name] = changed[name]._replace(settings=settings, help=text)
        return _group(changed)

    @classmethod
    def add_to(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options to a parser; its `explain` adds their help."""
        sets: dict[str, Any] = {}
        for name, one in cls.options.items():
            place: Any = group_of(parser, *one.section) if one.section else parser
            if one.one_of:
                place = sets.get(one.one_of) or place.add_mutually_exclusive_group()
                sets[one.one_of] = place
            long = f"--{name.replace('_', '-')}"
            flags = [long if flag == "--" else flag for flag in one.flags]
            words = {"dest": name} if flags else {}
            action = place.add_argument(*(flags or [name]), **words, **one.settings)
            action.declared = one


def _group(options: dict[str, Option]) -> type[OptionGroup]:
    group = type("OptionGroup", (OptionGroup,), {})
    group.options = options
    return group


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


@cache
def _texts(module: str) -> dict[tuple[str, ...], str]:
    """Return the string under each field of a module's classes, by class and field."""
    loaded = sys.modules[module]
    source = "".join(linecache.getlines(loaded.__file__ or "", vars(loaded)))
    found: dict[tuple[str, ...], str] = {}
    for owner in ast.parse(source).body:
        for field, below in pairwise(owner.body if isinstance(owner, ast.ClassDef) else ()):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str() as text)):
                    found[owner.name, name] = " ".join(text.split())  # pyright: ignore[reportAttributeAccessIssue]
                case _:
                    pass
    return found
