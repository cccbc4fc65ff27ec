"""The interface of a policy: its hooks, what they receive, and what they may decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ....tools import Policy as Permissions
    from ....tools import ToolSet, Workspace
    from ...conversation.formats.toolcalls import ToolCall
    from ...conversation.grammar import CallChoice
    from ...conversation.messages import Message
    from ...conversation.reply import Reply
    from ...evidence.question import Question


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy sees of a run; it changes nothing of it."""

    question: str
    turn: int
    step: int
    """Number of the step that comes, from 1 for the question itself."""
    messages: Sequence[Message]
    """The messages before the question."""
    tools: ToolSet
    permissions: Permissions
    files: Workspace | None
    """The folder that the file tools look at; None without one."""
    room: Callable[[], int]
    """Counts the tokens that the context has left."""
    count: Callable[[str], int]
    """Counts the tokens of a text."""

    @property
    def parsed(self) -> Question:
        """Return the question, parsed once for all policies."""
        from ...evidence.question import parsed  # a run without policies needs none of it

        return parsed(self.question)


@dataclass(frozen=True, slots=True)
class Looked:
    """A call that the harness made, and its result."""

    call: ToolCall
    result: str
    seconds: float = 0.0
    """Its share of the time that the looking took."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy decides; what it leaves out stays as it is."""

    looked: tuple[Looked, ...] = ()
    """Calls that were made for the model, in order; their results are evidence."""
    messages: tuple[Message, ...] = ()
    """Further messages for the model; shown and traced as the harness's, and never evidence."""
    calls: CallChoice | None = None
    """Whether the next reply may be calls, must be, or must not be."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that the next reply may call; all where none is named."""
    bounce: str = ""
    """Why a reply is rejected as the answer: the model gets this reason, and tries once more."""
    answer: str = ""
    """What is the answer in place of the reply, such as that nothing was found."""
    names: Mapping[str, Any] = field(default_factory=dict)
    """What arguments of the next reply's calls may name: fields of `Requirement`, by name."""


@dataclass(slots=True)
class Policy:
    """A policy that decides nothing; others override what they need.

    One object belongs to one conversation, so it may remember what it has seen.
    """

    name: ClassVar[str] = ""
    """What it is called in errors and reports."""
    holds: ClassVar[bool] = False
    """Whether to withhold an answer until this policy has accepted or replaced it."""

    def before_turn(self, context: Context) -> Decision | None:
        """Decide before each model call: after the question, and after each step's results."""
        return None

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """Decide about a reply without whole calls, which would be the answer, or was cut."""
        return None

    def after_result(self, context: Context, call: ToolCall, result: str) -> Decision | None:
        """Decide after a call of the model has run; the decision applies to the next reply."""
        return None

    def close(self) -> None:
        """Release resources: the conversation has ended."""
