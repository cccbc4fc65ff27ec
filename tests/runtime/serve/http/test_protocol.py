"""Connections whose requests do not come as those of clients do."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

import pytest
from helpers.serving import LONG_CHAT, Server, events

from triplepoint.runtime.serve.http import protocol as http_protocol
from triplepoint.runtime.serve.http.protocol import BoundedProtocol

HEAD = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"content": "hello"}'


def connected(server: Server) -> socket.socket:
    """A connection."""
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def ask_for_1500_tokens(connection: socket.socket) -> None:
    """Send a request whose answer takes a while."""
    body = json.dumps({"prompt": "hello", "max_tokens": 1500, "ignore_eos": True}).encode()
    connection.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\n")
    connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until it is closed."""
    try:
        return b"".join(iter(lambda: connection.recv(65536), b""))
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n",
        HEAD + b"X: a\r\n" * 50_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n" * 50_000,
    ],
    ids=["a long header", "many headers", "a long path", "nothing"],
)
def test_a_large_head(server: Server, sent: bytes) -> None:
    """It is refused as soon as it is too large, and not kept."""
    with connected(server) as connection:
        with contextlib.suppress(OSError):  # it may be closed before all is sent
            connection.sendall(sent[:-3])  # never whole
        answer = answer_of(connection)

        assert not answer or answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("size", [70_000, 150_000])
def test_a_large_head_that_is_whole(server: Server, size: int) -> None:
    """The same, also where it came at once with all that follows."""
    with connected(server) as connection:
        length = f"Content-Length: {len(BODY)}\r\n\r\n".encode()
        with contextlib.suppress(OSError):
            connection.sendall(HEAD + b"X: " + b"a" * size + b"\r\n" + length + BODY)
        answer = answer_of(connection)

        assert not answer or answer.startswith(b"HTTP/1.1 431 ")
        assert answer.count(b"HTTP/1.1") <= 1


def test_more_connections_than_there_are_descriptors_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One too many is closed at once, and there is room again when others have gone."""
    monkeypatch.setattr(BoundedProtocol, "max_connections", BoundedProtocol.connected + 2)
    with connected(server) as first, connected(server) as second:
        until = time.monotonic() + 20
        while BoundedProtocol.connected < BoundedProtocol.max_connections:
            assert time.monotonic() < until
            time.sleep(0.01)
        with connected(server) as third:
            assert answer_of(third) == b""
        for one in (first, second):
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert answer_of(one).startswith(b"HTTP/1.1 200 ")


def test_a_connection_on_which_nothing_comes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed sooner than one on which a request has begun."""
    monkeypatch.setattr(http_protocol, "FIRST_S", 0.1)
    with connected(server) as connection:
        assert answer_of(connection) == b""
    with connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        time.sleep(0.5)
        connection.sendall(b"Host: localhost\r\nConnection: close\r\n\r\n")
        assert answer_of(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("kept", [b"", b"Connection: keep-alive\r\n"], ids=["", "keep-alive"])
def test_a_stream_in_http_1_0(server: Server, kept: bytes) -> None:
    """It has no chunks, which that version does not know: it ends with its connection."""
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
    body = json.dumps(asked).encode()
    with connected(server) as connection:
        connection.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\n" + kept)
        connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        head, _, stream = answer_of(connection).partition(b"\r\n\r\n")

    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    *chunks, done = events(stream.decode())
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert done == "[DONE]"


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_client_that_sends_no_more_and_waits(server: Server, version: str) -> None:
    """It gets the answers to all whole requests; then the connection is closed."""
    asked = json.dumps({"prompt": "hello", "max_tokens": 40, "ignore_eos": True}).encode()
    head = f"POST /completion HTTP/{version}\r\nHost: localhost\r\n".encode()
    request = head + b"Content-Length: %d\r\n\r\n%s" % (len(asked), asked)
    count = 1 if version == "1.0" else 2
    with connected(server) as connection:
        connection.sendall(request * count)
        connection.shutdown(socket.SHUT_WR)
        answer = answer_of(connection)

    interim = answer.partition(b"HTTP/1.1 200 OK")[0].count(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert bool(interim) == (version == "1.1")
    assert answer.count(b" 200 OK\r\n") == answer.count(b'"tokens_predicted":40') == count
    assert b"connection: close" in answer


def test_a_client_that_sends_half_a_request_and_no_more(server: Server) -> None:
    """Its connection is closed."""
    with connected(server) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + BODY)
        connection.shutdown(socket.SHUT_WR)
        assert answer_of(connection) == b""


def test_a_client_that_has_gone_while_it_waits(server: Server) -> None:
    """Its request ends soon, although nothing was sent to it so far."""
    with connected(server) as connection:
        ask_for_1500_tokens(connection)
        until = time.monotonic() + 20
        while server.service.load[0] != 1:
            assert time.monotonic() < until
            time.sleep(0.005)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.1)
        assert server.service.load[0] == 1
    began = time.monotonic()
    server.idle()
    assert time.monotonic() - began < 1
    (last, *_) = sorted(server.service.metrics.records(), key=lambda one: -one.at)
    assert last.state == "cancelled"


