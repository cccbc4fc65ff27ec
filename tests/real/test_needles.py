"""Facts planted at several depths of a long text are found again by a trained model."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from helpers.texts import text

from triplepoint import Engine
from triplepoint.runtime.conversation.chat import Chat
from triplepoint.runtime.conversation.messages import Message

NEEDLES = {  # depth in per cent: who, and what is asked for
    2: ("Brandt", "48213"),
    25: ("Okonkwo", "90576"),
    50: ("Tanaka", "13849"),
    75: ("Moreau", "62035"),
    97: ("Silva", "75918"),
}


def haystack(engine: Engine, tokens: int) -> str:
    """About `tokens` tokens of prose with a sentence at each depth."""
    paragraphs: list[str] = []
    length = 0
    while length < tokens - 200:
        paragraphs.append(text("prose", 100 + len(paragraphs)))
        length += len(engine.tokenizer.encode(paragraphs[-1]))
    sentences = " ".join(paragraphs).split(". ")
    for depth, (who, code) in sorted(NEEDLES.items(), reverse=True):
        at = len(sentences) * depth // 100
        sentences.insert(at, f"The access code of Professor {who} is {code}")
    return ". ".join(sentences)


@pytest.mark.parametrize(
    ("tokens", "least"),
    [
        pytest.param(4_000, 5, marks=pytest.mark.real),
        pytest.param(16_000, 5, marks=pytest.mark.exhaustive),
        # At its longest context the model takes one code for another, with a float32 cache too.
        pytest.param(32_000, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_needles(model: Path, tokens: int, least: int) -> None:
    """The greedy answer to a question behind the text has the code that stands there."""
    if model.stem != "qwen2.5-coder-0.5b":
        pytest.skip("the model's context is too short, or it is too small to answer")
    found = {}
    with Engine.load(model, context=tokens + 700) as engine:  # 32,768 at most
        document = haystack(engine, tokens)
        chat = Chat(engine.tokenizer)
        with closing(engine.session()) as session:
            for depth, (who, code) in NEEDLES.items():
                question = f"What is the access code of Professor {who}? Reply with the code only."
                messages = [Message("user", f"{document}\n\n{question}")]
                ids = [i for _, part in chat.encode(chat.open(messages), first=True) for i in part]
                pairs = zip(ids, session.tokens, strict=False)
                shared = next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
                session.truncate(shared)
                session.prefill(ids[shared:])
                answer = engine.tokenizer.decode(list(session.decode(max_tokens=12)))
                found[depth] = (code in answer, answer)
    assert sum(right for right, _ in found.values()) >= least, found
