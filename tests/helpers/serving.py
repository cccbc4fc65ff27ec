"""A server that runs in a thread of the tests, and a client for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from triplepoint import Engine
from triplepoint.runtime.serve.settings import ServerSettings

SETTINGS = ServerSettings({"nano": "nano"}, port=0, trace="off")
LONG_CHAT = {
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 3000,
    "logit_bias": {"2041": -100, "2043": -100},  # the tokens that end a turn of nano
}
"""A chat request whose answer has all of its tokens, whatever nano would say."""


class Server:
    """A running server; needs the extra `serve`."""

    def __init__(self, settings: ServerSettings, load: Callable[[str], Engine]) -> None:
        import uvicorn

        from triplepoint.runtime.serve.app.application import build_app
        from triplepoint.runtime.serve.app.run import address_of, bound_socket
        from triplepoint.runtime.serve.http.protocol import BoundedProtocol

        self.app = build_app(settings, load)
        bound = bound_socket(settings)
        self.url = address_of(bound)
        config = uvicorn.Config(
            self.app, http=BoundedProtocol, log_config=None, lifespan="on", ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [bound]})
        self._thread.start()
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        self.settings = settings

    @property
    def service(self) -> Any:
        """What its requests share."""
        return self.app.state.service

    def wait(self, path: str = "/health") -> None:
        """Until it is ready."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            try:
                if self.client.get(path).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.02)
        raise AssertionError("the server did not start")

    def chat(self, text: str = "hello", **more: Any) -> httpx.Response:
        """Ask for a short answer."""
        messages = [{"role": "user", "content": text}]
        return self.post("/v1/chat/completions", {"messages": messages, "max_tokens": 8, **more})

    def chat_from(self, origin: str) -> httpx.Response:
        """Ask as a page in a browser does."""
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
        return self.post("/v1/chat/completions", body, Origin=origin)

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """Send JSON."""
        return self.client.post(path, json=body, headers=headers)

    def stream(self, text: str = "hello", **more: Any) -> list[Any]:
        """The events of a short answer; the last one is ``[DONE]``."""
        answer = self.chat(text, stream=True, **more)
        assert answer.status_code == 200, answer.text
        return events(answer.text)

    def idle(self, seconds: float = 20.0) -> None:
        """Until no request is left."""
        until = time.monotonic() + seconds
        while self.service.load != (0, 0):
            assert time.monotonic() < until, "a request did not end"
            time.sleep(0.01)

    def close(self) -> None:
        """End it."""
        self.client.close()
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()


def events(text: str) -> list[Any]:
    """The data of a stream's events; comments are left out."""
    found: list[Any] = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            found.append(data if data == "[DONE]" else json.loads(data))
        else:
            assert not block or block.startswith(":"), block
    return found


def named_events(text: str) -> list[tuple[str, Any]]:
    """The names and data of a stream's events; comments are left out."""
    found: list[tuple[str, Any]] = []
    for block in text.split("\n\n"):
        if block.startswith("event: "):
            name, data = block.removeprefix("event: ").split("\ndata: ")
            found.append((name, json.loads(data)))
            assert found[-1][1]["type"] == name
        else:
            assert not block or block.startswith(":"), block
    return found
