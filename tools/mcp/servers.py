"""The MCP servers of an agent, and their tools.

A thread runs the SDK's event loop; calls come in from the agent's thread. Tools are listed once,
when the servers start: their order and schemas are in the model's prompt and stay as they are.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import threading
import weakref
from collections.abc import Container, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ... import interrupts
from ...arguments import Closing, ProcessBound, as_list, pip_install
from ...errors import ToolDefinitionError, ToolError
from ..command import PASSED_VARIABLES
from ..paths import shown
from ..schema import brief, without, without_titles
from ..schema_tool import SchemaTool
from ..timeouts import limit_of
from ..tool import Tool, ToolGroup
from . import stdio
from .config import START_SECONDS, ServerConfig, read_config

if TYPE_CHECKING:
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

T = TypeVar("T")

MAX_TOOLS = 128  # of one server
MAX_SCHEMA = 32 * 1024  # characters of one tool's schema and description
CUT_DESCRIPTION = 1024  # characters of a description that made it too large
MAX_NAME = 64


class McpServers(ProcessBound, Closing, ToolGroup):
    """Running servers; iterating yields their tools, in the order of the file and of each server.

    A tool is called ``SERVER_TOOL``, with a digest where that is no name or not its own; one that
    cannot be used is left out with a note. Close it, or use ``with``, to end the programs.

    Args:
        config: the file with ``mcpServers``, or the servers themselves.
        start_seconds: in which each server must have listed its tools.

    Raises:
        ToolError: the ``mcp`` package is missing, the file is wrong, a server does not start, or no
            tool of theirs can be used.

    Attributes:
        notes: what was wrong with tools, and what was done about it.
    """

    def __init__(
        self,
        config: str | Path | Sequence[ServerConfig],
        *,
        start_seconds: float = START_SECONDS,
    ) -> None:
        try:
            import mcp  # noqa: F401
        except ImportError:
            raise ToolError(f"MCP servers need the mcp package: {pip_install('mcp')}") from None
        start_seconds = limit_of(start_seconds, "start_seconds")
        if isinstance(config, str | Path):
            configs = read_config(config)
        else:
            configs = as_list(config, "MCP servers are a file or a list of ServerConfig", ToolError)
        if odd := [one for one in configs if not isinstance(one, ServerConfig)]:
            raise ToolError(f"MCP servers are ServerConfig objects, not {brief(odd[0])}")
        names = [one.name for one in configs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ToolError(f"two MCP servers have the name {twice[0]}; rename one")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True)
        interrupts.start(self._thread)
        self._servers: list[_Server] = []
        self._close = weakref.finalize(self, _end, self._loop, self._thread, self._servers)
        atexit.register(self._close)
        self._tools = []
        self.notes: list[str] = []
        try:
            # All at once: a server takes a second or more to start.
            made = [_Server(one, self._loop, self.notes) for one in configs]
            self._servers += made
            starts = [_submit(self._loop, server.start(start_seconds)) for server in made]
            for server, start in zip(made, starts, strict=True):
                _result(start, start_seconds + 5, f"the server {server.name} did not start")
            for server in made:
                taken = {tool.name for tool in self._tools}
                self._tools = [*self._tools, *server.tools(taken)]
            for tool in self._tools:
                tool.group = self  # or the servers would end when only their tools are referenced
            if not self._tools and self.notes:
                raise ToolError(f"no tool of the MCP servers can be used: {self.notes[0]}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server processes."""
        self._close()
        atexit.unregister(self._close)


