"""The result of an agent's run, and its cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

from ...errors import AgentError
from ...traces.reader import Trace
from ..conversation.ledger import PrefixMismatch, Reuse

if TYPE_CHECKING:
    from ...traces.event_log import Turn
    from ...traces.events import PhaseEvent
    from ..evidence.sources import Source

Status = Literal["answered", "limit", "error", "cancelled"]
NO_SOURCE = "[no source]"


@dataclass
class Usage:
    """Cost of a run, in tokens and seconds."""

    steps: int = 0
    """Number of the model's replies."""
    input_tokens: int = 0
    """Tokens of the context over all steps, reused ones included."""
    cached_tokens: int = 0
    """Context tokens that were reused from the KV cache, over all steps."""
    reread_tokens: int = 0
    """Context tokens that had been computed before and were recomputed."""
    reread_s: float = 0.0
    """Seconds that the recomputation took."""
    miss: PrefixMismatch | None = None
    """The mismatch that caused the largest recomputation, where known."""
    output_tokens: int = 0
    """Sampled tokens, tool calls included."""
    decode_s: float = 0.0
    ttft_s: float | None = None
    """Seconds to the first sampled token."""
    wall_s: float = 0.0

    @property
    def tpot_s(self) -> float | None:
        """Return the mean seconds per output token, or None."""
        return self.decode_s / self.output_tokens if self.output_tokens else None

    @property
    def reuse(self) -> Reuse:
        """Return how much of the context was reused from the KV cache."""
        reread = self.reread_tokens, self.reread_s
        return Reuse(self.cached_tokens, self.input_tokens, *reread, self.miss)


def footnotes(sources: Iterable[Sequence[Any]], unsupported: Iterable[str]) -> list[str]:
    """Format the sources of an answer's facts, grouped by location, and the unsupported facts."""
    facts: dict[str, list[str]] = {}
    for fact, path, line in sources:
        if fact != path:
            facts.setdefault(f"{path}:{line}" if line else path, []).append(fact)
    placed = [f"[{where}] {', '.join(found)}" for where, found in facts.items()]
    return [*placed, *(f"{NO_SOURCE} {fact}" for fact in unsupported)]


Output = TypeVar("Output", default=str)


@dataclass(frozen=True)
class RunResult(Generic[Output]):
    """The outcome of a run, with the trace of its conversation."""

    answer: str
    """The model's answer; what there was of it when a limit ended the run."""
    status: Status
    message: str
    """Why the run ended, for a status other than ``answered``."""
    turn: int
    usage: Usage
    trace: Trace
    thinking: str = ""
    sources: tuple[Source, ...] = ()
    """The facts of the answer (numbers, paths, identifiers, quotations), each with the path and
    the line that carries it."""
    unsupported: tuple[str, ...] = ()
    """The facts that no line of the tool results has together with the question's topic."""
    found: bool = True
    """False where the answer states that the requested thing does not exist."""
    _output: Any = None

    @property
    def output(self) -> Output:
        """Return the answer as the agent's ``output_type``, or its text where there is none.

        Raises:
            AgentError: the run ended without an answer.
        """
        if self.status != "answered":
            raise AgentError(f"there is no answer: {self.message}")
        return self._output

    @property
    def turns(self) -> list[Turn]:
        """Return the turns of the conversation so far, from the trace."""
        return self.trace.turns

    @property
    def phases(self) -> list[PhaseEvent]:
        """Return the phases of this run, from the trace."""
        return [phase for phase in self.trace.phases if phase.turn == self.turn]
