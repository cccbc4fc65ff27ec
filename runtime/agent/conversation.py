"""The interface between an agent's loop and a model: append messages, generate a reply.

`LocalConversation` does it token by token on a local engine, `RemoteConversation` through another
server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import AgentError
from .harness.policy import Decision
from .history import History

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..conversation.messages import Message
    from ..conversation.reply import Reply
    from .events import AgentEvent
    from .run_context import RunContext

Position = TypeVar("Position")


class Conversation(ABC, Generic[Position]):
    """Base class of a conversation with one model, local or on a server.

    Attributes:
        messages: the messages so far.
        turn: number of the last question.
        checkpoints: where each question begins, for `undo`: position in the model's context, and
            index in the messages.
        pending: results of the last message's calls that are not appended yet.
        decision: constraint on the next reply: calls (of which tools) or text, and names in
            arguments. On a server, tools and names are not enforced.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pending: list[Message] = []
        self.turn = 0
        self.checkpoints: list[tuple[Position, int]] = []
        self.decision = Decision()

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """Return notes on workarounds for gaps in the model or a tool's schema."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Return the maximum number of tokens of the conversation."""

    @abstractmethod
    def append(self, run: RunContext, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Append new messages to the model's context.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: `stop` was called; nothing has changed.
        """

    @abstractmethod
    def generate(self, run: RunContext) -> Generator[AgentEvent, None, Reply]:
        """Generate the reply and add it to the messages, even when it was cut.

        Raises:
            LimitReachedError: it has no tokens left, or was cut by that limit.
            ContextOverflowError: the context was full before it had finished.
            PassCancelledError: `stop` was called.
        """

    @abstractmethod
    def count(self, text: str) -> int:
        """Count or estimate the tokens of a text."""

    @abstractmethod
    def stop(self) -> None:
        """End the running pass or request, from any thread."""

    @abstractmethod
    def position(self) -> Position:
        """Return the position of the conversation's end, for `rewind`."""

    @abstractmethod
    def rewind(self, position: Position) -> None:
        """Drop everything after a position from the model's context."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings of the trace header, such as ``context`` and ``format``."""

    def room(self) -> int:
        """Return the tokens left in the context, at least approximately."""
        return self.context - sum(self.count(one.content) for one in self.messages)

    def checkpoint(self) -> None:
        """Record the current position as the beginning of a question, for `undo`."""
        self.checkpoints.append((self.position(), len(self.messages)))

    def undo(self) -> str:
        """Drop the last question and everything since; return the question.

        Raises:
            AgentError: there is none.
        """
        questions: list[str] = []
        while self.checkpoints and not questions:  # none where a question did not fit, for one
            position, length = self.checkpoints.pop()
            questions = [one.content for one in self.messages[length:] if one.role == "user"]
            self.rewind(position)
            self.messages = self.messages[:length]
        if not questions:
            raise AgentError("there is no question to undo")
        return questions[0]

    def load_history(self, messages: Sequence[Message], turn: int = 0) -> None:
        """Start with the messages of another conversation, prefilled with the first new one.

        Args:
            messages: its messages.
            turn: number of its last question.
        """
        self.messages, self.turn = list(messages), turn

    def fork_from(self, other: Conversation[Position]) -> PhaseEvent | None:
        """Copy the state of another conversation of the same kind.

        Returns the phase that records the cost, for the trace; None where there was none.
        """
        if other.messages:
            self.messages, self.turn = list(other.messages), other.turn
            self.pending = list(other.pending)
            self.checkpoints = list(other.checkpoints)

    def prefill_system(self) -> int:
        """Prefill the prefix that all conversations share; return its number of tokens, or 0."""
        return 0

    def history(self) -> History:
        """Return a copy of the conversation for another run to continue."""
        return History(self.turn, self.messages)
