"""A server that speaks OpenAI's streaming format over a real socket, with scripted answers.

Each answer is a list of steps, sent in order: texts and dicts go out as events, numbers are seconds
to wait, bytes go out raw, `DROP` closes the connection at once and `RESET` resets it. In place of a
list an int is an HTTP status that is sent instead, and either of the two comes before any answer.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DROP = object()
RESET = object()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a streamed answer."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def text(*parts: str) -> list[Any]:
    """An answer in pieces, with what the server counted."""
    chunks: list[Any] = [delta(content=part) for part in parts]
    return [*chunks, delta("stop"), usage(20, len(parts)), "[DONE]"]


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    """The chunk with the counts."""
    details = {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"choices": [], "usage": {**counts, "prompt_tokens_details": details}}


def calls(*wanted: tuple[str, Mapping[str, Any] | str]) -> list[Any]:
    """An answer of tool calls, each in several pieces."""
    chunks: list[Any] = []
    for index, (name, arguments) in enumerate(wanted):
        body = arguments if isinstance(arguments, str) else json.dumps(arguments)
        function: dict[str, Any] = {"name": name, "arguments": ""}
        chunks.append(delta(tool_calls=[{"index": index, "id": f"x{index}", "function": function}]))
        for start in range(0, len(body), 7):
            piece = {"index": index, "function": {"arguments": body[start : start + 7]}}
            chunks.append(delta(tool_calls=[piece]))
    return [*chunks, delta("tool_calls"), usage(30, 9, 20), "[DONE]"]


class OpenAIServer(ThreadingHTTPServer):
    """Answers POST /v1/chat/completions from a script, GET /v1/models with one model."""

    daemon_threads = True

    def __init__(self, *answers: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.headers: dict[str, str] = {}
        self.models: Any = {"data": [{"id": "test-model"}]}
        """An answer, an HTTP status, or steps."""
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.gone = threading.Event()
        """Set when a client closed the connection in the middle of an answer."""

    @property
    def url(self) -> str:
        """What a client is given."""
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: OpenAIServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        models = self.server.models
        if isinstance(models, list):
            return self._stream(models)
        self._json(*((models, {}) if isinstance(models, int) else (200, models)))

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.paths.append(self.path)
        self.server.requests.append(json.loads(self.rfile.read(length)))
        self.server.keys.append(self.headers.get("Authorization"))
        answer = self.server.answers.pop(0) if self.server.answers else text("nothing left")
        if isinstance(answer, tuple):
            self._json(*answer)
        elif isinstance(answer, int):
            self._json(answer, {"error": {"message": "busy" if answer == 429 else "refused"}})
        elif answer is RESET:
            self._reset()
        elif answer is not DROP:
            self._stream(answer)

    def _stream(self, steps: list[Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for step in steps:
                if step is DROP:
                    return
                if step is RESET:
                    time.sleep(0.1)  # what was sent has to arrive
                    return self._reset()
                if isinstance(step, int | float):
                    self._sleep(step)
                else:
                    self.wfile.write(step if isinstance(step, bytes) else _event(step))
        except OSError:
            self.server.gone.set()

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        os.close(self.connection.detach())

    def _sleep(self, seconds: float) -> None:
        """Wait, with a comment now and then, as servers send to keep a connection."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.02)
            self.wfile.write(b": ping\n\n")

    def _json(self, status: int, value: Any) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, header in self.server.headers.items():
            self.send_header(name, header)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def _event(step: Any) -> bytes:
    return f"data: {step if isinstance(step, str) else json.dumps(step)}\n\n".encode()


@contextmanager
def openai_server(*answers: Any) -> Iterator[OpenAIServer]:
    """A running server with a script."""
    server = OpenAIServer(*answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
