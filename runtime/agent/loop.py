"""One run of an agent: ask the model, run the tools it calls, until it answers.

    append the question ─► generate ─► no call: that is the answer
                              ▲           │ calls
                              └─ append ◄─┴─ act: validate, decide, run

A `Conversation` appends and generates: a local engine or another server. A run that ends
early, by a limit, an error or Ctrl-C, leaves a conversation that the next one can continue.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ... import interrupts
from ...errors import (
    AgentError,
    ContextOverflowError,
    LimitReachedError,
    PassCancelledError,
    TriplepointError,
)
from ...tools.seen import shown_whole
from ...tools.timeouts import MAX_WAIT
from ...traces.events import RunEnd, ToolEvent, TurnEnd
from ..conversation.chat import Message
from ..conversation.formats.toolcalls import ToolCall
from ..conversation.reply import Reply
from ..conversation.turn import MISFIT
from .absence import says_absent
from .events import (
    AgentEvent,
    Notice,
    RunStarted,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from .harness.policy import Context, Looked
from .prompt import INTERRUPTED_CALL, REPEATS_ITSELF, counted, cut_part
from .result import RunResult, Status
from .run_metadata import run_start
from .tool_executor import ToolExecutor

if TYPE_CHECKING:
    from ..evidence.sources import Checked
    from .run_context import RunContext
    from .run_metadata import RunSetup


class Run:
    """One question and the steps up to its answer.

    Args:
        setup: the conversation, tools and settings.
        context: the limits of the run, and its trace.
        task: the question.
        new: messages for the first step in place of the question.
        first: number of the first step.

    Attributes:
        result: the outcome; None until the run has ended.
    """

    def __init__(
        self,
        setup: RunSetup,
        context: RunContext,
        task: str,
        new: Sequence[Message] = (),
        first: int = 1,
    ) -> None:
        self.result: RunResult[Any] | None = None
        self._setup = setup
        self._context = context
        self._conversation = setup.conversation
        self._task = task
        self._new, self._first = list(new), first
        conversation = setup.conversation
        seen: dict[str, str] = {}
        for message in (*conversation.messages, *conversation.pending, *new):
            seen |= message.seen
        self._executor = ToolExecutor(
            setup.tools, setup.policy, setup.results, context.cancellation, seen
        )
        self._output: Any = None
        self._answered_by = ""
        self._misfits = 0
        self._warned_of_repetition = False
        self._refused: Counter[str] = Counter()
        self._repaired: Counter[str] = Counter()

    def events(self) -> Iterator[AgentEvent]:
        """Run the loop and yield its events; `result` holds the outcome afterwards."""
        trace, cancellation = self._context.trace, self._context.cancellation
        if not trace.events:
            trace.write(run_start(self._setup, self._task))
        status: Status = "error"
        message = ""
        alarm = self._alarm()
        try:
            if alarm is not None:
                interrupts.start(alarm)
            yield RunStarted(trace.run, self._context.turn)
            if self._context.turn == 1:
                yield from map(Notice, self._setup.notes)
            yield from self._loop()
            status = "answered"
        except LimitReachedError as error:
            status, message = "limit", str(error)
        except PassCancelledError as error:
            if not cancellation.expired:
                status, message = "cancelled", str(error)
                raise
            status, message = "limit", str(cancellation.timeout_error())
        except (KeyboardInterrupt, GeneratorExit):
            status, message = "cancelled", "interrupted"
            raise
        except BaseException as error:
            message = str(error) or type(error).__name__
            raise
        finally:
            if alarm is not None:
                with interrupts.held():
                    alarm.cancel()
            self._end(status, message)

    def _loop(self) -> Iterator[AgentEvent]:
        conversation, context, config = self._conversation, self._context, self._setup.config
        if not self._new:
            yield from self._answer_calls()
        messages = conversation.messages
        new = self._new or [Message("user", self._task)]
        if not messages and config.system:
            new.insert(0, Message("system", config.system))
        if messages and messages[-1].role != "assistant":
            conversation.messages = [*messages, Message("assistant")]  # stopped before it spoke
        last, why = self._first + config.max_steps - 1, ""
        for step in range(self._first, last + 1):
            context.usage.steps = step
            context.check_stop()
            purpose = "prompt" if step == 1 else "tool_result"
            decision = self._setup.harness.before_turn(self._seen_by_policies(step))
            looked = yield from self._look(decision.looked)
            yield from conversation.append(context, [*new, *looked, *decision.messages], purpose)
            conversation.pending = []
            conversation.decision = decision
            reply, events = yield from self._generate()
            if reply.repeated:
                self._setup.harness.after_reply(self._seen_by_policies(step), reply)
                yield from events
                new, why = self._read_repetition(reply), "the last call repeated itself"
                if not new:
                    return
            elif not reply.calls:
                new, why = self._read_answer(reply, step)
                if not new:
                    yield from [TextDelta(context.answer)] if self._answered_by else events
                    return
                if new[0].by:
                    yield Notice(f"{why}; the model is asked once more")
            else:
                yield from events
                why = "the last calls were not run"
                if step < last:
                    self._repaired.update(call.name for call in reply.calls if reply.repaired)
                    new = yield from self._act(reply.calls)
        raise LimitReachedError(
            f"no answer after {counted(config.max_steps, 'step')}; {why}. "
            "Allow more (max_steps), or ask for less at once"
        )

    def _generate(self) -> Generator[AgentEvent, None, tuple[Reply, list[AgentEvent]]]:
        """Generate a reply; withhold its events while the harness may reject it."""
        events: list[AgentEvent] = []
        generation = self._conversation.generate(self._context)
        if not self._setup.harness.holds:
            return (yield from generation), events
        try:
            while True:
                event = next(generation)
                if isinstance(event, TextDelta):
                    events.append(event)
                else:
                    yield event
        except StopIteration as end:
            return end.value, events
        except (TriplepointError, KeyboardInterrupt):  # the partial text is still shown
            yield from events
            raise
        finally:
            generation.close()

    def _answer_calls(self) -> Iterator[AgentEvent]:
        """Append results for pending calls of the previous run, as templates require."""
        conversation, context = self._conversation, self._context
        last = conversation.messages[-1:]
        calls = last[0].calls if last and last[0].role == "assistant" else ()
        if not calls:
            return
        context.usage.steps = self._first
        ran = {message.call_id: message for message in conversation.pending}
        none = [Message("tool", INTERRUPTED_CALL, call.name, call.id) for call in calls]
        results = [ran.get(one.call_id, one) for one in none]
        try:
            yield from conversation.append(context, results, "tool_result")
        except ContextOverflowError:  # it may be what ended that run
            yield from conversation.append(context, none, "tool_result")
        conversation.pending = []

    def _seen_by_policies(self, step: int) -> Context:
        """Build the view of the run that policies get before a step and after its reply."""
        setup, conversation = self._setup, self._conversation
        return Context(
            question=self._task,
            turn=self._context.turn,
            step=step,
            messages=conversation.messages,
            tools=setup.tools,
            permissions=setup.policy,
            files=setup.files,
            room=conversation.room,
            count=conversation.count,
        )

    def _look(self, looked: Sequence[Looked]) -> Generator[AgentEvent, None, list[Message]]:
        """Emit and record calls made by the harness; return them as if the model had made them."""
        if not looked:
            return []
        context, messages = self._context, list[Message]()
        calls = context.identify([one.call for one in looked], by="h")
        calling = Message("assistant", calls=tuple(calls), text="", by="harness")
        for call, one in zip(calls, looked, strict=True):
            yield ToolCallStarted(call.id, call.name, call.arguments, by="harness")
            event = self._tool_event(call, one.result, one.seconds, effect="read", by="harness")
            event.decision, event.decided_by = "allowed", "effect"
            context.trace.write(event)
            seen = self._shown(call, one.result)
            self._executor.saw(seen)
            result = Message("tool", one.result, call.name, call.id, by="harness", seen=seen)
            messages.append(result)
            yield ToolCallFinished(call.id, call.name, one.result, None, one.seconds)
        return [calling, *messages]

    def _tool_event(self, call: ToolCall, result: str, seconds: float, **more: Any) -> ToolEvent:
        """Build the trace event of a call in this step."""
        return ToolEvent(
            turn=self._context.turn,
            step=self._context.usage.steps,
            name=call.name,
            arguments=call.arguments,
            result=result,
            duration_s=seconds,
            call_id=call.id,
            **more,
        )

    def _shown(self, call: ToolCall, result: str) -> dict[str, str]:
        """Return the files that a call has shown in full, which the model may overwrite."""
        files, path = self._setup.files, call.arguments.get("path")
        acts = any(one.effect != "read" for one in self._setup.tools)
        if not acts or files is None or call.name != "read_file" or not isinstance(path, str):
            return {}
        return shown_whole(files, path, result)

    def _read_answer(self, reply: Reply, step: int) -> tuple[list[Message], str]:
        """Decide whether a reply is the answer; if not, return the correction and its reason."""
        decision = self._setup.harness.after_reply(self._seen_by_policies(step), reply)
        if decision.bounce:
            message = Message("user", decision.bounce, by="harness")
            return [message], "the last answer was not taken"
        if decision.answer and self._setup.output is None:
            self._context.answer, self._answered_by = decision.answer, "harness"
        return self._read_output(), "the last answer does not fit output_type"

    def _read_output(self) -> list[Message]:
        """Parse the answer as the declared type; return a correction for the model if it fails.

        Raises:
            AgentError: it does not fit for the second time.
        """
        output = self._setup.output
        if output is None:
            return []
        try:
            self._output = output.read(self._context.answer)
        except ValueError as error:
            if self._misfits:
                raise AgentError(f"the answer does not fit output_type: {error}") from None
            self._misfits += 1
            return [Message("user", MISFIT.format(problem=error))]
        return []

    def _read_repetition(self, reply: Reply) -> list[Message]:
        """Return the message to the model after a reply that was stopped for repetition.

        Empty where the reply was an answer, which is kept.

        Raises:
            LimitReachedError: it was warned before, or thinks and does not answer.
        """
        length = counted(reply.repeated, "token")
        if reply.cut_call is not None:
            if not self._warned_of_repetition:
                self._warned_of_repetition = True
                return [Message("user", REPEATS_ITSELF)]
            what = cut_part(reply)
        elif self._context.answer and self._setup.output is None:
            return []
        else:
            what = "the answer" if self._context.answer else "the thinking"
        raise LimitReachedError(
            f"{what} was stopped because it repeated itself for {length}; rephrase the question "
            "or use a stronger model (repetition_stop=False turns this off)"
        )

    def _act(self, calls: Sequence[ToolCall]) -> Generator[AgentEvent, None, list[Message]]:
        """Run the calls in order; return their results as messages."""
        context = self._context
        results = self._conversation.pending = []
        for call in calls:
            context.check_stop()
            yield ToolCallStarted(call.id, call.name, call.arguments)
            began = time.perf_counter()
            outcome = self._executor.run(call)
            decision = outcome.decision
            wait_s = 0.0 if decision is None else decision.asked_s
            duration = time.perf_counter() - began - wait_s
            event = self._tool_event(
                call,
                outcome.result,
                duration,
                error=outcome.error,
                effect=outcome.effect,
                asked_s=wait_s,
            )
            if decision is not None:
                event.decision, event.decided_by = decision.word, decision.by
            # First of all: a call that has run is not run again, whatever comes of telling it.
            results.append(Message("tool", outcome.result, call.name, call.id, seen=outcome.seen))
            context.trace.write(event)
            if decision is None or not decision.allowed:
                self._refused[call.name] += 1
            yield ToolCallFinished(call.id, call.name, outcome.result, outcome.error, duration)
            seen = self._seen_by_policies(context.usage.steps)
            self._setup.harness.after_result(seen, call, outcome.result)
        return results

    def _alarm(self) -> threading.Timer | None:
        """Return a timer that ends the run at its timeout, even within a pass; not started."""
        cancellation = self._context.cancellation
        if cancellation.timeout is None:
            return None

        def expire() -> None:
            cancellation.expire()
            self._conversation.stop()

        alarm = threading.Timer(min(cancellation.timeout, MAX_WAIT), expire)
        alarm.daemon = True
        return alarm

    def _sources(self) -> tuple[Checked | None, bool]:
        """Return the sources of the answer's facts, if enabled, and whether all were found."""
        setup, answer = self._setup, self._context.answer
        messages = self._conversation.messages
        results = "\n".join(one.content for one in messages if one.role == "tool")
        absent = setup.files is not None and says_absent(answer, results)
        if not absent and not (setup.harness.sources and len(setup.tools)):
            return None, True
        from .harness.grounded import checked, reads_of

        reads = reads_of(messages, setup.tools)
        found = checked(answer, self._task, messages, reads)
        return found if setup.harness.sources and reads else None, not absent or bool(found.sources)

    def _end(self, status: Status, message: str) -> None:
        context, usage = self._context, self._context.usage
        usage.wall_s = time.perf_counter() - context.began
        facts, found = self._sources() if status == "answered" else (None, True)
        sources, unsupported = (facts.sources, facts.unsupported) if facts else ((), ())
        self.result = RunResult(
            context.answer,
            status,
            message,
            context.turn,
            usage,
            context.trace,
            context.thinking,
            sources,
            unsupported,
            found,
            context.answer if self._setup.output is None else self._output,
        )
        totals = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        }
        if status == "answered":
            turn = TurnEnd(turn=context.turn, answer=context.answer, by=self._answered_by)
            turn.sources, turn.unsupported = list(map(list, sources)), list(unsupported)
            turn.found = found
            turn.input_tokens, turn.output_tokens = usage.input_tokens, usage.output_tokens
            turn.cached_tokens, turn.reread_tokens = usage.cached_tokens, usage.reread_tokens
            turn.ttft_s, turn.tpot_s = usage.ttft_s, usage.tpot_s
            context.trace.write(turn)
        end = RunEnd(status=status, message=message, answer=context.answer, wall_s=usage.wall_s)
        end.totals = {**totals, "steps": usage.steps, "turn": context.turn}
        if self._refused:
            end.totals["refused_calls"] = dict(self._refused)
        if self._repaired:
            end.totals["repaired_calls"] = dict(self._repaired)
        context.trace.write(end)
