"""The constraint on a reply as plain data, for grammars and for traces.

A trace keeps it as a recipe: JSON without what is as usual, in which tools and schemas are named
by digest (`content_digest`). The contents are in the trace once, so that a replay needs nothing
besides. To require something new of replies, give `Requirement` a field, and `CallGrammar` the
rule.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from ...errors import ReplayError
from ...traces.records import content_digest
from .caches import LRUCache, per_object
from .formats import FORMATS
from .formats.toolcalls import ToolFormat
from .grammar import CallChoice, CallGrammar
from .reasoning_tags import NO_THINKING, Thinking

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer

_MAX_GRAMMARS = 32  # grammars of a tokenizer
_NAMED = ("tools", "output", "names")  # fields that a recipe names by digest


@dataclass(frozen=True)
class Requirement:
    """The constraint on a reply; default: free text."""

    format: str = ""
    """Name of the tool-call format; empty for a completion, which has no turns."""
    tools: Sequence[Mapping[str, Any]] = ()
    """OpenAI-style schemas of the tools."""
    calls: CallChoice = "auto"
    """Whether the reply may be calls (``auto``), must be (``required``) or must not (``none``)."""
    one_call: bool = False
    """Whether the reply has at most one call."""
    output: Mapping[str, Any] | str | None = None
    """JSON schema or GBNF grammar of the answer."""
    thinking: Thinking = NO_THINKING
    """Tags around the model's thinking; `NO_THINKING` where it may not think."""
    answer_forms: bool = False
    """Whether the answer is held to the forms that the model's file declares."""
    prose: bool = False
    """Whether the answer must not begin as a call in plain text does; see `prose`."""
    dresses: bool = False
    """Whether the arguments of calls written as plain text are held to the tools' schemas."""
    names: Mapping[str, Any] | None = None
    """Path constraint on call arguments, see `held_names`: ``arguments`` maps tool and argument to
    a kind (``file``, ``folder``, ``any``); ``paths`` are the existing ones."""
    also: Sequence[str] = ()
    """Further paths that arguments may name, which need not exist."""

    @property
    def form(self) -> ToolFormat:
        """Return the tool-call format.

        Raises:
            ReplayError: this version has no such format.
        """
        name = self.format or "hermes"  # without tools any format is that of a plain text
        if name not in FORMATS:
            raise ReplayError(f"constraint differs: this version has no grammar {name!r}")
        return FORMATS[name].one_call() if self.one_call else FORMATS[name]

    @property
    def callable_tools(self) -> Sequence[Mapping[str, Any]]:
        """Return the tools that the reply may call."""
        return () if self.calls == "none" else self.tools

    @functools.cached_property
    def recipe(self) -> dict[str, Any]:
        """Return the requirement as a trace records it."""
        usual, given = Requirement(), asdict(self)
        own = {k: v for k, v in given.items() if v not in (getattr(usual, k), [])}
        if "thinking" in own:
            own["thinking"] = {k: v for k, v in own["thinking"].items() if v}
        return own | {name: content_digest(own[name]) for name in _NAMED if name in own}

    @functools.cached_property
    def contents(self) -> dict[str, Any]:
        """Return the large values of the recipe, by digest."""
        return {self.recipe[name]: getattr(self, name) for name in _NAMED if name in self.recipe}

    @classmethod
    def read(cls, recipe: Mapping[str, Any], contents: Mapping[str, Any]) -> Requirement:
        """Build a requirement from a recorded recipe.

        Raises:
            ReplayError: it says something that this version does not know, or names contents that
                are not there.
        """
        given = dict(recipe)
        if unknown := sorted(given.keys() - {one.name for one in fields(cls)}):
            raise ReplayError(f"constraint differs: this version does not know {unknown[0]!r}")
        for name in _NAMED:
            digest = given.get(name)
            if digest is not None and digest not in contents:
                raise ReplayError(
                    f"the trace lacks the {name} that a decode was held to (content {digest})"
                )
            if digest is not None:
                given[name] = contents[digest]
        if "thinking" in given:
            tags = {**dict.fromkeys(("opening", "closing"), ""), **given["thinking"]}
            around = tags.get("around")
            given["thinking"] = Thinking(**{**tags, "around": around and tuple(around)})
        return cls(**given)


@per_object
def _grammars(tokenizer: Tokenizer) -> LRUCache[CallGrammar]:
    return LRUCache(_MAX_GRAMMARS)


def grammar_of(tokenizer: Tokenizer, required: Requirement) -> CallGrammar:
    """Return the grammar of a requirement, cached; thread-safe.

    The grammar leaves out the paths of `names` and `also`; `HeldNames` enforces those.

    Raises:
        GrammarError: none can be made of a schema; names the tool.
    """
    return _grammars(tokenizer).get(
        content_digest({k: v for k, v in required.recipe.items() if k not in ("names", "also")}),
        lambda: CallGrammar(
            tokenizer,
            required.tools,
            required.form,
            required.output,
            required.thinking,
            calls=required.calls,
            forms=tokenizer.answer_forms if required.answer_forms else None,
            dresses=required.dresses,
        ),
    )
