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
    """Read-only view of a run for policies."""

    question: str
    turn: int
    step: int
    """Number of the next step; 1 answers the question itself."""
    messages: Sequence[Message]
    """The messages before the question."""
    tools: ToolSet
    permissions: Permissions
    files: Workspace | None
    """Workspace of the file tools; None without one."""
    room: Callable[[], int]
    """Returns the number of tokens left in the context."""
    count: Callable[[str], int]
    """Counts the tokens of a text."""

    @property
    def parsed(self) -> Question:
        """Return the question, parsed once for all policies."""
        from ...evidence.question import parsed  # a run without policies needs none of it

        return parsed(self.question)


@dataclass(frozen=True, slots=True)
class Looked:
    """A call that the harness made instead of the model, and its result."""

    call: ToolCall
    result: str
    seconds: float = 0.0
    """The call's share of the seconds that gathering took."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of a policy; fields at their defaults change nothing."""

    looked: tuple[Looked, ...] = ()
    """Calls made on the model's behalf, in order; their results are evidence."""
    messages: tuple[Message, ...] = ()
    """Further messages for the model; shown and traced as the harness's, and never evidence."""
    calls: CallChoice | None = None
    """Whether the next reply may (``auto``), must (``required``) or must not (``none``) call."""
    tools: frozenset[str] = frozenset()
    """Names of the tools that the next reply may call; empty: all."""
    bounce: str = ""
    """Why a reply is rejected as the answer: the model gets this reason, and tries once more."""
    answer: str = ""
    """The answer that replaces the reply, such as that nothing was found."""
    names: Mapping[str, Any] = field(default_factory=dict)
    """Constraint on names in the next reply's arguments: fields of `Requirement`, by name."""


@dataclass(slots=True)
class Policy:
    """Base class of policies; its hooks decide nothing.

    An instance belongs to one conversation, so it may keep state.
    """

    name: ClassVar[str] = ""
    """Name of the policy in errors and reports."""
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
