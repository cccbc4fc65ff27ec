"""Options of an agent, and what is built from them: tools, a policy, a harness."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import ToolError
from ...traces.sanitize import printable
from .arguments import group_of
from .load_engine import DEFAULT_MODEL, add_engine_options, named
from .options import add_file, add_number, add_on_off, add_switch, seconds
from .output import Output, read_answer
from .sampling_options import add_sampling_options

if TYPE_CHECKING:
    from ...tools import PermissionRequest, Policy, Tool, Workspace
    from ...tools.policy import Answer, Mode

_MOST_SHOWN = 4000  # characters of a preview
_MOST_SCOPE = 200  # of what "always" would be for


def add_agent_options(verb: argparse.ArgumentParser) -> None:
    """Add all options of an agent, including those of its model."""
    add_engine_options(verb, model=f"or the http:// URL of a server; {DEFAULT_MODEL}")
    group = group_of(verb, "conversation")
    # Of a session that goes on, folder and model are those that it had: `opened` sees to both.
    group.add_argument(
        "--dir", type=named, metavar="D", help="folder that the tools may read (default: .)"
    )
    kept = group.add_mutually_exclusive_group()
    kept.add_argument(
        "--session",
        type=session,
        metavar="NAME",
        help="save the conversation under NAME, or continue it",
    )
    kept.add_argument(
        "--continue", dest="resume", action="store_true", help="continue the last session"
    )
    add_limit_options(verb)
    add_reply_options(verb)
    add_tool_options(verb)
    add_sampling_options(verb)
    trace = group_of(verb, "trace")
    add_trace_option(trace, "file, or off (default: a new one in the state folder)")
    add_switch(trace, "--profile", help="record the time of each layer in the trace")
    beside = group_of(verb, "output").add_mutually_exclusive_group()
    add_switch(beside, "-v", "--verbose", help="print the table of phases after each answer")
    add_switch(beside, "-q", "--quiet", help="print only the answer, without statistics")


def add_trace_option(group: argparse._ActionsContainer, where: str) -> None:
    """Add the options for where traces are written and whether they contain text."""
    group.add_argument("--trace", type=trace, metavar="WHERE", help=f"trace {where}")
    add_switch(group, "--redact", help="leave text and token ids out of the trace")


def trace(text: str) -> str | bool:
    """Parse where a trace is written; return False for ``off``."""
    return False if text == "off" else text


def add_limit_options(verb: argparse.ArgumentParser) -> None:
    """Add the limits on the work that an agent does for an answer."""
    group = group_of(verb, "agent")
    add_number(group, "--max-steps", help="maximum number of model calls (default: 25; nano: 8)")
    add_number(
        group,
        "--max-tokens",
        help="maximum number of generated tokens (default: 4,096 per reply; nano: 1,024)",
    )
    group.add_argument(
        "--timeout", type=seconds, metavar="S", help="stop after S seconds (default: no limit)"
    )


def add_reply_options(verb: argparse.ArgumentParser) -> None:
    """Add the options for thinking, compaction of a full context and repetition."""
    group = group_of(verb, "agent")
    group.add_argument(
        "--think",
        type=thinking,
        default={},
        metavar="HOW",
        help="think before answering: on, off, or for at most N tokens or Ns seconds (default: "
        "the model decides)",
    )
    add_switch(group, "--auto-compact", help="remove old tool results when the context is full")
    add_on_off(
        group,
        "--repetition-stop",
        default=True,
        help="stop a reply that only repeats itself, before its token limit",
    )
    add_harness_options(verb)


def add_harness_options(verb: argparse.ArgumentParser) -> None:
    """Add the options of the harness around an agent's model."""
    group = group_of(verb, "agent")
    group.add_argument(
        "--harness",
        type=harness_setting,
        action="append",
        metavar="NAME=VALUE",
        help="what is done around the model: off for nothing, or a setting such as evidence=off or "
        "evidence_tokens=3000 (default: on, except for models trained without it and on servers)",
    )
    add_switch(
        group,
        "--grounded",
        help="do not take an answer with a fact that no line says: ask once more, else not found",
    )


def thinking(text: str) -> dict[str, Any]:
    """Parse a thinking budget into arguments of `Agent`: N tokens, Ns seconds, on or off."""
    if text in ("on", "off"):
        return {"thinking": text == "on"}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)s|(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not on, off, a number of tokens, or of seconds as in 30s"
        )
    return {"thinking_seconds": float(found[1])} if found[1] else {"thinking_tokens": int(found[2])}


def harness_setting(text: str) -> tuple[str, bool | int]:
    """Parse a setting of the harness: NAME=VALUE, or on or off for the whole harness."""
    name, found, value = text.partition("=")
    if not found:
        name, value = "", text
    word = value.strip().lower()
    if word in ("on", "off", "true", "false"):
        return name.strip(), word in ("on", "true")
    if not name or not value.isdecimal():
        raise argparse.ArgumentTypeError("give on, off, or NAME=VALUE with on, off or a number")
    return name.strip(), int(value)


