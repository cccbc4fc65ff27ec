"""An engine that is another server: llama-server, ollama, vLLM, or any that speaks their format."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from ....arguments import check_whole, is_number
from ....errors import EngineError, ModelError, SettingError

if TYPE_CHECKING:
    import ssl

    import httpx

CONTEXT = 32768  # tokens, where nothing is said: no such server tells it in a common way
SILENCE = 600.0  # seconds without a byte; a long prompt on a slow machine takes minutes
CONNECT = 10.0  # seconds to get a connection
TRIES = 4  # times that a request is sent while the server is busy or away


@dataclass(frozen=True)
class RemoteModel:
    """What is known of a model in another server; the same names as of one of ours."""

    name: str
    path: str
    """Address of the server."""
    architecture: str = ""
    quant: str = ""
    parameters: int = 0
    sha256: str = ""
    n_layers: int = 0
    context_length: int = 0


@dataclass(frozen=True)
class RemoteMachine:
    """Where it runs is not known."""

    cpu: str = ""
    cores: int = 0

    def as_dict(self) -> dict[str, Any]:
        """No limits were measured there."""
        return {}


class RemoteEngine:
    """A model behind ``POST {base_url}/chat/completions``, streamed.

        agent = Agent(RemoteEngine("http://localhost:8080/v1"), workspace="notes")

    The agent, its tools, its policy and its traces are the same as with a local engine. What
    only a local engine has is missing: the token ledger, grammars, regimes. Phases are timed
    from outside and marked so (``source == "remote"``).

    Args:
        base_url: address up to and with ``/v1``.
        model: name of the model; by default the first that the server lists.
        api_key: sent as a bearer token; never written to a trace.
        context: tokens that a conversation may hold, as far as is known.
        silence: seconds without a byte after which the server is given up. Such a request is not
            sent again: it would begin from the start.
        tries: times that a request is sent while the server is busy or cannot be reached.

    Raises:
        EngineError: the address is none.
        ModelError: the server cannot be reached, or lists no model.
    """

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        context: int = CONTEXT,
        silence: float = SILENCE,
        tries: int = TRIES,
    ) -> None:
        parts = urlsplit(base_url if isinstance(base_url, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(
                f"not a server URL: {base_url!r}; give one such as http://localhost:8080/v1"
            )
        check_whole(context, "context", SettingError, 1)
        check_whole(tries, "tries", SettingError, 1)
        if not (is_number(silence) and silence > 0):
            raise SettingError(f"silence must be above 0 seconds, not {silence!r}")
        for name, value in (("model", model), ("api_key", api_key)):
            if value is not None and not (isinstance(value, str) and _is_text(value)):
                raise SettingError(f"{name} must be a text")  # a key is not shown
        if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
            raise SettingError("api_key must be printable ASCII: it is sent in a header")
        host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        if parts.username is not None:
            raise EngineError("give a key as api_key, not in the address")
        self.base_url = urlunsplit((parts.scheme, _bracketed(host, parts.hostname), "", "", ""))
        self.base_url += parts.path.rstrip("/")
        self.context = context
        self.silence = silence
        self.tries = tries
        self._key = api_key
        self._certificates: ssl.SSLContext | None = None
        self._local = _is_loopback(parts.hostname)
        self.target, self.threads, self.kv = "remote", 0, ""
        self.machine = RemoteMachine()
        self.model = RemoteModel(model or self._first_model(), self.base_url)

    def client(self, *, timeout: float | None = None) -> httpx.AsyncClient:
        """A client of this server; a proxy of the environment is not used for this machine."""
        import httpx

        headers = {"User-Agent": "triplepoint"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._certificates is None and self.base_url.startswith("https:"):
            self._certificates = httpx.create_ssl_context()  # reading them takes a while
        return httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout or self.silence, connect=CONNECT),
            trust_env=not self._local,
            verify=False if self._certificates is None else self._certificates,  # http: none
        )

    def close(self) -> None:
        """Nothing is held open between two requests."""

    def __enter__(self) -> RemoteEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteEngine({self.base_url!r}, model={self.model.name!r})"

    def _first_model(self) -> str:
        """The first model that the server lists."""
        from .sse_client import fetch_json

        try:
            answer = fetch_json(self, "/models", timeout=CONNECT)
        except EngineError as error:
            raise ModelError(f"{error}; is the server running?") from None
        models = answer.get("data") if isinstance(answer, dict) else None
        for one in models if isinstance(models, list) else ():
            if isinstance(one, dict) and isinstance(one.get("id"), str):
                return one["id"]
        raise ModelError(f"{self.base_url} lists no model; name one (model=…)")


def _is_text(value: str) -> bool:
    """Whether it has no half of a character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _bracketed(host: str, name: str) -> str:
    return host.replace(name, f"[{name}]", 1) if ":" in name else host