def test_a_body_that_is_too_large_is_not_invited(server: Server) -> None:
    """Its length says so: 413 in place of 100 Continue, and no wait for what never comes."""
    most = server.settings.limits.body
    expect = b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with connected(server) as connection:
        connection.sendall(HEAD + expect % (most + 1))
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer
    assert b"connection: close" in answer
    with connected(server) as connection:
        connection.sendall(HEAD + b"Connection: close\r\n" + expect % len(BODY))
        assert connection.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert answer_of(connection).startswith(b"HTTP/1.1 200 ")


def test_an_answer_of_known_length_in_http_1_0(server: Server) -> None:
    """It is sent by its length."""
    with connected(server) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        head, _, body = answer_of(connection).partition(b"\r\n\r\n")

    assert b"content-length: 15" in head.lower()
    assert body == b'{"status":"ok"}'


def test_a_head_of_usual_size(server: Server) -> None:
    """Also one that browsers and proxies make, with a body in pieces."""
    with connected(server) as connection:
        connection.sendall(HEAD + b"Cookie: " + b"a" * 30_000 + b"\r\nConnection: close\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        for at in range(len(BODY)):
            connection.sendall(b"1\r\n" + BODY[at : at + 1] + b"\r\n")
        connection.sendall(b"0\r\n\r\n")

        assert answer_of(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("apart", [False, True], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("chunked", [False, True], ids=["with a length", "in chunks"])
@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
def test_another_protocol_is_not_taken_up(
    server: Server, offer: bytes, chunked: bool, apart: bool
) -> None:
    """Java's client offers HTTP/2 with every request; it gets its answer in HTTP/1.1, each time."""
    head = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + offer
    head += b"\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    body = b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
    if chunked:
        body = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    sent = (head + body) * 2 + HEAD + b"Connection: close\r\n" + body
    with connected(server) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(sent), 1 if apart else len(sent)):
            connection.sendall(sent[at : at + (1 if apart else len(sent))])
        answer = answer_of(connection)

        assert answer.count(b"HTTP/1.1 200 ") == 3
        assert answer.count(b'"tokens":[') == 3
        assert b" 400 " not in answer


def long_chat(*, stream: bool) -> bytes:
    """A request that takes as long as it is let."""
    body = json.dumps({**LONG_CHAT, "stream": stream}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def until_load(server: Server, load: tuple[int, int]) -> None:
    """Wait until so many requests run and wait."""
    until = time.monotonic() + 20
    while server.service.load != load:
        assert time.monotonic() < until, server.service.load
        time.sleep(0.001)


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("stream", [True, False], ids=["streams", "whole answers"])
def test_a_client_that_goes_with_further_requests_under_way(
    server: Server, stream: bool, at_once: bool
) -> None:
    """All of them end: that whose answer is being made, and those behind it, which never begin."""
    server.idle()
    cancelled = "triplepoint_requests_cancelled_total{"
    before = counted(server, cancelled)
    one = long_chat(stream=stream)
    with connected(server) as connection:
        connection.sendall(one * 3 if at_once else one)
        until_load(server, (1, 0))
        if not at_once:
            connection.sendall(one * 2)
            time.sleep(0.02)

    server.idle()

    assert counted(server, cancelled) == before + 1


def reads_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A client that asks for more than the system keeps for it, and reads none of it."""

    def made(self: BoundedProtocol, transport: Any) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        usual(self, transport)

    usual = BoundedProtocol.connection_made
    monkeypatch.setattr(BoundedProtocol, "connection_made", made)
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect((host, int(port)))
    connection.sendall(long_chat(stream=True))
    return connection


def connection_of(server: Server, client: tuple[str, int]) -> BoundedProtocol | None:
    """The server's end of a connection, as long as it is open."""
    state: Any = server._server.server_state  # pyright: ignore[reportPrivateUsage]
    return next((one for one in list(state.connections) if one.client == client), None)


@pytest.mark.parametrize("ends", [False, True], ids=["while it runs", "once all requests ended"])
def test_a_client_that_does_not_read(
    server: Server, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for as long as a client may rest, and hardly at all when the server ends."""
    monkeypatch.setattr(http_protocol, "LAST_S" if ends else "UNREAD_S", 0.1)
    with reads_nothing(server, monkeypatch) as connection:
        address = connection.getsockname()
        until = time.monotonic() + 20
        while not (mine := connection_of(server, address)) or not mine.flow.write_paused:
            assert time.monotonic() < until
            time.sleep(0.001)
        if ends:
            mine.end_soon()
        while connection_of(server, address):
            assert time.monotonic() < until
            time.sleep(0.001)
    server.idle()


def test_a_client_that_rests(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the whole answer, as long as it reads on now and then."""
    monkeypatch.setattr(http_protocol, "UNREAD_S", 2.0)
    with reads_nothing(server, monkeypatch) as connection:
        connection.settimeout(20)
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += connection.recv(16384)
            time.sleep(0.01)

        assert b"[DONE]" in answer


def counted(server: Server, name: str) -> float:
    """The sum of a metric's samples."""
    lines = server.client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize("stray", [b"\x00\x00", b"NONSENSE\r\n\r\n"])
def test_what_is_no_request_behind_one(server: Server, stray: bytes) -> None:
    """It ends the connection, but nothing is put in the midst of the answer that is being sent."""
    with connected(server) as connection:
        connection.sendall(long_chat(stream=True))
        answer = connection.recv(100)
        connection.sendall(stray)
        answer += answer_of(connection)

        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.count(b"HTTP/1.1") == 1
    server.idle()


@pytest.mark.slow
def test_a_slow_request_behind_one_that_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes first, however long it takes."""
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.05)
    with connected(server) as connection:
        ask_for_1500_tokens(connection)
        connection.sendall(HEAD + b"Content-Length: 20\r\n\r\n" + BODY[:5])

        answer = answer_of(connection)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"tokens_predicted":1500' in answer


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (HEAD, b"HTTP/1.1 408 "),
        (HEAD + b"Content-Length: 20\r\n\r\n" + BODY[:5], b""),
        (HEAD + b"Content-Length: 20\r\n\r\n" + BODY + HEAD, b"HTTP/1.1 200 "),
    ],
    ids=["nothing", "a part of a head", "a part of a body", "a part of the next one"],
)
def test_a_request_that_does_not_go_on(
    server: Server, sent: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is closed after a while, and nobody else is disturbed."""
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.3)
    with connected(server) as connection:
        connection.sendall(sent)
        began = time.monotonic()
        found = answer_of(connection)

        assert found.startswith(answer)
        assert bool(found) == bool(answer)
        assert time.monotonic() - began < 5
    assert server.chat().status_code == 200


@pytest.mark.slow
def test_an_answer_takes_as_long_as_it_takes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a request is there, its client waits and not we."""
    monkeypatch.setattr(http_protocol, "REQUEST_S", 0.05)
    with connected(server) as connection:
        ask_for_1500_tokens(connection)
        time.sleep(0.01)
        connection.sendall(b"\r\n")  # as some clients do
        began = time.monotonic()

        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began > 0.1
