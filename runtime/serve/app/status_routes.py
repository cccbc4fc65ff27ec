"""Status endpoints: ``/health``, ``/v1/models``, ``/ps``, ``/props``, ``/slots``, ``/metrics``."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..http.api_error import busy, by_anthropic
from ..models.loaded_model import LoadedModel
from ..requests.registry import CONTENT_TYPE
from ..requests.service import Service


async def health(request: Request) -> JSONResponse:
    """Return 200 where requests are answered at once, else 503.

    That is while a model is loaded, or where the first one cannot be. The path is open to all:
    where there are keys, it does not say why.
    """
    service: Service = request.app.state.service
    if service.running and service.models.ready:
        return JSONResponse({"status": "ok"})
    message = "Loading model" if service.running else "Shutting down"
    if service.running and (failure := service.models.failure):
        message = "The model could not be loaded"
        message += "" if service.settings.keys else f": {failure}"
    error = {"message": message, "type": "unavailable_error", "param": None, "code": 503}
    return JSONResponse({"error": error}, status_code=503)


async def list_models(request: Request) -> JSONResponse:
    """List the models; for Anthropic's client in its form."""
    service: Service = request.app.state.service
    models = service.models
    found = [models.describe(name) for name in models.names]
    found += [{**models.describe(models.default), "id": name} for name in service.settings.agents]
    if by_anthropic(request.headers):
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]}
        data = [_as_anthropic(one) for one in found]
        return JSONResponse({"data": data, "has_more": False, **ends})
    return JSONResponse({"object": "list", "data": found})


async def show_model(request: Request) -> JSONResponse:
    """Describe one model."""
    service: Service = request.app.state.service
    given = request.path_params["name"].rstrip("/")
    if not given:
        return await list_models(request)
    name, model, _ = service.models.answering(given)
    found = {**service.models.describe(model), "id": name}
    return JSONResponse(_as_anthropic(found) if by_anthropic(request.headers) else found)


def _as_anthropic(model: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a model in Anthropic's form."""
    context = model.get("meta", {}).get("n_ctx")  # known once it is loaded
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": datetime.fromtimestamp(model["created"], UTC).isoformat(),
        "lifecycle": "active",
        "max_input_tokens": context,
        "max_tokens": context,
    }


async def props(request: Request) -> JSONResponse:
    """Return what llama-server's clients want to know of a model and of the server's settings."""
    from .... import __version__

    service: Service = request.app.state.service

    def work(model: LoadedModel) -> dict[str, Any]:
        tokenizer, sampling = model.engine.tokenizer, model.engine.sampling
        tokens = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        return {
            "default_generation_settings": {
                "n_ctx": model.engine.context,
                "params": {name: value for name, value in asdict(sampling).items() if value},
            },
            "total_slots": service.settings.limits.parallel,
            "model_alias": model.name,
            "model_path": Path(service.settings.models[model.name]).name,
            "modalities": {"vision": False, "audio": False},
            "chat_template": tokenizer.chat_template or "",
            **{
                name: "" if token is None else tokenizer.decode([token], special=True)
                for name, token in tokens.items()
            },
            "build_info": f"triplepoint {__version__}",
        }

    name = request.query_params.get("model")
    return JSONResponse(await service.with_model(service.models.check(name), work))


async def slots(request: Request) -> JSONResponse:
    """List the requests that run, in llama-server's form, without what they ask."""
    service: Service = request.app.state.service
    running = [one for one in service.metrics.records() if one.state in ("prefill", "decode")]
    found: list[dict[str, Any]] = [
        {"id": number, "is_processing": False} for number in range(service.settings.limits.parallel)
    ]
    for slot, one in zip(found, running, strict=False):
        slot |= {"is_processing": True, "id_task": one.id, "model": one.model}
        slot |= {"n_ctx": one.context, "state": one.state, "n_decoded": one.tokens}
    if request.query_params.get("fail_on_no_slot") and len(running) >= len(found):
        raise busy("no slot is free", wait_s=service.line.slot_s())
    return JSONResponse(found)


async def lora_adapters(_: Request) -> JSONResponse:
    """List the LoRA adapters of the models: there are none."""
    return JSONResponse([])


def summary(service: Service) -> dict[str, Any]:
    """Return the server state that ``triplepoint ps`` and the status page share."""
    from .... import __version__

    running, waiting = service.load
    return {
        "version": __version__,
        "uptime_s": round(time.time() - service.began, 1),
        "running": running,
        "waiting": waiting,
        "models": service.models.status(),
    }


async def ps(request: Request) -> JSONResponse:
    """Return what ``triplepoint ps`` shows."""
    return JSONResponse({"pid": os.getpid(), **summary(request.app.state.service)})


async def metrics(request: Request) -> Response:
    """Return all metrics in Prometheus' text format."""
    service = request.app.state.service
    return Response(service.metrics.render(service.models), media_type=CONTENT_TYPE)
