"""What an agent's loop asks of a model: take in messages, then speak.

`LocalConversation` does it token by token on a local engine, `RemoteConversation` through another
server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import AgentError
from .history import History

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..conversation.grammar import CallChoice
    from ..conversation.messages import Message
    from ..conversation.reply import Reply
    from .events import AgentEvent
    from .harness.policy import Decision
    from .run_context import RunContext

Position = TypeVar("Position")


class Conversation(ABC, Generic[Position]):
    """One conversation, as one model has it.

    Attributes:
        messages: what was said so far.
        turn: number of the last question.
        checkpoints: where the questions begin that `undo` can take back: for the model, and in the
            messages.
        pending: results of the last message's calls, as far as they ran, until they are appended.
        calls: whether the next reply may be calls, must be, or must not be; see `hold`.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pending: list[Message] = []
        self.turn = 0
        self.checkpoints: list[tuple[Position, int]] = []
        self.calls: CallChoice = "auto"
        self.callable: frozenset[str] = frozenset()
        self.names: Mapping[str, Any] = {}

    @property
    @abstractmethod
    def notes(self) -> list[str]:
        """What had to be done because the model or a tool's schema lack something."""

    @property
    @abstractmethod
    def context(self) -> int:
        """Tokens that the conversation may hold."""

    @abstractmethod
    def append(self, run: RunContext, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Take in the new messages.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: `stop` was called; nothing has changed.
        """

    @abstractmethod
    def generate(self, run: RunContext) -> Generator[AgentEvent, None, Reply]:
        """Let the model speak; what it said is in the messages, also when it was cut.

        Raises:
            LimitReachedError: it has no tokens left, or was cut by that limit.
            ContextOverflowError: the context was full before it had finished.
            PassCancelledError: `stop` was called.
        """

    @abstractmethod
    def count(self, text: str) -> int:
        """Tokens of a text, at least about."""

    @abstractmethod
    def stop(self) -> None:
        """End what is running, from any thread."""

    @abstractmethod
    def position(self) -> Position:
        """The end of the conversation, as the model has it; `rewind` can go back to it."""

    @abstractmethod
    def rewind(self, position: Position) -> None:
        """Have the model forget everything since."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the header of a trace says of it: ``context``, ``format`` and the like."""

    def hold(self, decision: Decision) -> None:
        """Hold the next reply to calls, of some tools where named, or to text; and their arguments
        to names. A model on a server is not held to these."""
        self.calls, self.callable = decision.calls or "auto", decision.tools
        self.names = decision.names

    def room(self) -> int:
        """Tokens that the context has left, at least about."""
        return self.context - sum(self.count(one.content) for one in self.messages)

    def checkpoint(self) -> None:
        """Remember that a question begins here."""
        self.checkpoints.append((self.position(), len(self.messages)))

    def undo(self) -> str:
        """Forget the last question and everything since; returns the question.

        Raises:
            AgentError: there is none.
        """
        asked: list[str] = []
        while self.checkpoints and not asked:  # none where a question did not fit, for one
            position, length = self.checkpoints.pop()
            asked = [one.content for one in self.messages[length:] if one.role == "user"]
            self.rewind(position)
            self.messages = self.messages[:length]
        if not asked:
            raise AgentError("there is no question to undo")
        return asked[0]

    def load_history(self, messages: Sequence[Message], turn: int = 0) -> None:
        """Begin with these messages; the model reads them with the first new one.

        Args:
            messages: of another conversation.
            turn: number of its last question.
        """
        self.messages, self.turn = list(messages), turn

    def fork_from(self, other: Conversation[Position]) -> PhaseEvent | None:
        """Take over another conversation of the same kind, which stays as it is.

        Returns what that cost, for the trace.
        """
        if other.messages:
            self.messages, self.turn = list(other.messages), other.turn
            self.pending = list(other.pending)
            self.checkpoints = list(other.checkpoints)

    def prefill_system(self) -> int:
        """Read what every question follows, before the first; returns its tokens, if any."""
        return 0

    def history(self) -> History:
        """The conversation as it is now, to be taken over by another run."""
        return History(self.turn, self.messages)
