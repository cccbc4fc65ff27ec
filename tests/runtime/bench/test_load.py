"""Agents at once on a server: what they ask, and what is counted of the answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from triplepoint.errors import EngineError, SettingError
from triplepoint.runtime.bench.load import Job, Load, measure
from triplepoint.runtime.bench.load_client import HttpClient, Reply, model_of
from triplepoint.runtime.bench.load_work import Work

SMALL = Work(2, turns=3, system=10, least=2, most=8, reply=4)
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 5},
}


def test_the_work_is_the_same_each_time() -> None:
    """By its seed; agents have the system prompt in common, and nothing else."""
    one, two = list(SMALL.script(0)), list(SMALL.script(1))

    assert one == list(Work(9, turns=3, system=10, least=2, most=8).script(0))
    assert one != two
    assert SMALL.prompt == Work(1, system=10).prompt != Work(1, system=10, seed=2).prompt
    assert len(one) == 3
    assert all(2 <= len(text.split()) <= 8 for _, text in one[1:])


def test_results_are_mostly_short() -> None:
    """Half of them below twice the least, some near the most."""
    texts = [text for _, text in Work(1, turns=2001).script(0)][1:]
    sizes = sorted(len(text.split()) for text in texts)

    assert 300 < sizes[1000] < 500
    assert sizes[0] >= 200
    assert 3000 < sizes[-1] <= 5000


@pytest.mark.parametrize(
    "wrong", [{"turns": 0}, {"system": 0}, {"least": 9, "most": 8}, {"reply": 0}]
)
def test_work_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    """It is refused by name."""
    with pytest.raises(SettingError, match=next(iter(wrong)) if len(wrong) == 1 else "9 to 8"):
        Work(1, **wrong)


class Fake:
    """Answers each message with its number; the second agent's last request fails."""

    def __init__(self, agent: int) -> None:
        self.agent, self.closed = agent, False

    def ask(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Reply:
        """Three tokens, 0.1 and 0.3 s apart, the first after a second."""
        assert [m["role"] for m in messages[1:3]] == ["user", "assistant"][: len(messages) - 1]
        reply = Reply(0.0, 1.4, [1.0, 1.1, 1.4], "word", 10 * len(messages), 5, 3)
        if self.agent == 1 and len(messages) == 6:
            reply.error = "it broke"
        return reply

    def stop(self) -> None:
        """See `ChatClient.stop`."""

    def close(self) -> None:
        """See `ChatClient.close`."""
        self.closed = True


class Endless:
    """A server that answers when it is stopped, or not at all: the second agent's fails."""

    def __init__(self, agent: int, began: threading.Event) -> None:
        self.agent, self.began = agent, began
        self.asked, self.stopped = 0, threading.Event()

    def ask(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Reply:
        """Wait, or fail as Ctrl-C does."""
        self.asked += 1
        if self.agent == 1:
            assert self.began.wait(30)
            raise KeyboardInterrupt
        self.began.set()
        assert self.stopped.wait(30)
        return Reply(0.0, 1.0)

    def stop(self) -> None:
        """See `ChatClient.stop`."""
        self.stopped.set()

    def close(self) -> None:
        """See `ChatClient.close`."""


def test_an_interrupt_ends_all_agents() -> None:
    """Replies on their way end, pauses too, and nobody asks for more."""
    made: list[Endless] = []
    began = threading.Event()

    def connect() -> Endless:
        made.append(Endless(len(made), began))
        return made[-1]

    with pytest.raises(KeyboardInterrupt):
        measure(Work(2, turns=3, system=10, least=2, most=8, pauses=(3000.0,)), connect)

    assert [client.asked for client in made] == [1, 1]


def test_what_is_counted() -> None:
    """Jobs that ended, requests that failed, latencies of all replies, tokens."""
    made: list[Fake] = []

    def connect() -> Fake:
        made.append(Fake(len(made)))
        return made[-1]

    load = measure(SMALL, connect)

    assert load.jobs_per_hour == pytest.approx(3600 / load.seconds)
    assert load.failures == ["it broke"]
    assert load.quantile("ttft", 0.5) == 1.0
    assert load.quantile("tpot", 0.5) == pytest.approx(0.2)
    assert load.quantile("gap", 1.0) == pytest.approx(0.3)
    assert load.good == 0.0, "a token takes 0.2 s"
    assert load.prompt_tokens == (2 * (20 + 40 + 60), 2 * (15 + 35 + 55))
    assert load.new_tokens == 2 * (60 - 6) - 10
    assert load.early == 5
    assert all(one.closed for one in made)


@pytest.fixture
def answering() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server that answers with what the dictionary says."""
    says: dict[str, Any] = {"status": 200, "pieces": []}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if says.get("key") not in (None, self.headers["authorization"]):
                says["status"] = 401
            self.answer([json.dumps({"data": [{"id": "one"}]}).encode()])

        def do_POST(self) -> None:
            says["asked"] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.answer(says["pieces"])

        def answer(self, pieces: list[bytes]) -> None:
            self.send_response(says["status"])
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", says
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def event(**delta: Any) -> bytes:
    """A chunk of a stream."""
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n\n"


def test_a_stream_is_read(answering: tuple[str, dict[str, Any]]) -> None:
    """In whatever pieces it comes; the role alone is no text, comments are nothing."""
    url, says = answering
    last = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n"
    text = event(role="assistant", content=None) + event(content="one ") + b": ping\n\n"
    text += event(content="two") + event() + last + b"data: [DONE]\n\n"
    says["pieces"] = [text[at : at + 37] for at in range(0, len(text), 37)]

    reply = HttpClient(url, {"model": "m", "seed": 3}).ask([{"role": "user", "content": "x"}], 7)

    assert (reply.error, reply.text, len(reply.times)) == ("", "one two", 2)
    assert (reply.prompt, reply.cached, reply.written) == (9, 5, 3)
    assert says["asked"]["max_tokens"] == 7
    assert (says["asked"]["model"], says["asked"]["seed"]) == ("m", 3)
    assert model_of(url) == "one"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 1000])
def test_all_streams_of_events(
    answering: tuple[str, dict[str, Any]], end: bytes, size: int
) -> None:
    """Lines end in three ways, in halves even, and the space after the colon may be missing."""
    url, says = answering
    text = event(content="one ") + event(content="two") + b"data: [DONE]\n\n"
    text = text.replace(b"data: ", b"data:").replace(b"\n", end)
    says["pieces"] = [text[at : at + size] for at in range(0, len(text), size)]

    reply = HttpClient(url, {}).ask([], 7)

    assert (reply.error, reply.text) == ("", "one two")


def test_a_server_that_counts_no_tokens(answering: tuple[str, dict[str, Any]]) -> None:
    """Each piece is a token then: its time is not 0, and it may be too long to be good."""
    url, says = answering
    says["pieces"] = [event(content="one"), event(content="two"), b"data: [DONE]\n\n"]

    reply = HttpClient(url, {}).ask([], 7)

    assert (reply.error, reply.written) == ("", 2)
    reply.times = [reply.asked, reply.asked + 1.0]
    load = Load(Work(1, turns=1), 1.0, [Job(1.0, [reply])])
    assert reply.tpot_s == pytest.approx(1.0)
    assert (load.good, load.new_tokens) == (0.0, 0)


def test_a_server_with_a_key(answering: tuple[str, dict[str, Any]]) -> None:
    """Its models are asked for with the key; without, what it says is told."""
    url, says = answering
    says["key"] = "Bearer secret"

    assert model_of(url, "secret") == "one"
    with pytest.raises(EngineError, match=r"HTTP 401: .*TRIPLEPOINT_API_KEY"):
        model_of(url)


def test_a_reply_on_its_way_is_ended() -> None:
    """From another thread, though its server says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        client = HttpClient(f"http://127.0.0.1:{silent.getsockname()[1]}", {})
        client.stop()  # nothing is on its way yet
        asking = threads.submit(client.ask, [], 1)
        connection, _ = silent.accept()
        with connection:
            assert connection.recv(1 << 16)
            client.stop()
            assert asking.result(30).error
        client.close()


@pytest.mark.parametrize("url", ["ftp://x", "http://[::1", "http://localhost:abc", "x:99999"])
def test_what_is_no_address(url: str) -> None:
    """It is refused by name."""
    with pytest.raises(SettingError, match="address"):
        HttpClient(url, {})


def test_what_fails(answering: tuple[str, dict[str, Any]]) -> None:
    """A refusal, an error in the midst, a stream without end, and no server."""
    url, says = answering
    client = HttpClient(url, {})
    says["pieces"] = [event(content="one")]
    assert client.ask([], 1).error == "the stream broke off"
    says["pieces"] = [b'data: {"error": {"message": "no room"}}\n\ndata: [DONE]\n\n']
    assert "no room" in client.ask([], 1).error
    says |= {"status": 503, "pieces": [b"loading"]}
    assert client.ask([], 1).error == "HTTP 503: loading"
    assert "ConnectionRefusedError" in HttpClient("http://127.0.0.1:1", {}).ask([], 1).error
    says |= {"status": 200, "pieces": [b'data: {"choices": [3]}\n\n']}
    assert "AttributeError" in client.ask([], 1).error
