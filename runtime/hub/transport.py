"""Requests to the Hub through `huggingface_hub`: session, metadata, listings.

What it leaves to its caller stands here: failures in a row are counted and end, a server that goes
silent or sends next to nothing is hung up on, and a redirect leads neither from https to http nor
from a public host into a private network. The token goes to the endpoint and to nobody else.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import random
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from ... import __version__
from ...errors import ModelError, TriplepointError
from ..proxies import bare, through_proxy
from .settings import ENDPOINT, HubSettings

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

    from .names import ModelName

MAX_HOPS = 8
_NAME = {"user-agent": f"triplepoint/{__version__}"}
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_QUERY = re.compile(r"(?<=\S)\?[^\s'\"]+")  # of an address: there may be a signature in it
_LONGEST_WAIT = 60.0  # seconds that a server may ask us to wait before it is better to give up
_LARGEST_ANSWER = 64 << 20  # bytes of a listing; one of 100,000 files has some 30 MB


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retry policy of requests.

    Attributes:
        read_s: seconds that the server may be silent, or take to accept a connection.
        window_s, slowest: a body must bring `slowest` bytes a second over each `window_s`.
        tries: failures in a row, without progress between them, after which to give up.
        pause_s: the pause after the first failure; it doubles with each.
    """

    read_s: float = 10.0
    window_s: float = 30.0
    slowest: float = 1024.0
    tries: int = 6
    pause_s: float = 1.0


