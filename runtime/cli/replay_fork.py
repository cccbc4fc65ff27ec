"""``triplepoint replay --from``: continue a recorded conversation live from one of its steps."""

from __future__ import annotations

import argparse
from typing import Any

from ...traces.events import RunStart
from ...traces.reader import Trace
from ..agent.agent import Agent
from ..agent.structured_output import OutputType
from ..engine.sampling.settings import Sampling
from ..files import check_target
from ..replay.fork import branch, history_of
from .agent_options import policy_of, tools_of
from .conversation import exit_status, follow, show_trace
from .engine_from_trace import engine_of, folder_of
from .load_engine import is_server, load_model
from .output import Output
from .traces import trace_json


def run(trace: Trace, args: argparse.Namespace, output: Output) -> int:
    """Continue a recorded conversation; close and name the new trace however it ends."""
    turn, step = args.start
    _, header = history_of(trace, turn, step)  # before a model is loaded for nothing
    if args.trace:
        check_target(args.trace)
    args.dir = folder_of(trace, header, args.dir)
    if args.model and is_server(args.model):
        engine: Any = load_model(args, output)
    else:
        same = args.model is None
        engine, notes = engine_of(
            header, args, output, header.config.get("context") if same else None
        )
        for note in notes:
            output.note(note)
    with engine, _agent(engine, header, args, output) as agent:
        try:
            result = follow(branch(trace, agent, turn, step, prompt=args.question), output)
        finally:
            if agent.turn:
                output.facts["trace"] = agent.trace.path and str(agent.trace.path)
                show_trace(output.aside, agent.trace)
    if result.status != "answered":
        output.error(result.message)
    output.json({"message": result.message, **trace_json(result.trace)})
    return exit_status(result)


def _agent(engine: Any, header: RunStart, args: argparse.Namespace, output: Output) -> Agent[Any]:
    """Build an agent with the recorded settings, except those that the arguments set."""
    config = header.config
    system, output_type = config.get("system"), config.get("output")
    if system is not None and output_type is not None:  # the agent tells of the type again
        system = OutputType(output_type).removed_from(system)
    own = config if args.model is None else {}  # what another model may have otherwise
    sampling = own.get("sampling")
    same = args.model is None and args.context is None  # what depends on the context's length
    folder = args.dir or None
    recorded = args.tools is None
    asked = argparse.Namespace(
        **vars(args), mode=None, policy=None, mcp=None, allow_private_network=False
    )
    asked.dir = folder or "."
    asked.tools = _groups(header) if recorded else args.tools
    agent = Agent(
        engine,
        workspace=folder,
        tools=tools_of(asked),
        # With other tools the default message tells of them; the recorded one may not.
        system=system if recorded else None,
        policy=policy_of(asked, output),
        max_steps=config.get("max_steps"),
        max_tokens=config.get("max_tokens"),
        thinking_tokens=config.get("thinking_tokens"),
        thinking_seconds=config.get("thinking_seconds"),
        context=config.get("context") if same else None,
        template_options=config.get("options"),
        sampling=Sampling(**sampling) if sampling else None,
        output_type=output_type,
        result_tokens=config.get("result_tokens") if same else None,
        compact=bool(config.get("compact")),
        repetition_stop=config.get("repetition_stop", True),
        answer_forms=own.get("answer_forms", True),
        harness=config.get("harness") or False,
        trace=args.trace,
        redact=False,
    )
    agent.setup.on_progress = output.progress
    return agent


def _groups(header: RunStart) -> list[str]:
    """Return the groups of the recorded tools."""
    names = {tool.get("function", {}).get("name") for tool in header.tools}
    signs = {"find": "find", "edit": "edit_file", "net": "fetch_url", "exec": "run_command"}
    return [group for group, name in signs.items() if name in names]
