"""The conversation that a run continues, as recorded in a trace and saved on disk.

A fork, a saved session and a branch continue earlier messages. Their traces hold these whole,
so one file is enough to continue from any question, also from those before it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...arguments import as_list
from ...errors import AgentError, TraceError
from ...traces.events import HistoryEvent
from ..conversation.ledger import Span
from ..conversation.messages import Message
from ..conversation.reasoning_spans import Mark


@dataclass(frozen=True)
class History:
    """A conversation between two questions, or between two steps of one."""

    turn: int = 0
    """Number of the last question."""
    messages: list[Message] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """Token ids of the messages; empty where no local model has read them."""
    spans: list[Span] = field(default_factory=list)
    marks: list[tuple[Mark, int]] = field(default_factory=list)
    """Where each question begins: position in the tokens, and index in the messages."""

    @classmethod
    def read(cls, event: HistoryEvent) -> History:
        """Build the history from a trace's event.

        Raises:
            TraceError: the event is not in the form that this version writes.
        """
        from pydantic import TypeAdapter, ValidationError

        fields = {name: getattr(event, name) for name in cls.__dataclass_fields__}
        fields["marks"] = [[{"tokens": mark[0]}, *mark[1:]] for mark in event.marks if mark]
        try:
            found = TypeAdapter(cls).validate_python(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise TraceError(f"event 'history', field '{where}': {first['msg']}") from None
        ends = [0, *(span.end for span in found.spans)]
        if ends != [*(span.start for span in found.spans), len(found.ids)]:
            raise TraceError("event 'history', field 'spans': they are not consecutive")
        return found

    def event(self) -> HistoryEvent:
        """Return the history as a trace event."""
        from pydantic import TypeAdapter

        fields = TypeAdapter(History).dump_python(self, mode="json")
        fields["marks"] = [[mark.tokens, message] for mark, message in self.marks]
        return HistoryEvent(**fields)

    def steps(self) -> dict[tuple[int, int], tuple[History, list[Message]]]:
        """Return the history before each (turn, step), and the messages fed at that step."""
        starts = [n for _, n in self.marks if n < len(self.messages)]
        if not starts:  # the questions were not asked one by one here
            starts = [n for n, one in enumerate(self.messages) if one.role == "user"]
            starts[:1] = [0] * bool(starts)
        ends = [*starts[1:], len(self.messages)] if starts else []
        found: dict[tuple[int, int], tuple[History, list[Message]]] = {}
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
            step, before, fed = 1, self._until(start, number - 1), list[Message]()
            for n, message in enumerate(self.messages[start:end], start):
                if message.role != "assistant" or message.by:
                    fed.append(message)
                elif fed:  # else it was stopped before it spoke
                    found[number, step] = before, fed
                    step, before, fed = step + 1, self._until(n + 1, number), []
            if fed:
                found[number, step] = before, fed
        return found

    def _until(self, messages: int, turn: int) -> History:
        """Truncate to the first `messages` messages and their tokens, as far as known."""
        marks = [(mark, n) for mark, n in self.marks if n < messages]
        at = next((mark.tokens for mark, n in self.marks if n == messages), None)
        if at is None:  # within a turn: up to the model's last message
            own = [s.end for s in self.spans if s.message == messages - 1 and s.origin == "model"]
            at = max(own, default=0)
        spans = [replace(s, end=min(s.end, at)) for s in self.spans if s.start < at]
        return History(turn, self.messages[:messages], self.ids[:at], spans, marks if at else [])


def messages_of(turns: object, system: str) -> list[Message]:
    """Convert pairs of question and answer to messages.

    Args:
        turns: pairs of texts.
        system: the system message before them, if any.

    Raises:
        AgentError: they are no pairs of texts.
    """
    refusal = "turns must be pairs of a question and an answer"
    pairs = [
        tuple(as_list(one, refusal, AgentError)) for one in as_list(turns, refusal, AgentError)
    ]
    if not all(len(one) == 2 and all(isinstance(text, str) for text in one) for one in pairs):
        raise AgentError(f"{refusal}, both texts")
    messages = [Message("system", system)] if pairs and system else []
    for question, answer in pairs:
        messages += [Message("user", question), Message("assistant", answer)]
    return messages
