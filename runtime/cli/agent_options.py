"""The options of an agent, and what they ask for: tools, a policy, how tokens are picked."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import EngineError, ToolError
from ...traces.sanitize import printable
from .load_engine import DEFAULT_MODEL, add_engine_options, named
from .options import add_file, add_number, add_switch, seconds
from .output import Output, read_answer

if TYPE_CHECKING:
    from ...tools import Policy, Request, Tool, Workspace
    from ...tools.policy import Answer, Mode
    from ..engine.sampling.settings import Sampling

_MOST_SHOWN = 4000  # characters of a preview
_MOST_SCOPE = 200  # of what "always" would be for


def add_agent_options(verb: argparse.ArgumentParser) -> None:
    """All of them, those of the model too."""
    # Of a session that goes on, folder and model are those that it had: `opened` sees to both.
    verb.add_argument(
        "--dir", type=named, metavar="D", help="folder that the tools may read (default: .)"
    )
    add_engine_options(verb, model=f"or the http:// URL of a server; {DEFAULT_MODEL}")
    kept = verb.add_mutually_exclusive_group()
    kept.add_argument(
        "--session",
        type=session,
        metavar="NAME",
        help="save the conversation under NAME, or continue it",
    )
    kept.add_argument(
        "--continue", dest="resume", action="store_true", help="continue the last session"
    )
    beside = verb.add_mutually_exclusive_group()
    add_switch(beside, "-v", "--verbose", help="print the table of phases after each answer")
    add_switch(beside, "-q", "--quiet", help="print only the answer, without statistics")
    trace = verb.add_mutually_exclusive_group()
    add_file(trace, "--trace", help="trace file (default: a new one in the state folder)")
    trace.add_argument(
        "--no-trace", dest="trace", action="store_const", const=False, help="write no trace"
    )
    add_switch(verb, "--redact", help="leave text and token ids out of the trace")
    add_switch(verb, "--profile", help="record the time of each layer in the trace")
    add_number(verb, "--max-steps", help="maximum number of model calls (default: 25; nano: 8)")
    add_number(
        verb,
        "--max-tokens",
        help="maximum number of generated tokens (default: 4,096 per reply; nano: 1,024)",
    )
    add_reply_options(verb)
    verb.add_argument(
        "--timeout", type=seconds, metavar="S", help="stop after S seconds (default: no limit)"
    )
    add_tool_options(verb)
    add_sampling_options(verb)


def add_reply_options(verb: argparse.ArgumentParser) -> None:
    """What an agent does of itself with a full context and with its replies."""
    add_switch(verb, "--auto-compact", help="remove old tool results when the context is full")
    verb.add_argument(
        "--repetition-stop",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="stop a reply that only repeats itself, or let it run to its token limit (default: "
        "stop)",
    )
    add_harness_options(verb)
    verb.add_argument(
        "--think",
        type=thinking,
        default={},
        metavar="N",
        help="think before answering, for at most N tokens or, with Ns, N seconds (default: the "
        "model decides)",
    )
    verb.add_argument(
        "--no-think",
        dest="think",
        action="store_const",
        const={"thinking": False},
        help="answer without thinking first",
    )


def add_harness_options(verb: argparse.ArgumentParser) -> None:
    """What is done around the model of an agent."""
    verb.add_argument(
        "--harness",
        type=harness_setting,
        action="append",
        metavar="NAME=VALUE",
        help="what is done around the model: off for nothing, or a setting such as evidence=off or "
        "evidence_tokens=3000 (default: on, except for models trained without it and on servers)",
    )
    add_switch(
        verb,
        "--grounded",
        help="do not take an answer with a fact that no line says: ask once more, else not found",
    )


def thinking(text: str) -> dict[str, Any]:
    """A budget of thinking, as `Agent` takes it: N tokens, or Ns for N seconds; on: none."""
    found = re.fullmatch(r"(?P<on>on)|(\d+(?:\.\d+)?)s|(\d+)", text)
    if found is None:
        raise argparse.ArgumentTypeError("give a number of tokens, or of seconds as in 30s")
    if found["on"]:
        return {"thinking": True}
    return {"thinking_seconds": float(found[2])} if found[2] else {"thinking_tokens": int(found[3])}


def harness_setting(text: str) -> tuple[str, bool | int]:
    """A setting of the harness: NAME=VALUE, or on or off for all of it."""
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
    """What the options say of the harness, as `Agent` takes it; None: nothing."""
    if not settings:
        return None
    named: dict[str, object] = {name: value for name, value in settings if name}
    whole = [bool(value) for name, value in settings if not name]
    return named if named and all(whole) else whole[-1] if whole else named


def session(text: str) -> str:
    """A name that a session can have."""
    from ..agent.session_store import no_name

    if problem := no_name(text):
        raise argparse.ArgumentTypeError(problem)
    return text


# --- tools, and what they may do


def add_tool_options(verb: argparse.ArgumentParser, *, session: bool = True) -> None:
    """The options that say which tools there are, and what they may do.

    session: somebody may be asked, and MCP servers are started once; else only what reads may run.
    """
    verb.add_argument(
        "--tools",
        type=group_names,
        metavar="GROUP,…",
        help="tools to add to list_dir, read_file and search: find, edit, net, exec, all or none "
        "(default: none)",
    )
    mode = verb.add_mutually_exclusive_group()
    mode.add_argument(
        "--read-only",
        dest="mode",
        action="store_const",
        const="read-only",
        default=None if session else "read-only",
        help="allow only tools that read "
        + ("(default if nobody can be asked)" if session else "(default)"),
    )
    if session:
        mode.add_argument(
            "--ask",
            dest="mode",
            action="store_const",
            const="ask",
            help="ask before each call that does more than read (default on a terminal)",
        )
    mode.add_argument(
        "--yes",
        dest="mode",
        action="store_const",
        const="yes",
        help="allow every call without asking",
    )
    add_file(verb, "--policy", help="TOML file of allow/deny/ask rules, applied first")
    if session:
        add_file(verb, "--mcp", help="JSON file of MCP servers whose tools to add")
    add_switch(
        verb, "--allow-private-network", help="let fetch_url reach private and local addresses"
    )


def group_names(text: str) -> list[str]:
    """Names of groups with commas between them; ``all`` is all of them, ``none`` none."""
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
    """The tools that were asked for, in a fixed order.

    files: the folder that they look at, where it is open already.
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
    """The policy: the rules of the file, then the mode; a person is asked only on a terminal."""
    from ...tools import Policy

    there = sys.stdin.isatty() and sys.stderr.isatty() and not args.json
    mode: Mode = args.mode or ("ask" if there else "read-only")
    ask = _Asker(output) if there else None
    if args.policy is None:
        return Policy(mode, ask=ask)
    return Policy.load(args.policy, mode, ask)


