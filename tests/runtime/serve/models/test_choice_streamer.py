"""What is told of an answer while its tokens come."""

from __future__ import annotations

import pytest

from triplepoint.runtime.conversation.chat import Chat
from triplepoint.runtime.conversation.logprobs import TokenLogprob
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.serve.models.choice_streamer import ChoiceStreamer
from triplepoint.runtime.serve.models.events import Event, Text, Thought
from triplepoint.runtime.tokens.tokenizer import Tokenizer


class Noted:
    """In place of a `LogprobRecorder`."""

    def __init__(self) -> None:
        self.tokens: list[TokenLogprob] = []

    def take(self) -> list[TokenLogprob]:
        """See `LogprobRecorder.take`."""
        taken, self.tokens = self.tokens, []
        return taken


@pytest.mark.parametrize(
    ("written", "stops", "told"),
    [
        ("<think>\nHm\n</think>\n\nHello\n you", (), "Hello\n you"),
        ("Hello", (), "Hello"),
        ("\n\nHello", (), "Hello"),
        ("Hello é漢", (), "Hello é漢"),
        ("so it ends, or not", ("it is", "ends here"), "so it ends, or not"),
    ],
)
def test_probabilities_of_an_answer(
    tokenizer: Tokenizer, written: str, stops: tuple[str, ...], told: str
) -> None:
    """They are those of its own tokens: the first one is where the answer begins."""
    chat, noted, events = Chat(tokenizer), Noted(), list[Event]()
    reader = ReplyReader(tokenizer, chat.form, stops=stops)
    telling = ChoiceStreamer(events.append, reader, 0, noted, tokenizer=tokenizer)  # pyright: ignore[reportArgumentType]
    for token in tokenizer.encode(written, special=True):
        noted.tokens.append(TokenLogprob(token, -1.0, ()))
        telling.take(token, reader.push(token))
    telling.rest(reader.finish().calls)

    texts = [event for event in events if isinstance(event, Text)]
    tokens = [one.token for text in texts for one in text.logprobs or ()]
    assert "".join(text.text for text in texts) == told
    assert tokenizer.decode(tokens) == told
    assert any(isinstance(event, Thought) for event in events) == ("<think>" in written)
