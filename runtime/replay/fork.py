"""Continues a recorded run live from a step, token by token with the same model and tools.

    turn 1  prompt ─ call ─ result ─ answer
    turn 2  prompt ─ call ─┐
                           └ from 2.2: result ─ (the model speaks now) …

What came before the step is not run: the recorded tokens are read in one prefill. They are laid
into the ledger by the same code as in a run, on a session that only keeps count, and compared with
the recording. For another model, system message or set of tools the messages are rendered anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ...errors import LimitReachedError, ReplayError, TriplepointError
from ...traces.events import MessageEvent, PhaseEvent, RunStart, ToolEvent
from ...traces.reader import Trace
from ..agent.events import AgentEvent, Notice
from ..agent.history import History
from ..agent.local_conversation import LocalConversation
from ..agent.run_context import RunContext
from ..agent.run_metadata import write_continuation
from ..conversation.formats.toolcalls import ToolCall
from ..conversation.messages import Message
from .dry_run import DryRunSession
from .workload import ledger_of, run_of

if TYPE_CHECKING:
    from ..agent.agent import Agent


def branch(
    trace: Trace,
    agent: Agent[Any],
    turn: int,
    step: int = 1,
    *,
    prompt: str | None = None,
    run: int = -1,
) -> Iterator[AgentEvent]:
    """Continue a recorded run from one of its steps; yield what `Agent.stream` yields.

    The new trace names the run as its parent. From step 2 on, the model first gets the results of
    the recorded calls.

    Args:
        trace: a loaded trace with its text, of a run on any model.
        agent: a new agent; its model and tools may differ from the recorded ones.
        turn, step: the step to continue from, counted from 1.
        prompt: the question to ask instead of the recorded one; from step 2 on, a message after
            the results.
        run: which run of the trace, counted as list indices are; the last one by default.

    Raises:
        ReplayError: there is no such step, the trace is redacted, or the agent is not new.
        As `Agent.stream`.
    """
    past, header = history_of(trace, turn, step, run=run)
    if agent.turn or agent.messages:
        raise ReplayError("the agent already has a conversation; give a new agent")
    phase, note = _take_over(past, agent, header, turn, step)
    task = past.question(turn) if prompt is None else prompt
    write_continuation(agent.trace, agent.setup, task, parent=header.run, step=f"{turn}.{step}")
    if phase is not None:
        agent.trace.write(phase)
    if note:
        yield Notice(note)
    if (files := agent.setup.files) is not None:
        yield from map(Notice, files.attach_again(past.attached(turn)))
    if step == 1:
        yield from agent.stream(task)
        return
    new = past.fed(turn, step)
    if prompt is not None:
        new.append(Message("user", prompt))
    yield from agent.resume(past.question(turn), new, step)


def history_of(
    trace: Trace, turn: int, step: int, *, run: int = -1
) -> tuple[RecordedHistory, RunStart]:
    """Return the recorded conversation of a run up to a step, and the run's header.

    Raises:
        ReplayError: there is no such step, or the trace does not have what came before it.
    """
    chosen, header = run_of(trace, run)
    if header.redacted:
        raise ReplayError(
            f"{trace.path}: the trace is redacted: it has no text and no token ids, so it cannot "
            "be continued or verified. You can still show it and compare times (--benchmark, "
            "--predict). To continue from a run, record it without --redact"
        )
    past = RecordedHistory(chosen)
    past.check(turn, step)
    return past, header


class RecordedHistory:
    """The messages of a recorded run, by turn and step.

    Attributes:
        history: the conversation that the run continues; empty without one.
    """

    def __init__(self, run: Trace) -> None:
        self._run = run
        self.turns = {turn.number: turn for turn in run.turns if turn.number and turn.began}
        self.history = History()
        if run.history is not None:
            self.history = History.read(run.history)
        self._taken = self.history.steps()
        self._own = {
            (number, step)
            for number, own in self.turns.items()
            for step in {e.step for e in (*own.messages, *own.phases) if e.step} or {1}
        }

    def start(self, turn: int, step: int) -> History:
        """Return the earlier conversation to which a step of the run adds its messages."""
        return self.history if (turn, step) in self._own else self._taken[turn, step][0]

    def check(self, turn: int, step: int) -> None:
        """Check that the run has that step and records all before it.

        Raises:
            ReplayError: it was not; says what there is.
        """
        header = self._run.header
        if header and header.parent and header.parent_step != "1.1" and not self._run.history:
            raise ReplayError(
                f"from {turn}.{step}: the run continues {header.parent}, but an older version "
                "recorded it without that history; use --from on that run, or record it again"
            )
        turns = {number for number, _ in self._own | self._taken.keys()}
        if turn not in turns:
            raise ReplayError(f"from {turn}.{step}: the run has {_list('turn', turns)}")
        steps = {s for number, s in self._own | self._taken.keys() if number == turn}
        if step not in steps:
            raise ReplayError(f"from {turn}.{step}: turn {turn} has {_list('step', steps)}")

    def question(self, turn: int) -> str:
        """Return the user's question of a turn."""
        if turn in self.turns:
            return self.turns[turn].question
        fed = self._taken[turn, 1][1]
        return next((one.content for one in fed if one.role == "user"), "")

    def attached(self, turn: int) -> dict[str, str]:
        """Return the attached documents up to a turn, with their original paths."""
        found: dict[str, str] = {}
        for number, own in self.turns.items():
            for event in own.messages if number <= turn else ():
                found |= event.attached
        return found

    def fed(self, turn: int, step: int) -> list[Message]:
        """Return the messages fed to a step: the question, or results of the step before."""
        if (turn, step) not in self._own:
            return list(self._taken[turn, step][1])
        own = self.turns[turn]
        # Results of the model's own calls come a step later; what the harness looked at, at once.
        calls = {
            "": iter([one for one in own.tools if one.step == step - 1 and not one.by]),
            "harness": iter([one for one in own.tools if one.step == step and one.by]),
        }
        looked = [
            ToolCall(one.name, one.arguments, id=one.call_id)
            for one in own.tools
            if one.step == step and one.by
        ]
        found = []
        for event in own.messages:
            if event.step != step or (event.role == "assistant" and not event.by):
                continue
            if event.role == "assistant":
                found.append(Message("assistant", calls=tuple(looked), text="", by="harness"))
                continue
            by: Any = event.by
            call = next(calls[by], None) if event.role == "tool" else None
            role: Any = event.role
            name, call_id = (call.name, call.call_id) if call else ("", "")
            found.append(Message(role, event.content, name, call_id, by=by))
        return found

    def reply(self, turn: int, step: int) -> tuple[MessageEvent | None, list[ToolEvent]]:
        """Return the model's message of a step, and its calls that ran."""
        own = self.turns[turn]
        spoken = [e for e in own.messages if e.step == step and e.role == "assistant"]
        own_words = [event for event in spoken if not event.by]
        calls = [call for call in own.tools if call.step == step and not call.by]
        return (own_words[-1] if own_words else None), calls

    def before(self, turn: int, step: int) -> list[tuple[int, int]]:
        """Return the run's own steps before one, in order."""
        return sorted(own for own in self._own if own < (turn, step))

    def decoded(self, turn: int, step: int) -> list[int]:
        """Return the token ids decoded in a step."""
        phases = [p for p in self.turns[turn].phases if p.step == step and p.phase == "decode"]
        return [i for phase in phases for i in phase.token_ids]

    def tokens(self, turn: int, step: int) -> list[int]:
        """Return the context before a step was fed, as token ids."""
        before = takewhile(lambda one: (one.turn, one.step) < (turn, step), self._run.phases)
        return ledger_of(before).ids


