"""Renders new messages through the template with the few earlier ones that it needs.

What follows the last answer hardly depends on messages long before it, so a long history is
not rendered each turn, only a window of it. No template is trusted with that unseen: for each kind
of window, and again whenever the history has doubled, the whole conversation is rendered as well.
A template that then gives another text is shown everything from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import TemplateError
from ..tokens.segments import Segment
from .messages import Message

WORTH = 8  # messages that a window has to leave out to be worth a check
STEPS = 2  # of the last turn that are shown: the assistant's messages, and the results of its calls

Render = Callable[[Sequence[int]], "list[Segment] | None"]


class Window:
    """Renders new messages with a window of the history, while the template allows it.

    Attributes:
        off: why the template needs the whole history; empty while the window suffices.
    """

    def __init__(self) -> None:
        self.off = ""
        self._known: set[tuple[tuple[str, bool, bool], ...]] = set()
        self._check_at = 0

    def render(self, messages: Sequence[Message], last: int, render: Render) -> list[Segment]:
        """Render the text after message `last`, the assistant's newest.

        Args:
            messages: of the whole conversation.
            last: index of that message.
            render: renders the messages of these indices; None where the template leaves out what
                the assistant said.

        Raises:
            TemplateError: the template fails on the whole conversation, or leaves that out.
        """
        indices = window(messages, last)
        worth = not self.off and len(messages) - len(indices) >= WORTH
        kind = tuple(
            (messages[i].role, bool(messages[i].calls), bool(messages[i].content)) for i in indices
        )
        if worth and kind in self._known and len(messages) < self._check_at:
            found = _tried(render, indices)
            if found is not None:
                return found
        whole = render(range(len(messages)))
        if whole is None:
            raise TemplateError(
                "the chat template leaves out what the assistant said last; "
                "another template can be given to the agent (chat_template=…)"
            )
        if worth:
            self._compare(whole, _tried(render, indices), len(messages), len(indices))
            self._known.add(kind)
        return whole

    def _compare(
        self, whole: list[Segment], short: list[Segment] | None, messages: int, shown: int
    ) -> None:
        if whole == short:
            self._check_at = 2 * messages
            return
        self.off = (
            "long conversations prepare more slowly with this model: its chat template needs all "
            f"messages each turn (from {shown} of {messages} it makes another text)"
        )


def window(messages: Sequence[Message], last: int) -> list[int]:
    """Return the indices of the messages in the window: system, last turn, and new ones.

    Of a turn of many steps, only its question and the last steps are included.
    """
    question = max((i for i in range(last) if messages[i].role == "user"), default=0)
    steps = [i for i in range(question + 1, last + 1) if messages[i].role == "assistant"][-STEPS:]
    head = [0] if messages[0].role == "system" and question else []
    return [*head, question, *range(min(steps, default=last), len(messages))]


def _tried(render: Render, indices: Sequence[int]) -> list[Segment] | None:
    """Render a window; return None where the template refuses, since it may count messages."""
    try:
        return render(indices)
    except TemplateError:
        return None
