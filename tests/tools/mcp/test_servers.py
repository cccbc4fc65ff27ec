"""Servers over stdio: a real one from PyPI, and one that misbehaves in every way."""

from __future__ import annotations

import gc
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.mcp_hostile import TOOLS

from triplepoint.errors import ToolError
from triplepoint.tools import Tool, ToolSet
from triplepoint.tools.mcp import McpServers, ServerConfig, stdio

pytest.importorskip("mcp", reason="the mcp extra is not installed")

OBJECT: dict[str, Any] = {"type": "object"}
HOSTILE = Path(__file__).parents[2] / "helpers" / "mcp_hostile.py"


def config(name: str = "bad", mode: str = "ok", **more: Any) -> ServerConfig:
    return ServerConfig(name, sys.executable, (str(HOSTILE), mode), **more)


@pytest.fixture
def bad() -> Iterator[McpServers]:
    """The misbehaving server, well started, with all the time that a busy machine takes."""
    with McpServers([config(timeout=60)]) as servers:
        yield servers


def named(servers: McpServers, name: str) -> Tool[..., Any]:
    return ToolSet(servers).get(name)


# --- a real server


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServers]:
    """The reference server of the protocol's authors for time, from PyPI."""
    program = Path(sys.executable).with_name("mcp-server-time")
    if not program.exists() and not shutil.which("mcp-server-time"):
        pytest.skip("mcp-server-time is not installed (pip install mcp-server-time)")
    file = tmp_path_factory.mktemp("mcp") / "mcp.json"
    server = {"command": str(program), "args": ["--local-timezone=UTC"], "effect": "read"}
    file.write_text(json.dumps({"mcpServers": {"clock": server}}))
    with McpServers(file) as servers:
        yield servers


def test_a_real_server_is_listed_and_called(clock: McpServers) -> None:
    """Its tools have its name, its schema without titles, and give its text."""
    tools = ToolSet(clock)

    assert tools.names == ["clock_get_current_time", "clock_convert_time"]
    schema = tools.schemas()[0]["function"]
    assert schema["description"] == "Get current time in a specific timezone"
    assert schema["parameters"]["required"] == ["timezone"]
    assert "title" not in json.dumps(schema)
    said = tools.get("clock_convert_time").call(
        {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    )
    assert json.loads(said)["time_difference"] == "+9.0h"


def test_its_errors_are_told(clock: McpServers) -> None:
    """What the server refuses, and what its schema refuses before it is asked."""
    one = named(clock, "clock_get_current_time")

    with pytest.raises(ToolError, match="Invalid timezone"):
        one.call({"timezone": "Nowhere/Here"})
    with pytest.raises(ToolError, match="missing argument 'timezone'"):
        one.call({})
    assert one.effect == "read"


# --- one that misbehaves


def test_tools_are_listed_once(bad: McpServers) -> None:
    """A server that says its list has changed changes nothing."""
    before = ToolSet(bad).schemas()

    assert named(bad, "bad_echo").call({"text": "hi"}) == "echo: hi"

    assert ToolSet(bad).schemas() == before
    assert before[0]["function"]["description"] == "Do echo"
    assert {tool.effect for tool in bad} == {"exec"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": "x"}, "unknown argument 'texts'; it takes text, times"),
        ({"text": 3}, "argument text: 3 is not of type 'string'"),
        ([], "must be a JSON object"),
        ({"text": "\ud83d"}, "not JSON: .*surrogates not allowed"),
    ],
)
def test_arguments_are_checked(bad: McpServers, arguments: Any, message: str) -> None:
    """Before the server sees them."""
    with pytest.raises(ToolError, match=message):
        named(bad, "bad_echo").call(arguments)


def test_an_error_and_an_image(bad: McpServers) -> None:
    """An error of the server's is one of the tool's; what is no text is named."""
    with pytest.raises(ToolError, match="fail: x"):
        named(bad, "bad_fail").call({"text": "x"})
    assert named(bad, "bad_image").call({}) == "[image image/png, which is not text]"


TEXT = {"type": "text", "text": "pong"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"content": [{"type": "widget", "data": "z"}, TEXT]}, "[widget, which is not text]\npong"),
        ({"content": [None, 3, TEXT]}, "\n3\npong"),
        ({"content": [{"type": "resource", "resource": {"text": "pong"}}]}, "pong"),
        ({"content": [{"type": "resource", "resource": 3}]}, "[resource, which is not text]"),
        ({"content": [{"type": "resource_link", "uri": "file:/a", "name": "a"}]}, "[a: file:/a]"),
        ({"content": None}, "(no result)"),
        ({"content": "pong"}, "pong"),
        ({"content": None, "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"structuredContent": {"a": 1}}, '{"a": 1}'),
        ({}, "(no result)"),
    ],
)
def test_a_result_of_any_form(bad: McpServers, result: Any, text: str) -> None:
    """What of it is known is not lost beside what is not."""
    assert named(bad, "bad_result").call({"text": json.dumps(result)}) == text


