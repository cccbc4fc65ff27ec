"""Events of a running request, from which every wire format builds its response."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ...conversation.logprobs import TokenLogprob
from ..http.api_error import APIError

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class PromptProgress:
    """Progress of a prefill: tokens of the prompt, cached before, and processed so far."""

    tokens: int
    cached: int
    processed: int
    seconds: float
    choice: int = 0


@dataclass(slots=True)
class PromptRead:
    """End of the prefill; answers follow."""

    tokens: int
    cached: int
    seconds: float
    notes: tuple[str, ...] = ()
    """What was replaced in the prompt to keep its prefix the same; see `turns.normalize`."""
    choice: int = 0
    """Number of the first answer to this prompt."""


@dataclass(slots=True)
class Text:
    """A piece of an answer's text."""

    choice: int
    text: str
    logprobs: list[TokenLogprob] | None = None
    ids: list[int] | None = None
    """IDs of the tokens since the last text, if they are requested."""
    so_far: tuple[int, float] | None = None
    """Tokens and seconds of the answer so far, if they are requested."""


@dataclass(slots=True)
class Thought:
    """A piece of the model's thinking."""

    choice: int
    text: str
    so_far: tuple[int, float] | None = None


@dataclass(slots=True)
class CallPart:
    """A piece of the arguments of a call that is being decoded."""

    choice: int
    index: int
    id: str
    name: str
    text: str
    first: bool
    so_far: tuple[int, float] | None = None


@dataclass(slots=True)
class Call:
    """A complete tool call; `arguments` is JSON."""

    choice: int
    index: int
    id: str
    name: str
    arguments: str
    streamed: bool = False
    """Whether all of it was sent already, as `CallPart`s."""
    as_text: bool = False
    """Whether it was parsed from the text of the answer, and takes the text's place."""


@dataclass(slots=True)
class Done:
    """End of one answer."""

    choice: int
    reason: FinishReason
    tokens: int
    reasoning_tokens: int
    seconds: float
    stop: str | None = None
    """Stop string that ended the answer, if one did."""


@dataclass(slots=True)
class Failed:
    """Failure of the request; no event follows."""

    error: APIError


@dataclass(slots=True)
class Closed:
    """End of the request, complete or cancelled; no event follows."""


@dataclass(slots=True)
class Silence:
    """A period without events, after which a stream gets a comment."""


Event: TypeAlias = (
    Silence
    | PromptProgress
    | PromptRead
    | Text
    | Thought
    | CallPart
    | Call
    | Done
    | Failed
    | Closed
)


@dataclass(slots=True)
class Answered:
    """The content of one answer so far."""

    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    done: Done | None = None

    def add(self, event: Event) -> None:
        """Add the content of an event of this answer."""
        if isinstance(event, Text):
            self.text.append(event.text)
            self.logprobs += event.logprobs or ()
        elif isinstance(event, Thought):
            self.thinking.append(event.text)
        elif isinstance(event, Call):
            self.calls.append(event)
        elif isinstance(event, Done):
            self.done = event


def timings(read: PromptRead, tokens: int, seconds: float) -> dict[str, Any]:
    """Return llama-server's ``timings``, with what was normalized in the prompt, if anything.

    `tokens` and `seconds` are of the answer, so far or in all.
    """
    computed, milliseconds = read.tokens - read.cached, 1e3 * read.seconds
    spent = 1e3 * seconds
    return {
        "cache_n": read.cached,
        "prompt_n": computed,
        "prompt_ms": round(milliseconds, 3),
        "prompt_per_token_ms": round(milliseconds / max(computed, 1), 3),
        "prompt_per_second": round(1e3 * computed / max(milliseconds, 1e-6), 3),
        "predicted_n": tokens,
        "predicted_ms": round(spent, 3),
        "predicted_per_token_ms": round(spent / max(tokens, 1), 3),
        "predicted_per_second": round(1e3 * tokens / max(spent, 1e-6), 3),
        **({"normalized": list(read.notes)} if read.notes else {}),
    }


def progress_of(progress: PromptProgress) -> dict[str, Any]:
    """Return llama-server's ``prompt_progress`` for a progress event."""
    return {
        "total": progress.tokens,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(1e3 * progress.seconds),
    }


def shifted(event: Event, first: int) -> Event:
    """Add `first` to the event's answer number, for a request that has several prompts."""
    if not first or isinstance(event, Silence | Failed | Closed):
        return event
    return replace(event, choice=event.choice + first)


def whole_of(read: PromptRead) -> PromptProgress:
    """Return the progress event of a completed prefill."""
    return PromptProgress(read.tokens, read.cached, read.tokens, read.seconds, read.choice)