def _take_over(
    past: RecordedHistory, agent: Agent[Any], header: RunStart, turn: int, step: int
) -> tuple[PhaseEvent | None, str]:
    """Give the agent the conversation before a step; return the phase and a note."""
    other = _other(agent, header)
    if not other:
        phase, other = _replayed(past, agent, turn, step)
        if not other:
            return phase, ""
    agent.reset()
    agent.setup.conversation.load_history(_rendered(past, agent, turn, step), turn - 1)
    if not agent.messages:
        return None, ""
    return None, f"{other}, so the {len(agent.messages)} earlier messages are rendered again"


def _other(agent: Agent[Any], header: RunStart) -> str:
    """Return why the recorded tokens do not fit this agent; empty if they do."""
    setup, model = agent.setup, agent.setup.engine.model
    if not isinstance(setup.conversation, LocalConversation) or header.config.get("server"):
        return "the model runs on a server"
    if not header.model.sha256 or model.sha256 != header.model.sha256:
        return f"the model is {model.name} and was {header.model.name}"
    if setup.tools.schemas() != header.tools:
        return "the tools are different"
    if setup.config.system != header.config.get("system"):
        return "the system message is different"
    if dict(setup.config.options) != header.config.get("options"):
        return "the template options are different"
    return ""


def _replayed(
    past: RecordedHistory, agent: Agent[Any], turn: int, step: int
) -> tuple[PhaseEvent | None, str]:
    """Add the recorded tokens to the ledger as a run does, then prefill them at once.

    Gives why the tokens are not the recorded ones, if that is what came out.
    """
    setup, conversation = agent.setup, agent.setup.conversation
    assert isinstance(conversation, LocalConversation)
    session = conversation.session
    dry_run = conversation.session = DryRunSession(session.context)  # pyright: ignore[reportAttributeAccessIssue]
    trace = Trace()  # thrown away: what happened is in the parent's
    start, own = past.start(turn, step), past.before(turn, step)
    try:
        conversation.restore(start)
        dry_run.prefill(start.ids)
        run: RunContext | None = None
        for number, other in own:
            if run is None or run.turn != number:
                messages = conversation.messages
                if messages and messages[-1].role != "assistant":
                    conversation.messages = [*messages, Message("assistant")]
                if other == 1:  # else the question was asked and marked before
                    conversation.checkpoint()
                run = RunContext(setup.config, trace, number, files=setup.files)
            _replay_step(conversation, run, past, dry_run, other)
    except TriplepointError as error:
        return None, f"the recorded tokens cannot be reused ({error})"
    finally:
        conversation.session = session
    if own and dry_run.tokens != past.tokens(turn, step):
        return None, "these messages no longer render to the recorded tokens"
    conversation.turn = turn - 1
    if not dry_run.tokens:
        return None, ""
    phase = session.prefill(dry_run.tokens, purpose="fork")
    phase.turn = turn
    return phase, ""


