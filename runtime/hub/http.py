"""GET requests to the Hub: with its token, over its redirects, tried again when it makes sense.

Nothing that a server says is believed further than it must be: redirects are counted, never lead
from a public host into a private network and never from https to http, the token goes to the
endpoint alone, and whoever sends less than `Patience.slowest` is hung up on.
"""

from __future__ import annotations

import ipaddress
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

import httpx

from ... import __version__
from ...errors import ModelError
from .settings import Settings

MAX_HOPS = 8
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait before it is better to give up


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to bear with a server.

    Attributes:
        connect_s, read_s: seconds until a connection stands; that it may be silent.
        window_s, slowest: a body must bring `slowest` bytes a second over each `window_s`.
        tries: failures in a row, without progress between them, that end it.
        pause_s: the pause after the first failure; it doubles with each.
    """

    connect_s: float = 10.0
    read_s: float = 10.0
    window_s: float = 30.0
    slowest: float = 1024.0
    tries: int = 6
    pause_s: float = 1.0


class TransientError(Exception):
    """Something failed that may work the next time; `wait_s` is what the server asks for."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class Attempts:
    """Counts failures in a row and pauses between them."""

    def __init__(self, what: str, patience: Patience, note: Callable[[str], None]) -> None:
        self._what, self._patience, self._note = what, patience, note
        self._failed = 0

    def progressed(self) -> None:
        """Start counting anew: the last attempt brought something."""
        self._failed = 0

    def failed(self, error: TransientError) -> None:
        """Pause before the next attempt, or raise ModelError when it was the last one."""
        self._failed += 1
        if self._failed >= self._patience.tries:
            raise ModelError(f"{self._what}: {error}; {self._failed} attempts failed") from error
        if error.wait_s > _LONGEST_WAIT:
            message = f"{self._what}: {error}; the server asks to wait {error.wait_s:.0f} s"
            raise ModelError(message) from error
        pause = self._patience.pause_s * 2 ** (self._failed - 1) * random.uniform(0.8, 1.2)
        pause = max(min(pause, 30.0), error.wait_s)
        self._note(f"{error}; trying again in {pause:.0f} s")
        time.sleep(pause)


