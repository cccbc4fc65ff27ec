"""An engine on another server: llama-server, ollama, vLLM, or any with their wire format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arguments import Closing, check_whole, without_surrogates
from ...errors import EngineError, ModelError, SettingError
from ...traces.records import ModelRecord
from .server import CONNECT, SILENCE, Server

CONTEXT = 32768  # tokens, the default: servers have no common way to report it
TRIES = 4  # times that a request is sent while the server is busy or away


@dataclass(frozen=True)
class RemoteMachine:
    """The server's machine, of which nothing is known."""

    cpu: str = ""
    cores: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return no limits: none were measured there."""
        return {}


class RemoteEngine(Closing):
    """A model behind ``POST {base_url}/chat/completions``, streamed.

        agent = Agent(RemoteEngine("http://localhost:8080/v1"), workspace="notes")

    The agent, its tools, policy and traces work as with a local engine. The token ledger, grammars
    and regimes need a local engine and are missing. Phases are timed from outside and marked
    (``source == "remote"``).

    Args:
        base_url: URL up to and including ``/v1``.
        model: name of the model; default: the first one that the server lists.
        api_key: sent as a bearer token; never written to a trace.
        context: maximum tokens of a conversation, if known.
        silence: give up after so many seconds without a byte. Such a request is not repeated,
            because it would start over.
        tries: attempts to send a request while the server is busy or unreachable.

    Raises:
        EngineError: base_url is not a URL.
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
        self.server = Server(base_url, api_key, silence)
        self.base_url = self.server.url
        if not (model is None or (isinstance(model, str) and without_surrogates(model) == model)):
            raise SettingError("model must be a string")
        check_whole(context, "context", SettingError, 1)
        check_whole(tries, "tries", SettingError, 1)
        self.context = context
        self.tries = tries
        self.refused: set[str] = set()  # parameters that the server has refused
        self.target, self.threads, self.kv = "remote", 0, ""
        self.machine = RemoteMachine()
        self.model = ModelRecord(name=model or self._first_model(), path=self.base_url)

    def close(self) -> None:
        """Do nothing: no connection outlives a request."""

    def __repr__(self) -> str:
        return f"RemoteEngine({self.base_url!r}, model={self.model.name!r})"

    def _first_model(self) -> str:
        """Return the first model that the server lists."""
        from .exchange import BusyError, KeyRefusedError, fetch_json

        try:
            answer = fetch_json(self.server, "/models", timeout=CONNECT)
        except SettingError:
            raise
        except BusyError as error:
            raise ModelError(f"{error}; is the server running?") from None
        except KeyRefusedError as error:
            raise ModelError(str(error)) from None
        except EngineError as error:
            raise ModelError(
                f"{error}. The address must go up to /v1; name the model (model=…) where the "
                "server has no list"
            ) from None
        models = answer.get("data") if isinstance(answer, dict) else None
        for one in models if isinstance(models, list) else ():
            name = one.get("id") if isinstance(one, dict) else None
            if isinstance(name, str) and without_surrogates(name) == name:
                return name
        raise ModelError(f"{self.base_url} lists no model; name one (model=…)")
