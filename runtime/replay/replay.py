"""Replays a recorded trace on the model and compares the results.

A trace holds for each prefill the ids that were fed in and for each decode the ids that were
sampled, so a replay is the same sequence of session calls with the recorded tool results already
inside the recorded prompts: no tool runs, nothing is tokenized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from ...errors import ContextOverflowError, ReplayError
from ...traces.events import PhaseEvent, RunEnd, RunStart, ToolEvent, TurnEnd
from ..conversation.turn import Turn
from .constraints import RecordedTurns
from .divergence import ROUNDING, likely_cause, margin_between, what_differs
from .workload import check_replayable, chosen_run

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..engine.engine import Engine


CONTEXT = 16  # tokens before a difference that are shown


@dataclass(frozen=True)
class Difference:
    """The first sampled token that differs from the recorded one."""

    position: int
    """Index of the token in its phase, from 0."""
    recorded: int | None
    """ID in the trace; None when the replay continued where the recording had ended."""
    replayed: int | None
    """ID from the replay; None when the replay ended first."""
    recorded_text: str
    replayed_text: str
    before: str = ""
    """End of the text before the token."""
    margin: float | None = None
    """Logit margin of the two tokens, by the range of all logits; None: not known."""
    cause: str = ""
    """Likely cause of the difference."""


@dataclass(frozen=True)
class ToolDifference:
    """The first live tool call whose result differs from the recorded one."""

    call: ToolEvent
    now: str
    """Result that the model would get now."""


@dataclass(frozen=True)
class AnswerDifference:
    """The first recorded answer that its sampled tokens do not contain."""

    turn: int
    recorded: str
    sampled: str
    """Text of the tokens that were sampled in that turn, thoughts and calls included."""


@dataclass(frozen=True)
class PhaseCheck:
    """A phase that was replayed."""

    number: int
    """Index among the phases of its run, from 1."""
    recorded: PhaseEvent
    replayed: PhaseEvent
    difference: Difference | None = None

    @property
    def same(self) -> bool:
        """Whether the replay sampled the recorded tokens."""
        return self.difference is None


@dataclass
class VerifyReport:
    """The outcome of a verification; `ok` is True when every phase gave the recorded tokens.

    Where `sampled` is 0 there were no tokens to compare, and `ok` means nothing.
    """

    run: str
    notes: list[str]
    """Differing settings that may give the same tokens nevertheless."""
    total: int
    """Phases in the recorded run."""
    phases: list[PhaseCheck] = field(default_factory=list)
    tools: int = 0
    """Number of live tool calls that gave the recorded result."""
    tool_difference: ToolDifference | None = None
    answer_difference: AnswerDifference | None = None
    other_target: bool = False
    """Whether the recording was made with another CPU target."""
    other_numbers: bool = False
    """Whether it was made with another KV cache format or model file: then more differs than the
    order of sums."""

    @property
    def ok(self) -> bool:
        """Whether all phases gave the recorded tokens, and all answers and live tools agree."""
        whole = len(self.phases) == self.total and self.tool_difference is None
        return whole and self.answer_difference is None and all(phase.same for phase in self.phases)

    @property
    def sampled(self) -> int:
        """Number of recorded tokens in the replayed decodes."""
        return sum(one.recorded.tokens for one in self.phases if one.recorded.phase == "decode")

    @property
    def within_rounding(self) -> bool:
        """Whether another CPU target's rounding explains the first difference."""
        found = self.first_difference
        margin = found.difference.margin if found and found.difference else None
        if not self.other_target or self.other_numbers or margin is None:
            return False
        return margin <= ROUNDING

    @property
    def first_difference(self) -> PhaseCheck | None:
        """First phase whose tokens differ from the recording; None without one."""
        return next((phase for phase in self.phases if not phase.same), None)


