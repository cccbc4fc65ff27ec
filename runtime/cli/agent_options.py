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
from .load_engine import DEFAULT_MODEL, engine_options, named
from .option_groups import OptionGroup, Section, option
from .options import on_off, seconds
from .output import Output, read_answer
from .sampling_options import SamplingOptions

if TYPE_CHECKING:
    from ...tools import PermissionRequest, Policy, Tool, Workspace
    from ...tools.policy import Answer, Mode

_MOST_SHOWN = 4000  # characters of a preview
_MOST_SCOPE = 200  # of what "always" would be for


def trace(text: str) -> str | bool:
    """Parse the path of a trace file; return False for ``off``."""
    return False if text == "off" else text


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


def session(text: str) -> str:
    """Validate a name for a session."""
    from ..agent.session_store import no_name

    if problem := no_name(text):
        raise argparse.ArgumentTypeError(problem)
    return text


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


class AgentOptions(OptionGroup):
    """Options of an agent: its folder and session, limits, harness, tools and permissions.

    A resumed session keeps its own folder and model: `opened` sets both.
    """

    title = Section("conversation")
    dir: str | None = option("D", type=named)
    """folder that the tools may read (default: .)"""
    session: str | None = option("NAME", type=session, one_of="session")
    """save the conversation under NAME, or continue it"""
    resume: bool = option("--continue", one_of="session")
    """continue the last session"""

    answering = Section("agent")
    max_steps: int | None = option()
    """maximum number of model calls (default: 25; nano: 8)"""
    max_tokens: int | None = option()
    """maximum number of generated tokens (default: 4,096 per reply; nano: 1,024)"""
    timeout: float | None = option("S", type=seconds)
    """stop after S seconds (default: no limit)"""
    think: dict[str, Any] = option("HOW", type=thinking, default={})
    """think before answering: on, off, or for at most N tokens or Ns seconds (default: the model
    decides)"""
    auto_compact: bool = option()
    """remove old tool results when the context is full"""
    repetition_stop: bool = option("{on,off}", type=on_off, default=True)
    """stop a reply that only repeats itself, before its token limit"""
    harness: list[tuple[str, bool | int]] | None = option(
        "NAME=VALUE", action="append", type=harness_setting
    )
    """what is done around the model: off for nothing, or a setting such as evidence=off or
    evidence_tokens=3000 (default: on, except for models trained without it and on servers)"""
    grounded: bool = option()
    """do not take an answer with a fact that no line says: ask once more, else not found"""

    acting = Section("tools")
    tools: list[str] | None = option("GROUP,…", type=group_names)
    """tools to add to list_dir, read_file and search: find, edit, net, exec, all or none (default:
    none)"""
    mode: str | None = option(choices=("read-only", "ask", "yes"))
    """calls that do more than read: refuse them, ask before each, or allow them all (default: ask
    on a terminal)"""
    policy: str | None = option("FILE")
    """TOML file of allow/deny/ask rules, applied first"""
    mcp: str | None = option("FILE")
    """JSON file of MCP servers whose tools to add"""
    allow_private_network: bool = option()
    """let fetch_url reach private and local addresses"""


class RecordOptions(OptionGroup):
    """Options for what is recorded of an agent's run, and what is printed."""

    recorded = Section("trace")
    trace: str | bool | None = option("WHERE", type=trace)
    """trace file, or off (default: a new one in the state folder)"""
    redact: bool = option()
    """leave text and token ids out of the trace"""
    profile: bool = option()
    """record the time of each layer in the trace"""

    printed = Section("output")
    verbose: bool = option("-v", one_of="verbosity")
    """print the table of phases after each answer"""
    quiet: bool = option("-q", one_of="verbosity")
    """print only the answer, without statistics"""


AGENT_OPTIONS = (
    engine_options(f"or the http:// URL of a server; {DEFAULT_MODEL}"),
    *(AgentOptions, SamplingOptions, RecordOptions),
)
"""The option groups of an agent in this process, including those of its model."""


def harness_given(settings: list[tuple[str, bool | int]] | None) -> dict[str, object] | bool | None:
    """Return the ``harness`` argument of `Agent` from parsed settings; None without any."""
    if not settings:
        return None
    named: dict[str, object] = {name: value for name, value in settings if name}
    whole = [bool(value) for name, value in settings if not name]
    return named if named and all(whole) else whole[-1] if whole else named


# --- tools, and what they may do


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

    mode: Mode = args.mode or ("ask" if output.can_ask else "read-only")
    ask = _Asker(output) if output.can_ask else None
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
