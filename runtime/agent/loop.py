"""One run of an agent: ask the model, run the tools it calls, until it answers.

    feed the question ─► ask ─► no call: that is the answer
                          ▲        │ calls
                          └─ feed ◄┴─ act: validate, decide, run

A `Conversation` appends and generates: a local engine or another server. A run that ends
early, by a limit, an error or Ctrl-C, leaves a conversation that the next one can go on with.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import AgentError, LimitReachedError, PassCancelledError, ToolError
from ...tools.policy import Decision
from ...tools.timeouts import TimedTask
from ...traces.events import MessageEvent, PassEvent, PhaseEvent, RunEnd, ToolEvent, TurnEnd
from ..conversation.chat import Message
from ..conversation.reply import Reply
from ..conversation.toolcalls import ToolCall
from .events import (
    AgentEvent,
    Notice,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from .loop_detector import LoopDetector
from .prompt import (
    DENIED,
    LEFT_BY_STOP,
    LEFT_BY_TIMEOUT,
    MISFIT,
    REPEATED_CALL,
    REPEATS_ITSELF,
    TOOK_LONGER,
    counted,
)
from .result import RunResult, Status, Usage
from .run_metadata import run_start

if TYPE_CHECKING:
    from ...tools import Tool
    from .agent import Agent

MAX_ERROR = 300  # characters of an unexpected exception that the model is told


@dataclass
class Outcome:
    """What came of one call."""

    result: str
    """The text that the model is given."""
    error: str | None = None
    effect: str = ""
    decision: Decision | None = None
    """None for a call that never got as far."""


class Run:
    """One question to an agent, up to its answer.

    Args:
        new: what the first step is fed, when that is not the question.
        first: number of that step.
    """

    def __init__(
        self, agent: Agent[Any], task: str, new: Sequence[Message] = (), first: int = 1
    ) -> None:
        self.agent = agent
        self.task = task
        self._new, self._first = list(new), first
        if not self._new:  # else the question was asked, and marked, before
            agent.checkpoint()
        self.turn = agent.turn = agent.turn + 1
        self.usage = Usage()
        self.answer = ""
        self.thinking = ""
        self.began = time.perf_counter()
        self.output: Any = None
        self._misfits = 0
        self._expired = False
        self._told_of_repetition = False
        self._loop_detector = LoopDetector()
        self._refused: Counter[str] = Counter()
        self._repaired: Counter[str] = Counter()

    def events(self) -> Iterator[AgentEvent]:
        """Run, and yield what happens (see `Agent.stream`)."""
        agent = self.agent
        trace = agent.trace
        if not trace.events:
            trace.write(run_start(agent, self.task))
        status: Status = "error"
        message = ""
        alarm = self._alarm()
        try:
            yield RunStarted(trace.run, self.turn)
            if self.turn == 1:
                yield from map(Notice, agent.notes)
            yield from self._loop()
            status = "answered"
        except LimitReachedError as error:
            status, message = "limit", str(error)
        except PassCancelledError as error:
            if not self._expired:
                status, message = "cancelled", str(error)
                raise
            status, message = "limit", str(self._too_late())
        except (KeyboardInterrupt, GeneratorExit) as error:
            status, message = "cancelled", str(error) or "interrupted"
            raise
        except BaseException as error:
            message = str(error) or type(error).__name__
            raise
        finally:
            if alarm is not None:
                alarm.cancel()
            self._end(status, message)
        assert agent.last_result is not None
        yield RunFinished(agent.last_result)

    def _loop(self) -> Iterator[AgentEvent]:
        agent, config = self.agent, self.agent.config
        new = self._new or [Message("user", self.task)]
        if not agent.messages and config.system:
            new.insert(0, Message("system", config.system))
        if agent.messages and agent.messages[-1].role != "assistant":
            agent.messages = [*agent.messages, Message("assistant")]  # stopped before it spoke
        last = self._first + config.max_steps - 1
        for step in range(self._first, last + 1):
            self.usage.steps = step
            self.check_stop()
            yield from agent.conversation.append(
                self, new, "prompt" if step == 1 else "tool_result"
            )
            reply = yield from agent.conversation.generate(self)
            if reply.repeated:
                new = self._read_repetition(reply)
                if not new:
                    return
            elif not reply.calls:
                new = self._read_output()
                if not new:
                    return
            elif step < last:
                self._repaired.update(call.name for call in reply.calls if reply.repaired)
                new = yield from self._act(reply.calls)
        raise LimitReachedError(
            f"no answer after {counted(config.max_steps, 'step')}; the last calls were not run. "
            "Allow more (max_steps), or ask for less at once"
        )

    def _read_output(self) -> list[Message]:
        """Read the answer as the declared type; a message for the model when it does not fit.

        Raises:
            AgentError: it does not fit for the second time.
        """
        if self.agent.output is None:
            return []
        try:
            self.output = self.agent.output.read(self.answer)
        except ValueError as error:
            if self._misfits:
                raise AgentError(f"the answer does not fit output_type: {error}") from None
            self._misfits += 1
            return [Message("user", MISFIT.format(problem=error))]
        return []

    def _read_repetition(self, reply: Reply) -> list[Message]:
        """What to tell the model after a reply that was ended for repeating itself.

        Nothing where it was an answer, which stays as it is.

        Raises:
            LimitReachedError: it was told before, or thinks and does not answer.
        """
        length = counted(reply.repeated, "token")
        if reply.cut_call is not None:
            if not self._told_of_repetition:
                self._told_of_repetition = True
                return [Message("user", REPEATS_ITSELF)]
            what = "a tool call, which was not run,"
        elif self.answer and self.agent.output is None:
            return []
        else:
            what = "the answer" if self.answer else "the thinking"
        raise LimitReachedError(
            f"{what} was ended: it had repeated itself for {length}; ask in other words, or with a "
            "stronger model (repetition_stop=False lets it go on)"
        )

    # What a talk needs of the run.

    def check_stop(self) -> None:
        """End the run if it was stopped or its time is up.

        Raises:
            PassCancelledError: `Agent.stop` was called.
            LimitReachedError: its time is up.
        """
        if self._expired:
            raise self._too_late()
        if self.agent.stopping:
            raise PassCancelledError("stopped; the conversation can go on")

    def tokens_left(self) -> int:
        """Tokens that may still be generated.

        Raises:
            LimitReachedError: none.
        """
        most = self.agent.config.max_tokens
        if self.usage.output_tokens >= most:
            raise LimitReachedError(
                f"no answer after {counted(most, 'generated token')}; allow more (max_tokens)"
            )
        return most - self.usage.output_tokens

    def log_message(self, role: str, content: str, thinking: str = "") -> None:
        """Put a message into the trace."""
        step = self.usage.steps
        event = MessageEvent(role=role, content=content, turn=self.turn, step=step)
        event.thinking = thinking
        if role == "user" and self.agent.files is not None:
            event.attached = dict(self.agent.files.attached)
        self.agent.trace.write(event)

    def log_phase(
        self, phase: PhaseEvent, purpose: str, passes: Sequence[PassEvent] = ()
    ) -> PhaseEvent:
        """Put a phase into the trace, and those of its passes that others had rows in."""
        for one in passes:
            one.turn, one.step = self.turn, self.usage.steps
            self.agent.trace.write(one)
        phase.turn, phase.step, phase.purpose = self.turn, self.usage.steps, purpose
        return self.agent.trace.write(phase)

    def commit_reply(
        self, message: Message, reply: Reply, tokens: int, aloud: str | None = None
    ) -> None:
        """Take what the model said into the conversation.

        Args:
            message: with everything that it generated.
            reply: the same, read.
            tokens: how many it took.
            aloud: of the message, what was not thinking; all of it if not given.
        """
        self.agent.messages = [*self.agent.messages, message]
        self.log_message("assistant", message.content if aloud is None else aloud, reply.thinking)
        self.answer, self.thinking = reply.answer, reply.thinking
        self.usage.output_tokens += tokens

    def call_id(self, number: int) -> str:
        """The identifier of one of the calls of this step: nine letters, as Mistral wants them."""
        return f"c{self.turn % 10**4:04}{self.usage.steps % 100:02}{number % 100:02}"

    # Calls.

    def _act(self, calls: Sequence[ToolCall]) -> Generator[AgentEvent, None, list[Message]]:
        """Run the calls in order; the generator's value is their results as messages."""
        results: list[Message] = []
        for number, call in enumerate(calls):
            self.check_stop()
            call_id = call.id or self.call_id(number)
            yield ToolCallStarted(call_id, call.name, call.arguments)
            began = time.perf_counter()
            outcome = self.call(call)
            decision = outcome.decision
            asked = 0.0 if decision is None else decision.asked_s
            duration = time.perf_counter() - began - asked
            event = ToolEvent(
                turn=self.turn,
                step=self.usage.steps,
                name=call.name,
                arguments=call.arguments,
                result=outcome.result,
                error=outcome.error,
                duration_s=duration,
                call_id=call_id,
                effect=outcome.effect,
                asked_s=asked,
            )
            if decision is not None:
                event.decision, event.decided_by = decision.word, decision.by
            self.agent.trace.write(event)
            if decision is None or not decision.allowed:
                self._refused[call.name] += 1
            yield ToolCallFinished(call_id, call.name, outcome.result, outcome.error, duration)
            results.append(Message("tool", outcome.result, call.name, call_id))
        return results

    def call(self, call: ToolCall) -> Outcome:
        """Validate, decide, run: what the model is told, and what the trace says of it."""
        if self._loop_detector.too_often(call):
            return Outcome(REPEATED_CALL, REPEATED_CALL.removeprefix("error: "))
        outcome = Outcome("")
        try:
            tool = self.agent.tools.get(call.name)
            if call.problem:
                raise ToolError(call.problem)
            outcome.effect = tool.effect
            arguments = tool.validate(call.arguments)
            decision = self.agent.policy.decide(tool, arguments, call.arguments)
            outcome.decision = decision
            if decision.allowed:
                result = self._run_tool(tool, arguments)
                outcome.result = (
                    result if tool.self_truncates else self.agent.results.truncate(result)
                )
            else:
                outcome.error = DENIED.format(reason=decision.reason)
        except ToolError as problem:
            outcome.error = str(problem)
        except (
            Exception,
            SystemExit,
        ) as problem:  # a tool's own bug: the model may find another way
            outcome.error = f"{type(problem).__name__}: {problem}"[:MAX_ERROR]
        if outcome.error is not None:
            outcome.result = self.agent.results.truncate(f"error: {outcome.error}")
        self._loop_detector.record(call, outcome.result)
        return outcome

    def _run_tool(self, tool: Tool[..., Any], arguments: dict[str, Any]) -> str:
        """Run a tool; where there is a time limit, in a thread that need not be waited for.

        Raises:
            ToolError: the tool says so, or its time or that of the run was up.
        """
        agent, seconds = self.agent, tool.timeout
        if seconds is None and agent.config.timeout is None:
            return tool.run(arguments)
        timed_task = agent.timed_task = TimedTask(lambda: tool.run(arguments), f"tool {tool.name}")
        try:
            # Whoever ends the run says so first and looks for the task then.
            if self._expired or agent.stopping:
                timed_task.abandon(self._left() if self._expired else LEFT_BY_STOP)
            return timed_task.wait(seconds, TOOK_LONGER.format(seconds=seconds or 0))
        finally:
            agent.timed_task = None

    # Limits and the end.

    def _alarm(self) -> threading.Timer | None:
        """What ends the run when its time is up, also within a pass."""
        seconds = self.agent.config.timeout
        if seconds is None:
            return None

        def expire() -> None:
            self._expired = True
            self.agent.conversation.stop()
            if (timed_task := self.agent.timed_task) is not None:
                timed_task.abandon(self._left())

        alarm = threading.Timer(seconds, expire)
        alarm.daemon = True
        alarm.start()
        return alarm

    def _left(self) -> str:
        return LEFT_BY_TIMEOUT.format(seconds=self.agent.config.timeout)

    def _too_late(self) -> LimitReachedError:
        seconds = self.agent.config.timeout
        return LimitReachedError(f"no answer within {seconds:g} seconds; allow more (timeout)")

    def _end(self, status: Status, message: str) -> None:
        agent, usage = self.agent, self.usage
        usage.wall_s = time.perf_counter() - self.began
        agent.last_result = RunResult(
            self.answer,
            status,
            message,
            self.turn,
            usage,
            agent.trace,
            self.thinking,
            self.answer if agent.output is None else self.output,
        )
        totals = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        }
        if status == "answered":
            turn = TurnEnd(turn=self.turn, answer=self.answer)
            turn.input_tokens, turn.output_tokens = usage.input_tokens, usage.output_tokens
            turn.cached_tokens, turn.reread_tokens = usage.cached_tokens, usage.reread_tokens
            turn.ttft_s, turn.tpot_s = usage.ttft_s, usage.tpot_s
            agent.trace.write(turn)
        end = RunEnd(status=status, message=message, answer=self.answer, wall_s=usage.wall_s)
        end.totals = {**totals, "steps": usage.steps, "turn": self.turn}
        if self._refused:
            end.totals["refused_calls"] = dict(self._refused)
        if self._repaired:
            end.totals["repaired_calls"] = dict(self._repaired)
        agent.trace.write(end)
