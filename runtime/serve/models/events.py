"""Events of a request while it runs, of which every wire format makes its answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ...conversation.logprobs import TokenLogprob
from ..http.api_error import APIError

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(slots=True)
class PromptProgress:
    """The prompt is being read: so many tokens are in the cache, and so many were before."""

    tokens: int
    cached: int
    processed: int
    seconds: float
    choice: int = 0


@dataclass(slots=True)
class PromptRead:
    """The prompt is in the cache; what follows are answers."""

    tokens: int
    cached: int
    seconds: float
    notes: tuple[str, ...] = ()
    """What was changed in it so that it begins as those before; see `programs.normalize`."""
    choice: int = 0
    """The first of its answers."""


@dataclass(slots=True)
class Text:
    """A piece of an answer."""

    choice: int
    text: str
    logprobs: list[TokenLogprob] | None = None
    ids: list[int] | None = None
    """The tokens since the last one, where they are wanted."""
    so_far: tuple[int, float] | None = None
    """Tokens of the answer until here, and seconds, where they are wanted."""


@dataclass(slots=True)
class Thought:
    """A piece of what the model thinks."""

    choice: int
    text: str
    so_far: tuple[int, float] | None = None


@dataclass(slots=True)
class CallPart:
    """A piece of the arguments of a call that is being written."""

    choice: int
    index: int
    id: str
    name: str
    text: str
    first: bool
    so_far: tuple[int, float] | None = None


@dataclass(slots=True)
class Call:
    """A tool call, whole. `arguments` is JSON."""

    choice: int
    index: int
    id: str
    name: str
    arguments: str
    streamed: bool = False
    """Whether all of it was sent already, as `CallPart`s."""
    as_text: bool = False
    """Whether it was read from the text of the answer, which it is all of."""


@dataclass(slots=True)
class Done:
    """An answer has ended."""

    choice: int
    reason: FinishReason
    tokens: int
    reasoning_tokens: int
    seconds: float
    stop: str | None = None
    """The text that ended it, if one of `stops` did."""


@dataclass(slots=True)
class Failed:
    """The request has failed; nothing follows."""

    error: APIError


@dataclass(slots=True)
class Closed:
    """All answers have ended, or the request was cancelled; nothing follows."""


@dataclass(slots=True)
class Silence:
    """Nothing has come for a while."""


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
    """What one answer contains so far."""

    text: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    done: Done | None = None

    def add(self, event: Event) -> None:
        """Add what an event of this answer brings."""
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
    """Return llama-server's ``prompt_progress``."""
    return {
        "total": progress.tokens,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(1e3 * progress.seconds),
    }


def shifted(event: Event, first: int) -> Event:
    """Return the event with its answer counted from `first`: the request is a part of another."""
    if not first or isinstance(event, Silence | Failed | Closed):
        return event
    return replace(event, choice=event.choice + first)


def whole_of(read: PromptRead) -> PromptProgress:
    """Return the last progress event of a prompt."""
    return PromptProgress(read.tokens, read.cached, read.tokens, read.seconds, read.choice)
