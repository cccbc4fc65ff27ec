"""Request IDs: clients and proxies log the same one as this server and its traces.

OpenAI's clients read it in ``x-request-id``, Anthropic's in ``request-id``.
"""

from __future__ import annotations

import json
import re
from secrets import token_hex

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Scope, Send

from .api_error import is_anthropic
from .notes import begin_notes
from .scope import REQUEST_ID

_KNOWN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:=+/-]{0,127}")  # of a client or a proxy


def identified(scope: Scope, send: Send) -> Send:
    """Set the request ID in the scope: the client's own if it is valid, else a new one.

    Returns a `send` that adds it to the response headers, with the notes on the request.
    """
    headers = Headers(scope=scope)
    given = headers.get("x-request-id", "")
    own = given if _KNOWN.fullmatch(given) else f"req_{token_hex(12)}"
    scope[REQUEST_ID] = own
    anthropic, notes = is_anthropic(scope["path"], headers), begin_notes()

    async def send_identified(message: Message) -> None:
        if message["type"] == "http.response.start":
            answered = MutableHeaders(scope=message)
            answered["x-request-id"] = own
            if anthropic:
                answered["request-id"] = own
            if notes:
                answered["warnings"] = json.dumps(notes)  # ASCII, on one line
        await send(message)

    return send_identified


def in_config(request_id: str) -> dict[str, str]:
    """Return the config entry of a trace header for a request ID; empty without one."""
    return {"request_id": request_id} if request_id else {}
