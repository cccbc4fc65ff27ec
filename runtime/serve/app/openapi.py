"""``GET /openapi.json``: the OpenAPI document, from the classes that validate request bodies."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ..http.guard import OPEN, OPERATOR
from ..wire.body import Body
from ..wire.foreign import SYNONYMS

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}


class DescribedRoute(Route):
    """A route with the class of its request body; None: any JSON object."""

    def __init__(self, *args: Any, body: type[Body] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.body = body


async def openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document of this server."""
    from .... import __version__

    settings = request.app.state.service.settings
    routes = [route for route in request.app.routes if isinstance(route, DescribedRoute)]
    paths = {route.path for route in routes} - OPEN if settings.keys else set[str]()
    paths |= OPERATOR if settings.operator_keys else set()
    return JSONResponse(describe(routes, __version__, paths))


def describe(routes: list[DescribedRoute], version: str, keyed: AbstractSet[str]) -> dict[str, Any]:
    """Describe routes in OpenAPI 3.1; `keyed` are the paths that require an API key."""
    bodies = sorted({r.body for r in routes if r.body is not None}, key=lambda one: one.__name__)
    names, schemas = models_json_schema(
        [(one, "validation") for one in bodies], ref_template="#/components/schemas/{model}"
    )
    for schema in schemas.get("$defs", {}).values():
        own = schema.get("properties", {})
        own |= {other: own[n] for other, n in SYNONYMS.items() if n in own and other not in own}
    components: dict[str, Any] = {"schemas": {**schemas.get("$defs", {}), "Error": _ERROR}}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "triplepoint serve", "version": version},
        "paths": {},
        "components": components,
    }
    if keyed:
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    for route in routes:
        path = route.path.replace(":path}", "}")
        for method in sorted((route.methods or set()) - {"HEAD"}):
            schema = {"type": "object"}
            if route.body is not None:
                schema = names[route.body, "validation"]
            made = _operation(route, method, path, schema)
            if route.path in keyed:
                made["security"] = [{name: []} for name in components["securitySchemes"]]
            found["paths"].setdefault(path, {})[method.lower()] = made
    return found


def _operation(
    route: DescribedRoute, method: str, path: str, body: dict[str, Any]
) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    streams = "stream" in getattr(route.body, "model_fields", {})
    streams = streams and not path.endswith("/input_tokens")
    usual = ["application/json", *["text/event-stream"] * streams]
    kinds = {"/": ["text/html"], "/metrics": ["text/plain"]}.get(path, usual)
    summary = (route.endpoint.__doc__ or "").partition("\n")[0]
    made: dict[str, Any] = {
        "summary": summary,
        "operationId": f"{method.lower()}{path.translate(_IDENTIFIER)}",
        "responses": {
            "200": {"description": "The answer", "content": {kind: {} for kind in kinds}},
            "default": {"description": "Why there is none", "content": error},
        },
    }
    if method == "POST":
        content = {"application/json": {"schema": body}}
        made["requestBody"] = {"required": True, "content": content}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _TEXT}
        for name in route.param_convertors
    ]
    queries = _QUERIES.get(path, {}).items()
    found += [{"name": name, "in": "query", "schema": schema} for name, schema in queries]
    if found:
        made["parameters"] = found
    return made


_TEXT = {"type": "string"}
_QUERIES: dict[str, dict[str, Any]] = {
    "/v1/responses/{name}/input_items": {
        "order": {"enum": ["asc", "desc"]},
        "limit": {"type": "integer"},
        "after": _TEXT,
    },
    "/v1/responses/{name}": {"stream": _TEXT},
    "/props": {"model": _TEXT},
    "/slots": {"fail_on_no_slot": _TEXT},
}
_IDENTIFIER = str.maketrans(dict.fromkeys("/-.{}", "_"))