def _all_of(arguments: Mapping[str, Any]) -> str:
    """A call's arguments, each on lines of its own."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else json.dumps(value, default=str)}"
        for name, value in arguments.items()
    )


class _Asker:
    """Shows what a call would do and reads a decision from the terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def __call__(self, request: Request) -> Answer:
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


# --- how tokens are picked


_SAMPLING: tuple[tuple[str, str, str, Callable[[str], Any], str], ...] = (
    ("--temp", "temperature", "T", float, "sampling temperature; 0 takes the most likely token"),
    ("--top-k", "top_k", "N", int, "sample from the N most likely tokens; 0: all"),
    (
        "--top-p",
        "top_p",
        "P",
        float,
        "sample from the most likely tokens whose probabilities add up to P",
    ),
    ("--min-p", "min_p", "P", float, "drop tokens less likely than P times the top token"),
    (
        "--repeat-penalty",
        "repeat_penalty",
        "X",
        float,
        "divide the logits of tokens written in this turn by X; 1: off",
    ),
    (
        "--presence-penalty",
        "presence_penalty",
        "X",
        float,
        "subtract X from the logits of tokens written in this turn; 0: off",
    ),
    (
        "--frequency-penalty",
        "frequency_penalty",
        "X",
        float,
        "subtract X for each time that a token was written; 0: off",
    ),
    (
        "--repeat-last-n",
        "penalty_last",
        "N",
        int,
        "apply penalties to the turn's last N tokens; -1: all",
    ),
)
_ALSO = {"--temp": ("--temperature",), "--repeat-penalty": ("--repetition-penalty",)}
"""What other programs call them."""


def add_sampling_options(verb: argparse.ArgumentParser) -> None:
    """Add them, in a group of their own."""
    group = verb.add_argument_group(
        "sampling", "defaults: the model file's settings, else greedy decoding"
    )
    for flag, name, metavar, kind, text in _SAMPLING:
        flags = [flag, *_ALSO.get(flag, ())]
        group.add_argument(
            *flags, dest=name, metavar=metavar, type=_setting(name, flag, kind), help=text
        )
    group.add_argument(
        "--seed",
        type=_seed,
        metavar="N",
        help="random seed, or `random`; the same seed gives the same text (default: 0)",
    )
    group.add_argument(
        "--logit-bias",
        action="append",
        type=_bias,
        metavar="ID=X",
        help="add X to a token's logit; -inf forbids the token; repeatable",
    )
    group.add_argument(
        "--stop",
        action="append",
        type=_setting("stop", "--stop", str),
        metavar="TEXT",
        help="end the answer before TEXT; repeatable",
    )


def sampling_of(args: argparse.Namespace) -> Sampling | None:
    """What the arguments say; None when they say nothing."""
    names = [name for _, name, *_ in _SAMPLING]
    given = {name: getattr(args, name) for name in (*names, "seed", "stop")}
    given["logit_bias"] = dict(args.logit_bias) if args.logit_bias else None
    if all(value is None for value in given.values()):
        return None
    from ..engine.sampling.settings import Sampling

    return Sampling(**given)


def _setting(name: str, flag: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A function that reads a value and sees whether it makes sense."""

    def read(text: str) -> Any:
        from ..engine.sampling.settings import Sampling

        try:
            value = kind(text)
            Sampling(**{name: value})
        except (ValueError, OverflowError):
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None
        except EngineError as error:
            problem = str(error).partition("; ")[2]
            raise argparse.ArgumentTypeError(f"{text!r}: {problem}") from None
        return value

    read.__name__ = flag
    return read


def _seed(text: str) -> int:
    if text == "random":
        import secrets

        return secrets.randbits(63)
    return _setting("seed", "--seed", int)(text)


def _bias(text: str) -> tuple[int, float]:
    token, equals, value = text.partition("=")
    try:
        if not equals:
            raise ValueError
        pair = int(token), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not ID=NUMBER, such as 151645=-2 or 11=-inf"
        ) from None
    _setting("logit_bias", "--logit-bias", lambda _: dict([pair]))(text)
    return pair