def verify(
    trace: Trace,
    engine: Engine,
    *,
    run: int = -1,
    tools: Callable[[ToolEvent], str | None] | None = None,
    on_phase: Callable[[PhaseCheck], None] | None = None,
) -> VerifyReport:
    """Replay one run of a trace and compare the sampled tokens of every phase.

    Stops at the first phase or tool result that differs, because the history differs after it, and
    at an answer that the tokens of its turn do not say.

    Args:
        trace: a loaded trace.
        engine: an engine with the model of the trace.
        run: which run of the trace, counted as list indices are; the last one by default.
        tools: function that reruns a recorded call and returns the text for the model, or None to
            keep the recorded result; without it, all recorded results are used.
        on_phase: called after each phase.

    Raises:
        ReplayError: the trace and the engine do not fit; the message names the field.
    """
    chosen, header = chosen_run(trace, run)
    if not hasattr(engine, "model") or not hasattr(engine, "session"):
        raise ReplayError(f"engine must be an Engine, not {engine!r}; see Engine.load")
    check_has_tokens(trace, header)
    report = VerifyReport(header.run, check_settings(header, engine), total=len(chosen.phases))
    effects = {setting.effect for setting in what_differs(header, engine)}
    report.other_target, report.other_numbers = "order" in effects, "numbers" in effects
    replay = Replay(engine, chosen, header)
    number = 0
    by_harness: str | None = None  # an answer that the model did not give
    sampled: tuple[int, list[int]] = 0, []  # a turn, and its sampled tokens
    for event in chosen.events:
        if isinstance(event, ToolEvent) and tools is not None:
            now = tools(event)
            if now is not None and now != event.result:
                report.tool_difference = ToolDifference(event, now)
                break
            report.tools += now is not None
        if isinstance(event, TurnEnd) and event.turn != sampled[0]:  # it has no phase
            sampled = event.turn, []
        if isinstance(event, TurnEnd | RunEnd):
            turn, text = sampled[0], engine.tokenizer.decode(sampled[1], special=True)
            if isinstance(event, TurnEnd):
                by_harness = event.answer if event.by else None
            if event.answer != by_harness and not _contains(text, event.answer):
                report.answer_difference = AnswerDifference(turn, event.answer, text)
                break
        if not isinstance(event, PhaseEvent):
            continue
        if event.turn != sampled[0]:
            sampled = event.turn, []
        if event.phase == "decode":
            sampled[1].extend(event.token_ids)
        number += 1
        check = replay.check(number, event)
        report.phases.append(check)
        if on_phase is not None:
            on_phase(check)
        if not check.same:
            break
    return report


def _contains(text: str, answer: str) -> bool:
    """Return whether a text has the lines of an answer, in order; thoughts, calls and markers may
    be between them.
    """
    at = 0
    for line in map(str.strip, answer.split("\n")):
        at = text.find(line, at)
        if at < 0:
            return False
        at += len(line)
    return True


def check_has_tokens(trace: Trace, header: RunStart) -> None:
    """Check that the trace has tokens to compare.

    Raises:
        ReplayError: the run was recorded without it.
    """
    if header.redacted:
        raise ReplayError(
            f"{trace.path}: the trace is redacted: it has no token ids to replay or compare, and "
            "names the tools and schemas that decodes were held to by digests alone. You can still "
            "show it or compare its times (--benchmark, --predict). To verify a run, record it "
            "without --redact"
        )


def check_settings(header: RunStart, engine: Engine) -> list[str]:
    """Compare a trace's header with an engine; return notes on tolerable differences.

    Raises:
        ReplayError: the model is another one.
    """
    check_replayable(header)
    model = engine.model
    if header.model.sha256 and header.model.sha256 != model.sha256:
        raise ReplayError(
            f"model.sha256 differs: the trace was recorded with {header.model.name} "
            f"({header.model.sha256[:12]}…), this is {model.name} ({model.sha256[:12]}…); "
            "give the recorded model with -m"
        )
    return [
        f"{one.name} differs: recorded {one.recorded}, now {one.now}"
        for one in what_differs(header, engine)
        if one.name not in header.versions
    ]


