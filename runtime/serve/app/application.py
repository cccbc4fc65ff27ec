"""The ASGI application: routes, middleware, error handlers, and the lifespan of the service."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ....errors import SettingError
from ...agent.harness.defaults import checked
from ...engine.embedding import POOLINGS
from ..http.api_error import APIError, as_api_error
from ..http.guard import Guard
from ..http.request_ids import identified
from ..http.responses import error_response
from ..http.scope import REQUEST_ID
from ..models.loading import Load, Models
from ..requests.answer import note_refusal
from ..requests.metrics import Metrics
from ..requests.service import Service
from ..settings import ServerSettings
from ..wire.openai.stored_responses import ResponseStore
from .routes import routes

log = logging.getLogger("triplepoint.serve")

UNSUPPORTED = {
    "rerank": "reranking",
    "reranking": "reranking",
    "audio": "sounds",
    "slots": "saving and erasing of slots",
    "compact": "compaction of conversations",
    "control": "control of running completions",
    "load": "loading of models by requests",
    "unload": "unloading of models by requests",
    "cors-proxy": "proxy",
}
"""Features that are not supported, by a word of the path: 501, as from llama-server."""
ABSENT = {
    "images": "images",
    "moderations": "moderation",
    "files": "files",
    "batches": "batches",
    "assistants": "assistants",
    "threads": "threads",
    "conversations": "conversations",
    "cancel": "responses in the background",
    "lora-adapters": "LoRA adapters",
    "api": "ollama's format",
}
"""Features of other servers that are not here, by a word of the path: named in the 404."""
EXPOSED = ("x-request-id", "request-id", "retry-after", "x-should-retry", "warnings")
"""Response headers that scripts of other origins may read (CORS)."""
LOOK_S = 5.0  # between looks for models that are idle, and for files that changed


class Application(Starlette):
    """A Starlette application that puts the request ID into every response, errors included."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] == "http":
            send = identified(scope, send)
        await super().__call__(scope, receive, send)


def build_app(
    settings: ServerSettings, load: Load, hopeless: Callable[[BaseException], None] | None = None
) -> Starlette:
    """Build the application; its `state.service` is set while its lifespan runs.

    Args:
        settings, load: see `Models`.
        hopeless: called at startup with the first error, if no model can be loaded.

    Raises:
        SettingError: a setting is invalid.
    """

    _check(settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        counts = Metrics()
        models = Models(settings, load, counts)
        app.state.service = service = Service(settings, models, counts)
        limits = settings.limits
        app.state.responses = responses = ResponseStore(
            limits.responses, limits.response_bytes, limits.response_age_s
        )
        # The first model is loaded while the first requests wait for it.
        args = (models, hopeless)
        threading.Thread(target=_load_first, args=args, name="load", daemon=True).start()
        looking = asyncio.create_task(_let_go_idle(models))
        try:
            yield
        finally:
            looking.cancel()
            responses.clear()
            await asyncio.to_thread(service.close)

    middleware = [Middleware(Guard, settings=settings)]
    if settings.origins:  # around all others: a page reads why it is refused, too
        allowed = {"allow_origins": settings.origins, "allow_methods": ["*"]}
        allowed["expose_headers"] = EXPOSED
        middleware.insert(0, Middleware(CORSMiddleware, **allowed, allow_headers=["*"]))
    return Application(
        routes=routes(),
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={
            APIError: _api_error,
            HTTPException: _http_exception,
            ClientDisconnect: _gone,
            Exception: _any_error,
        },
    )


def _check(settings: ServerSettings) -> None:
    """Raise `SettingError` for an unknown pooling or invalid harness settings of agents."""
    if settings.pooling is not None and settings.pooling not in POOLINGS:
        known = ", ".join(POOLINGS)
        raise SettingError(f"pooling must be one of {known}, not {settings.pooling!r}")
    given = settings.agent_options.get("harness")
    if isinstance(given, Mapping):
        checked(given)


def _load_first(models: Models, hopeless: Callable[[BaseException], None] | None) -> None:
    """Load the default model, or the next one that loads; call `hopeless` if none does."""
    causes: list[BaseException | None] = []
    for name in dict.fromkeys([models.default, *models.names]):
        try:
            with models.use(name):
                return
        except APIError as error:  # it is logged, and shows in ps
            causes.append(error.__cause__)
    if hopeless is not None and (first := causes[0]) and all(causes):
        hopeless(first)


async def _let_go_idle(models: Models) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        for look in (models.let_go_idle, models.reload_changed):
            try:
                await asyncio.to_thread(look)
            except Exception:  # of one model; later looks are at all of them
                log.exception("looking after the models failed")


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, APIError)
    await note_refusal(request.app.state.service, request.scope, error)
    return error_response(as_api_error(error), request.scope)


async def _http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    path, status, message = request.url.path, error.status_code, error.detail
    code, kind, headers = None, "invalid_request_error", dict(error.headers or {})
    words = path.split("/")
    what = next((UNSUPPORTED[word] for word in words if word in UNSUPPORTED), None)
    if what is not None and request.method in ("POST", "PUT"):
        # No client asks again by itself after this.
        status, headers = 501, {"x-should-retry": "false"}
        message, code = f"this server has no {what}: {path[:200]}", "not_supported"
        kind = "not_supported_error"
    elif status == 404:
        message, code = f"no such path: {path[:200]}", "not_found"
        if absent := next((ABSENT[word] for word in words if word in ABSENT), what):
            message += f": this server has no {absent}"
    elif status == 405:
        message = f"{path[:200]} does not accept {request.method}"
    refused = APIError(message, status=status, code=code, type=kind, headers=headers)
    return error_response(refused, request.scope)


async def _gone(_: Request, __: Exception) -> Response:
    """Answer a client that disconnected before its request was complete; nobody reads this."""
    return Response(status_code=400)


async def _any_error(request: Request, error: Exception) -> JSONResponse:
    return error_response(as_api_error(error, request.scope[REQUEST_ID]), request.scope)
