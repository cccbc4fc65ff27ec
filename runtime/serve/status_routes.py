"""What a server says of itself: ``/health``, ``/v1/models``, ``/ps``."""

from __future__ import annotations

import os
import time

from starlette.requests import Request
from starlette.responses import JSONResponse

from .service import Service


async def health(request: Request) -> JSONResponse:
    """Whether requests are answered at once: 503 while a model is loaded."""
    service: Service = request.app.state.service
    if service.running and service.models.ready:
        return JSONResponse({"status": "ok"})
    message = "Loading model" if service.running else "Shutting down"
    error = {"message": message, "type": "unavailable_error", "param": None, "code": 503}
    return JSONResponse({"error": error}, status_code=503)


async def list_models(request: Request) -> JSONResponse:
    """The models that there are."""
    service: Service = request.app.state.service
    agents = [
        {**service.models.describe(service.models.names[0]), "id": name}
        for name in service.settings.agents
    ]
    return JSONResponse({"object": "list", "data": [*service.models.listing(), *agents]})


async def show_model(request: Request) -> JSONResponse:
    """One of them."""
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if name in service.settings.agents:
        return JSONResponse({**service.models.describe(service.models.names[0]), "id": name})
    return JSONResponse(service.models.describe(service.models.check(name)))


async def ps(request: Request) -> JSONResponse:
    """What ``triplepoint ps`` shows."""
    from ... import __version__

    service: Service = request.app.state.service
    running, waiting = service.load
    return JSONResponse(
        {
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(time.time() - service.began, 1),
            "running": running,
            "waiting": waiting,
            "models": service.models.status(),
        }
    )
