"""A server as a program of its own: its pipes, with a bound on everything that it sends.

The streams go to the official SDK, which speaks the protocol. Its own transport reads lines of any
length, so that a server could fill our memory; this one does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

MAX_LINE = 16 * 2**20  # bytes of one message
MAX_BETWEEN = 64 * 2**20  # bytes that a server may send for one request
GRACE = 0.5  # seconds to end after being asked
_KEPT_LINES = 3  # of its complaints, for a message
_KEPT_CHARS = 200  # of each


class ServerProcess:
    """A running server.

    Attributes:
        problem: why nothing more comes from it; empty while it runs.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.problem = ""
        self._process = process
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._said_all = asyncio.Event()
        self._since_request = 0

    def asked(self) -> None:
        """A request was sent: what comes from now on is for it."""
        self._since_request = 0

    async def complaints(self) -> None:
        """Read what it writes for people; the last lines are kept."""
        stream = self._process.stderr
        assert stream is not None
        while chunk := await stream.read(65536):
            for line in chunk.decode("utf-8", "replace").splitlines():
                if line.strip():
                    self._said.append(line.strip()[:_KEPT_CHARS])
        self._said_all.set()

    def words(self) -> str:
        """What it wrote for people last, to go on a message; empty where it wrote nothing."""
        return f"; it wrote: {' / '.join(self._said)}" if self._said else ""

    async def messages(self) -> AsyncIterator[bytes]:
        """Each line that it sends, until it ends or sends too much."""
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
                most = f"{MAX_BETWEEN >> 20} MiB for one request"
                self.problem = f"it sent more than {most}{self.words()}"
                return
            if line.strip():
                yield line

    async def send(self, line: bytes) -> None:
        """Write one message."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def _explain(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), GRACE)
        with contextlib.suppress(TimeoutError):  # what it wrote last may still be in the pipe
            await asyncio.wait_for(self._said_all.wait(), GRACE)
        status = self._process.returncode
        ended = "it closed its output" if status is None else f"it ended (status {status})"
        self.problem = ended + self.words()

    async def end(self) -> None:
        """End it, and everything in its process group."""
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
        # A pipe that nobody read to its end stays open otherwise; nothing public closes it.
        close = getattr(getattr(self._process, "_transport", None), "close", None)
        if callable(close):
            close()


async def start(
    name: str, command: Sequence[str], env: Mapping[str, str], cwd: str | None
) -> ServerProcess:
    """Start a server.

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


@contextlib.asynccontextmanager
async def streams(server: ServerProcess) -> AsyncIterator[tuple[Any, Any]]:
    """The read and write streams that a session of the SDK takes."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    to_session, from_server = anyio.create_memory_object_stream[Any](0)
    to_server, from_session = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        async with to_session:
            async for line in server.messages():
                try:
                    message: Any = SessionMessage(
                        jsonrpc_message_adapter.validate_json(line, by_name=False)
                    )
                except ValueError as error:
                    message = error
                try:
                    await to_session.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def write() -> None:
        async with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                server.asked()
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
