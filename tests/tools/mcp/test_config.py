"""The file that names servers: what is read from it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools.mcp import ServerConfig, read_config


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_the_common_form_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in order, disabled ones left out, variables filled in."""
    monkeypatch.setenv("MY_KEY", "secret")
    servers = {
        "b": {"command": "b", "args": ["-x", "${MY_KEY}"], "env": {"KEY": "a-${MY_KEY}"}},
        "off": {"command": "c", "disabled": True},
        "a": {"type": "stdio", "command": "a", "effect": "read", "tools": ["t"], "timeout": 5},
    }

    found = read_config(written(tmp_path / "mcp.json", {"mcpServers": servers}))

    assert found == [
        ServerConfig("b", "b", ("-x", "secret"), {"KEY": "a-secret"}),
        ServerConfig("a", "a", effect="read", tools=("t",), timeout=5.0),
    ]
    assert found[0].effect == "exec"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ([], "the file needs"),
        ({"servers": {}}, "the file needs"),
        ({"mcpServers": {"a b": {"command": "x"}}}, "a name can have up to 40 letters"),
        ({"mcpServers": {"a": "x"}}, "server 'a': expected an object"),
        ({"mcpServers": {"a": {}}}, "the server needs a command"),
        ({"mcpServers": {"a": {"url": "http://x"}}}, "only servers started as programs"),
        (
            {"mcpServers": {"a": {"type": "sse", "command": "x"}}},
            "only servers started as programs",
        ),
        ({"mcpServers": {"a": {"command": "x", "argv": []}}}, "'argv' is not known"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "args must be a list"),
        ({"mcpServers": {"a": {"command": "x", "args": ["${NOT_SET}"]}}}, "NOT_SET is not set"),
        ({"mcpServers": {"a": {"command": "x", "env": {"a": 1}}}}, "env must be"),
        ({"mcpServers": {"a": {"command": "x", "effect": "nothing"}}}, "is not one of"),
        ({"mcpServers": {"a": {"command": "x", "timeout": True}}}, "timeout must be"),
        ({"mcpServers": {"a": {"command": "x", "timeout": "5"}}}, "timeout must be"),
        ("[" * 200_000, "is not JSON"),
        ({"mcpServers": {"a": {"command": "x", "cwd": 1}}}, "cwd must be"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, value: Any, message: str) -> None:
    """With the server it is about."""
    with pytest.raises(ToolError, match=message):
        read_config(written(tmp_path / "mcp.json", value))


def test_a_missing_file(tmp_path: Path) -> None:
    """Is named."""
    with pytest.raises(ToolError, match="cannot read"):
        read_config(tmp_path / "mcp.json")


def test_a_call_without_a_limit(tmp_path: Path) -> None:
    """A number that no clock holds is as long as the system can wait."""
    text = '{"mcpServers": {"a": {"command": "x", "timeout": 1e400}}}'
    (server,) = read_config(written(tmp_path / "mcp.json", text))

    assert 1e9 < server.timeout < float("inf")


def test_what_is_no_path_of_a_file() -> None:
    """It is told as such, not as a wrong JSON text."""
    for odd in ("a\0b", "", None):
        with pytest.raises(ToolError, match="the file of MCP servers"):
            read_config(odd)  # pyright: ignore[reportArgumentType]
