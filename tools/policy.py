"""Decides which calls may run: by the tool's effect, by rules, or by asking the user.

    rules, in order: the first that fits decides  (allow, deny, ask)
    no rule fits:    a tool that only reads may run
    else the mode:   read-only → no, ask → a person decides, yes → it may run

A decision is made on the arguments as they were validated, before the call, and is recorded.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args
from urllib.parse import unquote, urlsplit, urlunsplit

from ..arguments import as_list, as_mapping, as_path, read_text
from ..errors import AgentError, ToolError
from .globs import glob_matcher
from .paths import one_form
from .schema_tool import SchemaTool
from .tool import Effect, Tool

Mode = Literal["read-only", "ask", "yes"]
Action = Literal["allow", "deny", "ask"]
Answer = Literal["yes", "no", "always"]

_PATHS = ("path", "to")  # what a rule about a path is about: also the other end of a move
_PORTS = {"http": 80, "https": 443}
_SCOPES = ("path", "url", "command")  # the arguments that "always" is for


@dataclass(frozen=True)
class PermissionRequest:
    """A tool call that the user is asked to permit."""

    tool: Tool[..., Any]
    arguments: Mapping[str, Any]
    preview: str
    """What the call would do: a diff, a command; empty when the arguments show all of it."""
    scope: str
    """What "always" would allow for the rest of the session."""


class AskError(AgentError):
    """The callback that asks the user failed or returned no answer; a caller's bug."""


@dataclass(frozen=True)
class Decision:
    """The decision about one call."""

    allowed: bool
    by: str
    """What decided: ``effect``, ``read-only``, ``yes``, ``rule N``, ``user``, ``always``,
    ``nobody`` or ``recorded``."""
    reason: str = ""
    """For a call that may not run: why, for the model."""
    asked_s: float = 0.0

    @property
    def word(self) -> str:
        """Return the decision's name in traces."""
        return "allowed" if self.allowed else "denied"


