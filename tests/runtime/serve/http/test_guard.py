"""Who may ask a server, and who may not."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from helpers.serving import Server

from triplepoint.errors import SettingError
from triplepoint.runtime.serve.settings import ServerSettings


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("models.localhost", True),
        ("[::1]:80", True),
        ("192.168.1.5", True),
        ("evil.example", False),
        ("evil.example:11435", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_the_name_of_the_host(server: Server, host: str, allowed: bool) -> None:
    """A page that resolves a name of its own to this machine is refused: DNS rebinding."""
    answer = server.client.get("/v1/models", headers={"Host": host})

    assert answer.status_code == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /health HTTP/1.0", 200),
        ("GET /health HTTP/1.0\r\nHost: evil.example", 403),
        ("GET /health HTTP/1.0\r\nHost:", 403),
        ("GET /health HTTP/1.0\r\nOrigin: https://evil.example", 403),
        ("GET /health HTTP/1.1", 403),
    ],
)
def test_no_name_of_a_host(server: Server, head: str, status: int) -> None:
    """HTTP/1.0 knows none: old load balancers ask for the health without one. Browsers do not."""
    server.wait()
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname, url.port), timeout=10) as connection:
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        answer = connection.recv(1 << 16)

    assert int(answer.split()[1]) == status


def test_a_key_is_enough(start: Any) -> None:
    """Containers and proxies name the server as they like: a redirected page has no key."""
    server = start(keys=("first",))
    named = {"Host": "host.docker.internal:11435"}
    key = {"Authorization": "Bearer first"}

    assert server.client.get("/v1/models", headers=named | key).status_code == 200
    assert server.client.get("/v1/models", headers=named).status_code == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "file://"])
def test_pages_of_others(server: Server, origin: str) -> None:
    """A browser says where a request is from; pages of others get nothing, and no CORS headers."""
    answer = server.chat_from(origin)

    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_pages_of_the_server_itself(server: Server) -> None:
    """What the server shows may ask it."""
    assert server.chat_from(server.url).status_code == 200


def test_pages_that_were_let_in(start: Any) -> None:
    """They get the headers that a browser wants, and nobody else does."""
    server = start(origins=("https://chat.example",))
    server.wait()
    answer = server.chat_from("https://chat.example")

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    asks = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    assert server.client.options("/v1/chat/completions", headers=asks).status_code == 200
    assert server.chat_from("https://evil.example").status_code == 403


def test_what_is_allowed_as_it_is_told(start: Any) -> None:
    """A name with its port, as a message had it, and a page's address as people write it."""
    server = start(hosts=("GPU.lan:11435",), origins=("https://Chat.example/",))
    server.wait()
    refused = server.client.get("/v1/models", headers={"Host": "models.lan:11435"})
    answer = server.chat_from("https://chat.example")

    assert "'models.lan'" in refused.json()["error"]["message"]
    for host in ("gpu.lan", "gpu.lan:11435"):
        assert server.client.get("/v1/models", headers={"Host": host}).status_code == 200
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"


@pytest.mark.parametrize(
    "wrong",
    [
        *({"origins": (one,)} for one in ("*", "chat.example", "https://*.example")),
        *({"hosts": (one,)} for one in ("*", "", "http://gpu.lan")),
    ],
)
def test_what_is_neither_a_name_nor_an_origin(wrong: Any) -> None:
    """It would let nobody in, or everybody."""
    with pytest.raises(SettingError, match="is not a"):
        ServerSettings({"nano": "nano"}, **wrong)


def test_pages_read_why_they_are_refused(start: Any) -> None:
    """A browser shows a page no answer without these headers."""
    server = start(origins=("https://chat.example",), keys=("first",))
    answer = server.chat_from("https://chat.example")

    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"


def test_keys(start: Any) -> None:
    """Each of several keys opens it, as a bearer or as Anthropic's clients send it; /health is
    open."""
    server = start(keys=("first", "second"), hosts=("models.example",))
    server.wait()

    def get(**headers: str) -> httpx.Response:
        return server.client.get("/v1/models", headers=headers)

    for key in ("first", "second"):
        assert get(Authorization=f"Bearer {key}").status_code == 200
        assert get(**{"x-api-key": key}).status_code == 200
    for headers in ({}, {"Authorization": "Bearer firs"}, {"Authorization": "Basic first"}):
        refused = get(**headers)
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "invalid_api_key"
    for path in ("/ps", "/v1/chat/completions", "/nothing"):
        assert server.client.post(path).status_code == 401
    assert get(Host="models.example", Authorization="Bearer first").status_code == 200


@pytest.mark.parametrize("keys", [("first",), ()], ids=["with keys", "open to all"])
def test_the_operators_key(start: Any, keys: tuple[str, ...]) -> None:
    """What tells of everybody's requests is for the operator, whose key opens the rest too."""
    server = start(keys=keys, operator_keys=("mine",))
    server.wait()

    def get(path: str, key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return server.client.get(path, headers=headers).status_code

    for path in ("/metrics", "/status.json", "/slots"):
        assert get(path, "mine") == 200
        assert get(path, "first") == (403 if keys else 401)
        assert get(path, "") == 401
    for path in ("/v1/models", "/ps"):
        assert get(path, "mine") == 200
        assert get(path, "first") == 200
        assert get(path, "") == (401 if keys else 200)


def test_no_way_around_the_operators_key(start: Any) -> None:
    """However the path is written, another key does not see what others ask."""
    server = start(keys=("first",), operator_keys=("mine",))
    host, port = server.url.removeprefix("http://").split(":")
    for path in (
        *("/metrics/", "//metrics", "/%6detrics", "/./metrics", "/x/../metrics", "/METRICS"),
        *("/status.json?x=/health", "/slots#/", "/status%2ejson", "/metrics;x", "/metrics%00"),
    ):
        with socket.create_connection((host, int(port))) as connection:  # as it is written
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first\r\n"
            connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda c=connection: c.recv(65536), b""))

        assert int(answer.split()[1]) in (400, 403, 404, 307), answer[:200]
        assert b"num_requests" not in answer
        assert b"is_processing" not in answer


def test_others_need_a_key() -> None:
    """A server that others can reach without a key does not start."""
    for host in ("0.0.0.0", "192.168.1.5", "::"):
        with pytest.raises(SettingError, match="--api-key"):
            ServerSettings({"nano": "nano"}, host=host)
        ServerSettings({"nano": "nano"}, host=host, keys=("k",))
