"""Shared by `run` and `chat`: build an agent from arguments, open its session, show its events."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import read_text
from ...errors import AgentError, SettingError, ToolError
from ...traces.reader import Trace
from ...traces.sanitize import printable
from ...traces.timeline import duration, rate
from ..agent import events
from ..files import check_target
from .agent_options import harness_given, policy_of, tools_of
from .engine_from_trace import NANO
from .exit_codes import Exit
from .job_control import no_interrupts
from .options import apply_config
from .sampling_options import sampling_of
from .traces import default_folder
from .transcript import show_call, show_result, show_sources

if TYPE_CHECKING:
    from ...tools import Workspace
    from ...traces.events import PhaseEvent
    from ..agent.agent import Agent, RunResult
    from ..agent.session_list import SessionInfo
    from ..agent.session_store import SavedConversation
    from ..engine.engine import Engine
    from ..remote import RemoteEngine
    from .output import Output


def begin(
    engine: Engine | RemoteEngine,
    args: argparse.Namespace,
    output: Output,
    files: Workspace | None = None,
) -> Agent:
    """Build an agent from the parsed arguments.

    files: the workspace of the agent before it, with its attached documents.
    """
    from ...tools import Workspace
    from ...tools.groups import GROUPS
    from ...tools.policy import unmatched_rules
    from ..agent.agent import Agent

    files = files or Workspace(args.dir)
    agent = Agent(
        engine,
        workspace=files,
        tools=tools_of(args, files),
        policy=policy_of(args, output),
        timeout=args.timeout,
        compact=args.auto_compact,
        repetition_stop=args.repetition_stop,
        harness=harness_given(args.harness),
        **args.think,
        grounded=args.grounded,
        sampling=sampling_of(args),
        output_type=read_schema(args.schema) if getattr(args, "schema", None) else None,
        max_steps=args.max_steps,
        max_tokens=args.max_tokens,
        context=args.context,
        trace=args.trace,
        redact=args.redact,
        profile=args.profile,
    )
    agent.setup.on_progress = output.progress
    if not args.quiet:
        others = [name for group in GROUPS.values() for name in group]
        for problem in unmatched_rules(agent.setup.policy.rules, agent.tools, others):
            output.note(problem)
    return agent


def read_schema(path: str) -> dict[str, Any]:
    """Read a JSON schema from a file.

    Raises:
        ToolError: it cannot be read, or is none.
    """
    try:
        schema = json.loads(read_text(path))
    except OSError as error:
        raise ToolError(f"cannot read the schema {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # RecursionError: brackets without end
        raise ToolError(f"the schema {path} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ToolError(f"the schema {path} is not a JSON object")
    return schema


# --- --session and --continue: a conversation that outlives its process


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[SavedConversation | None]:
    """Open and lock the session that the arguments name; yield None if they name none.

    Where the arguments name no folder and no model, the session's are used; what else they leave
    open is set from the config file.

    Raises:
        SettingError: the session has another folder than the arguments, which do not choose one.
        ModelError: the trace cannot be written, which is said before a model is loaded.
    """
    apply_config(args, "tools", "threads", "kv", "temperature", "trace")
    if args.trace:
        check_target(args.trace)
    if not args.session and not args.resume:
        args.dir = args.dir or "."
        yield None
        return
    from ..agent.session_store import last_session, open_conversation

    with open_conversation(args.session or last_session()) as kept:
        if kept.exists:
            _as_it_was(kept.name, args)
        args.dir = args.dir or "."
        yield kept


def _as_it_was(name: str, args: argparse.Namespace) -> None:
    from ..agent.session_list import find_session

    kept = find_session(name)
    try:
        here = Path.cwd().resolve()
    except OSError:
        raise SettingError("the current folder no longer exists; go to another") from None
    if args.dir is None and kept.workspace and Path(kept.workspace) != here:
        raise SettingError(
            f"session {name} belongs to {printable(kept.workspace)}, and this is {here}; continue "
            f"there with --dir {printable(shlex.quote(kept.workspace))}, or here with --dir ."
        )
    args.model = args.model or _model_of(kept)


def _model_of(kept: SessionInfo) -> str | None:
    """Return the `-m` value for a session's model; None where the file is gone."""
    if kept.model_path.startswith(("http://", "https://")):
        return f"{kept.model_path}#{kept.model}"
    if os.path.exists(kept.model_path):
        return kept.model_path
    return "nano" if kept.model == NANO else None


def resume(
    kept: SavedConversation | None, agent: Agent[Any], output: Output, *, quiet: bool = False
) -> None:
    """Restore a saved conversation into the agent, and print notes on it."""
    for line in kept.resume(agent) if kept is not None else ():
        if not quiet:
            output.line(line, "dim")