@dataclass(frozen=True)
class Rule:
    """One rule of a policy.

    Attributes:
        tool: a glob over names of tools.
        action: what happens to a matching call.
        arguments: a glob per argument; all must match. A list of words, such as a command, is
            joined as a shell would write it.
    """

    tool: str
    action: Action
    arguments: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ToolError(f"a rule says action = {self.action!r}; it must be allow, deny or ask")
        arguments = as_mapping(
            self.arguments, "a rule's arguments must map names to globs", ToolError
        )
        for glob in (self.tool, *arguments.values()):
            glob_matcher(glob)  # an invalid pattern is reported now
        for glob in (glob for name, glob in arguments.items() if name in _PATHS):
            tidy = posixpath.normpath(glob)
            if tidy != glob:
                meant = f"{tidy}/**" if glob.endswith("/") else tidy
                raise ToolError(
                    f"the glob {glob!r} of a rule fits no path, for paths are compared without "
                    f"'./', '..' and a '/' at the end; write {meant!r}"
                )

    def fits(self, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to this call.

        What is allowed must fit as it will be understood; deny and ask rules also match
        as it is written, so that no other way to write a path gets around a rule, and as a folder
        that holds what the rule is about.

        Raises:
            ToolError: the call is about too many files to check.
        """
        names = (tool.name, *(() if self.action == "allow" else tool.acts_as))
        if not any(map(glob_matcher(self.tool), names)):
            return False
        return all(self._fits(name, glob, arguments, tool) for name, glob in self.arguments.items())

    def _fits(self, name: str, glob: str, given: Mapping[str, Any], tool: Tool[..., Any]) -> bool:
        """Match an argument with a glob; a glob over paths also matches a move's target."""
        names = _PATHS if name == "path" else (name,)
        values = [given.get(one, tool.defaults.get(one)) for one in names]
        values = [value for value in values if value is not None]
        as_written, in_one_form = glob_matcher(glob), glob_matcher(one_form(glob))
        if self.action == "allow":
            return bool(values) and all(as_written(_meant(name, value)) for value in values)

        def matches(text: str) -> bool:
            return as_written(text) or in_one_form(one_form(text))

        texts = [_text(value) for value in values]
        written = [value for value in values if isinstance(value, str)]
        tidy = [way(value) for value in written for way in (_tidy_path, _tidy_url)]
        if name == "url":
            texts += [same for value in tidy for same in _same_address(value)]
        if any(map(matches, texts + tidy)):
            return True
        if name != "path":
            return False
        if any(_is_above(one, glob, tool.effect) for one in tidy):
            return True
        effect = tool.effect
        return any(matches(one) or _is_above(one, glob, effect) for one in tool.reaches(given))


class Recorded(Protocol):
    """A tool call as recorded in a trace."""

    name: str
    arguments: dict[str, Any]
    decision: str


class Policy:
    """A permission policy for tool calls; it remembers what the user allowed for the session.

    Args:
        mode: what happens to a call that no rule matches and that does more than read.
        rules: checked in order; the first match decides.
        ask: function that asks a person; without it, calls that need asking are denied. What it
            raises, or another answer, ends the run with an AgentError.

    Raises:
        ToolError: the mode is unknown.
    """

    def __init__(
        self,
        mode: Mode = "read-only",
        rules: Sequence[Rule] = (),
        ask: Callable[[PermissionRequest], Answer] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise ToolError(f"unknown policy {mode!r}; known: {', '.join(get_args(Mode))}")
        self.mode: Mode = mode
        self.rules = as_list(rules, "a policy's rules must be a list of Rule", ToolError)
        if odd := [rule for rule in self.rules if not isinstance(rule, Rule)]:
            raise ToolError(f"a policy takes Rule objects, not {odd[0]!r}")
        if ask is not None and not callable(ask):
            raise ToolError(f"ask must be a function of a PermissionRequest, not {ask!r}")
        self.ask = ask
        self._always: set[tuple[str, str]] = set()
        self._recorded: dict[str, list[bool]] = {}

    @classmethod
    def load(
        cls,
        path: str | Path,
        mode: Mode = "read-only",
        ask: Callable[[PermissionRequest], Answer] | None = None,
    ) -> Policy:
        """Read a policy file (TOML).

            [[rule]]
            tool = "edit_file"
            arguments = { path = "docs/**" }
            action = "allow"

        Raises:
            ToolError: it cannot be read, or has an unknown entry; names the place.
        """
        import tomllib

        try:
            data = tomllib.loads(read_text(as_path(path, "the file of a policy", ToolError)))
        except OSError as error:
            raise ToolError(f"cannot read the policy {path}: {error.strerror}") from None
        except (ValueError, RecursionError) as error:  # RecursionError: brackets without end
            raise ToolError(f"the policy {path} is not TOML: {error}") from None
        if extra := data.keys() - {"rule"}:
            raise ToolError(f"the policy {path} has {sorted(extra)[0]!r}; only [[rule]] is known")
        if not isinstance(data.get("rule", []), list):
            raise ToolError(f"the policy {path}: write [[rule]], with two brackets")
        rules = [_rule(one, f"{path}, rule {i}") for i, one in enumerate(data.get("rule", []), 1)]
        return cls(mode, rules, ask)

    @classmethod
    def recorded(cls, calls: Iterable[Recorded]) -> Policy:
        """Return a policy that repeats the decisions of a recorded run; new calls only read."""
        policy = cls()
        for call in calls:
            if call.decision:
                allowed = call.decision == "allowed"
                policy._recorded.setdefault(_key(call.name, call.arguments), []).append(allowed)
        return policy

    def decide(
        self,
        tool: Tool[..., Any],
        arguments: Mapping[str, Any],
        written: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Decide whether a tool call may run; ask the user if the rules or the mode require it.

        Args:
            tool: the tool.
            arguments: as they were validated.
            written: as the model wrote them, and as a trace has them.

        Raises:
            ToolError: the call would fail anyway, as its preview found, it is about too many
                files to check them against the rules, or `ask` raises one.
            AskError: the user could not be asked.
        """
        if answers := self._answers(tool.name, arguments if written is None else written):
            allowed = answers.pop(0) if len(answers) > 1 else answers[0]
            return Decision(allowed, "recorded", "" if allowed else "it was denied in the run")
        for number, rule in enumerate(self.rules, 1):
            if rule.fits(tool, arguments):
                by = f"rule {number}"
                if rule.action == "ask":
                    return self._ask_user(tool, arguments)
                if rule.action == "allow":
                    return Decision(True, by)
                return Decision(False, by, f"{by} of the policy denies it")
        if tool.effect == "read":
            return Decision(True, "effect")
        if self.mode == "yes":
            return Decision(True, "yes")
        if self.mode == "ask":
            return self._ask_user(tool, arguments)
        return Decision(False, "read-only", "the policy of this session is read-only")

    def _answers(self, name: str, arguments: Mapping[str, Any]) -> list[bool]:
        """Return the recorded decisions about this call, if any."""
        return self._recorded.get(_key(name, arguments), []) if self._recorded else []

    def refused(self, tools: Iterable[Tool[..., Any]]) -> list[str]:
        """Return the names of those tools whose calls are all denied."""
        return [
            tool.name
            for tool in tools
            if tool.effect != "read"
            and (self.mode == "read-only" or (self.mode == "ask" and self.ask is None))
            and not any(r.action != "deny" and glob_matcher(r.tool)(tool.name) for r in self.rules)
            and not self._recorded
        ]

    def hides(self, tools: Iterable[Tool[..., Any]], path: str) -> bool:
        """Return whether results must omit a path: a deny or ask rule matches it or a parent.

        Args:
            tools: those that only read.
            path: as it was found, relative to the workspace.
        """
        names = path.split("/")
        above = ["/".join(names[:count]) for count in range(1, len(names) + 1)]
        for tool in tools:
            for one in above:
                rule = next((r for r in self.rules if r.fits(tool, {"path": one})), None)
                if rule is not None and rule.action != "allow":
                    return True
        return False

    def describe(self) -> dict[str, Any]:
        """Return the policy as JSON for the trace header."""
        rules = [
            {"tool": rule.tool, "arguments": dict(rule.arguments), "action": rule.action}
            for rule in self.rules
        ]
        return {"mode": self.mode, "rules": rules}

    def _ask_user(self, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Decision:
        # Arguments of other programs in addition to a path, such as a query, must count too.
        scope = _all_of(arguments) if isinstance(tool, SchemaTool) else scope_of(arguments)
        if (tool.name, scope) in self._always:
            return Decision(True, "always")
        if self.ask is None:
            return Decision(
                False, "nobody", "it needs a person's approval, and nobody can be asked"
            )
        preview = tool.preview(dict(arguments))
        began = time.perf_counter()
        answer = ""
        try:
            answer = _answer(self.ask, PermissionRequest(tool, arguments, preview, scope))
        finally:
            if answer not in ("yes", "always") and tool.declined is not None:
                tool.declined(**arguments)
        wait_s = time.perf_counter() - began
        if answer == "always":
            self._always.add((tool.name, scope))
        if answer in ("yes", "always"):
            return Decision(True, "user", asked_s=wait_s)
        return Decision(False, "user", "the user said no", wait_s)


def _answer(ask: Callable[[PermissionRequest], Answer], request: PermissionRequest) -> Answer:
    try:
        answer = ask(request)
    except ToolError:
        raise
    except Exception as error:
        raise AskError(
            f"the policy's function ask failed: {type(error).__name__}: {error}"
        ) from error
    if answer not in get_args(Answer):
        known = ", ".join(get_args(Answer))
        raise AskError(f"the policy's function ask must return one of {known}, not {answer!r}")
    return answer


def unmatched_rules(
    rules: Iterable[Rule], tools: Collection[Tool[..., Any]], others: Collection[str] = ()
) -> Iterator[str]:
    """Yield deny and ask rules that match no call of these tools, such as misspelled ones.

    Args:
        rules: of a policy.
        tools: those that an agent has.
        others: names of tools that it might have, too: rules may be about these.

    Yields:
        What is wrong with each.
    """
    for number, rule in enumerate(rules, 1):
        if rule.action == "allow":
            continue
        named = [tool for tool in tools if glob_matcher(rule.tool)(tool.name)]
        known = {name for tool in named for name in tool.parameters.get("properties", ())}
        if not named and any(map(glob_matcher(rule.tool), others)):
            continue
        if not named:
            yield f"rule {number} of the policy fits no tool: there is no {rule.tool} here"
        elif odd := [name for name in rule.arguments if name not in known]:
            yield (
                f"rule {number} of the policy fits no call: {rule.tool} has no argument "
                f"{odd[0]}, but {', '.join(sorted(known))}"
            )


def scope_of(arguments: Mapping[str, Any]) -> str:
    """Return what "always" applies to: the path, a URL's host, the command, else all arguments.

    Where several of these are given it is for all of them: a command in a folder is not any
    command there.
    """
    scopes = {name: _meant(name, arguments[name]) for name in _SCOPES if name in arguments}
    if not scopes:
        return _all_of(arguments)
    if "url" in scopes:
        scopes["url"] = "/".join(scopes["url"].split("/")[:3])
    if "to" in arguments:
        scopes["to"] = _meant("to", arguments["to"])
    match scopes:
        case {"path": path, "to": to} if len(scopes) == 2:
            return f"{path} → {to}"
        case _ if len(scopes) == 1:
            return next(iter(scopes.values()))
    return json.dumps(scopes, ensure_ascii=False)


def _all_of(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True, ensure_ascii=False, default=str)


def _rule(data: object, where: str) -> Rule:
    if not isinstance(data, dict) or not isinstance(data.get("tool"), str):
        raise ToolError(f'{where}: it needs tool = "…"')
    if extra := data.keys() - {"tool", "arguments", "action"}:
        raise ToolError(f"{where}: {sorted(extra)[0]!r} is not known; known: action and arguments")
    arguments = data.get("arguments", {})
    if not isinstance(arguments, dict) or not all(isinstance(v, str) for v in arguments.values()):
        raise ToolError(f"{where}: arguments must be a table of globs")
    try:
        return Rule(data["tool"], data.get("action", ""), arguments)
    except ToolError as error:
        raise ToolError(f"{where}: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return shlex.join(value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _meant(name: str, value: Any) -> str:
    """Normalize an argument: a path without detours, a command unchanged."""
    text = _text(value)
    if not isinstance(value, str) or name not in (*_PATHS, "url"):
        return text
    return _tidy_url(text) if name == "url" else _tidy_path(text)


def _tidy_url(text: str) -> str:
    """Normalize a URL to a lower-case host and no detours; other texts are unchanged."""
    if "://" not in text:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    # A dot may be written %2e, and "/%2e%2e/" leads up all the same.
    path = posixpath.normpath(re.sub("%2e", ".", parts.path, flags=re.IGNORECASE) or "/")
    path += "/" if parts.path.endswith("/") and path != "/" else ""
    return urlunsplit(
        (parts.scheme.lower(), parts.netloc.lower(), path, parts.query, parts.fragment)
    )


def _tidy_path(text: str) -> str:
    """Normalize a path; all characters are those of names, also of a%2e or a://."""
    if not text:
        return text
    path = posixpath.normpath(text)
    return path[1:] if path.startswith("//") else path  # normpath keeps two slashes, not three


def _is_above(path: str, glob: str, effect: Effect) -> bool:
    """Return whether a path names a folder that contains matches of a glob.

    To list, move or delete `secret` is to do that to what `secret/**` is about. A tool that
    changes things does it with all that is below, so for it every folder above counts that the
    glob names without a wildcard.
    """
    folder, _, last = glob.rpartition("/")
    # Not `*/**`: what its first name fits may be a file, which that glob is not about.
    written_out = last in ("*", "**") and re.search(r"(^|/)[^/*?\[\]]+$", folder)
    if written_out and glob_matcher(folder)(path):
        return True
    names, wanted = path.split("/"), glob.split("/")
    return effect == "write" and len(names) < len(wanted) and names == wanted[: len(names)]


def _same_address(url: str) -> list[str]:
    """Yield equivalent spellings of a URL, for deny rules.

    Without a user, the usual port and a dot behind the host; the host in ASCII and as it is read;
    characters of the path as they are and as ``%41``.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return []
    hosts = [host.rstrip(".")]
    with contextlib.suppress(UnicodeError):
        ascii_host = host.encode("idna")
        hosts += [ascii_host.decode("ascii").rstrip("."), ascii_host.decode("idna").rstrip(".")]
    found: list[str] = []
    for one in hosts:
        spelled = f"[{one}]" if ":" in one else one
        if port not in (None, _PORTS.get(parts.scheme)):
            spelled = f"{spelled}:{port}"
        plain = urlunsplit((parts.scheme, spelled, parts.path, parts.query, parts.fragment))
        found += [plain, _tidy_url(unquote(plain))]
    return found


def _key(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name} {json.dumps(dict(arguments), sort_keys=True, default=str)}"