class Replay:
    """A session on which a recorded run's phases are replayed in order."""

    def __init__(self, engine: Engine, run: Trace, header: RunStart) -> None:
        self._engine, self._header = engine, header
        self._session = engine.session(context=header.config.get("context"))
        self._turns = RecordedTurns(engine, run, header)

    def check(self, number: int, phase: PhaseEvent) -> PhaseCheck:
        """Replay one phase, and compare its tokens with the recorded ones.

        Raises:
            ReplayError: the phase does not follow from those before it; says where.
        """
        try:
            if phase.phase == "prefill":
                return self._prefill(number, phase)
            return self._decode(number, phase)
        except ContextOverflowError as error:
            raise ReplayError(f"context differs: phase {number} does not fit; {error}") from error

    def _prefill(self, number: int, phase: PhaseEvent) -> PhaseCheck:
        """Prefill the recorded ids that the session does not hold yet."""
        session = self._session
        if phase.token_ids and not phase.tokens:  # taken over from another session
            session.truncate(0)
            return PhaseCheck(
                number, phase, session.prefill(phase.token_ids, purpose=phase.purpose)
            )
        if phase.kv_before < session.n_cached:  # the run dropped part of its context here
            session.truncate(phase.kv_before)
        pending = session.tokens[phase.kv_before :]
        if phase.token_ids and pending != phase.token_ids[: len(pending)]:
            session.truncate(phase.kv_before)  # the template ends a turn otherwise than the model
        new = phase.kv_after - len(session.tokens)
        # Tokens that the grammar forced at the end of a decode are computed only now, or were then.
        follows = session.n_cached <= phase.kv_before <= len(session.tokens)
        if not follows or not 0 <= new <= len(phase.token_ids):
            raise ReplayError(
                f"phase {number} ({phase.purpose}): kv_before {phase.kv_before}, kv_after "
                f"{phase.kv_after} and {len(phase.token_ids)} token_ids do not follow from the "
                f"phases before it, which made {len(session.tokens)} tokens; the trace lacks a "
                "phase"
            )
        ids = phase.token_ids[len(phase.token_ids) - new :]
        return PhaseCheck(number, phase, session.prefill(ids, purpose=phase.purpose))

    def _decode(self, number: int, phase: PhaseEvent) -> PhaseCheck:
        """Sample as many tokens as were recorded, under the same grammar."""
        recorded = phase.token_ids
        if len(recorded) < phase.tokens:
            raise ReplayError(
                f"phase {number} ({phase.purpose}): tokens is {phase.tokens}, but there are "
                f"{len(recorded)} token_ids, so the rest cannot be compared; the trace is damaged"
            )
        if not recorded:  # interrupted before its first token
            return PhaseCheck(number, phase, phase)
        session, before = self._session, len(self._session.tokens)
        request = self._turns.request(phase, session.tokens)
        turn = Turn(session, request, self._engine.tokenizer)
        found = None
        try:
            sampled = (token for token, _ in turn.tokens())
            for position, (was, now) in enumerate(zip_longest(recorded, sampled)):
                if was != now:
                    found = position, was, now
                    break
        finally:
            replayed = turn.finish().phase
        assert replayed is not None, "the engine gives a phase for every decode that has ended"
        difference = None if found is None else self._difference(phase, before, *found)
        return PhaseCheck(number, phase, replayed, difference)

    def _difference(
        self, phase: PhaseEvent, before: int, position: int, was: int | None, now: int | None
    ) -> Difference:
        at = before + position
        text = self._engine.tokenizer.decode(self._session.tokens[:at][-CONTEXT:], special=True)
        margin = margin_between(self._session, at, was, now)
        cause = likely_cause(self._header, self._engine, phase, margin)
        texts = self._text(was), self._text(now)
        return Difference(position, was, now, *texts, text, margin, cause)

    def _text(self, token: int | None) -> str:
        if token is None or not 0 <= token < self._engine.tokenizer.n_vocab:
            return ""
        return self._engine.tokenizer.token_bytes(token).decode("utf-8", "backslashreplace")
