"""An MCP server as a subprocess: its pipes, with bounds on all that it sends.

The streams go to the official SDK, which speaks the protocol. Its own transport reads lines of any
length, so that a server could fill our memory; this one does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from ...arguments import without_surrogates
from ..paths import shown

MAX_LINE = 16 * 2**20  # bytes of one message
MAX_BETWEEN = 64 * 2**20  # bytes that a server may send for one request
GRACE = 0.5  # seconds to end after the request
_STDERR_LINES = 3  # of its complaints, for a message
_STDERR_CHARS = 200  # of each
_ATTEMPTS = 8  # places of a line where JSON may begin
_KIND = re.compile(r'"(method|result|error)"\s*:')
_ID = re.compile(r'"id"\s*:\s*"?([0-9]+)')


class ServerProcess:
    """A running MCP server: its process, pipes and last stderr lines.

    Attributes:
        problem: why nothing more comes from it; empty while it runs.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.problem = ""
        self._process = process
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_done = asyncio.Event()
        self._since_request = 0

    def request_sent(self) -> None:
        """Reset the byte count that bounds the output after a request; call it for each request."""
        self._since_request = 0

    async def complaints(self) -> None:
        """Read the server's stderr to its end, and buffer its last lines."""
        stream = self._process.stderr
        assert stream is not None
        while chunk := await stream.read(65536):
            for line in chunk.decode("utf-8", "replace").splitlines():
                self.heard(line)
        self._stderr_done.set()

    def heard(self, line: str) -> None:
        """Buffer a line of stderr, or one of stdout that is no protocol message."""
        if line.strip():
            self._stderr.append(shown(line.strip()[:_STDERR_CHARS]))

    def words(self) -> str:
        """Return the server's last stderr lines as a message suffix; empty if it wrote none."""
        return f"; it wrote: {' / '.join(self._stderr)}" if self._stderr else ""

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield each line that the server sends, until it ends or exceeds the bound."""
        stream = self._process.stdout
        assert stream is not None
        while True:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                await self._explain()
                return
            except asyncio.LimitOverrunError:
                self.problem = f"it sent a message of more than {MAX_LINE >> 20} MiB{self.words()}"
                return
            self._since_request += len(line)
            if self._since_request > MAX_BETWEEN:
                limit = f"{MAX_BETWEEN >> 20} MiB for one request"
                self.problem = f"it sent more than {limit}{self.words()}"
                return
            if line.strip():
                yield line

    async def send(self, line: bytes) -> None:
        """Write one message to the server's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def _explain(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GRACE)
        with contextlib.suppress(TimeoutError):  # what it wrote last may still be in the pipe
            await asyncio.wait_for(self._stderr_done.wait(), GRACE)
        status = self._process.returncode
        ended = "it closed its output" if status is None else f"it ended (status {status})"
        self.problem = ended + self.words()

    async def end(self) -> None:
        """Terminate the server with its process group."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()  # the protocol's way to say that it is over
        steps = (None, signal.SIGTERM, signal.SIGKILL)
        for number in steps[2:] if self.problem else steps:
            if number is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), GRACE)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it left behind
        # A pipe that was not read to its end stays open otherwise; nothing public closes it.
        close = getattr(getattr(self._process, "_transport", None), "close", None)
        if callable(close):
            close()


async def start(
    name: str, command: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> ServerProcess:
    """Start an MCP server as a subprocess in a process group of its own.

    Raises:
        OSError: there is no such program.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env),
        cwd=cwd,
        limit=MAX_LINE,
        start_new_session=True,
    )
    return ServerProcess(name, process)


