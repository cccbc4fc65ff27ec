"""JSON responses: from bytes that are JSON already, and for errors in any wire format."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from .api_error import APIError, by_anthropic
from .scope import BODY, REQUEST_ID


class MadeJSON(Response):
    """A response whose content is JSON bytes already."""

    media_type = "application/json"


def error_response(error: APIError, scope: Scope) -> JSONResponse:
    """Return the HTTP response for an error, in the wire format of the request."""
    headers = Headers(scope=scope)
    body = error.body_at(scope["path"], anthropic=by_anthropic(headers))
    if body.get("type") == "error":  # Anthropic's form
        body["request_id"] = scope.get(REQUEST_ID)
    # A client that was not invited (100 Continue) may never send the body.
    unread = "expect" in headers and BODY not in scope
    closing = {"connection": "close"} if unread else {}
    return JSONResponse(body, status_code=error.status, headers={**error.headers, **closing})