def keep(kept: SavedConversation | None, agent: Agent[Any], output: Output) -> bool:
    """Save the conversation; report an error and return False if that fails.

    An impatient second Ctrl-C does not prevent it.
    """
    if kept is None:
        return True
    try:
        with no_interrupts():
            kept.save(agent)
    except AgentError as error:
        output.error(str(error))
        return False
    return True


# --- its events


def follow(
    stream: Iterable[events.AgentEvent],
    output: Output,
    *,
    quiet: bool = False,
    on_phase: Callable[[PhaseEvent], None] | None = None,
) -> RunResult:
    """Show a turn's events as they arrive: the answer on stdout, the rest on stderr.

    A terminal sees the answer while it is written. In a pipe only a whole one comes: what is
    written before a call of a tool is no answer, and that is known when the call begins.

    Args:
        quiet: the answer alone.
        on_phase: called with each phase that has ended.
    """
    result = None
    held: list[str] | None = None if output.is_terminal and not quiet else []
    try:
        for event in stream:
            match event:
                case events.RunFinished(result):
                    if held is not None and result.answer:
                        output.flow(f"{result.answer}\n")
                        held.clear()
                case events.PhaseFinished(phase):
                    if on_phase is not None:
                        on_phase(phase)
                case events.TextDelta(text):
                    output.flow(text) if held is None else held.append(text)
                case _ if not quiet:
                    if held and isinstance(event, events.ToolCallStarted):
                        output.aside.piece("".join(held))
                        held.clear()
                    _show(event, output.aside)
                case _:
                    pass
    finally:
        if isinstance(stream, Generator):
            stream.close()  # where nobody reads on: the run ends before its trace does
        if held and not quiet:  # cut short by an error or Ctrl-C
            output.aside.piece("".join(held))
        output.progress.clear()
        output.end_line()
        output.aside.end_line()
    assert result is not None, "an agent's stream ends with RunFinished or an error"
    return result


def show_trace(output: Output, trace: Trace) -> None:
    """Print the table of phases and the path of the trace."""
    if trace.phases:
        output.line()
        output.timeline(trace)
    if trace.path is not None:
        output.line(f"trace: {trace.path}", "dim")


def show_statistics(
    output: Output, result: RunResult, args: argparse.Namespace, *, name: bool = False
) -> None:
    """Show the cost of a turn: one line; its table with ``-v``; nothing with ``-q``.

    name: whether to name the trace.
    """
    if args.quiet:
        return
    show_sources(output.aside, result.sources, result.unsupported)
    if not args.verbose:
        output.aside.status([*turn_parts(result), *([trace_name(result.trace)] if name else [])])
        return
    of_turn = [e for e in result.trace.events if getattr(e, "turn", result.turn) == result.turn]
    show_trace(output.aside, Trace(of_turn, path=result.trace.path if name else None))


def turn_parts(result: RunResult) -> list[str]:
    """Summarize a turn in a few words: time, tokens, speed, and the regimes in order."""
    labels: dict[str, str] = {}  # by regime, in order: contended where one of its phases was
    for phase in result.phases:
        if phase.tokens and (phase.contended or phase.regime not in labels):
            label = f"{phase.regime} (contended: {phase.taken})"
            labels[phase.regime] = label if phase.contended and phase.taken else phase.label
    usage = result.usage
    return [
        duration(usage.wall_s),
        f"{usage.reuse}, {usage.output_tokens:,} generated",
        f"TTFT {duration(usage.ttft_s)}" if usage.ttft_s is not None else "",
        f"{rate(1 / usage.tpot_s)} tok/s" if usage.tpot_s else "",
        " → ".join([*labels.values()][-3:]),
    ]


def trace_name(trace: Trace) -> str:
    """Return the name that `triplepoint trace show` accepts for this trace; "" without a file."""
    if trace.path is None:
        return ""
    in_folder = trace.path.parent == default_folder()
    return f"trace {trace.path.stem if in_folder else trace.path}"


def exit_status(result: RunResult) -> Exit:
    """Return the exit status for a run's result."""
    if result.status == "answered" and not result.found:
        return Exit.NOT_FOUND
    return {"answered": Exit.OK, "limit": Exit.LIMIT, "cancelled": Exit.INTERRUPTED}.get(
        result.status, Exit.FAILED
    )


def _show(event: events.AgentEvent, output: Output) -> None:
    match event:
        case events.ThinkingDelta(text):
            output.flow(text, "dim italic")
        case events.ToolCallStarted(_, name, arguments, by):
            show_call(output, name, arguments, by)
        case events.ToolCallFinished(_, _, text, error):
            show_result(output, text, error)
        case events.Notice(message):
            output.words(f"note: {printable(message)}", "yellow")
        case _:
            pass
