"""The configuration file of MCP servers, in the common form.

{"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--local-timezone=UTC"]}}}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...arguments import as_path, read_text
from ...errors import ToolError
from ..timeouts import limit_of
from ..tool import EFFECTS, Effect

_KNOWN = {"command", "args", "env", "cwd", "type", "disabled", "effect", "tools", "timeout"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")

START_SECONDS = 20.0
CALL_SECONDS = 60.0


@dataclass(frozen=True)
class ServerConfig:
    """The configuration of one MCP server.

    Attributes:
        command: the program, started without a shell.
        env: variables beyond the few that every program gets.
        effect: what its tools can do at worst. A server is a program like any other, so it is
            ``exec`` unless the file says better.
        tools: names of the tools to take; all when empty.
        timeout: seconds of one call.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    effect: Effect = "exec"
    tools: tuple[str, ...] = ()
    timeout: float = CALL_SECONDS


def read_config(path: str | Path) -> list[ServerConfig]:
    """Read the configurations of a file's enabled MCP servers, in its order.

    ``${NAME}`` in arguments and variables is replaced by an environment variable, so that keys
    need not be in the file.

    Raises:
        ToolError: it cannot be read or understood; names the place.
    """
    try:
        data = json.loads(read_text(as_path(path, "the file of MCP servers", ToolError)))
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # RecursionError: brackets without end
        raise ToolError(f"{path} is not JSON: {error}") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ToolError(f'{path}: the file needs {{"mcpServers": {{…}}}}')
    made = [_server(name, one, f"{path}, server {name!r}") for name, one in servers.items()]
    return [one for one in made if one is not None]


def _server(name: str, data: Any, where: str) -> ServerConfig | None:
    if not _NAME.fullmatch(name):
        raise ToolError(f"{where}: a name can have up to 40 letters, digits, '_', '.' and '-'")
    if not isinstance(data, dict):
        raise ToolError(f"{where}: expected an object")
    if data.get("disabled") is True:
        return None
    if "url" in data or data.get("type", "stdio") != "stdio":
        raise ToolError(f"{where}: only servers started as programs (command, args) are supported")
    if unknown := data.keys() - _KNOWN:
        raise ToolError(f"{where}: {sorted(unknown)[0]!r} is not known")
    command = data.get("command")
    if not isinstance(command, str) or not command:
        raise ToolError(f"{where}: the server needs a command")
    effect = data.get("effect", "exec")
    if effect not in EFFECTS:
        raise ToolError(f"{where}: effect {effect!r} is not one of {', '.join(EFFECTS)}")
    timeout = limit_of(data.get("timeout", CALL_SECONDS), f"{where}: timeout")
    env = data.get("env", {})
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ToolError(f"{where}: env must be an object with string values")
    cwd = data.get("cwd")
    if cwd is not None and not isinstance(cwd, str):
        raise ToolError(f"{where}: cwd must be a string")
    return ServerConfig(
        name,
        command,
        tuple(_expanded(text, where) for text in _texts(data, "args", where)),
        {key: _expanded(value, where) for key, value in env.items()},
        cwd,
        effect,
        tuple(_texts(data, "tools", where)),
        timeout,
    )


def _texts(data: Mapping[str, Any], name: str, where: str) -> list[str]:
    value = data.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ToolError(f"{where}: {name} must be a list of strings")
    return value


def _expanded(text: str, where: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ToolError(f"{where}: the variable {found[1]} is not set")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)
