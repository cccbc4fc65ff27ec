"""Many requests at once, and clients that go."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from helpers.serving import LONG_CHAT, SETTINGS, Server

from triplepoint import Engine
from triplepoint.runtime.serve.app.run import bound_socket
from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.models.events import Failed
from triplepoint.runtime.serve.models.generate import Generation
from triplepoint.runtime.serve.requests.request_record import RequestRecord
from triplepoint.runtime.serve.settings import Limits


def sessions(server: Server) -> list[Any]:
    """Sessions that hold pages."""
    engine = server.service.models.loaded()[0].engine
    return [session for session in list(engine.core.scheduler.sequences) if session.cache.held]


def test_requests_at_once_get_what_they_get_alone(server: Server) -> None:
    """Their passes are shared, and each answer is the one of a server that does nothing else."""
    texts = [f"Say {word}" for word in ("one", "two", "three", "four")]

    def ask(text: str) -> str:
        return server.chat(text, max_tokens=60).json()["choices"][0]["message"]["content"]

    alone = [ask(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(ask, texts))

    assert together == alone
    server.idle()
    assert sessions(server) == []


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes(server: Server, stream: bool) -> None:
    """Its request ends, and neither pages nor threads of it are left."""
    body = {**LONG_CHAT, "stream": stream}
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        if stream:
            with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                lines = answer.iter_lines()
                while "content" not in next(lines):
                    pass
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/chat/completions", json=body, timeout=0.3)
    began = time.monotonic()
    server.idle()

    assert time.monotonic() - began < 10
    assert sessions(server) == []
    assert server.chat().status_code == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/completion", "/v1/messages", "/v1/responses"])
def test_a_client_that_goes_before_there_is_anything(
    server: Server,
    path: str,
    stream: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is made of an answer that nobody has begun and nobody will read."""

    def waiting(self: Generation, *_: Any) -> None:
        while not self.cancelled:
            time.sleep(0.01)
        self.emit(self.last_event)

    monkeypatch.setattr(Generation, "run", waiting)
    message = {"role": "user", "content": "hello"}
    asked = {
        "/completion": {"prompt": "hello"},
        "/v1/messages": {"model": "nano", "messages": [message], "max_tokens": 8},
        "/v1/responses": {"input": [message]},
    }[path]
    with (
        httpx.Client(base_url=server.url, trust_env=False) as client,
        pytest.raises(httpx.ReadTimeout),
    ):
        client.post(path, json={**asked, "stream": stream}, timeout=0.2)
    server.idle()
    time.sleep(0.05)  # for the event loop to say what it has to

    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


def test_neighbours_of_a_client_that_goes(server: Server) -> None:
    """They go on, and get what they would have got."""
    expected = server.chat(max_tokens=200).json()["choices"][0]["message"]["content"]
    body = {"messages": [{"role": "user", "content": "hi there"}], "stream": True}

    def leave() -> None:
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            for _ in range(5):
                with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    next(answer.iter_lines())

    leaving = threading.Thread(target=leave)
    leaving.start()
    answers = [server.chat(max_tokens=200) for _ in range(3)]
    leaving.join()

    for answer in answers:
        assert answer.json()["choices"][0]["message"]["content"] == expected
    server.idle()


def test_more_requests_than_may_wait(start: Any) -> None:
    """They are told to come back, in the words that clients obey, and counted; those that wait are
    answered."""
    server = start(limits=Limits(parallel=1, queue=1))
    server.wait()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.chat(max_tokens=1500), range(6)))
    refused = [answer for answer in answers if answer.status_code == 429]

    assert {answer.status_code for answer in answers} == {200, 429}
    for answer in refused:
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    failed = 'triplepoint_requests_failed_total{model_name="nano",status="429"}'
    assert f"{failed} {len(refused)}\n" in server.client.get("/metrics").text


def _slow_to_load(start: Any) -> Server:
    """A server whose first stream is silent for a second."""

    def load(source: str) -> Engine:
        time.sleep(1.0)
        return Engine.load(source)

    server = start(load, ping_s=0.2)
    server.wait("/v1/models")
    return server


@pytest.mark.slow
def test_a_silent_stream_gets_comments(start: Any) -> None:
    """While nothing comes a proxy would close the connection."""
    server = _slow_to_load(start)
    answer = server.chat(stream=True)

    assert answer.text.startswith(": ping\n\n")
    assert answer.text.endswith("data: [DONE]\n\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "asked", "first"),
    [
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4},
            "ping",
        ),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 4}, "response.created"),
    ],
)
def test_a_silent_stream_gets_events(start: Any, path: str, asked: Any, first: str) -> None:
    """Where the format has some: clients that look how long they have waited count no comments."""
    server = _slow_to_load(start)
    answer = server.post(path, {"model": "nano", "stream": True, **asked})
    kinds = [line.removeprefix("event: ") for line in answer.text.split("\n") if "event: " in line]

    assert answer.status_code == 200
    assert kinds[0] == first
    assert kinds.count("response.created" if "responses" in path else "message_start") == 1
    assert kinds[-1] in ("message_stop", "response.incomplete", "response.completed")
    if "responses" in path:
        numbers = re.findall(r'"sequence_number":(\d+)', answer.text)
        assert list(map(int, numbers)) == list(range(len(numbers)))


@pytest.mark.slow
def test_the_record_of_a_failed_request_keeps_no_model() -> None:
    """It is kept for the status page long after its model was let go of."""

    class Held:
        """In place of an engine."""

    def fail() -> None:
        held.append(weakref.ref(own := Held()))
        try:
            raise ValueError(own)
        except ValueError as error:
            raise APIError("no", status=503, code="unavailable") from error

    held, record = list[weakref.ref[Held]](), RequestRecord("nano")
    with pytest.raises(APIError) as failed:
        fail()
    record.heard(Failed(failed.value))
    del failed
    gc.collect()

    assert held[0]() is None
    assert record.error is not None
    assert (record.error.message, record.error.status) == ("no", 503)
    assert record.error.code == "unavailable"


def test_health_while_a_model_is_loaded(start: Any) -> None:
    """503 until it is there; requests wait for it, and a second one does not load it again."""
    go, loads = threading.Event(), list[str]()

    def load(source: str) -> Engine:
        loads.append(source)
        go.wait(30)
        return Engine.load(source)

    server = start(load)
    server.wait("/v1/models")
    health = server.client.get("/health")
    assert (health.status_code, health.json()["error"]["message"]) == (503, "Loading model")
    assert server.client.get("/ps").json()["models"][0]["state"] == "loading"
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(server.chat) for _ in range(2)]
        go.set()
        assert [one.result().status_code for one in waiting] == [200, 200]
    server.wait()
    assert loads == ["nano"]


def test_an_end_in_the_midst(start: Any) -> None:
    """A server that is ended tells streams so, in an error that is no end of an answer."""
    server = start()
    server.wait()
    body = {**LONG_CHAT, "stream": True}
    with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        server.service.close()
        last = [line for line in lines if line.startswith("data: {")][-1]

    assert json.loads(last.removeprefix("data: "))["error"]["message"].endswith("shutting down")


def test_connections_send_at_once() -> None:
    """Nagle's algorithm is off: else answers wait for the client's delayed acknowledgment."""

    async def accepted() -> int:
        found = asyncio.get_running_loop().create_future()

        def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound = bound_socket(SETTINGS)
        server = await asyncio.start_server(connected, sock=bound)
        _, client = await asyncio.open_connection(*bound.getsockname()[:2])
        delay_off = await asyncio.wait_for(found, 10)
        client.close()
        server.close()
        return delay_off

    assert asyncio.run(accepted()) != 0