class _Server:
    """One server: a task holds its session open, others call it."""

    def __init__(
        self, config: ServerConfig, loop: asyncio.AbstractEventLoop, notes: list[str]
    ) -> None:
        self.name = config.name
        self._config = config
        self._loop = loop
        self._listed: list[Any] = []
        self._notes = notes
        self._session: JSONRPCDispatcher[Any] | None = None
        self._process: stdio.ServerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None

    async def start(self, seconds: float) -> None:
        """Start the program and list its tools.

        Raises:
            ToolError: it does not start, or not in time.
        """
        self._stop = asyncio.Event()
        ready: asyncio.Future[None] = self._loop.create_future()
        self._task = self._loop.create_task(self._hold(ready))
        done, _ = await asyncio.wait({ready}, timeout=seconds)
        if not done:
            words = "" if self._process is None else self._process.words()
            await self.end()
            raise ToolError(
                f"the server {self.name} listed no tools within {seconds:g} seconds{words}"
            )
        ready.result()

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Keep the session open until `end`; its scopes must open and close in one task."""
        from mcp import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

        config = self._config
        env = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
        try:
            assert self._stop is not None
            self._process = await stdio.start(
                config.name, (config.command, *config.args), env | dict(config.env), config.cwd
            )
            async with stdio.streams(self._process) as (read, write):
                requests = JSONRPCDispatcher(read, write)
                async with ClientSession(dispatcher=requests) as session:
                    await session.initialize()
                    # Not by the session: it refuses a whole list or result for one odd part.
                    self._listed = await _all_tools(requests)
                    self._session = requests
                    ready.set_result(None)
                    await self._stop.wait()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if not ready.done():
                ready.set_exception(ToolError(self._why(error, "does not start")))
        finally:
            self._session = None

    async def end(self) -> None:
        """End the program."""
        if self._stop is not None:
            self._stop.set()
        if self._task is not None:
            if self._session is None:  # it never came as far as waiting
                self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asyncio.wait_for(self._task, 4 * stdio.GRACE)

    def tools(self, taken: set[str]) -> list[Tool[..., Any]]:
        """Return the server's tools for an agent, under names that are not `taken`.

        Raises:
            ToolError: it has too many, or not those that the file names.
        """
        wanted = self._config.tools
        listed = [one if isinstance(one, dict) else {} for one in self._listed]
        names: list[Any] = [one.get("name") for one in listed]
        if missing := [name for name in wanted if name not in names]:
            raise ToolError(f"the server {self.name} has no tool {missing[0]!r}: {names}")
        chosen = [n for n, name in enumerate(names) if not wanted or name in wanted]
        if len(chosen) > MAX_TOOLS:
            raise ToolError(
                f"the server {self.name} has {len(chosen)} tools; list the ones to use in tools"
            )
        made: list[Tool[..., Any]] = []
        for n in chosen:
            try:
                if not names[n] or not isinstance(names[n], str) or names[n] in names[:n]:
                    raise ToolDefinitionError("its name is none, or that of another one")
                made.append(self._tool(names[n], listed[n], taken))
                taken.add(made[-1].name)
            except (ToolDefinitionError, RecursionError) as error:
                self._note(names[n], f"is left out: {error}")
        return made

    def _note(self, name: Any, what: str) -> None:
        self._notes.append(f"the tool {brief(name)} of the MCP server {self.name} {what}")

    def _tool(self, name: str, listed: Mapping[str, Any], taken: Container[str]) -> SchemaTool:
        called = _called(self.name, name, taken)
        schema = without_titles(listed.get("inputSchema") or {})
        if not isinstance(schema, dict):
            raise ToolDefinitionError("its schema must be an object")
        if isinstance(kinds := schema.get("type"), list) and "object" in kinds:
            schema["type"] = "object"
        schema.setdefault("type", "object")
        schema.setdefault("properties", {})
        schema.pop("$schema", None)
        description = " ".join(str(listed.get("description") or "").split())
        if not called.endswith(name):  # what it does may be in its name alone
            description = f"{name}: {description}"
        if len(json.dumps(schema)) + len(description) > MAX_SCHEMA:
            description = f"{description[:CUT_DESCRIPTION]}…"
            if len(json.dumps(schema)) + len(description) > MAX_SCHEMA:
                schema = without(schema, ("description",))
            if len(json.dumps(schema)) > MAX_SCHEMA:
                raise ToolDefinitionError(f"its schema has over {MAX_SCHEMA:,} characters")
            self._note(name, "has too long descriptions, which are cut")

        def run(arguments: dict[str, Any]) -> str:
            return self._call(name, arguments)

        return SchemaTool(called, description, schema, self._config.effect, run)

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call one of its tools from another thread.

        Raises:
            ToolError: it failed, took too long, or the server is gone.
        """
        seconds = limit_of(self._config.timeout, f"timeout of the server {self.name}")
        if self._session is None or (self._process is not None and self._process.problem):
            raise ToolError(self._why(None, "is gone"))
        call = _submit(self._loop, self._ask(name, dict(arguments), seconds))
        late = f"{self.name}_{name} took more than {seconds:g} seconds"
        return _result_text(_result(call, seconds + 5, late))

    async def _ask(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._session is not None
        try:
            params = {"name": name, "arguments": arguments}
            call = self._session.send_raw_request("tools/call", params)
            return await asyncio.wait_for(call, seconds)
        except TimeoutError:
            words = "" if self._process is None else self._process.words()
            raise ToolError(f"no result within {seconds:g} seconds{words}") from None
        except Exception as error:
            raise ToolError(self._why(error, "failed")) from None

    def _why(self, error: BaseException | None, what: str) -> str:
        """Explain a failure, with the server's own message where there is one."""
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        reason = self._process.problem if self._process is not None else ""
        if isinstance(error, OSError) and error.strerror:
            named = shown(str(error.filename or self._config.command))
            reason = reason or f"{named}: {error.strerror}"
            if named == self._config.command and isinstance(error, FileNotFoundError):
                reason += " (a server is a separate program: is it installed and on the PATH?)"
        reason = reason or " ".join(str(error or "").split())[:300] or "unknown reason"
        return f"the server {self.name} {what}: {reason}"


async def _all_tools(requests: JSONRPCDispatcher[Any]) -> list[Any]:
    """Return the tools of all pages."""
    tools: list[Any] = []
    cursor: Any = None
    while True:
        page = await requests.send_raw_request("tools/list", {"cursor": cursor} if cursor else None)
        if not isinstance(page.get("tools"), list):
            raise ToolError(f"its list of tools is none: {brief(page)}")
        tools += page["tools"]
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or len(tools) > 10 * MAX_TOOLS:
            return tools


def _called(server: str, name: str, taken: Container[str]) -> str:
    """Return a tool's name for the model: stable across runs and unique."""
    known = re.sub(r"[^A-Za-z0-9_-]", "_", f"{server}_{name}")
    known = f"_{known}" if known[0].isdigit() else known
    if known.endswith(name) and len(known) <= MAX_NAME and known not in taken:
        return known
    digest = hashlib.sha256(f"{server}\0{name}".encode()).hexdigest()[:8]
    return f"{known[: MAX_NAME - 9].rstrip('_')}_{digest}"


def _result_text(result: Mapping[str, Any]) -> str:
    """Return a result as text for the model.

    Raises:
        ToolError: it is an error.
    """
    content, other = result.get("content"), result.get("structuredContent")
    parts = [_block(one) for one in (content if isinstance(content, list) else [content])]
    if content in (None, []) and other is not None:
        parts = [json.dumps(other, ensure_ascii=False)]
    text = "\n".join(parts)
    if result.get("isError"):
        raise ToolError(text or "it failed without a reason")
    return text or "(no result)"


def _block(block: Any) -> str:
    """Return a part of a result as text; parts that are no text are named."""
    if not isinstance(block, dict):
        return str(block or "")
    resource: Any = held if isinstance(held := block.get("resource"), dict) else {}
    for text in (block.get("text"), resource.get("text")):
        if isinstance(text, str):
            return text
    if block.get("type") == "resource_link":
        return f"[{block.get('name')}: {block.get('uri')}]"
    kinds = (block.get("type"), block.get("mimeType") or resource.get("mimeType"))
    return f"[{' '.join(f'{kind!s:.40}' for kind in kinds if kind)}, which is not text]"


def _submit(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]
) -> concurrent.futures.Future[T]:
    with interrupts.held():
        return asyncio.run_coroutine_threadsafe(work, loop)


def _result(future: concurrent.futures.Future[T], seconds: float, late: str) -> T:
    """Wait for a future's result; an interrupt cancels it."""
    try:
        return interrupts.result(future, seconds)
    except concurrent.futures.TimeoutError:
        with interrupts.held():
            future.cancel()
        raise ToolError(late) from None
    except BaseException:
        with interrupts.held():
            future.cancel()
        raise


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, servers: list[_Server]) -> None:
    """Stop all servers and the thread."""
    ends = [_submit(loop, server.end()) for server in servers]
    for end in ends:
        with contextlib.suppress(Exception):
            interrupts.result(end, 8 * stdio.GRACE)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    if not thread.is_alive():
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