class Replies:
    """The pending requests to a server, and the parser of its lines of output.

    Servers print on the stream of their messages, and write JSON that strict readers refuse. What
    can be read is read; a reply that cannot becomes an error, as its request gets no other one.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, bool] = {}
        """Identifiers of the requests without a reply; True after an unreadable one."""
        self._sent: set[str] = set()

    def sent(self, message: Any) -> None:
        """Update the pending requests by a message that was sent to the server."""
        if getattr(message, "method", "") == "notifications/cancelled":
            self.waiting.pop(str(message.params.get("requestId")), None)
        elif hasattr(message, "method") and hasattr(message, "id"):
            self._sent.add(str(message.id))
            self.waiting[str(message.id)] = False

    def read(self, line: bytes) -> tuple[list[Any], list[Any]]:
        """Parse a line; return its messages, and errors for requests that it answers unreadably."""
        text = line.decode("utf-8-sig", "replace").replace("\0", "").strip()  # NULs: UTF-16
        found, problem, at = list[Any](), "", 0
        for _ in range(_ATTEMPTS):
            try:
                value, at = json.JSONDecoder().raw_decode(text, at)
                if r"\u" in text:  # a text that was cut within a pair of surrogates
                    value = json.loads(without_surrogates(json.dumps(value, ensure_ascii=False)))
                made = map(self._message, value if isinstance(value, list) else [value])
                # What a server prints of our requests is not a request to us.
                found += [one for one in made if one and not (problem and "method" in one)]
            except (ValueError, RecursionError) as error:
                problem, at = problem or str(error), at + 1
            if (at := text.find("{", at)) < 0:
                break
        kind, number = _KIND.search(text), _ID.search(text)
        seems = '"jsonrpc"' in text or (kind and number)
        if found or not seems or (kind and kind[1] == "method"):
            return found, []
        one = number[1] if number and number[1] in self._sent else None
        ids = [n for n, late in self.waiting.items() if not late and one in (n, None)]
        self.waiting.update(dict.fromkeys(ids, True))
        problem = problem or "it is not one of JSON-RPC 2.0"
        reason = f"its reply cannot be read ({problem}): {shown(text[:_STDERR_CHARS])}"
        return [], [self._message({"id": n, "error": reason}) for n in ids]

    def _message(self, value: Any) -> dict[str, Any] | None:
        """Parse a message of the protocol; return None for anything else."""
        if not isinstance(value, dict) or "method" in value:
            return value if isinstance(value, dict) and "jsonrpc" in value else None
        one, result, error = str(value.get("id")), value.get("result"), value.get("error")
        if one not in self._sent or not (error or isinstance(result, dict)):
            return None
        if not error:
            return {"jsonrpc": "2.0", "id": one, "result": result}
        text = error.get("message") if isinstance(error, dict) else error
        text = text if isinstance(text, str) else json.dumps(error, ensure_ascii=False)
        return {"jsonrpc": "2.0", "id": one, "error": {"code": -32603, "message": text}}


@contextlib.asynccontextmanager
async def streams(server: ServerProcess) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the read and write streams for a session of the SDK."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter as adapter

    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)

    replies, lost = Replies(), (anyio.BrokenResourceError, anyio.ClosedResourceError)

    async def deliver(messages: Sequence[dict[str, Any]], after: float = 0) -> None:
        await asyncio.sleep(after)
        for one in messages:
            if "method" in one or replies.waiting.pop(one["id"], None) is not None:
                with contextlib.suppress(*lost, ValueError):  # ValueError: of no known form
                    await to_session.send(SessionMessage(adapter.validate_python(one)))

    async def read() -> None:
        async with to_session:
            async for line in server.messages():
                found, errors = replies.read(line)
                if not found:
                    server.heard(line.decode("utf-8", "replace"))
                if errors:  # later: what seemed a reply may have been a log of one
                    tasks.append(asyncio.create_task(deliver(errors, GRACE)))
                await deliver(found)

    async def write() -> None:
        async with from_session:
            async for message in from_session:
                replies.sent(message.message)
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                server.request_sent()
                with contextlib.suppress(OSError):  # the reader will say that it has ended
                    await server.send(text.encode())

    tasks = [asyncio.create_task(work()) for work in (read, write, server.complaints)]
    try:
        yield from_server, to_server
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.end()
        for stream in (to_session, from_server, to_server, from_session):
            stream.close()