def harness_given(settings: list[tuple[str, bool | int]] | None) -> dict[str, object] | bool | None:
    """Return the ``harness`` argument of `Agent` from parsed settings; None without any."""
    if not settings:
        return None
    named: dict[str, object] = {name: value for name, value in settings if name}
    whole = [bool(value) for name, value in settings if not name]
    return named if named and all(whole) else whole[-1] if whole else named


def session(text: str) -> str:
    """Validate a name for a session."""
    from ..agent.session_store import no_name

    if problem := no_name(text):
        raise argparse.ArgumentTypeError(problem)
    return text


# --- tools, and what they may do


def add_tool_options(verb: argparse.ArgumentParser, *, session: bool = True) -> None:
    """Add the options that select tools and limit what they may do.

    session: whether the verb holds a conversation, which can ask the user and start MCP servers;
        else tools may only read.
    """
    group = group_of(verb, "tools")
    group.add_argument(
        "--tools",
        type=group_names,
        metavar="GROUP,…",
        help="tools to add to list_dir, read_file and search: find, edit, net, exec, all or none "
        "(default: none)",
    )
    group.add_argument(
        "--mode",
        choices=("read-only", "ask", "yes") if session else ("read-only", "yes"),
        default=None if session else "read-only",
        help="calls that do more than read: refuse them, ask before each, or allow them all "
        + ("(default: ask on a terminal)" if session else "(default: read-only)"),
    )
    add_file(group, "--policy", help="TOML file of allow/deny/ask rules, applied first")
    if session:
        add_file(group, "--mcp", help="JSON file of MCP servers whose tools to add")
    add_switch(
        group, "--allow-private-network", help="let fetch_url reach private and local addresses"
    )


def group_names(text: str) -> list[str]:
    """Parse tool groups separated by commas; ``all`` is every group, ``none`` is no group."""
    from ...tools.groups import GROUPS

    if text == "none":
        return []
    names, known = text.split(","), (*GROUPS, "all", "none")
    for name in names:
        if name not in known:
            known = ", ".join(known)
            raise argparse.ArgumentTypeError(f"no such tool group: {name!r}; choose from {known}")
    return list(GROUPS) if "all" in names else [name for name in GROUPS if name in names]


def tools_of(args: argparse.Namespace, files: Workspace | None = None) -> list[Tool[..., Any]]:
    """Build the requested tools, in a fixed order.

    files: the workspace that they read, where it is open already.
    """
    from ...tools.groups import make_group

    made: list[Tool[..., Any]] = []
    for name in args.tools or ():
        made += make_group(name, files or args.dir, private=args.allow_private_network)
    if args.mcp is not None:
        from ...tools.mcp import McpServers

        if isinstance(args.mcp, str):  # once: another model of a chat has the same ones
            args.mcp = McpServers(args.mcp)  # its programs end with this one
        made += args.mcp
    return made


def policy_of(args: argparse.Namespace, output: Output) -> Policy:
    """Build the policy: the rules of the file, then the mode. It asks only on a terminal."""
    from ...tools import Policy

    there = sys.stdin.isatty() and sys.stderr.isatty() and not args.json
    mode: Mode = args.mode or ("ask" if there else "read-only")
    ask = _Asker(output) if there else None
    if args.policy is None:
        return Policy(mode, ask=ask)
    return Policy.load(args.policy, mode, ask)


def _all_of(arguments: Mapping[str, Any]) -> str:
    """Format a call's arguments, each starting on its own line."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, default=str)}"
        for name, value in arguments.items()
    )


class _Asker:
    """Shows what a call would do and reads a decision from the terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, request: PermissionRequest) -> Answer:
        from ...tools.diff import CUT

        self._output.progress.clear()
        self._output.end_line()
        shown = printable(request.preview or _all_of(request.arguments), block=True)
        hidden, half = len(shown) - _MOST_SHOWN, _MOST_SHOWN // 2
        if hidden > 0:  # what comes last may be what matters
            shown = f"{shown[:half]}\n{CUT}{hidden:,} characters]\n{shown[-half:]}"
        scope = printable(request.scope)
        whole = len(scope) <= _MOST_SCOPE and f"\n{CUT}" not in f"\n{shown}"
        # Each line behind a bar: a text cannot look like what is asked here.
        lines = [f"│ {line}" for line in shown.split("\n")]
        always = f", a always in this session for {scope}" if whole else ""
        lines.append(f"{request.tool.name} ({request.tool.effect}): run it? y yes, n no{always}")
        print("\n".join(lines), file=sys.stderr)
        while True:
            line = read_answer("[y/n/a]" if whole else "[y/n]")
            if not line:
                raise ToolError("nobody answered whether it may run")
            match line.strip().lower():
                case "y" | "yes":
                    return "yes"
                case "a" | "always" if whole:
                    return "always"
                case "n" | "no" | "":
                    return "no"
