"""Authentication (API keys), and checks of Host and Origin.

A server on loopback is reached by every web page that its user's browser shows: one that names this
machine by a name of its own (DNS rebinding), or one that just posts. So ``Host`` has to be a name
of this machine, and a request with an ``Origin`` has to come from a page of ours.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..settings import ServerSettings, hostname
from .api_error import APIError
from .responses import error_response
from .scope import NAMESPACE

OPEN = frozenset({"/health", "/v1/health", "/"})
"""Paths that need no API key: they show only whether the server is up, and what it is."""

OPERATOR = frozenset({"/metrics", "/status.json", "/slots"})
"""Paths that show the requests of all keys; if there are operator keys, only these open them."""


class Guard:
    """ASGI middleware that checks the API key, ``Host`` and ``Origin`` of each request."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._open = not settings.keys
        keys = (*settings.keys, *settings.operator_keys)
        self._keys = [_digest(key) for key in keys]
        self._namespaces = [settings.key_names.get(key) or _unnamed(key) for key in keys]
        self._operators = {_digest(key) for key in settings.operator_keys}
        self._hosts = {"localhost", settings.host.lower(), socket.gethostname().lower()}
        self._hosts |= {*settings.hosts}
        self._origins = {*settings.origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[NAMESPACE] = self._check(scope)
            except APIError as error:
                await error_response(error, scope)(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> str:
        """Return the namespace of the request's key, "" without one; raise `APIError` to refuse."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        host = headers.get("host", "")
        # Health checks of HTTP/1.0 name no host; browsers, which pages redirect, always do.
        nameless = scope["http_version"] == "1.0" and "host" not in headers
        # A page that was redirected here has no key.
        if self._open and not nameless and not self._known(host):
            name = (hostname(host) or host)[:100]
            raise _denied(
                f"this server does not accept the host name {name!r}; allow it with --allow-host",
                "host_not_allowed",
            )
        origin = headers.get("origin")
        if origin is not None and not self._from_here(origin.lower(), host.lower()):
            raise _denied(
                f"this server does not accept requests from {origin[:100]!r}; allow it with "
                "--allow-origin",
                "origin_not_allowed",
            )
        preflight = method == "OPTIONS" and origin is not None
        operator = path in OPERATOR and bool(self._operators)
        if (operator or not self._open) and path not in OPEN and not preflight:
            return self._check_key(headers, operator=operator)
        return ""

    def _check_key(self, headers: Headers, *, operator: bool) -> str:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            given = headers.get("x-api-key", "")
        mine = _digest(given.strip())
        # All are compared, so that the time does not show which one is near.
        same = [hmac.compare_digest(mine, key) for key in self._keys]
        if not any(same):
            raise APIError(
                "Incorrect API key provided." if given else "No API key was provided.",
                status=401,
                code="invalid_api_key",
                type="authentication_error",
                headers={"WWW-Authenticate": "Bearer"},
            )
        if operator and mine not in self._operators:
            message = "this key cannot see the requests of others; use an operator key"
            raise _denied(message, "operator_only")
        return self._namespaces[same.index(True)]

    def _known(self, host: str) -> bool:
        """Return whether a host name is this machine's; an IP address is, too (no DNS)."""
        name = hostname(host)
        if name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _from_here(self, origin: str, host: str) -> bool:
        return origin in self._origins or (
            urlsplit(origin).scheme in ("http", "https") and origin.partition("://")[2] == host
        )


def _denied(message: str, code: str) -> APIError:
    return APIError(message, status=403, code=code, type="permission_error")


def _unnamed(key: str) -> str:
    """Return the namespace of a key without a name, which does not reveal the key."""
    return "#" + hashlib.sha256(b"namespace" + _digest(key)).hexdigest()[:24]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
