"""One streamed request to a server, in its own thread.

The thread runs an event loop, so that a request can be cancelled at any moment, also while the
server is silent; its connection is closed then, which is how a server learns to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ... import interrupts
from ...arguments import without_surrogates
from ...errors import ContextOverflowError, EngineError
from ..proxies import through_proxy
from ..sse import DONE, EventReader, EventTooLongError

if TYPE_CHECKING:
    import httpx

    from .server import Server

T = TypeVar("T")

MAX_STREAM = 256 * 2**20  # bytes of all events of a stream
MAX_ANSWER = 4 * 2**20  # bytes of an answer that is no stream
MAX_SHOWN = 4096  # bytes of what is no stream that are looked at
MAX_FETCH = 60.0  # seconds for a whole answer that is no stream
MAX_WAIT = 30.0  # seconds that a server may request us to wait before the next try

_BUSY = (429, 502, 503, 504)
_POLL_S = 0.05  # seconds between two checks whether to stop
_OPTIONAL = ("max_tokens", "temperature")  # what a request does without, where it is refused
_COUNTS = "stream_options"  # asks for what the server counted, which older ones do not know
_TOO_LONG = ("context_length_exceeded", "exceed_context_size_error")


class BusyError(EngineError):
    """The server is busy or unreachable before any output; the request may be retried.

    Attributes:
        wait_s: seconds that it asked to wait; None if it did not.
        dropped: whether it accepted the request, and then closed the connection.
    """

    def __init__(self, message: str, wait_s: float | None = None, *, dropped: bool = False) -> None:
        super().__init__(message)
        self.wait_s, self.dropped = wait_s, dropped


class ParameterRefusedError(EngineError):
    """The server refuses a parameter that others need, as OpenAI's latest models do.

    Attributes:
        param: its name.
    """

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class KeyRefusedError(EngineError):
    """The server requires an API key, or another one."""


class Exchange:
    """A streamed request; iterate `chunks`, then `close` it."""

    def __init__(self, server: Server, body: Mapping[str, Any]) -> None:
        self._server = server
        # Not a `Queue`: a signal that ends the program may leave the lock of one taken, and then
        # the worker would wait for it for ever, and `close` for the worker.
        self._queue: queue.SimpleQueue[tuple[float, dict[str, Any] | BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._worker = _Worker(self._read(body), self._ended)

    def chunks(self, check: Callable[[], None]) -> Iterator[tuple[float, dict[str, Any]]]:
        """Yield each chunk with its arrival time (`time.perf_counter`).

        Args:
            check: called often, also while nothing comes; what it raises ends the request.

        Raises:
            BusyError: the server cannot take the request now.
            ContextOverflowError: the conversation is too long for it.
            EngineError: it refused the request, broke off, or sent no valid stream.
        """
        while True:
            check()
            try:
                at, item = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield at, item

    def close(self) -> None:
        """Cancel the request, if it still runs."""
        self._worker.cancel()

    async def _read(self, body: Mapping[str, Any]) -> None:
        url = self._server.address("/chat/completions")
        # Half of a character, as a name of a file may hold, is no text that can be sent.
        sent = without_surrogates(
            json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        ).encode()
        headers = {"Content-Type": "application/json"}
        async with (
            _network_errors(self._server, self._server.silence),
            self._server.client() as client,
            client.stream("POST", url, content=sent, headers=headers) as response,
        ):
            if response.status_code >= 300:
                raise _status_error(self._server, response, await _read_body(response))
            came = False
            try:
                async for value in _events(self._server, response):
                    chunk = _parsed(self._server, value)
                    came = True
                    self._queue.put((time.perf_counter(), chunk))
            except BaseException as error:
                if came and isinstance(error, Exception) and not isinstance(error, EngineError):
                    raise _broken(self._server, _reason(error)) from error
                raise

    def _ended(self, error: BaseException | None) -> None:
        self._queue.put((time.perf_counter(), error))


def fetch_json(server: Server, path: str, *, timeout: float) -> Any:
    """Return the JSON that ``GET {base_url}{path}`` answers.

    Args:
        timeout: seconds to wait for a byte.

    Raises:
        EngineError: the request fails, or the answer is no JSON.
    """

    answers: list[Any] = []

    async def get() -> None:
        async with (
            _network_errors(server, timeout),
            server.client(timeout=timeout) as client,
            client.stream("GET", server.address(path)) as response,
        ):
            body = await _read_body(response)
            if response.status_code >= 300:
                raise _status_error(server, response, body)
            try:
                answers.append(json.loads(body))
            except (ValueError, RecursionError):
                raise EngineError(f"{server.url}{path} does not answer with JSON") from None

    failures: list[BaseException | None] = []
    _Worker(asyncio.wait_for(get(), MAX_FETCH), failures.append).join()
    match failures:
        case [TimeoutError()]:
            message = f"{server.url}{path} has not come to its end in {MAX_FETCH:g} seconds"
            raise EngineError(message) from None
        case [BaseException() as error]:
            raise error
    return answers[0]


class _Worker:
    """A thread that runs a coroutine, and reports how it ended."""

    def __init__(
        self, work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work)
        self._ended = ended
        self._thread = threading.Thread(target=self._run, name="remote", daemon=True)
        interrupts.start(self._thread)

    def cancel(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._task.cancel)
        self.join()

    def join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.1)  # in pieces, so that Ctrl-C gets through

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._loop.run_until_complete(self._task)
        except BaseException as problem:
            error = problem
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._ended(error)


@contextlib.asynccontextmanager
async def _network_errors(server: Server, silence: float) -> AsyncIterator[None]:
    """Convert errors of the HTTP client to ours; `silence` is its read timeout in seconds."""
    import httpx

    url = server.url if server.is_local else f"{server.url}{through_proxy(server.url)}"
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise BusyError(f"cannot reach {url}: {str(error) or 'no answer'}") from None
    except httpx.TimeoutException:
        raise EngineError(f"no data from {url} for {silence:g} seconds") from None
    except httpx.RemoteProtocolError as error:
        message = f"{url} closed the connection before it answered: {error}"
        raise BusyError(message, dropped=True) from None
    except (httpx.ReadError, httpx.WriteError) as error:
        message = f"{url} broke the connection before it answered: {_reason(error)}"
        raise BusyError(message, dropped=True) from None
    except httpx.HTTPError as error:
        raise EngineError(f"{url}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _events(server: Server, response: httpx.Response) -> AsyncIterator[object]:
    """Yield the data of each server-sent event, up to and including ``[DONE]``."""
    begins, total = bytearray(), 0
    reader = EventReader()
    try:
        async for piece in response.aiter_bytes():
            if not reader.found:
                begins = (begins + piece)[:MAX_SHOWN]
            total += len(piece)
            for value in reader.feed(piece):
                yield value
                if value == DONE:  # a server may keep the connection
                    return
            if total > MAX_STREAM:
                raise EventTooLongError
        for value in reader.end():
            yield value
    except EventTooLongError:
        raise EngineError("the server's stream is longer than any answer") from None
    except ValueError as error:
        raise _broken(server, str(error)) from None
    if begins.strip() and not reader.found:
        message = _message(_error_in(begins))
        raise EngineError(f"{server.url} does not answer with a stream of events: {message}")


def _parsed(server: Server, chunk: object) -> dict[str, Any]:
    """Parse a chunk; ``{"done": true}`` marks the end.

    Raises:
        EngineError: the chunk is invalid, or reports an error.
    """
    if chunk == DONE:
        return {"done": True}
    if not isinstance(chunk, dict):
        raise _broken(server, f"an event that is not an object: {json.dumps(chunk)[:80]!r}")
    error = chunk.get("error")
    if not error and "choices" not in chunk and isinstance(chunk.get("message"), str):
        error = chunk  # as some servers write it
    if error:
        text = f"{server.url} failed: {_message(error)}"
        code = str(error.get("code")) if isinstance(error, dict) else ""
        raise BusyError(text) if code in map(str, _BUSY) else EngineError(text)
    return chunk


def _broken(server: Server, what: str) -> EngineError:
    return EngineError(f"the stream from {server.url} broke off: {what}")


async def _read_body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER:
            break
    return bytes(body)


def _status_error(server: Server, response: httpx.Response, body: bytes) -> EngineError:
    """Return the error for a status and its body."""
    status = response.status_code
    error = _error_in(body)
    if status < 400:
        where = response.headers.get("location", "another address")
        error = f"it has moved to {where}; give the address that answers itself"
    text = f"HTTP {status} from {server.url}: {_message(error)}"
    known: dict[str, Any] = error if isinstance(error, dict) else {}
    kind, param = {str(known.get("type")), str(known.get("code"))}, str(known.get("param"))
    if kind & set(_TOO_LONG) or (status == 400 and "maximum context length" in text):
        return ContextOverflowError(
            f"{text}. Ask for less, or start the server with a longer context"
        )
    if status in _BUSY:
        return BusyError(text, _retry_after(response.headers.get("retry-after", "")))
    if status in (401, 403):
        return KeyRefusedError(f"{text}. Is the key (api_key) right?")
    if kind & {"unsupported_parameter", "unsupported_value"} and param in _OPTIONAL:
        return ParameterRefusedError(text, param)
    if status in (400, 422) and _COUNTS in text:  # in words of their own, Azure's and Mistral's
        return ParameterRefusedError(text, _COUNTS)
    return EngineError(text)


def _error_in(body: bytes | bytearray) -> object:
    """Return the message in the body of a failed request, from its JSON if possible."""
    try:
        data = json.loads(bytes(body))
    except (ValueError, RecursionError):
        data = body.decode("utf-8", "replace").strip()
    return data.get("error", data) if isinstance(data, dict) else data


def _message(error: object) -> str:
    text = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(text).split())[:300] or "no reason given"


def _retry_after(text: str) -> float | None:
    """Return the seconds to wait, from a number or an HTTP date."""
    try:
        wait_s = float(text)
    except ValueError:
        try:
            wait_s = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(MAX_WAIT, max(0.0, wait_s))
