"""One run of an agent: ask the model, run the tools it calls, until it answers.

    feed the question ─► ask ─► no call: that is the answer
                          ▲        │ calls
                          └─ feed ◄┴─ act: validate, run

Only new tokens are fed; the `TokenLedger` makes sure of it. A run that ends early, by a limit, an
error or Ctrl-C, leaves messages, ledger and session in step, so that the next one can go on.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import (
    ContextOverflowError,
    GrammarError,
    LimitReachedError,
    PassCancelledError,
    ToolError,
)
from ..traces.events import MessageEvent, PhaseEvent, RunEnd, ToolEvent, TurnEnd
from .chat import Message, Segment
from .events import (
    AgentEvent,
    Notice,
    PhaseFinished,
    RunFinished,
    RunStarted,
    Status,
    TextDelta,
    ThinkingDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from .header import run_start
from .ledger import Reuse, TokenLedger
from .prompt import REPEATED_CALL
from .repeats import Repeats
from .reply import Reply, ReplyReader
from .result import RunResult, Usage
from .sampling import GREEDY
from .toolcalls import ToolCall

if TYPE_CHECKING:
    from .agent import Agent

MAX_ERROR = 300  # characters of an unexpected exception that the model is told


class Run:
    """One question to an agent, up to its answer."""

    def __init__(self, agent: Agent, task: str) -> None:
        self.agent = agent
        self.task = task
        self.turn = agent.turn = agent.turn + 1
        self.usage = Usage()
        self.answer = ""
        self.thinking = ""
        self._began = time.perf_counter()
        self._opens_thinking = False
        self._repeats = Repeats()

    def events(self) -> Iterator[AgentEvent]:
        """Run, and yield what happens (see `Agent.stream`)."""
        agent = self.agent
        trace = agent.trace
        if not trace.events:
            trace.write(run_start(agent, self.task))
        agent.session.on_progress = agent.on_progress
        status: Status = "error"
        message = ""
        try:
            yield RunStarted(trace.events[0].run, self.turn)
            if self.turn == 1:
                yield from map(Notice, agent.notes)
            yield from self._loop()
            status = "answered"
        except LimitReachedError as error:
            status, message = "limit", str(error)
        except (KeyboardInterrupt, GeneratorExit, PassCancelledError) as error:
            status, message = "cancelled", str(error) or "interrupted"
            raise
        except BaseException as error:
            message = str(error) or type(error).__name__
            raise
        finally:
            self._end(status, message)
        assert agent.last_result is not None
        yield RunFinished(agent.last_result)

    def _loop(self) -> Iterator[AgentEvent]:
        config = self.agent.config
        new = [Message("user", self.task)]
        if not self.agent.messages and config.system:
            new.insert(0, Message("system", config.system))
        for step in range(1, config.max_steps + 1):
            self.usage.steps = step
            yield from self._feed(new, "prompt" if step == 1 else "tool_result")
            reply = yield from self._ask()
            if not reply.calls:
                return
            if step < config.max_steps:
                new = yield from self._act(reply.calls)
        raise LimitReachedError(
            f"no answer after {config.max_steps} steps; the last calls were not run. "
            "Allow more (max_steps), or ask for less at once"
        )

    # One step: feed, ask, act.

    def _feed(self, new: Sequence[Message], purpose: str) -> Iterator[AgentEvent]:
        """Prefill the new messages, and nothing else."""
        agent, session, ledger = self.agent, self.agent.session, self.agent.ledger
        self._check_stop()
        ledger.check(session.tokens)
        if agent.messages and agent.messages[-1].role != "assistant":
            agent.messages = [*agent.messages, Message("assistant")]  # stopped before it spoke
        messages = [*agent.messages, *new]
        chat = agent.chat
        segments = chat.extend(messages) if len(ledger) else chat.open(messages)
        shares = chat.encode(segments, first=not len(ledger))
        if ledger.ids and ledger.ids[-1] in agent.engine.tokenizer.stop_ids:
            _drop_first(shares, ledger.ids[-1])  # the model has written its end of turn itself
        before = len(ledger)
        for segment, ids in shares:
            label = _label(segment, messages)
            ledger.append(ids, segment.origin, message=segment.message, label=label)
        try:
            self._check_room(before)
            for message in new:  # before the long part, so that a kill does not lose the question
                self._note(message.role, message.content)
            reused = session.n_cached
            phase = session.prefill(ledger.ids[before:], purpose=purpose)
        except BaseException:
            # The messages were not read: as if they had never been sent.
            ledger.truncate(before)
            if len(session.tokens) > before:
                session.truncate(before)
            raise
        agent.messages = messages
        self._opens_thinking = chat.opens_thinking(segments)
        self.usage.input_tokens += len(ledger)
        self.usage.cached_tokens += reused
        yield PhaseFinished(self._record(phase, purpose), Reuse(reused, len(ledger)))

    def _ask(self) -> Generator[AgentEvent, None, Reply]:
        """Decode one turn of the model; the generator's value is the `Reply`."""
        agent, session, ledger = self.agent, self.agent.session, self.agent.ledger
        tokenizer, config = agent.engine.tokenizer, agent.config
        left = config.max_tokens - self.usage.output_tokens
        room = session.context - len(ledger)
        if left < 1:
            raise LimitReachedError(
                f"no answer after {config.max_tokens:,} generated tokens; allow more (max_tokens)"
            )
        reader = ReplyReader(tokenizer, agent.chat.form, thinking=self._opens_thinking)
        before, last_phase = len(ledger), session.last_phase
        tokens = session.decode(
            max_tokens=min(left, room),
            stop=tokenizer.stop_ids,
            constraint=agent.grammar.constraint(),
            sampling=config.sampling or GREEDY,
        )
        ttft = None
        try:
            for token in tokens:
                self._check_stop()
                if ttft is None:
                    ttft = time.perf_counter() - self._began
                for mode, text in reader.push(token):
                    yield TextDelta(text) if mode == "answer" else ThinkingDelta(text)
        finally:
            if isinstance(tokens, Generator):
                tokens.close()  # a decode that is left early gives its phase now
            reply = reader.finish()
            self._keep(before, reply)
            phase = session.last_phase
            if phase is not None and phase is not last_phase:
                self._measure(phase, reply, ttft)
        if phase is not None:
            yield PhaseFinished(phase)
        self._check_whole(ledger.ids[before:], reply, left, room)
        return reply

    def _keep(self, before: int, reply: Reply) -> None:
        """Take what was generated into ledger and messages, also when it was cut short."""
        agent, ledger = self.agent, self.agent.ledger
        ids = agent.session.tokens[before:]
        text = agent.engine.tokenizer.decode(ids)
        ledger.append(ids, "model", message=len(agent.messages))
        agent.messages = [*agent.messages, Message("assistant", text)]
        self._note("assistant", text)
        self.answer, self.thinking = reply.answer, reply.thinking
        self.usage.output_tokens += len(ids)

    def _measure(self, phase: PhaseEvent, reply: Reply, ttft: float | None) -> None:
        """Put a decode into the sums and the trace."""
        if self.usage.ttft_s is None:
            self.usage.ttft_s = phase.ttft_s = ttft
        self.usage.decode_s += phase.wall_s
        phase.constraint = self.agent.grammar.name
        called = reply.calls or reply.cut_call is not None
        self._record(phase, "tool_call" if called else "answer")

    def _act(self, calls: Sequence[ToolCall]) -> Generator[AgentEvent, None, list[Message]]:
        """Run the calls in order; the generator's value is their results as messages."""
        results: list[Message] = []
        for number, call in enumerate(calls):
            self._check_stop()
            call_id = f"c{self.turn % 10**4:04}{self.usage.steps % 100:02}{number % 100:02}"
            yield ToolCallStarted(call_id, call.name, call.arguments)
            began = time.perf_counter()
            result, error = self._call(call)
            duration = time.perf_counter() - began
            event = ToolEvent(
                turn=self.turn,
                step=self.usage.steps,
                name=call.name,
                arguments=call.arguments,
                result=result,
                error=error,
                duration_s=duration,
                call_id=call_id,
            )
            self.agent.trace.write(event)
            yield ToolCallFinished(call_id, call.name, result, error, duration)
            results.append(Message("tool", result, call.name, call_id))
        return results

    def _call(self, call: ToolCall) -> tuple[str, str | None]:
        """What the model is told, and the error if there was one."""
        if self._repeats.too_often(call):
            return REPEATED_CALL, REPEATED_CALL.removeprefix("error: ")
        result = ""
        error = None
        try:
            result = self.agent.tools.get(call.name).call(call.arguments)
        except ToolError as problem:
            error = str(problem)
        except Exception as problem:  # a tool's own bug: the model may find another way
            error = f"{type(problem).__name__}: {problem}"[:MAX_ERROR]
        if error is not None:
            result = f"error: {error}"
        self._repeats.saw(call, result)
        return result, error

    # Limits.

    def _check_stop(self) -> None:
        if self.agent.stopping:
            raise PassCancelledError("stopped; the conversation can go on")

    def _check_room(self, before: int) -> None:
        session, ledger = self.agent.session, self.agent.ledger
        if len(ledger) + 1 > session.context:
            raise ContextOverflowError(
                f"{len(ledger) - before:,} new tokens do not fit: "
                + _how_long(ledger, session.context, before)
            )

    def _check_whole(self, ids: Sequence[int], reply: Reply, left: int, room: int) -> None:
        """A turn that was cut is no answer, and a call that was cut never runs."""
        if reply.broken:
            raise GrammarError(f"a malformed call got past the grammar: {reply.broken[0]}")
        if ids and ids[-1] in self.agent.engine.tokenizer.stop_ids:
            return
        if room <= left:
            raise ContextOverflowError(
                "the context is full before the model had finished: "
                + _how_long(self.agent.ledger, self.agent.session.context, len(self.agent.ledger))
            )
        what = "the answer" if reply.cut_call is None else "a tool call, which was not run,"
        raise LimitReachedError(
            f"{what} was cut after {self.agent.config.max_tokens:,} generated tokens; "
            "allow more (max_tokens)"
        )

    # The trace.

    def _note(self, role: str, content: str) -> None:
        step = self.usage.steps
        event = MessageEvent(role=role, content=content, turn=self.turn, step=step)
        self.agent.trace.write(event)

    def _record(self, phase: PhaseEvent, purpose: str) -> PhaseEvent:
        phase.turn, phase.step, phase.purpose = self.turn, self.usage.steps, purpose
        return self.agent.trace.write(phase)

    def _end(self, status: Status, message: str) -> None:
        agent, usage = self.agent, self.usage
        usage.wall_s = time.perf_counter() - self._began
        agent.last_result = RunResult(
            self.answer, status, message, self.turn, usage, agent.trace, self.thinking
        )
        totals = {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
        }
        if status == "answered":
            turn = TurnEnd(turn=self.turn, answer=self.answer)
            turn.input_tokens, turn.output_tokens = usage.input_tokens, usage.output_tokens
            turn.cached_tokens = usage.cached_tokens
            turn.ttft_s, turn.tpot_s = usage.ttft_s, usage.tpot_s
            agent.trace.write(turn)
        end = RunEnd(status=status, message=message, answer=self.answer, wall_s=usage.wall_s)
        end.totals = {**totals, "steps": usage.steps, "turn": self.turn}
        agent.trace.write(end)


def _drop_first(shares: Sequence[tuple[Segment, list[int]]], token: int) -> None:
    """Take a token off the front, if it is there."""
    for _, ids in shares:
        if ids:
            if ids[0] == token:
                del ids[0]
            return


def _label(segment: Segment, messages: Sequence[Message]) -> str:
    """The tool that a result came from."""
    return "" if segment.message is None else messages[segment.message].name


def _how_long(ledger: TokenLedger, context: int, before: int) -> str:
    """What takes up the context, for a person who has to make it shorter."""
    parts = ", ".join(f"{name} {tokens:,}" for name, tokens in ledger.lengths())
    return (
        f"the context holds {context:,} tokens, {context - before:,} of them free, and this is "
        f"{len(ledger):,}: {parts}. Read less at once (a line range, a narrower search), or load "
        "the model with a longer context"
    )
