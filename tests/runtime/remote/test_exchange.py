"""Events of a stream, however a server writes them and a network cuts them, and busy servers."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from helpers.openai_server import delta, openai_server

from triplepoint import EngineError
from triplepoint.runtime.remote.exchange import BusyError, Exchange, fetch_json
from triplepoint.runtime.remote.server import Server
from triplepoint.runtime.sse import MAX_EVENT

ONE, TWO = delta(content="é 😀"), delta("stop", content=" end")
SPREAD = json.dumps(ONE, indent=1, ensure_ascii=False).split("\n")
"""An event over several lines."""


def chunks_of(monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]) -> list[dict[str, Any]]:
    """What a client gets of a server that sends these pieces."""

    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    def client(*_: Any, **__: Any) -> httpx.AsyncClient:
        answer = httpx.MockTransport(lambda _: httpx.Response(200, content=sent()))
        return httpx.AsyncClient(transport=answer)

    monkeypatch.setattr(Server, "client", client)
    exchange = Exchange(Server("http://localhost/v1", None, 10.0), {})
    return [chunk for _, chunk in exchange.chunks(lambda: None)]


def written(*events: list[str], end: str, between: str | None = None) -> bytes:
    """Events as they go over the wire: lines of data, each with this end."""
    gap = end if between is None else between
    lines = ("".join(f"data: {line}{end}" for line in event) + gap for event in events)
    return "".join(lines).encode()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize("one", [[json.dumps(ONE, ensure_ascii=False)], SPREAD])
def test_lines_and_pieces(
    monkeypatch: pytest.MonkeyPatch, one: list[str], end: str, size: int
) -> None:
    """All line ends that the format has, one event on several lines, and cuts anywhere."""
    before = f": hello{end}{end}event: x{end}id: 7{end}retry: 5{end}"
    stream = before.encode() + written(one, [json.dumps(TWO)], ["[DONE]"], end=end)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]

    assert chunks_of(monkeypatch, pieces) == [ONE, TWO, {"done": True}]


def test_events_without_an_empty_line_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are whole are events of their own, as some servers send them."""
    stream = written([json.dumps(ONE)], [], [json.dumps(TWO)], ["[DONE]"], end="\n", between="")

    assert chunks_of(monkeypatch, [stream]) == [ONE, TWO, {"done": True}]


def test_a_stream_that_ends_within_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last event needs no line end; half of one is told."""
    whole = written([json.dumps(ONE)], end="\n") + b"data: " + json.dumps(TWO).encode()
    assert chunks_of(monkeypatch, [whole]) == [ONE, TWO]
    with pytest.raises(EngineError, match="not JSON"):
        chunks_of(monkeypatch, [whole[:-3]])


def test_an_event_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are together longer than any event end the stream."""
    line = b"data: [" + b"1," * 50_000 + b"\n"
    with pytest.raises(EngineError, match="longer than any answer"):
        chunks_of(monkeypatch, [line] * (MAX_EVENT // len(line) + 2))


def _wait_for(told: str) -> float | None:
    """How long to wait for a busy server that says this."""
    with openai_server() as server:
        server.models, server.headers = 429, {"Retry-After": told}
        with pytest.raises(BusyError) as busy:
            fetch_json(Server(server.url, None, 10), "/models", timeout=10)
    return busy.value.wait_s


@pytest.mark.parametrize(
    ("told", "least", "most"),
    [
        (lambda: formatdate(time.time() + 20, usegmt=True), 15, 21),
        (lambda: formatdate(time.time() + 9000, usegmt=True), 30, 30),
        (lambda: formatdate(time.time() - 9000, usegmt=True), 0, 0),
        (lambda: "Wed, 21 Oct 2015 07:28:00 -0000", 0, 0),
        (lambda: "7.5", 7.5, 7.5),
        (lambda: "nan", 0, 0),
    ],
)
def test_how_long_a_server_says_to_wait(told: Callable[[], str], least: float, most: float) -> None:
    """In seconds, or as a moment; never longer than a client waits."""
    wait_s = _wait_for(told())
    assert wait_s is not None
    assert least <= wait_s <= most


@pytest.mark.parametrize("told", ["soon", "", "Wed, 99 Oct 2015 07:28:00 GMT", "99999999999999999"])
def test_what_says_no_time(told: str) -> None:
    """It counts as not given, or as very long."""
    assert _wait_for(told) in (None, 30)
