"""HTTP responses to model requests, whole or streamed, cancelled when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from math import inf

import anyio.to_thread
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..http.api_error import APIError
from ..http.notes import current_notes
from ..http.responses import MadeJSON, error_response
from ..http.scope import BODY, NAMESPACE, REQUEST_ID
from ..models.events import Closed, Event, Failed, Silence
from ..models.generate import GenerationRequest
from ..models.loaded_model import LoadedModel
from ..models.model_request import ModelRequest, Prepare
from .admission import Caller
from .mailbox import Channel
from .service import Job, Service

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Answer(Response):
    """The HTTP response to a model request: its jobs run only while it is being sent.

    An error before the first event is plain HTTP. A stream that is silent gets comments.
    """

    def __init__(self, service: Service, request: ModelRequest) -> None:
        self._service, self._request, self._writer = service, request, request.writer
        self._ping_s = service.settings.ping_s if request.ping_s is None else request.ping_s
        self._begun = False
        self._notes_of_head: list[str] = []
        self._jobs: list[Job] = []
        self._ended = 0  # of these
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the jobs, and send the response (ASGI)."""
        try:
            namespace, own = scope.get(NAMESPACE, ""), scope.get(REQUEST_ID, "")
            caller = Caller.of(Headers(scope=scope), namespace, own)
            async with contextlib.AsyncExitStack() as stack:
                channel: Channel[Event] = Channel(self._service.mailbox)
                request = self._request
                for n, prepare in enumerate(map(self._prepared, request.prepares)):
                    first = n * request.choices
                    job = self._service.job(request.model, prepare, caller, channel, first)
                    self._jobs.append(await stack.enter_async_context(job))
                await stack.enter_async_context(_watched(receive, self._jobs))
                if request.streamed:
                    await self._stream(channel, send)
                else:
                    await self._whole(channel, scope, receive, send)
        except APIError as error:
            if not self._begun:
                await note_refusal(self._service, scope, error)
                await error_response(error, scope)(scope, receive, send)
            else:
                await _send(send, self._writer.failed(error), more=False)

    def _prepared(self, prepare: Prepare) -> Prepare:
        """Return a wrapper of `prepare` that also gives the model to the writer."""

        def work(model: LoadedModel) -> GenerationRequest:
            self._writer.of(model)
            return prepare(model)

        return work

    @property
    def _closed(self) -> bool:
        """Whether all jobs have ended."""
        return self._ended == len(self._jobs)

    def _count_end(self) -> bool:
        """Count an ended job; return whether the client has disconnected."""
        self._ended += 1
        return any(job.record.cancelled for job in self._jobs)

    async def _whole(
        self, channel: Channel[Event], scope: Scope, receive: Receive, send: Send
    ) -> None:
        while not self._closed:
            for event in await channel.take():
                if isinstance(event, Failed):
                    raise event.error
                if not isinstance(event, Closed):
                    self._writer.add(event)
                elif self._count_end():
                    return  # there may be no whole answer
        self._begun = True
        made = self._writer.whole()
        # What a model writes may be a number that is none here, such as 1e999.
        made = made if isinstance(made, bytes) else to_json(made, inf_nan_mode="null")
        await MadeJSON(made)(scope, receive, send)

    async def _stream(self, channel: Channel[Event], send: Send) -> None:
        writer, silence = self._writer, _Silence(channel, self._ping_s)
        try:
            while not self._closed:
                data = bytearray()
                for event in await channel.take():
                    if isinstance(event, Failed):
                        if data:
                            await self._write(send, data)
                        raise event.error
                    if isinstance(event, Silence):
                        data += writer.silent()
                    elif not isinstance(event, Closed):
                        data += writer.stream(event)
                    elif self._count_end():
                        return
                if self._closed:
                    if self._begun and (notes := current_notes()) != self._notes_of_head:
                        data += f": warnings: {json.dumps(notes)}\n\n".encode()
                    data += writer.end()
                if data or self._closed:
                    silence.broken()
                    await self._write(send, data, more=not self._closed)
        finally:
            silence.end()

    async def _write(self, send: Send, data: bytearray, *, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            self._notes_of_head = list(current_notes())
            start = {"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS}
            await send(start)
        await _send(send, bytes(data), more=more)


class _Silence:
    """A timer that puts `Silence` into a channel when nothing was sent for some time.

    A new timer for each token would cost more than one that checks again when it fires.
    """

    def __init__(self, channel: Channel[Event], after_s: float) -> None:
        self._channel, self._after_s = channel, after_s
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._wait(after_s)

    def broken(self) -> None:
        """Restart the silence, since something was sent."""
        self._since = self._loop.time()

    def end(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        if seconds < inf:
            self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        left = self._since + self._after_s - self._loop.time()
        if left <= 0:
            self._channel.put((Silence(),))
            left = self._after_s
        self._wait(left)


async def note_refusal(service: Service, scope: Scope, error: APIError) -> None:
    """Write a trace of a request that was refused as invalid (400 or 404)."""
    if error.status in (400, 404) and service.traces.which != "off" and (body := scope.get(BODY)):
        own = scope.get(REQUEST_ID, "")
        await anyio.to_thread.run_sync(service.traces.refused, scope["path"], body, error, own)


async def _send(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


@contextlib.asynccontextmanager
async def _watched(receive: Receive, jobs: Sequence[Job]) -> AsyncIterator[None]:
    """Cancel the jobs when their client disconnects."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        for job in jobs:
            job.cancel()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
