"""The work of a recorded run: passes with their token counts and contexts, and waits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ReplayError
from ...traces.events import PhaseEvent, RunStart, ToolEvent
from ...traces.reader import Trace
from ..conversation.ledger import TokenLedger

if TYPE_CHECKING:
    from ...traces.reader import Trace


@dataclass(frozen=True)
class WorkItem:
    """One recorded phase as work to execute.

    Attributes:
        number: index among the phases of its run, from 1.
        recorded: the phase.
        wait_s: seconds that tools took between the phase before it and this one.
    """

    number: int
    recorded: PhaseEvent
    wait_s: float

    @property
    def computed(self) -> int:
        """Positions that the phase added to the KV cache."""
        return self.recorded.kv_after - self.recorded.kv_before


def chosen_run(trace: Trace, run: int) -> tuple[Trace, RunStart]:
    """Return one run of a trace, by list index, and its header; it must be replayable.

    Raises:
        ReplayError: there is no such run, or its tokens were another server's.
    """
    chosen, header = run_of(trace, run)
    check_replayable(header)
    return chosen, header


def run_of(trace: Trace, run: int) -> tuple[Trace, RunStart]:
    """Return one run of a trace, by list index, and its header, of a remote model too."""
    if not isinstance(trace, Trace):
        raise ReplayError(f"trace must be a Trace, not {trace!r}; see Trace.load")
    if not isinstance(run, int):
        raise ReplayError(f"run must be a run's number, not {run!r}")
    runs = trace.runs
    if not runs:
        raise ReplayError(f"{trace.path or 'the trace'}: it has no run")
    if not -len(runs) <= run < len(runs):
        raise ReplayError(f"{trace.path}: it has {len(runs)} runs, but no number {run}")
    header = runs[run].header
    if header is None:
        raise ReplayError(f"{trace.path}: it has no run_start event, so the model is unknown")
    return runs[run], header


def check_replayable(header: RunStart) -> None:
    """Check that the trace holds the run's tokens.

    Raises:
        ReplayError: the model ran in another server.
    """
    if server := header.config.get("server"):
        raise ReplayError(
            f"the model ran on a server ({server}), whose tokens are not in the trace; only runs "
            "of a local model can be replayed"
        )


def work_items(run: Trace) -> list[WorkItem]:
    """Return the work of one run, in order.

    Raises:
        ReplayError: a phase's sizes do not fit together; names the field.
    """
    found: list[WorkItem] = []
    wait = 0.0
    for event in run.events:
        if isinstance(event, ToolEvent):
            wait += event.duration_s
        elif isinstance(event, PhaseEvent):
            work = WorkItem(len(found) + 1, event, wait)
            _check(work)
            found.append(work)
            wait = 0.0
    if not found:
        raise ReplayError(f"{run.path}: the run has no phases, so there is nothing to run")
    return found


def _check(work: WorkItem) -> None:
    phase = work.recorded
    limit = phase.tokens if phase.phase == "prefill" else max(0, phase.tokens - 1)
    if phase.kv_before < 0 or not 0 <= work.computed <= limit:
        raise ReplayError(
            f"phase {work.number} ({phase.purpose}): kv_before {phase.kv_before}, kv_after "
            f"{phase.kv_after} and tokens {phase.tokens} do not fit together"
        )


def recorded_prompt(run: Trace, header: RunStart, turn: int = 0) -> TokenLedger:
    """Return all tokens read before the last reply of a turn; turn 0 is the last.

    Raises:
        ReplayError: there is no such turn, or the trace does not have all of these tokens.
    """
    if header.redacted:
        raise ReplayError(f"{run.path}: recorded with --redact, so it has no text and no token ids")
    read = {one.turn: n for n, one in enumerate(run.phases, 1) if one.phase == "prefill"}
    if not read or (turn or max(read)) not in read:
        raise ReplayError(f"{run.path}: no prompt of turn {turn or 1}; it has turns {[*read]}")
    phases = run.phases[: read[turn or max(read)]]
    ledger = ledger_of(phases)
    if len(ledger) != phases[-1].kv_after:
        raise ReplayError(f"{run.path}: it has only {len(ledger):,} tokens of this prompt")
    return ledger


def ledger_of(phases: Iterable[PhaseEvent]) -> TokenLedger:
    """Build the token ledger of a session after these phases; their purposes are the origins."""
    ledger = TokenLedger()
    for phase in phases:
        if phase.phase == "prefill":  # one of no tokens takes over those of another session
            ledger.truncate(min(len(ledger), phase.kv_before if phase.tokens else 0))
        ledger.append(phase.token_ids, phase.purpose)
    return ledger


def positions(works: Sequence[WorkItem]) -> int:
    """Return the minimum `context` of a session for the work."""
    return max(work.recorded.kv_after for work in works) + 1


class TokenIds:
    """A source of token IDs for a schedule, on a vocabulary of `n_vocab`.

    Those of the trace where it has them, wrapped around where the vocabulary is smaller; else
    made-up ones, always the same.
    """

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._chance = random.Random(1)

    def of(self, phase: PhaseEvent) -> list[int]:
        """Return as many ids as the phase has tokens."""
        if len(phase.token_ids) == phase.tokens:
            return self.wrapped(phase.token_ids)
        return self.made_up(phase.tokens)

    def wrapped(self, ids: Sequence[int]) -> list[int]:
        """Return the ids, reduced modulo the vocabulary size."""
        return [i % self._n_vocab for i in ids]

    def made_up(self, count: int) -> list[int]:
        """Return `count` arbitrary ids."""
        return list(self._many(count))

    def _many(self, count: int) -> Iterator[int]:
        for _ in range(count):
            yield self._chance.randrange(self._n_vocab)
