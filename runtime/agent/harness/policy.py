"""What a policy is asked, what it is shown, and what it may decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ....tools import Policy as Permissions
    from ....tools import ToolSet, Workspace
    from ...conversation.grammar import CallChoice
    from ...conversation.messages import Message
    from ...conversation.reply import Reply
    from ...conversation.toolcalls import ToolCall


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy sees of a run; it changes nothing of it."""

    question: str
    turn: int
    step: int
    """Number of the step that comes, from 1 for the question itself."""
    messages: Sequence[Message]
    """What was said before the question."""
    tools: ToolSet
    permissions: Permissions
    files: Workspace | None
    """The folder that the file tools look at; None without one."""
    room: Callable[[], int]
    """Counts the tokens that the context has left."""
    count: Callable[[str], int]
    """Counts the tokens of a text."""


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
    """What the model is told besides; shown and traced as the harness's, and never evidence."""
    calls: CallChoice | None = None
    """Whether the next reply may be calls, must be, or must not be."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that the next reply may call; all where none is named."""
    bounce: str = ""
    """Why a reply is not taken as the answer: the model is told so, and is asked once more."""
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
    """Whether no answer is to be told before this policy has taken it, or put another there."""

    def before_turn(self, context: Context) -> Decision | None:
        """Decide before the model is asked: the question, and again after each step's results."""
        return None

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """Decide about a reply without whole calls, which would be the answer, or was cut."""
        return None

    def after_result(self, context: Context, call: ToolCall, result: str) -> Decision | None:
        """Decide after a call of the model's has run; what is decided holds for the next reply."""
        return None

    def close(self) -> None:
        """Let go of what it holds: the conversation has ended."""
