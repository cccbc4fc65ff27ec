"""The run context of a conversation: limits, usage, cancellation and trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...errors import LimitReachedError, PassCancelledError, ToolError
from ...traces.events import ContentEvent, MessageEvent, PassEvent, PhaseEvent
from .config import TURN_TOKENS
from .prompt import LEFT_BY_STOP, LEFT_BY_TIMEOUT, NOT_BEGUN, TOOK_LONGER, counted, cut_part
from .result import Usage

if TYPE_CHECKING:
    from ...tools import Workspace
    from ...tools.timeouts import TimedTask
    from ...traces.reader import Trace
    from ..conversation.formats.toolcalls import ToolCall
    from ..conversation.reply import Reply
    from .config import AgentConfig

T = TypeVar("T")

Progress = Callable[[int, int, float], None]
"""Callback during a long prefill: tokens done, total tokens and tokens per second."""


class CancellationToken:
    """Flags that end a run: cancelled, or its time is up.

    Args:
        timeout: maximum seconds of the run; None: no limit.

    Attributes:
        cancelled, expired: the flags, set from any thread.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.timeout = timeout
        self.cancelled = False
        self.expired = False
        self._task: TimedTask[str] | None = None

    def cancel(self) -> None:
        """End the run before its next step, and stop waiting for a tool."""
        self.cancelled = True
        self._abandon(LEFT_BY_STOP)

    def expire(self) -> None:
        """End the run because its time is up."""
        self.expired = True
        self._abandon(LEFT_BY_TIMEOUT.format(seconds=self.timeout))

    def check(self) -> None:
        """Raise if the run must end.

        Raises:
            PassCancelledError: it was cancelled.
            LimitReachedError: its time is up.
        """
        if self.expired:
            raise self.timeout_error()
        if self.cancelled:
            raise PassCancelledError("stopped; the conversation can continue")

    def check_call(self) -> None:
        """Refuse to start a call in a run that must end.

        Raises:
            ToolError: it is to end.
        """
        if self.cancelled or self.expired:
            raise ToolError(NOT_BEGUN)

    def timeout_error(self) -> LimitReachedError:
        """Return the error of a run whose time is up."""
        return LimitReachedError(f"no answer within {self.timeout:g} seconds; allow more (timeout)")

    def wait(self, task: TimedTask[str], seconds: float | None) -> str:
        """Wait for a running tool and return its result.

        Args:
            task: the call.
            seconds: the tool's own timeout.

        Raises:
            ToolError: the tool says so, or its time or that of the run was up.
        """
        self._task = task
        try:
            # The caller that ends the run sets the flag first and looks for the task then.
            if self.expired:
                self.expire()
            elif self.cancelled:
                self.cancel()
            return task.wait(seconds, TOOK_LONGER.format(seconds=seconds or 0))
        finally:
            self._task = None

    def _abandon(self, why: str) -> None:
        if (task := self._task) is not None:
            task.abandon(why)


class RunContext:
    """The state of one run that a `Conversation` needs: limits, usage and trace.

    Args:
        config: the agent's settings.
        trace: receives the events.
        turn: number of the question.
        files: workspace of the tools, whose attachments are recorded with the question.
        cancellation: ends the run.
        on_progress: see `Progress`.

    Attributes:
        usage: the cost so far.
        answer, thinking: the model's last reply.
        began: when the question was asked, by `time.perf_counter`.
    """

    def __init__(
        self,
        config: AgentConfig,
        trace: Trace,
        turn: int,
        *,
        files: Workspace | None = None,
        cancellation: CancellationToken | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.trace = trace
        self.turn = turn
        self.cancellation = cancellation or CancellationToken()
        self.on_progress = on_progress
        self.usage = Usage()
        self.answer = ""
        self.thinking = ""
        self.began = time.perf_counter()
        self._max_tokens = config.max_tokens
        self._files = files
        self._known: set[str] = set()  # digests of contents that are in the trace

    def check_stop(self) -> None:
        """Raise if the run must end."""
        self.cancellation.check()

    def tokens_left(self) -> int:
        """Return the maximum tokens of the next reply.

        Raises:
            LimitReachedError: none are left.
        """
        limit = self._max_tokens
        if limit is None:
            return TURN_TOKENS
        if self.usage.output_tokens >= limit:
            raise LimitReachedError(
                f"no answer after {counted(limit, 'generated token')}; allow more (max_tokens)"
            )
        return limit - self.usage.output_tokens

    def cut_error(self, reply: Reply) -> LimitReachedError:
        """Return the error of a run whose last reply reached the token limit."""
        limit = counted(self._max_tokens or TURN_TOKENS, "generated token")
        return LimitReachedError(
            f"{cut_part(reply)} was cut after {limit}; allow more (max_tokens)"
        )

    def log_message(
        self, role: str, content: str, thinking: str = "", by: Literal["", "harness"] = ""
    ) -> None:
        """Write a message to the trace."""
        step = self.usage.steps
        event = MessageEvent(role=role, content=content, turn=self.turn, step=step)
        event.thinking, event.by = thinking, by
        if role == "user" and not by and self._files is not None:
            event.attached = dict(self._files.attached)
        self.trace.write(event)

    def log_contents(self, contents: Mapping[str, Any]) -> None:
        """Write the values that recipes name by digest to the trace, each once."""
        if contents.keys() <= self._known:
            return
        self._known |= self.trace.contents.keys()
        for digest in contents.keys() - self._known:
            self.trace.write(ContentEvent(digest=digest, value=contents[digest]))
        self._known |= contents.keys()

    def log_phase(
        self, phase: PhaseEvent, purpose: str, passes: Sequence[PassEvent] = ()
    ) -> PhaseEvent:
        """Write a phase to the trace, and its passes that were shared with other runs."""
        for one in passes:
            one.turn, one.step = self.turn, self.usage.steps
            self.trace.write(one)
        phase.turn, phase.step, phase.purpose = self.turn, self.usage.steps, purpose
        return self.trace.write(phase)

    def log_reply(self, reply: Reply, content: str, tokens: int) -> None:
        """Add the model's reply to the trace and the usage.

        Args:
            reply: the parsed reply.
            content: its text without the thinking.
            tokens: its length, thinking included.
        """
        self.log_message("assistant", content, reply.thinking)
        self.answer, self.thinking = reply.answer, reply.thinking
        self.usage.output_tokens += tokens

    def identify(self, calls: Sequence[ToolCall], by: str = "c") -> list[ToolCall]:
        """Give each call of this step an identifier of nine letters, as Mistral requires.

        by: first letter of the identifiers, which distinguishes the harness's from the model's.
        """
        step = f"{by}{self.turn % 10**4:04}{self.usage.steps % 100:02}"
        return [replace(c, id=c.id or f"{step}{n % 100:02}") for n, c in enumerate(calls)]
