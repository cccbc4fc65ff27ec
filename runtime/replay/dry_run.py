"""A session that only counts tokens and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ContextOverflowError
from ...traces.events import PassEvent, PhaseEvent, PhaseName
from ..agent.events import PhaseFinished
from ..agent.run_metadata import run_start

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..conversation.ledger import TokenLedger


def next_prompt(agent: Agent[Any], task: str) -> TokenLedger:
    """Return all tokens that the model would read before its reply, without computing them.

    Raises:
        AgentError, ContextOverflowError: the model runs on a server; or they do not fit.
    """
    done = agent.session
    with agent.fork(trace=False) as fork:
        fork.trace.write(run_start(fork.setup, task))
        dry_run: Any = DryRunSession(done.context)
        dry_run.tokens, dry_run.n_cached = list(done.tokens), done.n_cached
        fork.setup.conversation.session = dry_run  # pyright: ignore[reportAttributeAccessIssue]
        for event in fork.stream(task):
            if isinstance(event, PhaseFinished) and event.phase.phase == "decode":
                break  # an empty one: all was read
        return fork.ledger


class _Phases:
    """A stub of a session's phases: it takes settings, and runs no pass."""

    def __init__(self) -> None:
        self.on_progress: Any = None
        self.opening, self.label = 0, ""
        self.drafting = self.metrics = self
        self.sources: Sequence[tuple[int, int]] = ()

    def pass_events(self) -> list[PassEvent]:
        """Return no events, since no pass was run."""
        return []


class DryRunSession:
    """The part of `Session` that a conversation needs, without an engine.

    Attributes:
        tokens, n_cached, context: as of a session.
        script: the tokens that the next decode gives.
    """

    def __init__(self, context: int) -> None:
        self.context = context
        self.tokens: list[int] = []
        self.n_cached = 0
        self.script: list[int] = []
        self.last_phase: PhaseEvent | None = None
        self.sequence = self.phases = _Phases()

    def prefill(
        self,
        ids: Sequence[int],
        *,
        purpose: str = "prompt",
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> PhaseEvent:
        """Append `ids` to the tokens, as a prefill does.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
        """
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        if check is not None:
            check()
        before = self.n_cached
        self.tokens += ids
        self.n_cached = len(self.tokens)
        return self._phase("prefill", purpose, before)

    def decode(self, **_: Any) -> Iterator[int]:
        """Yield the scripted tokens."""
        before = self.n_cached
        for token in self.script:
            self.tokens.append(token)
            self.n_cached = len(self.tokens) - 1
            yield token
        self.last_phase = self._phase("decode", "answer", before)

    def truncate(self, n: int) -> None:
        """Drop every token after the first `n`."""
        del self.tokens[n:]
        self.n_cached = min(self.n_cached, n)

    def _phase(self, phase: PhaseName, purpose: str, before: int) -> PhaseEvent:
        return PhaseEvent(
            phase=phase,
            purpose=purpose,
            predicted="unknown",
            observed="unknown",
            tokens=self.n_cached - before,
            kv_before=before,
            kv_after=self.n_cached,
            wall_s=0.0,
        )
