"""A lightweight client of OpenAI's chat API, since it runs on the machine under test.

The standard library's connections, and events that are read as bytes.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from ...errors import EngineError, SettingError
from ..sse import DONE, EventReader

_BROKEN = (OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
SILENCE_S = 600.0  # after which a server is given up


@dataclass(slots=True)
class Reply:
    """The result of one request."""

    asked: float
    ended: float = 0.0
    """When the request began and ended, by `time.perf_counter`."""
    times: list[float] = field(default_factory=list)
    """Arrival times of the pieces of text or of tool calls."""
    text: str = ""
    """The whole text."""
    prompt: int = 0
    cached: int = 0
    written: int = 0
    """Prompt, cached and output tokens, by the usage of the server; without it, output pieces."""
    finish: str = ""
    """The finish reason."""
    error: str = ""
    """The error; empty: none."""

    @property
    def ttft_s(self) -> float:
        """Time to first token: seconds to the first piece."""
        return self.times[0] - self.asked if self.times else self.ended - self.asked

    @property
    def tpot_s(self) -> float:
        """Mean seconds of an output token after the first."""
        if not self.times or self.written < 2:
            return 0.0
        return (self.times[-1] - self.times[0]) / (self.written - 1)


class ChatClient(Protocol):
    """The protocol of clients that answer an agent's messages."""

    def ask(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Reply:
        """Send the messages; return a reply of at most `max_tokens` tokens."""
        ...

    def stop(self) -> None:
        """Cancel the current reply, from another thread."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


class HttpClient:
    """One agent's requests, each over a connection of its own.

    Args:
        url: of the server, with or without ``/v1``.
        options: of every request besides messages and tokens.
    """

    def __init__(self, url: str, options: Mapping[str, Any], key: str | None = None) -> None:
        try:
            parts = urlsplit(url if "//" in url else f"http://{url}")
            port = parts.port or 80
        except ValueError:  # half of an IPv6 address, or a port that is none
            parts, port = urlsplit(""), 0
        if parts.scheme != "http" or not parts.hostname:
            raise SettingError(f"{url!r} is not the address of a server, such as http://HOST:PORT")
        path = parts.path.rstrip("/").removesuffix("/v1")
        self._path, self._options = f"{path}/v1/chat/completions", dict(options)
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=SILENCE_S)
        self._socket: socket.socket | None = None

    def ask(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Reply:
        """Request a reply: see `ChatClient.ask`."""
        body = {
            "messages": list(messages),
            "max_tokens": max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._options,
        }
        data = json.dumps(body).encode()
        reply = Reply(time.perf_counter())
        try:
            self._connection.connect()
            self._socket = self._connection.sock
            self._connection.request("POST", self._path, data, self._headers)
            self._read(self._connection.getresponse(), reply)
        except (*_BROKEN, AttributeError) as error:
            reply.error = reply.error or f"{type(error).__name__}: {error}"
        finally:
            self._connection.close()  # some servers end it after a stream, and say so too late
        reply.ended = time.perf_counter()
        return reply

    def _read(self, answer: http.client.HTTPResponse, reply: Reply) -> None:
        if answer.status != 200:
            message = answer.read().decode("utf-8", "replace")
            reply.error = f"HTTP {answer.status}: {message[:200]}"
            return
        ended = False
        reader = EventReader()
        while data := answer.read1(1 << 16):
            now = time.perf_counter()
            for event in reader.feed(data):
                if event == DONE:
                    ended = True
                elif isinstance(event, dict):
                    _take(event, reply, now)
        reply.written = reply.written or len(reply.times)
        if not ended and not reply.error:
            reply.error = "the stream broke off"

    def stop(self) -> None:
        """Cancel the reply: see `ChatClient.stop`."""
        if self._socket is not None:
            with suppress(OSError):  # it was closed already
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection: see `ChatClient.close`."""
        self._connection.close()


def _take(chunk: dict[str, Any], reply: Reply, now: float) -> None:
    """Process one event of a stream."""
    if "error" in chunk:
        reply.error = str(chunk["error"])[:200]
    for choice in chunk.get("choices", ()):
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        if text or delta.get("reasoning_content") or delta.get("tool_calls"):
            reply.times.append(now)
            reply.text += text
        reply.finish = choice.get("finish_reason") or reply.finish
    if usage := chunk.get("usage"):
        reply.prompt, reply.written = usage["prompt_tokens"], usage["completion_tokens"]
        details = usage.get("prompt_tokens_details") or {}
        reply.cached = details.get("cached_tokens") or reply.cached
    if timings := chunk.get("timings"):
        reply.cached = timings.get("cache_n", reply.cached)


def model_of(url: str, key: str | None = None) -> str:
    """Return the first model that a server lists.

    Raises:
        EngineError: it cannot be reached, or lists none.
    """
    client = HttpClient(url, {}, key)
    connection = client._connection
    try:
        path = client._path.replace("chat/completions", "models")
        connection.request("GET", path, headers=client._headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            why = f"HTTP {answer.status}: {body.decode('utf-8', 'replace')[:200]}"
            if answer.status in (401, 403):
                why += "; TRIPLEPOINT_API_KEY holds the key"
            raise EngineError(f"{url} does not list its models: {why}")
        return str(json.loads(body)["data"][0]["id"])
    except _BROKEN as error:
        raise EngineError(f"no server with a model answers at {url}: {error}") from None
    finally:
        client.close()