HEAD = '{"jsonrpc": "2.0", "id": ID, '


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            HEAD + '"result": {"content": [{"type": "text", "text": "a\\ud83d\xe9"}]}}',
            "a\ufffd\ufffd",
        ),
        ("\xef\xbb\xbf" + HEAD + '"result": {"content": []}}', "(no result)"),
        (HEAD + '"error": {"code": "E_BAD", "message": "bad thing"}}', "bad failed: bad thing"),
        (HEAD + '"result": "a\x1b[2J"}', r"bad failed: its reply cannot be read .*\\x1b\[2J"),
        (HEAD + '"result": {"content": [', "bad failed: its reply cannot be read"),
    ],
)
def test_a_reply_that_is_hard_to_read(bad: McpServers, line: str, said: str) -> None:
    """Is read, or fails the call at once with what came; the next call works."""
    began, tool = time.monotonic(), named(bad, "bad_raw")
    if said.startswith("bad failed"):
        with pytest.raises(ToolError, match=said):
            tool.call({"text": line})
    else:
        assert tool.call({"text": line}) == said
    assert time.monotonic() - began < 20
    assert named(bad, "bad_echo").call({"text": "x"}) == "echo: x"


def test_a_log_of_a_reply_is_not_the_reply(bad: McpServers) -> None:
    """The beginning of a reply on a line of its own does not fail the call."""
    sent = HEAD + '"result": {"content": [{"type": "text", "text": "pong"}]}}'
    line = f"DEBUG sending {sent[:60]}\n{sent}"

    assert named(bad, "bad_raw").call({"text": line}) == "pong"


def test_lines_that_are_no_messages_are_passed_over(bad: McpServers) -> None:
    """Some servers print; the answer still arrives."""
    assert named(bad, "bad_garbage").call({"text": "x"}) == "garbage: x"


def test_a_server_that_crashes(bad: McpServers) -> None:
    """The call fails with its last words, and so does the next one."""
    with pytest.raises(
        ToolError, match=r"bad failed: it ended \(status 3\); it wrote: out of luck"
    ):
        named(bad, "bad_crash").call({})
    with pytest.raises(ToolError, match="the server bad is gone: it ended"):
        named(bad, "bad_echo").call({})


@pytest.mark.slow
def test_a_server_that_hangs() -> None:
    """The call ends at its time."""
    with (
        McpServers([config(timeout=0.5)]) as servers,
        pytest.raises(ToolError, match=r"no result within 0\.5 seconds"),
    ):
        named(servers, "bad_hang").call({})


@pytest.mark.parametrize("name", ["long_line", "flood"])
def test_a_server_that_floods(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A line or a number of messages without end stops at a bound, and the server is gone."""
    monkeypatch.setattr(stdio, "MAX_LINE", 1 << 20)
    monkeypatch.setattr(stdio, "MAX_BETWEEN", 4 << 20)
    with McpServers([config(timeout=20)]) as servers:
        began = time.monotonic()
        with pytest.raises(ToolError, match=r"it sent (a message of )?more than [14] MiB"):
            named(servers, f"bad_{name}").call({})
        assert time.monotonic() - began < 15
        with pytest.raises(ToolError, match="is gone"):
            named(servers, "bad_echo").call({})


def test_nothing_is_left_behind(bad: McpServers) -> None:
    """Closing ends the server and what it has started."""
    pid = int(named(bad, "bad_child").call({}).split()[-1])
    bad.close()

    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} still runs")


# --- starting


DIES = (
    r"the server bad does not start: it ended \(status 7\); it wrote: looking for a license"
    " / no license found"
)
# A shell starts in milliseconds, so little patience is enough to hear its words.
SILENT = ServerConfig("bad", "sh", ("-c", "echo waiting for a license >&2; cat > /dev/null"))
WAITS = r"the server bad listed no tools within 2 seconds; it wrote: waiting for a license"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "seconds", "message"),
    [(config(mode="dies"), 20, DIES), (SILENT, 2, WAITS)],
    ids=["dies", "silent"],
)
def test_a_server_that_does_not_start(server: ServerConfig, seconds: int, message: str) -> None:
    """Is told when the agent is made, with the server's own words."""
    with pytest.raises(ToolError, match=message):
        McpServers([server], start_seconds=seconds)


def test_a_program_that_is_not_there() -> None:
    """Is named."""
    with pytest.raises(ToolError, match="the server x does not start: no-such-program"):
        McpServers([ServerConfig("x", "no-such-program")])


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer",
    [
        {"tools": 3},
        {"tools": [{"name": 3, "inputSchema": {}}]},
        {"tools": [3]},
        {"tools": [{"name": "x", "inputSchema": [1]}]},
        {"tools": [{"name": "x", "inputSchema": OBJECT | {"properties": [1]}}]},
        {"tools": [{"name": "x", "inputSchema": OBJECT | {"required": 5}}]},
        {"tools": [{"name": "x", "inputSchema": OBJECT | {"required": [5]}}]},
        {"tools": [{"name": "x", "inputSchema": {"type": "string"}}]},
        {"tools": [{"name": "x", "inputSchema": {"enum": ["d" * 99_999]}}]},
        {"tools": [{"name": f"x{n}", "inputSchema": OBJECT} for n in range(200)]},
    ],
    ids=lambda answer: json.dumps(answer)[:60],
)
def test_a_server_that_lies_about_its_tools(answer: Any) -> None:
    """Is refused with an error of ours when it starts, if no tool of it can be used."""
    with pytest.raises(ToolError, match="bad"):
        McpServers([config(mode=json.dumps(answer))])


