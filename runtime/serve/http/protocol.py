"""HTTP on one connection, with limits on the size of a request head and on waiting times.

A parser buffers a request head until it is complete, before any API key is checked; and an idle
connection holds a file descriptor that others need.
"""

from __future__ import annotations

import asyncio
import contextlib
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD = 64 << 10  # bytes of a head, and of what is between the pieces of a body
_UPGRADES = (b"upgrade", b"http2-settings")
FIRST_S = 10.0  # for the first byte on a connection
WANTED = 65536  # descriptors
RESERVE = 128  # descriptors that are not for connections
REQUEST_S = 60.0  # for a head to arrive, and from one piece of a body to the next
UNREAD_S = 600.0  # for a client to read on in an answer
LAST_S = 2.0  # the same once all requests were ended
PROBE_S = (0.01, 5.0)  # first and longest time between probes of a client that sends no more
READ_AHEAD = 8  # requests that are read while the answer to one before them is on its way


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on head size, idle time, and number of connections."""

    connected = 0  # how many there are, over all
    max_connections = 1 << 30  # of them
    _first = True  # nothing has come yet
    _too_large = False  # a head was whole, and more than that
    _taken = 0  # bytes that belong to no head, and no piece of a body, that was read so far
    _timer: asyncio.TimerHandle | None = None
    _ends = False  # all requests were ended
    _reader: asyncio.TimerHandle | None = None  # looks whether the client reads
    _cycles: tuple[RequestResponseCycle, ...] = ()  # requests whose answers are not whole

    def connection_made(self, transport: Any) -> None:
        """Accept a connection; abort it at once if there are too many for the file descriptors."""
        BoundedProtocol.connected += 1
        super().connection_made(transport)
        self._wait(min(FIRST_S, REQUEST_S))
        if BoundedProtocol.connected > BoundedProtocol.max_connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark all unanswered requests of the connection as disconnected."""
        BoundedProtocol.connected -= 1
        self._came()
        if self._reader is not None:
            self._reader.cancel()
        # uvicorn disconnects the newest request alone, and others came before it: theirs are the
        # answers that are being made.
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Probe a client that closed its sending side: it waits for its answers, or has gone."""
        waiting = self._unanswered
        if not waiting or waiting[-1].more_body or self.transport.is_closing():
            return False  # closes the connection
        waiting[-1].keep_alive = False
        self._probe_client(PROBE_S[0])
        return True

    def _probe_client(self, seconds: float) -> None:
        """Send an interim response, which a live client skips and a closed connection resets.

        HTTP/1.0 has none; while an answer is sent, the answer itself does that.
        """
        waiting = self._unanswered
        if not waiting or waiting[0].disconnected or waiting[0].scope["http_version"] == "1.0":
            return
        if not waiting[0].response_started:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.loop.call_later(seconds, self._probe_client, min(2 * seconds, PROBE_S[1]))

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; refuse a request whose head is too large."""
        if self._first:
            self._first = False
            self._came()
        self._taken += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            if self._too_large:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            elif any(cycle.response_started for cycle in self._unanswered):
                self.transport.close()  # nothing may interrupt an answer
            else:
                self.send_400_response("Invalid HTTP request received.")
            return
        if self._taken > MAX_HEAD:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self._taken and self._timer is None:
            self._wait()

    def _parse(self, data: bytes) -> None:
        """Parse a request; go on in HTTP/1.1 if it offers another protocol, as Java's client does.

        The parser would take the rest, the request's body too, for data of that protocol.
        """
        while True:
            parser = self.parser
            try:
                parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if parser.get_method() == b"CONNECT":
                    raise httptools.HttpParserError("no proxy") from None
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                with contextlib.suppress(AttributeError):  # as uvicorn does with its own
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(t for t in tokens if t.lower() not in _UPGRADES)
            if name not in _UPGRADES and value:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def on_message_begin(self) -> None:
        """Start the timer of a request's head."""
        if self._timer is None:
            self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Check the size of a request's head, and begin to time its body."""
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MAX_HEAD:
            self._too_large = True
            raise ValueError("a head of more than the bytes it may have")  # ends the parsing
        self._came()
        self._wait()
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            if self.parser.get_http_version() == "1.0":
                _end_with_connection(self.cycle)
            self._cycles = (*self._unanswered, self.cycle)
            if 1 < len(self._cycles) <= READ_AHEAD:
                self.flow.resume_reading()  # else nobody would see that the client goes

    def on_body(self, body: bytes) -> None:
        """Restart the timer with each piece of a body."""
        self._came()
        self._wait()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the request is whole."""
        self._came()
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def pause_writing(self) -> None:
        """Pause writing to a client that reads too slowly, and start its timeout."""
        super().pause_writing()
        self._look_for_reader()

    def resume_writing(self) -> None:
        """Resume writing to a client that has read on, and restart its timeout."""
        super().resume_writing()
        self._look_for_reader()

    def on_response_complete(self) -> None:
        """Start the timeout for the client to read the rest of a complete answer."""
        super().on_response_complete()
        self._look_for_reader()

    def end_soon(self) -> None:
        """Abort the connection once its client reads no more of its answers; from any thread."""

        def end() -> None:
            self._ends = True
            self._look_for_reader()

        self.loop.call_soon_threadsafe(end)

    def _look_for_reader(self) -> None:
        """Abort the connection after a timeout unless the client reads some of the write buffer."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None
        unread = self.transport.get_write_buffer_size()

        def look() -> None:
            if 0 < unread <= self.transport.get_write_buffer_size():
                self.transport.abort()
            else:
                self._look_for_reader()

        if unread or self._ends:
            self._reader = self.loop.call_later(LAST_S if self._ends else UNREAD_S, look)

    def _came(self) -> None:
        self._taken = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float | None = None) -> None:
        self._timer = self.loop.call_later(seconds or REQUEST_S, self._is_late)

    def _is_late(self) -> None:
        first = next(iter(self._unanswered), None)
        if first is not None and not first.more_body:
            self._wait()  # what is on its way is an answer
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)

    @property
    def _unanswered(self) -> tuple[RequestResponseCycle, ...]:
        return tuple(cycle for cycle in self._cycles if not cycle.response_complete)

    def _refuse(self, status: HTTPStatus) -> None:
        """Close the connection; send the status first if a request came and no answer has begun."""
        if self.transport.is_closing():
            return
        if self._taken and not self._unanswered:
            line = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            self.transport.write(f"{line}content-length: 0\r\nconnection: close\r\n\r\n".encode())
        self._came()
        self.transport.close()


def _end_with_connection(cycle: RequestResponseCycle) -> None:
    """End an HTTP/1.0 answer of unknown length with its connection, since it cannot be chunked."""
    send, known = cycle.send, True

    async def plain(message: Any) -> None:
        nonlocal known
        if message["type"] == "http.response.start":
            known = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
            if not known:
                cycle.chunked_encoding = False
        elif not known:  # of a body without chunks, what is left is counted down to nothing
            more = message.get("more_body", False)
            cycle.expected_content_length = len(message.get("body", b"")) + more
        await send(message)

    cycle.send = plain


def make_room() -> None:
    """Raise the process's limit of open files, and limit the connections to fit it."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, WANTED) if hard != resource.RLIM_INFINITY else WANTED
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft != resource.RLIM_INFINITY:
        BoundedProtocol.max_connections = max(16, soft - RESERVE)