class TransientError(Exception):
    """A failure that may not recur; `wait_s`: the delay that the server requests."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class RefusedError(Exception):
    """A permanent error of the server, with its `status` and `headers` (str.get)."""

    def __init__(self, response: Any) -> None:
        self.status: int = response.status_code
        self.headers: Any = response.headers
        self.url = bare(str(response.url))
        super().__init__(f"{self.url} answers {self.status}")


class Retrier:
    """A counter of consecutive failures, with pauses between attempts."""

    def __init__(self, what: str, patience: RetryPolicy, note: Callable[[str], None]) -> None:
        self._what, self._patience, self._note = what, patience, note
        self._failed = 0

    def progressed(self) -> None:
        """Reset the count: the last attempt made progress."""
        self._failed = 0

    def failed(self, error: TransientError) -> None:
        """Wait before the next attempt, or raise ModelError if it was the last one."""
        self._failed += 1
        if self._failed >= self._patience.tries:
            raise ModelError(
                f"{self._what}: {error}; {self._failed} attempts failed: "
                "check the network connection, then run this again"
            ) from error
        if error.wait_s > _LONGEST_WAIT:
            message = f"{self._what}: {error}; the server asks for a wait of {error.wait_s:.0f} s"
            raise ModelError(message) from error
        pause = self._patience.pause_s * 2 ** (self._failed - 1) * random.uniform(0.8, 1.2)
        pause = max(min(pause, 30.0), error.wait_s)
        self._note(f"{error}; trying again in {pause:.0f} s")
        time.sleep(pause)


class Hub:
    """A client of the Hub that `settings` name; every method raises as `_converting` does."""

    def __init__(self, settings: HubSettings, patience: RetryPolicy | None = None) -> None:
        self.settings = settings
        self.patience = patience or RetryPolicy(read_s=settings.read_s)
        host = _host_of(settings)
        # It repeats warnings of servers as they are, which could steer a terminal.
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        try:
            import_module("huggingface_hub.constants")  # it reads the environment
        except ValueError as error:
            raise ModelError(
                f"huggingface_hub cannot read its environment: {error}; HF_HUB_DOWNLOAD_TIMEOUT "
                "and HF_HUB_ETAG_TIMEOUT must be whole seconds"
            ) from error
        from huggingface_hub import get_session

        try:
            self._session = get_session
            get_session()
        except OSError as error:  # of certificates: nothing else is opened yet
            raise ModelError(
                f"cannot load the certificates for {settings.address}: {error.strerror or error}; "
                "check SSL_CERT_FILE and SSL_CERT_DIR"
            ) from error
        except (ValueError, ImportError) as error:  # a malformed proxy, say
            raise ModelError(f"cannot reach {settings.address}: {error}") from error
        self._private = is_private(host)

    def model(self, name: ModelName) -> ModelInfo:
        """Return a repository's metadata, with its files."""
        from huggingface_hub.hf_api import ModelInfo

        revision = quote(name.revision, safe="")
        # Not by `HfApi.model_info`: it follows redirects anywhere, and waits for ever.
        answer = self._json(f"/api/models/{name.repo}/revision/{revision}", blobs="true")
        with self._converting(self.settings.endpoint):
            return ModelInfo(**answer)

    def repositories(self, limit: int, **query: str) -> list[str]:
        """List repositories with GGUF files that fit the query, the most downloaded ones first."""
        params = {**query, "filter": "gguf", "sort": "downloads", "limit": str(limit)}
        answer = self._json("/api/models", **params)
        with self._converting(self.settings.endpoint):
            return [str(one["id"]) for one in answer]

    def _json(self, path: str, **query: str) -> Any:
        """Return the endpoint's JSON answer, within limits of size, time and redirects."""
        url = f"{self.settings.endpoint}{path}?{urlencode(query)}"
        body = bytearray()
        with self.open(url, 0) as response:
            if response.status_code != 200:
                raise RefusedError(response)
            for chunk in self.chunks(response, decoded=True):
                body += chunk
                if len(body) > _LARGEST_ANSWER:
                    raise ModelError(
                        f"{bare(url)} answers with more than {_LARGEST_ANSWER >> 20} MiB, which is "
                        "no listing of a Hub"
                    )
        with self._converting(url):
            return json.loads(body)

    def locate(self, repo: str, commit: str, path: str) -> tuple[str, str]:
        """Return the current URL of a file's contents, and its hash as the Hub gives it."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(repo, path, revision=commit, endpoint=self.settings.endpoint)
        token = self.settings.token or False
        with self._converting(url):
            found = get_hf_file_metadata(
                url, token=token, timeout=self.patience.read_s, headers=dict(_NAME)
            )
        return found.location, (found.etag or "").removeprefix("W/").strip('"').lower()

    @contextmanager
    def open(self, url: str, start: int) -> Iterator[Any]:
        """Open a GET request of `url` from byte `start` on; `chunks` reads the body later."""
        headers = {**_NAME, "accept-encoding": "identity"}
        if start:
            headers["range"] = f"bytes={start}-"
        for _ in range(MAX_HOPS):
            self._check(url)
            signed = self._signed(headers) if self.is_endpoint(url) else headers
            with self._converting(url):
                session = self._session()
                request = session.build_request(
                    "GET", url, headers=signed, timeout=self.patience.read_s
                )
                response = session.send(request, stream=True, follow_redirects=False)
            try:
                if response.next_request is None:
                    if response.status_code in _AGAIN:
                        raise _transient(response)
                    yield response
                    return
                url = str(response.next_request.url)
            finally:
                response.close()
        raise ModelError(f"{bare(url)} redirects in a loop: {MAX_HOPS} redirects")

    def chunks(self, response: Any, *, decoded: bool = False) -> Iterator[bytes]:
        """Yield the body in chunks; raise TransientError if it is cut off, stalls or is too slow.

        With `decoded` it may be compressed, though that is not asked for.
        """
        since, count = time.monotonic(), 0
        received = response.iter_bytes() if decoded else response.iter_raw()
        while True:
            with self._converting(str(response.url)):
                chunk = next(received, None)
            if chunk is None:
                return
            yield chunk
            count += len(chunk)
            now = time.monotonic()
            if now - since >= self.patience.window_s:
                if count < self.patience.slowest * (now - since):
                    raise TransientError(f"only {count} bytes arrived in {now - since:.0f} s")
                since, count = now, 0

    def is_endpoint(self, url: str) -> bool:
        """Return whether `url` leads to the endpoint itself."""
        return _origin(url) == _origin(self.settings.endpoint)

    def _signed(self, headers: dict[str, str]) -> dict[str, str]:
        token = self.settings.token
        return {**headers, "authorization": f"Bearer {token}"} if token else headers

    def _check(self, url: str) -> None:
        """Refuse a redirect that leads from https to http, or into a private network."""
        endpoint, found = urlsplit(self.settings.endpoint), urlsplit(url)
        where = f"{endpoint.hostname} redirects to {bare(url)}"
        downgraded = (endpoint.scheme, found.scheme) == ("https", "http")
        if found.scheme not in ("http", "https") or downgraded:
            raise ModelError(f"{where}, which is not https; the redirect was not followed")
        if not self._private and is_private(found.hostname or ""):
            raise ModelError(
                f"{where}, which is on a private network; the redirect was not followed"
            )

    @contextmanager
    def _converting(self, url: str) -> Iterator[None]:
        """Convert the exceptions of `huggingface_hub` and its HTTP client to ours.

        Raises:
            TransientError: it may work the next time.
            RefusedError: the server answered with a permanent error.
            ModelError: no retry can help, or the answer is not that of a Hub.
        """
        from huggingface_hub.errors import HfHubHTTPError

        try:
            yield
        except (TriplepointError, TransientError):
            raise
        except HfHubHTTPError as error:
            if error.response.status_code in _AGAIN:
                raise _transient(error.response) from error
            raise RefusedError(error.response) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = (str(error) or type(error).__name__).splitlines()[0]
            message = f"{self.settings.address} does not answer like a Hub: {text}"
            raise ModelError(message) from error
        except Exception as error:  # of the HTTP library, which is huggingface_hub's own matter
            kind = type(error).__name__
            text = _QUERY.sub("", str(error)) or kind
            if kind == "TooManyRedirects":
                raise ModelError(f"{bare(url)} redirects in a loop: {text}") from error
            if "CERTIFICATE" in text.upper():
                raise ModelError(f"{bare(url)}: its certificate is not trusted: {text}") from error
            why = " does not answer" if "Timeout" in kind else f": {text}"
            raise TransientError(f"{urlsplit(url).hostname}{through_proxy(url)}{why}") from error


def _host_of(settings: HubSettings) -> str:
    """Return the host of the endpoint; ModelError if that is not an address."""
    host = None
    with suppress(ValueError):
        scheme, host, _ = _origin(settings.endpoint)
        host = host if scheme in ("http", "https") else None
    if not host:
        raise ModelError(
            f"the Hub's address {settings.address!r} is not a URL; set HF_ENDPOINT to one such as "
            f"{ENDPOINT}, or unset it"
        )
    return host


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of an address, however they are written."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, parts.port or usual


def is_private(host: str) -> bool:
    """Return whether `host` is, or resolves to, an address outside the public internet."""
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


def _transient(response: Any) -> TransientError:
    value = response.headers.get("retry-after", "")
    wait_s = float(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0.0
    return TransientError(f"{bare(str(response.url))} answers {response.status_code}", wait_s)