LONG = "synchronise_customer_relationship_records_between_production_and_"
NAMES = ["ok", "user.get", "user_get", "查询", "更新", LONG + "staging", LONG + "archive", "ok"]


def test_every_tool_has_a_name_of_its_own() -> None:
    """One that models can write, the same in every run, and calls go to the tool that has it."""
    tools = {"tools": [{"name": name, "description": "D", "inputSchema": {}} for name in NAMES]}
    servers = [config("a", json.dumps(tools)), config("a_user", '{"tools": [{"name": "get"}]}')]
    with McpServers(servers) as running:
        found = [tool.name for tool in running]
        assert len({*found}) == len(found) == 8
        assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in found)
        assert found[:3] == ["a_ok", "a_user_get_896f190b", "a_user_get"]
        assert [tool.call({}) for tool in running] == [f"{n}: " for n in (*NAMES[:-1], "get")]
        assert named(running, found[3]).description == "查询: D"
        assert [note.partition(":")[0] for note in running.notes] == [
            "the tool 'ok' of the MCP server a is left out"
        ]


def test_what_is_null_is_absent_and_what_is_too_long_is_cut() -> None:
    """Generators write null and [] for what is not there; a long description is no reason."""
    null = {"type": ["object", "null"], "properties": None, "required": None, "title": None}
    described = {"text": {"description": "d" * 40_000, "default": None, "enum": None}, "n": None}
    listed = [
        {"name": "null", "description": None, "inputSchema": null},
        {"name": "php", "inputSchema": {"properties": []}},
        {"name": "long", "description": "d" * 40_000},
        {"name": "deep", "inputSchema": {"properties": described}},
    ]
    with McpServers([config(mode=json.dumps({"tools": listed}))]) as servers:
        empty = {"type": "object", "properties": {}}
        kept = {"text": {"default": None}, "n": {}}
        assert [tool.parameters for tool in servers] == [
            empty,
            empty,
            empty,
            {**empty, "properties": kept},
        ]
        assert [len(tool.description) for tool in servers] == [0, 0, 1025, 1]
        assert servers.notes == [
            f"the tool '{name}' of the MCP server bad has too long descriptions, which are cut"
            for name in ("long", "deep")
        ]


@pytest.mark.parametrize(
    "schema",
    [
        OBJECT | {"allOf": 3, "$defs": [], "items": 7},
        OBJECT | {"properties": {"text": {"type": "no such type"}}},
        OBJECT | {"properties": {"text": {"$ref": "#/nowhere"}}},
        OBJECT | {"properties": {"text": True}},
    ],
    ids=json.dumps,
)
def test_a_schema_that_is_none_is_left_to_the_server(schema: Any) -> None:
    """Odd schemas do not end an agent: the server that wrote it has to judge the arguments."""
    tools = {"tools": [{"name": "n" * 300, "inputSchema": schema}]}
    with McpServers([config(mode=json.dumps(tools))]) as servers:
        (tool,) = servers
        assert len(tool.name) == 64
        assert tool.schema()
        assert tool.call({"text": "x"}).endswith(": x")


def test_noise_at_the_start_is_passed_over() -> None:
    """A greeting on the wrong stream is no reason to fail."""
    with McpServers([config(mode="noise")]) as servers:
        assert len(servers) == len(TOOLS)


def test_only_the_named_tools() -> None:
    """Of those the file names, in the server's order; a name that is not there is an error."""
    with McpServers([config(tools=("fail", "echo"))]) as servers:
        assert [tool.name for tool in servers] == ["bad_echo", "bad_fail"]
    with pytest.raises(ToolError, match="has no tool 'nothing'"):
        McpServers([config(tools=("nothing",))])


def test_two_servers_under_one_name() -> None:
    """Is refused: nobody could say which one a call is for."""
    with pytest.raises(ToolError, match="two MCP servers have the name bad; rename one"):
        McpServers([config(), config()])


@pytest.mark.slow
def test_tools_keep_their_servers_running() -> None:
    """An agent keeps only the tools; the programs run as long as one of them is there."""
    tools = list(McpServers([config()]))
    gc.collect()

    assert ToolSet(tools).get("bad_echo").call({"text": "x"}) == "echo: x"
    del tools
    gc.collect()
