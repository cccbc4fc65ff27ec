"""What `run` and `chat` share: an agent from the arguments, and its events on the screen."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ToolError
from ..agent.events import (
    AgentEvent,
    Notice,
    PhaseFinished,
    RunFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from .sampling import sampling_of
from .status import Exit
from .toolbox import policy_of, tools_of
from .transcript import show_call, show_result

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ...traces.reader import Trace
    from ..agent.agent import Agent, RunResult
    from ..agent.remote import RemoteEngine
    from ..inference.engine import Engine
    from .output import Output


def begin(engine: Engine | RemoteEngine, args: argparse.Namespace, output: Output) -> Agent:
    """The agent that the arguments describe."""
    from ..agent.agent import MAX_STEPS, MAX_TOKENS, Agent

    agent = Agent(
        engine,
        workspace=args.dir,
        tools=tools_of(args),
        policy=policy_of(args, output),
        timeout=args.timeout,
        compact=args.compact,
        repetition_stop=args.repetition_stop,
        thinking=args.think,
        sampling=sampling_of(args),
        output_type=read_schema(args.schema) if getattr(args, "schema", None) else None,
        max_steps=args.max_steps or MAX_STEPS,
        max_tokens=args.max_tokens or MAX_TOKENS,
        context=args.context,
        trace=args.trace,
        redact=args.redact,
        profile=args.profile,
    )
    agent.on_progress = output.progress
    return agent


def read_schema(path: str) -> dict[str, Any]:
    """The JSON schema in a file.

    Raises:
        ToolError: it cannot be read, or is none.
    """
    try:
        schema = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolError(f"cannot read the schema {path}: {error.strerror}") from None
    except ValueError as error:
        raise ToolError(f"the schema {path} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ToolError(f"the schema {path} is no JSON object")
    return schema


def follow(
    events: Iterable[AgentEvent],
    output: Output,
    *,
    quiet: bool = False,
    on_phase: Callable[[PhaseEvent], None] | None = None,
) -> RunResult:
    """Show a turn's events as they come (none if quiet); returns its result.

    on_phase: hears of each phase that has ended.
    """
    result = None
    try:
        for event in events:
            if isinstance(event, RunFinished):
                result = event.result
            elif isinstance(event, PhaseFinished):
                if on_phase is not None:
                    output.end_line()
                    on_phase(event.phase)
            elif not quiet:
                _show(event, output)
    finally:
        if isinstance(events, Generator):
            events.close()  # where nobody reads on: the run ends before its trace does
        output.progress.clear()
        output.end_line()
    assert result is not None, "an agent's stream ends with RunFinished or an error"
    return result


def show_trace(output: Output, trace: Trace) -> None:
    """The table of phases and where the trace is."""
    if trace.phases:
        output.line()
        output.timeline(trace)
    if trace.path is not None:
        output.line(f"trace: {trace.path}", "dim")


def exit_status(result: RunResult) -> Exit:
    """The exit status that tells how a run ended."""
    return {"answered": Exit.OK, "limit": Exit.LIMIT, "cancelled": Exit.INTERRUPTED}.get(
        result.status, Exit.FAILED
    )


def _show(event: AgentEvent, output: Output) -> None:
    match event:
        case TextDelta(text):
            output.piece(text)
        case ThinkingDelta(text):
            output.piece(text, "dim italic")
        case ToolCallStarted(_, name, arguments):
            show_call(output, name, arguments)
        case ToolCallFinished(_, _, text, error):
            show_result(output, text, error)
        case Notice(message):
            output.line(f"note: {message}", "yellow")
        case _:
            pass
