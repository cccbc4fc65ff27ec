"""What an agent's loop asks of a model: take in messages, then speak.

`LocalConversation` does it token by token on a local engine, `RemoteConversation` through another
server.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..conversation.chat import Message
from .events import AgentEvent

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..conversation.reply import Reply
    from .loop import Run


class Conversation(Protocol):
    """One conversation, as one model has it."""

    @property
    def notes(self) -> list[str]:
        """What had to be done because the model or a tool's schema lack something."""
        ...

    @property
    def context(self) -> int:
        """Tokens that the conversation may hold."""
        ...

    def append(self, run: Run, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Take in the new messages; they are in ``run.agent.messages`` afterwards.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: `stop` was called; nothing has changed.
        """
        ...

    def generate(self, run: Run) -> Generator[AgentEvent, None, Reply]:
        """Let the model speak; what it said is in ``run.agent.messages``, also when it was cut.

        Raises:
            LimitReachedError: it has no tokens left, or was cut by that limit.
            ContextOverflowError: the context was full before it had finished.
            PassCancelledError: `stop` was called.
        """
        ...

    def count(self, text: str) -> int:
        """Tokens of a text, at least about."""
        ...

    def stop(self) -> None:
        """End what is running, from any thread."""
        ...

    def checkpoint(self) -> Any:
        """A place in the conversation that `rewind` can go back to."""
        ...

    def rewind(self, mark: Any) -> None:
        """Forget everything since the mark."""
        ...

    def load_history(self, messages: Sequence[Message]) -> None:
        """Begin with these messages; they are read with the first new one."""
        ...

    def fork_from(self, other: Any) -> PhaseEvent | None:
        """Take over the conversation of another one of the same kind, which stays as it is.

        Returns what that cost, for the trace.
        """
        ...

    def settings(self) -> dict[str, Any]:
        """What the header of a trace says of it: ``context``, ``format`` and the like."""
        ...
