"""What all wire formats share: bodies that are checked, and answers that stop with their client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from .admission import NAMESPACE, Caller
from .api_error import APIError
from .generate import Closed, Event, Failed, Silence
from .service import Job, Prepare, Service

B = TypeVar("B", bound="Body")

BODY = "triplepoint.body"
"""Of a request's scope: its body, once it was read."""
PING = b": ping\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class Body(BaseModel):
    """A request's body: nothing is taken for what it is not, and nothing is ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


async def read_body(request: Request, kind: type[B]) -> B:
    """The body of a request.

    Raises:
        APIError: it is too large, no JSON, or not what is expected; names the parameter.
    """
    most = request.app.state.service.settings.limits.body
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            raise APIError(
                f"the request is larger than {most:,} bytes", status=413, code="request_too_large"
            )
    request.scope[BODY] = bytes(data)
    try:
        value = from_json(bytes(data), allow_inf_nan=False)
    except ValueError as error:
        raise APIError(f"the request's body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise APIError("the request's body must be a JSON object", code="invalid_json")
    return checked(kind, {name: item for name, item in value.items() if item is not None})


def checked(kind: type[B], value: Mapping[str, Any]) -> B:
    """A body from what its JSON holds.

    Raises:
        APIError: it is not what is expected; names the parameter.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False), value) from None


def _refusal(errors: Sequence[ErrorDetails], value: Any) -> APIError:
    # Of a union, each member has errors: those of the one that was meant are found deeper.
    first = _path(errors[0], value)
    near = [error for error in errors if _path(error, value).startswith(first)]
    found = max(near, key=lambda error: len(error["loc"]))
    param = _path(found, value)
    if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
        message = f"Unsupported parameter: '{param}' is not supported by this server."
        return APIError(message, param=param, code="unsupported_parameter")
    if found["type"] == "missing":
        message = f"Missing required parameter: '{param}'."
        return APIError(message, param=param, code="missing_required_parameter")
    what = found["msg"].removeprefix("Value error, ")
    return APIError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")


def _path(found: ErrorDetails, value: Any) -> str:
    """Where an error is, as a client writes it: names of unions' members are left out."""
    path = ""
    *_, last = found["loc"] or ("",)
    for step in found["loc"]:
        if isinstance(step, int):
            path += f"[{step}]"
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, Mapping) and step in value:
            path += f".{step}" if path else step
            value = value[step]
        elif step == last and found["type"] == "missing":
            path += f".{step}" if path else step
    return path


class Writer(Protocol):
    """Makes the answer to one request, in one wire format, of its events."""

    def stream(self, event: Event) -> bytes:
        """The events of a stream that tell of one of ours; none if empty."""
        ...

    def end(self) -> bytes:
        """What ends the stream, when all went well."""
        ...

    def failed(self, error: APIError) -> bytes:
        """What ends a stream that fails in its midst."""
        ...

    def add(self, event: Event) -> None:
        """Take an event into the answer that `whole` gives."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer that is not streamed."""
        ...


class Answer(Response):
    """The answer to a request: it is worked on while this is sent, and no longer.

    An error before the first event is plain HTTP. A stream that is silent gets comments.
    """

    def __init__(
        self,
        service: Service,
        model: str | None,
        prepare: Prepare,
        writer: Writer,
        *,
        streamed: bool,
    ) -> None:
        self._service, self._writer, self._streamed = service, writer, streamed
        self._model, self._prepare = model, prepare
        self._begun = False
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run it (ASGI)."""
        try:
            caller = Caller.of(Headers(scope=scope), scope.get(NAMESPACE, ""))
            async with (
                self._service.job(self._model, self._prepare, caller) as job,
                _watched(receive, job),
            ):
                await (self._stream if self._streamed else self._whole)(job, scope, receive, send)
        except APIError as error:
            if not self._begun:
                await note_refusal(self._service, scope, error)
                await error_response(error, scope["path"])(scope, receive, send)
            else:
                await _send(send, self._writer.failed(error), more=False)

    async def _whole(self, job: Job, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            for event in await job.channel.take():
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Closed):
                    if job.record.cancelled:
                        return  # the client has gone, and there may be nothing to tell
                    self._begun = True
                    await JSONResponse(self._writer.whole())(scope, receive, send)
                    return
                self._writer.add(event)

    async def _stream(self, job: Job, scope: Scope, receive: Receive, send: Send) -> None:
        writer, ping_s = self._writer, self._service.settings.ping_s
        loop = asyncio.get_running_loop()
        silent = loop.call_later(ping_s, job.channel.put, (Silence(),))
        try:
            while True:
                data, closed = bytearray(), False
                for event in await job.channel.take():
                    if isinstance(event, Failed):
                        if data:
                            await self._write(send, data)
                        raise event.error
                    if isinstance(event, Silence):
                        data += PING
                    elif isinstance(event, Closed):
                        if job.record.cancelled:
                            return
                        data += writer.end()
                        closed = True
                    else:
                        data += writer.stream(event)
                if data:
                    await self._write(send, data, more=not closed)
                    silent.cancel()
                    silent = loop.call_later(ping_s, job.channel.put, (Silence(),))
                if closed:
                    return
        finally:
            silent.cancel()

    async def _write(self, send: Send, data: bytearray, *, more: bool = True) -> None:
        if not self._begun:
            self._begun = True
            start = {"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS}
            await send(start)
        await _send(send, bytes(data), more=more)


async def note_refusal(service: Service, scope: Scope, error: APIError) -> None:
    """Leave a trace of a request that is refused for what it asks."""
    if error.status in (400, 404) and service.traces.which != "off" and (body := scope.get(BODY)):
        await anyio.to_thread.run_sync(service.traces.refused, scope["path"], body, error)


async def _send(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


@contextlib.asynccontextmanager
async def _watched(receive: Receive, job: Job) -> AsyncIterator[None]:
    """End a job when its client has gone."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        job.cancel()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def error_response(error: APIError, path: str = "") -> JSONResponse:
    """An error as an answer of its own, in the wire format of a path."""
    return JSONResponse(error.body_at(path), status_code=error.status, headers=error.headers)
