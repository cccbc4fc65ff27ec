"""What all wire formats share: bodies that are checked, and answers that stop with their client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Protocol, TypeVar

import anyio.to_thread
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, from_json, to_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from .admission import NAMESPACE, Caller
from .api_error import APIError, by_anthropic
from .events import PING, Closed, Event, Failed, Silence
from .foreign import translated
from .mailbox import Channel
from .notes import current_notes
from .request_ids import REQUEST_ID
from .service import Job, Prepare, Service
from .turns import check_turns, without_halves

B = TypeVar("B", bound="Body")

BODY = "triplepoint.body"
"""Of a request's scope: its body, once it was read."""
MOST_ERRORS = 1000  # in a body, of which the first is reported
LARGE = 64 << 10  # bytes of a body: those that have more are checked beside what else is served
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def _failing_fast(schema: Any) -> Any:
    """A schema whose lists end with their first error."""
    if isinstance(schema, list):
        return [_failing_fast(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _failing_fast(item) for name, item in schema.items() if name != "metadata"}
    if made.get("type") == "list":
        made["fail_fast"] = True
    return schema | made


class Given(BaseModel):
    """What a request holds: null counts as not given, and a list ends with its first error."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if item is not None}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Each error takes more than what it is found in: a body of millions would fill memory."""
        return _failing_fast(handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """With null where it counts as not given."""
        found = handler(core_schema)
        made = handler.resolve_ref_schema(found)
        properties, needed = made.get("properties", {}), made.get("required", ())
        for name, part in properties.items():
            if name not in needed:
                properties[name] = _or_null(part)
        return found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema that takes null, too; a constant tells kinds apart and stays as it is."""
    about = {name: schema[name] for name in ("title", "description", "default") if name in schema}
    rest = {name: item for name, item in schema.items() if name not in about}
    parts = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    if not rest or "const" in rest or {"type": "null"} in parts:
        return schema
    return {"anyOf": [*parts, {"type": "null"}], **about}


class Body(Given):
    """A request's body: nothing is taken for what it is not, and nothing is ignored that asks."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    turns: ClassVar[str] = ""
    """The parameter that holds a conversation, of which a server takes so many messages."""

    @property
    def told(self) -> set[str]:
        """Names of what is given and not what it is without: clients write out defaults."""
        usual = {
            name: field.get_default(call_default_factory=True)
            for name, field in type(self).model_fields.items()
        }
        return {name for name in self.model_fields_set if getattr(self, name) != usual[name]}


@functools.cache
def _names(kind: type[Body]) -> set[str]:
    """All names of what a body may hold."""
    return {*kind.model_json_schema()["properties"]}


async def read_body(request: Request, kind: type[B]) -> B:
    """The body of a request.

    Raises:
        APIError: it is too large, no JSON, or not what is expected; names the parameter.
    """
    most = request.app.state.service.settings.limits.body
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise APIError(
            f"the request's body must not be compressed, but its encoding is {coding:.50}",
            status=415,
            param="content-encoding",
            code="unsupported_encoding",
        )
    too_large = APIError(
        f"the request is larger than {most:,} bytes", status=413, code="request_too_large"
    )
    if int(request.headers.get("content-length", 0)) > most:
        raise too_large  # before the client is invited to send it
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            raise too_large
    request.scope[BODY] = bytes(data)
    try:
        value = from_json(bytes(data), allow_inf_nan=False)
    except ValueError as error:
        try:
            whole = without_halves(data.decode("utf-8", "surrogatepass")).encode()
            value = from_json(whole, allow_inf_nan=False)
        except (ValueError, RecursionError):
            message = f"the request's body is not JSON: {error}"
            raise APIError(message, code="invalid_json") from None
        request.scope[BODY] = whole
    if not isinstance(value, dict):
        raise APIError("the request's body must be a JSON object", code="invalid_json")
    value = translated(value, _names(kind))
    check_turns(value.get(kind.turns), kind.turns, request.app.state.service.settings.limits)
    if len(data) <= LARGE:
        return checked(kind, value)
    return await anyio.to_thread.run_sync(checked, kind, value)


def checked(kind: type[B], value: Mapping[str, Any]) -> B:
    """A body from what its JSON holds.

    Raises:
        APIError: it is not what is expected; names the parameter.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        if (count := error.error_count()) > MOST_ERRORS:
            raise APIError(
                f"{count:,} parts of the request are unsupported or invalid",
                code="invalid_value",
            ) from None
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
    for number, step in enumerate(found["loc"], 1):
        if isinstance(step, int):
            path += f"[{step}]"
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, Mapping) and step in value:
            path += f".{step}" if path else step
            value = value[step]
        elif number == len(found["loc"]) and found["type"] == "missing":
            path += f".{step}" if path else step
    return path


class MadeJSON(Response):
    """JSON that is bytes already."""

    media_type = "application/json"


class Writer(Protocol):
    """Makes the answer to one request, in one wire format, of its events."""

    last: ClassVar[bytes] = b""
    """What ends every stream."""

    def stream(self, event: Event) -> bytes:
        """The events of a stream that tell of one of ours; none if empty."""
        ...

    def end(self) -> bytes:
        """What ends the stream, when all went well."""
        return self.last

    def failed(self, error: APIError) -> bytes:
        """What ends a stream that fails in its midst."""
        return error.event() + self.last

    def silent(self) -> bytes:
        """What keeps a stream alive for a while: proxies are content with a comment, clients that
        look how long they have waited want an event, where the format has one."""
        return PING

    def add(self, event: Event) -> None:
        """Take an event into the answer that `whole` gives."""
        ...

    def whole(self) -> dict[str, Any] | list[dict[str, Any]] | bytes:
        """The answer that is not streamed; it may be JSON already."""
        ...


class Answer(Response):
    """The answer to a request: it is worked on while this is sent, and no longer.

    An error before the first event is plain HTTP. A stream that is silent gets comments.

    Args:
        service: that does the work.
        model: its name.
        prepare: makes what is asked of it; of several, each is worked on by itself, and their
            answers are counted through.
        writer: of the wire format.
        streamed: whether it is sent as it is made.
        choices: answers to each.
        ping_s: silence after which a stream gets a comment; None: as the server's settings say.
    """

    def __init__(
        self,
        service: Service,
        model: str | None,
        prepare: Prepare | Sequence[Prepare],
        writer: Writer,
        *,
        streamed: bool,
        choices: int = 1,
        ping_s: float | None = None,
    ) -> None:
        self._service, self._writer, self._streamed = service, writer, streamed
        self._model, self._choices = model, choices
        self._prepares = prepare if isinstance(prepare, Sequence) else [prepare]
        self._ping_s = service.settings.ping_s if ping_s is None else ping_s
        self._begun = False
        self._notes_of_head: list[str] = []
        self._jobs: list[Job] = []
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run it (ASGI)."""
        try:
            namespace, own = scope.get(NAMESPACE, ""), scope.get(REQUEST_ID, "")
            caller = Caller.of(Headers(scope=scope), namespace, own)
            async with contextlib.AsyncExitStack() as stack:
                channel: Channel[Event] = Channel(self._service.mailbox)
                jobs = self._jobs
                for n, prepare in enumerate(self._prepares):
                    job = self._service.job(
                        self._model, prepare, caller, channel, n * self._choices
                    )
                    jobs.append(await stack.enter_async_context(job))
                await stack.enter_async_context(_watched(receive, jobs))
                if self._streamed:
                    await self._stream(channel, send)
                else:
                    await self._whole(channel, scope, receive, send)
        except APIError as error:
            if not self._begun:
                await note_refusal(self._service, scope, error)
                await error_response(error, scope)(scope, receive, send)
            else:
                await _send(send, self._writer.failed(error), more=False)

    async def _whole(
        self, channel: Channel[Event], scope: Scope, receive: Receive, send: Send
    ) -> None:
        ended = 0
        while True:
            for event in await channel.take():
                if isinstance(event, Failed):
                    raise event.error
                if not isinstance(event, Closed):
                    self._writer.add(event)
                    continue
                ended += 1
                if any(job.record.cancelled for job in self._jobs):
                    return  # the client has gone, and there may be nothing to tell
                if ended == len(self._jobs):
                    self._begun = True
                    made = self._writer.whole()
                    # What a model writes may be a number that is none here, such as 1e999.
                    made = made if isinstance(made, bytes) else to_json(made, inf_nan_mode="null")
                    await MadeJSON(made)(scope, receive, send)
                    return

    async def _stream(self, channel: Channel[Event], send: Send) -> None:
        writer, ended = self._writer, 0
        silence = _Silence(channel, self._ping_s)
        try:
            while True:
                data = bytearray()
                for event in await channel.take():
                    if isinstance(event, Failed):
                        if data:
                            await self._write(send, data)
                        raise event.error
                    if isinstance(event, Silence):
                        data += writer.silent()
                    elif isinstance(event, Closed):
                        ended += 1
                        if any(job.record.cancelled for job in self._jobs):
                            return
                        if ended == len(self._jobs):
                            if self._begun and (notes := current_notes()) != self._notes_of_head:
                                data += f": warnings: {json.dumps(notes)}\n\n".encode()
                            data += writer.end()
                    else:
                        data += writer.stream(event)
                closed = ended == len(self._jobs)
                if data or closed:
                    silence.broken()
                    await self._write(send, data, more=not closed)
                if closed:
                    return
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
    """Puts `Silence` into a channel where nothing was sent for some time.

    One timer runs at a time: to set a new one for each token would cost more than to look again.
    """

    def __init__(self, channel: Channel[Event], after_s: float) -> None:
        self._channel, self._after_s = channel, after_s
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._wait(after_s)

    def broken(self) -> None:
        """Something is sent."""
        self._since = self._loop.time()

    def end(self) -> None:
        """Look no more."""
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
    """Leave a trace of a request that is refused for what it asks."""
    if error.status in (400, 404) and service.traces.which != "off" and (body := scope.get(BODY)):
        own = scope.get(REQUEST_ID, "")
        await anyio.to_thread.run_sync(service.traces.refused, scope["path"], body, error, own)


async def _send(send: Send, data: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})


@contextlib.asynccontextmanager
async def _watched(receive: Receive, jobs: Sequence[Job]) -> AsyncIterator[None]:
    """End jobs when their client has gone."""

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


def error_response(error: APIError, scope: Scope) -> JSONResponse:
    """An error as an answer of its own, in the wire format of a request."""
    headers = Headers(scope=scope)
    body = error.body_at(scope["path"], anthropic=by_anthropic(headers))
    if body.get("type") == "error":  # Anthropic's form
        body["request_id"] = scope.get(REQUEST_ID)
    # A client that was not invited (100 Continue) may never send the body.
    unread = "expect" in headers and BODY not in scope
    closing = {"connection": "close"} if unread else {}
    return JSONResponse(body, status_code=error.status, headers={**error.headers, **closing})