def _replay_step(
    conversation: LocalConversation,
    run: RunContext,
    past: RecordedHistory,
    dry_run: DryRunSession,
    step: int,
) -> None:
    """Feed a step's recorded messages and force the recorded reply."""
    turn = run.turn
    run.usage.steps, run.usage.output_tokens = step, 0
    for _ in conversation.append(run, past.fed(turn, step), "prompt"):
        pass
    dry_run.script = past.decoded(turn, step)
    if not dry_run.script:  # stopped before its first token
        return
    try:
        for _ in conversation.generate(run):
            pass
    except LimitReachedError:
        pass  # it was cut there


def _rendered(past: RecordedHistory, agent: Agent[Any], turn: int, step: int) -> list[Message]:
    """Return the messages before a step, with the agent's system message."""
    found = [one for one in past.start(turn, step).messages if one.role != "system"]
    for number, other in past.before(turn, step):
        found += [one for one in past.fed(number, other) if one.role != "system"]
        event, calls = past.reply(number, other)
        if event is None:
            found.append(Message("assistant"))  # stopped before it spoke
            continue
        made = tuple(ToolCall(call.name, call.arguments, id=call.call_id) for call in calls)
        text = event.content if not made else _text_before_calls(event.content, calls)
        content = text if made else event.content
        found.append(Message("assistant", content, calls=made, text=text, thinking=event.thinking))
    if found and agent.setup.config.system:
        found.insert(0, Message("system", agent.setup.config.system))
    return found


def _text_before_calls(content: str, calls: Sequence[ToolEvent]) -> str:
    """Return the text before the first call, whatever the call's format."""
    from ..conversation.formats import FORMATS

    openings = [o.text for form in FORMATS.values() for o in form.openings if o.text in content]
    at = [content.index(opening) for opening in openings]
    at += [content.index(call.name) for call in calls if call.name in content]
    return content[: min(at)].strip() if openings and at else ""


def _list(what: str, numbers: set[int]) -> str:
    if len(numbers) == 1:
        return f"{what} {min(numbers)} only"
    return f"the {what}s {', '.join(map(str, sorted(numbers)))}" if numbers else f"no {what}"
