"""The tools and the policy that the arguments ask for, and the question to the person."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ...errors import ToolError
from ...traces.sanitize import printable

if TYPE_CHECKING:
    from ...tools import Policy, Request, Tool, Workspace
    from ...tools.policy import Answer, Mode
    from .output import Output

GROUPS = ("find", "edit", "net", "exec")

_MOST_SHOWN = 4000  # characters of a preview


def add_tool_options(verb: argparse.ArgumentParser) -> None:
    """The options that say which tools there are, and what they may do."""
    verb.add_argument(
        "--tools",
        type=group_names,
        default=[],
        metavar="GROUP,…",
        help=f"add tools to the three that look at files: {', '.join(GROUPS)}, or all (none)",
    )
    mode = verb.add_mutually_exclusive_group()
    mode.add_argument(
        "--read-only",
        dest="mode",
        action="store_const",
        const="read-only",
        help="only tools that read may run (where nobody can be asked)",
    )
    mode.add_argument(
        "--ask",
        dest="mode",
        action="store_const",
        const="ask",
        help="ask before each other call (on a terminal)",
    )
    mode.add_argument(
        "--yes", dest="mode", action="store_const", const="yes", help="every call may run"
    )
    verb.add_argument("--policy", metavar="FILE", help="rules that come first (TOML)")
    verb.add_argument("--mcp", metavar="FILE", help="add tools of MCP servers (mcpServers)")
    verb.add_argument(
        "--allow-private-network",
        action="store_true",
        help="fetch_url may reach this machine's network",
    )


def group_names(text: str) -> list[str]:
    """Names of groups with commas between them; ``all`` is all of them."""
    names = text.split(",")
    if names == ["all"]:
        return list(GROUPS)
    for name in names:
        if name not in GROUPS:
            known = ", ".join((*GROUPS, "all"))
            raise argparse.ArgumentTypeError(f"no such tools: {name!r}; there are {known}")
    return sorted(set(names), key=GROUPS.index)


def tools_of(args: argparse.Namespace, files: Workspace | None = None) -> list[Tool[..., Any]]:
    """The tools that were asked for, in a fixed order.

    files: the folder that they look at, where it is open already.
    """
    from ...tools import CommandTools, EditTools, FetchTools, FindTools

    made: list[Tool[..., Any]] = []
    for name in args.tools:
        match name:
            case "find":
                made += FindTools(files or args.dir)
            case "edit":
                made += EditTools(files or args.dir)
            case "net":
                made += FetchTools(private=args.allow_private_network)
            case "exec":
                made += CommandTools(args.dir)
    if args.mcp is not None:
        from ...tools.mcp import McpServers

        made += McpServers(args.mcp)  # its programs end with this one
    return made


def policy_of(args: argparse.Namespace, output: Output) -> Policy:
    """The policy: the rules of the file, then the mode; a person is asked only on a terminal."""
    from ...tools import Policy

    there = sys.stdin.isatty() and sys.stderr.isatty() and not args.json
    mode: Mode = args.mode or ("ask" if there else "read-only")
    ask = _Asker(output) if there else None
    if args.policy is None:
        return Policy(mode, ask=ask)
    return Policy.load(args.policy, mode, ask)


class _Asker:
    """Shows what a call would do and reads a decision from the terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, request: Request) -> Answer:
        self._output.progress.clear()
        self._output.end_line()
        preview = printable(request.preview, block=True)
        if len(preview) > _MOST_SHOWN:
            preview = f"{preview[:_MOST_SHOWN]}\n[cut: {len(preview) - _MOST_SHOWN:,} characters]"
        if preview:
            print(preview, file=sys.stderr)
        scope = printable(request.scope)
        scope = scope if len(scope) <= 80 else f"{scope[:79]}…"
        print(
            f"{request.tool.name} ({request.tool.effect}): run it? "
            f"y yes, n no, a always in this session for {scope}",
            file=sys.stderr,
        )
        while True:
            sys.stderr.write("[y/n/a] ")
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                raise ToolError("nobody answered whether it may run")
            match line.strip().lower():
                case "y" | "yes":
                    return "yes"
                case "a" | "always":
                    return "always"
                case "n" | "no" | "":
                    return "no"