class Reply:
    """An answer that is not a redirect, with its body still to come.

    Attributes:
        status: of HTTP, 200 or above.
        headers: of the last answer.
        first: headers of the first one, by the endpoint itself, before any redirect.
        elsewhere: whether another host than the endpoint gave the last one.
    """

    def __init__(
        self, response: httpx.Response, first: httpx.Headers, patience: Patience, elsewhere: bool
    ) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.first = first
        self.elsewhere = elsewhere
        self._response = response
        self._patience = patience

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes. Raises TransientError when it is cut, stalls or drips."""
        since, count = time.monotonic(), 0
        with _transport(self.url):
            for chunk in self._response.iter_raw():
                yield chunk
                count += len(chunk)
                now = time.monotonic()
                if now - since >= self._patience.window_s:
                    if count < self._patience.slowest * (now - since):
                        raise TransientError(f"only {count} bytes came in {now - since:.0f} s")
                    since, count = now, 0

    def body(self, limit: int) -> bytes:
        """The whole body; ModelError if it has more than `limit` bytes."""
        parts, size = [], 0
        for chunk in self.chunks():
            size += len(chunk)
            if size > limit:
                raise ModelError(f"{self.url} answers with more than {limit} bytes")
            parts.append(chunk)
        return b"".join(parts)

    @property
    def url(self) -> str:
        """Where it came from, without what signs it."""
        return bare(str(self._response.url))


class Client:
    """Asks the Hub that `settings` name."""

    def __init__(self, settings: Settings, patience: Patience | None = None) -> None:
        self.settings = settings
        self.patience = patience or Patience(read_s=settings.read_s)
        headers = {"User-Agent": f"triplepoint/{__version__}", "Accept-Encoding": "identity"}
        timeout = httpx.Timeout(self.patience.read_s, connect=self.patience.connect_s)
        try:
            self._client = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)
            self._private = _is_private(urlsplit(settings.endpoint).hostname or "")
        except (ValueError, httpx.InvalidURL, ImportError) as error:  # a malformed proxy, say
            raise ModelError(f"cannot reach {settings.endpoint}: {error}") from error

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    @contextmanager
    def get(self, path: str, start: int = 0) -> Iterator[Reply]:
        """GET `path` of the endpoint, from byte `start` of its body on.

        Raises:
            TransientError: it may work the next time.
            ModelError: it will not: a redirect that must not be followed, for instance.
        """
        url = self.settings.endpoint + path
        with _transport(bare(url)):
            request = self._client.build_request("GET", url)
        if start:
            request.headers["Range"] = f"bytes={start}-"
        self._sign(request)
        first: httpx.Headers | None = None
        for _ in range(MAX_HOPS):
            with _transport(bare(str(request.url))):
                response = self._client.send(request, stream=True)
            first = first if first is not None else response.headers
            try:
                if response.next_request is None:
                    if response.status_code in _AGAIN:
                        raise TransientError(
                            f"{bare(str(response.url))} answers {response.status_code}",
                            _retry_after(response.headers),
                        )
                    if response.headers.get("content-encoding", "identity") != "identity":
                        where = bare(str(response.url))
                        raise ModelError(f"{where} comes compressed, which was not asked for")
                    yield Reply(response, first, self.patience, not self._is_endpoint(request.url))
                    return
                self._check_hop(request.url, response.next_request.url)
                request = response.next_request
                self._sign(request)
            finally:
                response.close()
        raise ModelError(f"{bare(url)} leads in circles: {MAX_HOPS} redirects")

    def _sign(self, request: httpx.Request) -> None:
        """Add the token if, and only if, this goes to the endpoint itself."""
        request.headers.pop("Authorization", None)
        if self._is_endpoint(request.url) and self.settings.token:
            request.headers["Authorization"] = f"Bearer {self.settings.token}"

    def _is_endpoint(self, url: httpx.URL) -> bool:
        endpoint = httpx.URL(self.settings.endpoint)
        return (url.scheme, url.host, url.port) == (endpoint.scheme, endpoint.host, endpoint.port)

    def _check_hop(self, old: httpx.URL, new: httpx.URL) -> None:
        where = f"{old.host} redirects to {bare(str(new))}"
        if new.scheme not in ("http", "https") or (old.scheme, new.scheme) == ("https", "http"):
            raise ModelError(f"{where}, which is not https; not followed")
        if not self._private and _is_private(new.host):
            raise ModelError(f"{where}, which is in a private network; not followed")


def bare(url: str) -> str:
    """An address without its query: there are signatures in it, and passwords before the host."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


@contextmanager
def _transport(url: str) -> Iterator[None]:
    """What httpx raises, as ours."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError) as error:
        raise ModelError(f"cannot ask {url}: {error}") from error
    except httpx.TimeoutException as error:
        raise TransientError(f"{urlsplit(url).hostname} does not answer") from error
    except httpx.HTTPError as error:
        if "CERTIFICATE" in str(error).upper():
            _fail_certificate(url, error)
        text = str(error) or type(error).__name__
        raise TransientError(f"{urlsplit(url).hostname}: {text}") from error


def _fail_certificate(url: str, error: Exception) -> NoReturn:
    raise ModelError(f"{url}: its certificate is not trusted: {error}") from error


def _retry_after(headers: httpx.Headers) -> float:
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0.0


def _is_private(host: str) -> bool:
    """Whether `host` is an address, or has one, that is not of the public internet."""
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know what we do not
        return False
    return any(not ipaddress.ip_address(str(info[4][0]).partition("%")[0]).is_global
               for info in found)  # fmt: skip
