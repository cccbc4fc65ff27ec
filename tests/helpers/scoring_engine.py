"""An engine that computes nothing and yet has logits: it finds the right text likely, or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from triplepoint.runtime.conversation.formats.hermes import Hermes
from triplepoint.runtime.suites.fresh_questions import Question, fresh

END = "<|im_end|>"
_SURE = 4.0  # logits of a token that is found likely


def right_reply(question: Question) -> list[str]:
    """The replies of a model that is right: a call and what is said then, or an answer."""
    said = question.texts[0]
    if isinstance(said, str):
        return [said + END]
    body = json.dumps({"name": said.name, "arguments": said.arguments})
    return [f"<tool_call>\n{body}\n</tool_call>{END}", f"It is set.{END}"]


def scoring_engine(scripted: Any, likes: str, replies: Sequence[str]) -> Any:
    """An engine that decodes `replies`, and finds right texts likely where a prompt has `likes`."""
    engine = scripted(*replies, context=32_768)
    questions = [one for seed in range(3) for one in fresh(seed)[1]]
    engine.likes, engine.right = likes, {one.turn.ask: _text(one) for one in questions}
    engine.session = lambda context=None: Scoring(engine, engine.replies)
    return engine


def _text(question: Question) -> str:
    said = question.texts[0]
    return said if isinstance(said, str) else Hermes().render([said])


def Scoring(engine: Any, replies: list[Any]) -> Any:
    """A session of such an engine."""
    base: Any = type(engine).session(engine)

    class Session(type(base)):
        """Adds the logits."""

        def fork(self, n: int | None = None) -> Any:
            other = Scoring(engine, replies)
            other.tokens = self.tokens[:n]
            other.n_cached = min(self.n_cached, len(other.tokens))
            return other

        @property
        def logits(self) -> np.ndarray:
            return self._rows([])[0]

        def logits_for(self, ids: Sequence[int]) -> np.ndarray:
            rows = self._rows(ids)[1:]
            self.tokens += ids
            return rows

        def _rows(self, ids: Sequence[int]) -> np.ndarray:
            """After the prompt and after each of `ids`: float32 [len(ids) + 1, n_vocab]."""
            rows = np.zeros((len(ids) + 1, engine.tokenizer.n_vocab), np.float32)
            prompt = engine.tokenizer.decode(self.tokens, special=True)
            if engine.likes in prompt:
                asked = max(engine.right, key=prompt.rfind)
                right = engine.tokenizer.encode(engine.right[asked], special=True)
                for at in range(len(ids) + 1):
                    if list(ids[:at]) == right[:at] and at < len(right):
                        rows[at, right[at]] = _SURE
            return rows

    return Session(engine.tokenizer, replies, engine.context, engine.core)
