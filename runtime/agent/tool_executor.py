"""Runs tool calls: validates them, applies the policy, and stops a model that repeats one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import LimitReachedError, ToolError
from ...tools.policy import AskError
from ...tools.seen import seeing
from ...tools.timeouts import TimedTask
from .prompt import DENIED, REPEATED_CALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...tools import Policy, Tool, ToolSet
    from ...tools.policy import Decision
    from ..conversation.formats.toolcalls import ToolCall
    from .run_context import CancellationToken
    from .tool_output import ToolOutputStore

MAX_ERROR = 300  # characters of an unexpected exception that the model sees
SAME_CALLS = 2
"""Maximum runs of one call with one result; after them it is not run again."""


@dataclass
class Outcome:
    """The outcome of one call."""

    result: str
    """The result text that the model gets."""
    error: str | None = None
    effect: str = ""
    decision: Decision | None = None
    """The policy's decision; None for a call that failed before it."""
    seen: dict[str, str] = field(default_factory=dict)
    """Files that the call showed or changed; see `Message.seen`."""


class ToolExecutor:
    """Runs the calls of one question, as far as the policy allows.

    Args:
        tools: those that calls may name.
        policy: allows or denies calls.
        results: truncates results to their budget.
        cancellation: ends the wait for a tool.
        seen: files that the conversation has seen; see `Message.seen`.
    """

    def __init__(
        self,
        tools: ToolSet,
        policy: Policy,
        results: ToolOutputStore,
        cancellation: CancellationToken,
        seen: Mapping[str, str] | None = None,
    ) -> None:
        self._tools = tools
        self._policy = policy
        self._results = results
        self._cancellation = cancellation
        self._seen = dict(seen or {})
        reader = next((one for one in tools if one.name == "read_file"), None)
        self._readable = None if reader is None else lambda path: not policy.hides([reader], path)
        self._loop_detector = LoopDetector()

    def saw(self, seen: Mapping[str, str]) -> None:
        """Record files that the conversation was shown without a call of the model."""
        self._seen |= seen

    def run(self, call: ToolCall) -> Outcome:
        """Run a call; return the result for the model and the record for the trace.

        Raises:
            LimitReachedError: the model was warned that it repeats this call, and continues.
            AskError: the user could not be asked.
        """
        if self._loop_detector.too_often(call):
            return Outcome(REPEATED_CALL, REPEATED_CALL.removeprefix("error: "))
        outcome = Outcome("")
        try:
            tool = self._tools.get(call.name)
            if call.problem:
                raise ToolError(call.problem)
            outcome.effect = tool.effect
            arguments = tool.validate(call.arguments)
            with seeing(self._seen, self._readable) as seen:
                decision = self._policy.decide(tool, arguments, call.arguments)
                outcome.decision = decision
                result = self._run_tool(tool, arguments) if decision.allowed else ""
            if decision.allowed:
                outcome.seen = dict(seen)
                self._seen |= seen
                outcome.result = result if tool.self_truncates else self._results.truncate(result)
            else:
                outcome.error = DENIED.format(reason=decision.reason)
        except ToolError as problem:
            outcome.error = str(problem)
        except BaseException as problem:  # a tool's own bug: the model may find another way
            if isinstance(problem, AskError) or not isinstance(problem, _bugs()):
                raise
            outcome.error = f"{type(problem).__name__}: {_text_of(problem)}"[:MAX_ERROR]
        if outcome.error is not None:
            outcome.result = self._results.truncate(f"error: {outcome.error}")
        self._loop_detector.record(call, outcome.result)
        if outcome.error is None and outcome.effect != "read":
            self._loop_detector.record_change(call)
        return outcome

    def _run_tool(self, tool: Tool[..., Any], arguments: dict[str, Any]) -> str:
        """Run a tool; with a time limit, in a thread that may be abandoned.

        Raises:
            ToolError: also where the run has ended meanwhile, such as while the user was asked.
        """
        self._cancellation.check_call()
        if tool.timeout is None and self._cancellation.timeout is None:
            return tool.run(arguments)
        task = TimedTask(lambda: tool.run(arguments), f"tool {tool.name}")
        return self._cancellation.wait(task, tool.timeout)


class LoopDetector:
    """Counts the calls of one run that gave the same result."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}  # call → times in a row, result
        self._changes: set[str] = set()  # calls that changed something
        self._warned = False

    def too_often(self, call: ToolCall) -> bool:
        """Return whether a call was repeated too often to run again; the model is warned once.

        Raises:
            LimitReachedError: the model was warned and continues.
        """
        times, _ = self._seen.get(call.key, (0, ""))
        if times < SAME_CALLS:
            return False
        if self._warned:
            shown = call.text if call.name in call.text else call.key
            raise LimitReachedError(
                f"the model repeats one call: {shown}, {times + 2} times; rephrase the question "
                "or use a stronger model"
            )
        self._warned = True
        return True

    def record(self, call: ToolCall, result: str) -> None:
        """Count a call's result; a new result resets the count."""
        times, before = self._seen.get(call.key, (0, result))
        self._seen[call.key] = (times + 1 if before == result else 1, result)

    def record_change(self, call: ToolCall) -> None:
        """Reset all counts after a new call that may change other results."""
        if call.key not in self._changes:
            self._changes.add(call.key)
            self._seen = {call.key: self._seen[call.key]}
            self._warned = False


def _bugs() -> tuple[type[BaseException], ...]:
    """Return the exceptions of a tool that do not end the run; Ctrl-C is not among them."""
    asyncio = sys.modules.get("asyncio")  # the one who cancelled it has it
    return (Exception, SystemExit, *([asyncio.CancelledError] if asyncio is not None else []))


def _text_of(problem: BaseException) -> str:
    try:
        return str(problem)
    except Exception as error:
        return f"(its text cannot be shown: {type(error).__name__})"
