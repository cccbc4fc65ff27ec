"""A server that speaks OpenAI's wire format: its address, its API key, and HTTP clients."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from ...arguments import is_number
from ...errors import EngineError, SettingError

if TYPE_CHECKING:
    import ssl

    import httpx

SILENCE = 600.0  # seconds without a byte; a long prompt on a slow machine takes minutes
CONNECT = 10.0  # seconds to get a connection


class Server:
    """A server to send requests to.

    Args:
        base_url: address up to and with ``/v1``.
        api_key: sent as a bearer token.
        silence: seconds without a byte after which the server is given up.

    Attributes:
        url: the address, without a query and slashes at its end.
        is_local: whether it is this machine, which no proxy of the environment is used for.

    Raises:
        SettingError: the address is none, the key cannot be sent, or a number makes no sense.
        EngineError: a key is in the address.
    """

    def __init__(self, base_url: str, api_key: str | None, silence: float) -> None:
        try:
            parts = urlsplit(base_url if isinstance(base_url, str) else "")
            name, port = parts.hostname, parts.port
        except ValueError:  # of a port, or a bracket
            parts, name, port = urlsplit(""), None, None
        if parts.scheme not in ("http", "https") or not name:
            raise SettingError(
                f"not a server URL: {base_url!r}; give one such as http://localhost:8080/v1"
            )
        if not (is_number(silence) and silence > 0):
            raise SettingError(f"silence must be above 0 seconds, not {silence!r}")
        if api_key is not None and not (isinstance(api_key, str) and _is_plain(api_key)):
            # A key is not shown.
            raise SettingError(
                "api_key must be printable ASCII, not empty, without spaces around it: it is sent "
                "in a header. Leave it out (None) where the server wants none"
            )
        host = f"[{name}]" if ":" in name else name
        host = host if port is None else f"{host}:{port}"
        if parts.username is not None:
            raise EngineError("give the key as api_key, not in the URL")
        self.url = urlunsplit((parts.scheme, host, "", "", ""))
        self.url += parts.path.rstrip("/")
        self._query = f"?{parts.query}" if parts.query else ""
        _check_client_takes(self.address("/chat/completions"))
        self.silence = silence
        self._key = api_key
        self._certificates: ssl.SSLContext | None = None
        self.is_local = _is_loopback(name)

    def address(self, path: str) -> str:
        """Return the URL of an API path; a query of the base URL, such as a version, is kept."""
        return f"{self.url}{path}{self._query}"

    def client(self, *, timeout: float | None = None) -> httpx.AsyncClient:
        """Return an HTTP client of this server; local addresses bypass a proxy."""
        import httpx

        headers = {"User-Agent": "triplepoint"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._certificates is None and self.url.startswith("https:"):
            try:
                self._certificates = httpx.create_ssl_context()  # reading them takes a while
            except OSError as error:
                raise SettingError(
                    "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: "
                    f"{error}"
                ) from None
        try:
            return httpx.AsyncClient(
                headers=headers,
                timeout=httpx.Timeout(timeout or self.silence, connect=CONNECT),
                trust_env=not self.is_local,
                verify=False if self._certificates is None else self._certificates,  # http: none
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise SettingError(
                f"the environment's proxy (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY) cannot be "
                f"used for {self.url}: {error}"
            ) from None


def _check_client_takes(address: str) -> None:
    """Check what only the client rejects: invalid characters, host names, lengths.

    Raises:
        SettingError: it does not take the address.
    """
    import httpx

    try:
        _ = httpx.URL(address).host
    except (ValueError, httpx.InvalidURL) as error:
        shown = address if len(address) <= 100 else f"{address[:100]}…"
        raise SettingError(f"not a server URL: {shown!r}: {error}") from None


def _is_plain(text: str) -> bool:
    """Return whether a header accepts the value: not empty, and no space around it."""
    return text.isascii() and text.isprintable() and text.strip() == text != ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
