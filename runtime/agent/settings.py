"""The settings of an agent, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import AgentError
from ...tools import Tool, formats

if TYPE_CHECKING:
    from ..inference.sampling import Sampling

ToolLike: TypeAlias = "Tool[..., Any] | Callable[..., Any]"

MAX_STEPS = 8
MAX_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of an agent; they are in the header of its trace."""

    max_steps: int = MAX_STEPS
    max_tokens: int = MAX_TOKENS
    context: int | None = None
    system: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling | None = None
    timeout: float | None = None
    output: Mapping[str, Any] | None = None
    """JSON schema that answers must fit."""
    compact: bool = False
    repetition_stop: bool = True

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, not {self.timeout}")


def share(context: int) -> int:
    """Characters that one result of a file tool may have where `context` tokens fit.

    Half as many characters as tokens: a few results fit even where a token is little more than a
    character, and what is left out can be read on.
    """
    return min(formats.MAX_CHARS, max(1024, context // 2))


def result_tokens_of(context: int) -> int:
    """Tokens that one result of any other tool may have."""
    return min(4096, max(256, context // 4))


def flat(tools: ToolLike | Iterable[ToolLike | Iterable[ToolLike]] | None) -> Iterator[ToolLike]:
    """The tools in order: one, many, or groups of them such as `FileTools`."""
    if tools is None:
        return
    if isinstance(tools, Tool) or callable(tools):
        yield tools
        return
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise AgentError(f"{tools!r} is not a tool: give functions, Tool objects or groups of them")
    for item in tools:
        yield from flat(item)
