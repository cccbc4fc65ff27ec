"""The tags around a model's thinking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Thinking:
    """The tags around a model's thinking."""

    opening: str = "<think>"
    closing: str = "</think>"
    around: tuple[str, str] | None = None
    """Tags around the answer, which are not part of its text."""
    title: str = ""
    """Text between the opening tag and the thought, which is not part of the thought."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Return all tags, the opening and the closing one first."""
        return (self.opening, self.closing, *(self.around or ()))

    def opened_by(self, text: str) -> bool:
        """Return whether a prompt ends with the opening tag."""
        return text.rstrip().endswith((self.opening, self.opening + self.title))


NO_THINKING = Thinking("", "")
"""Value for a reply without thinking, such as a completion."""

KNOWN = (
    Thinking("<think>", "</think>", ("<response>", "</response>")),
    Thinking(),
    Thinking("[THINK]", "[/THINK]"),
    Thinking("<|START_THINKING|>", "<|END_THINKING|>"),
    Thinking("<seed:think>", "</seed:think>"),
    Thinking("<|channel>", "<channel|>", title="thought"),
    Thinking("<|channel|>analysis<|message|>", "<|end|>"),
)


def mentions_thinking(template: str) -> bool:
    """Return whether a template contains the tags of any known model's thinking."""
    tags = {tag for known in KNOWN for tag in known.tags[:2]} - {"<|end|>"}  # it ends any message
    return any(tag in template for tag in tags)


def thinking_of(template: str, tokenizer: Tokenizer) -> Thinking:
    """Return the tags that a template uses, else those in the vocabulary."""
    for known in KNOWN:
        if all(tag in template for tag in known.tags):
            return known
    marks = tokenizer.vocabulary.all_markers
    return next((known for known in KNOWN if all(t in marks for t in known.tags)), Thinking())
