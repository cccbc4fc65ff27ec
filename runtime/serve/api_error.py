"""Errors as clients get them: a status, and an object that says what is wrong and with what."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from ...errors import (
    ContextOverflowError,
    GrammarError,
    ModelError,
    PassCancelledError,
    SettingError,
    TemplateError,
)

log = logging.getLogger("triplepoint.serve")


class APIError(Exception):
    """A request that is refused or has failed.

    Attributes:
        status: of the HTTP response.
        message: what is wrong, for a person.
        param: the parameter that it is about, as a path such as ``messages[2].content``.
        code: a word for programs.
        type: the kind of error, in OpenAI's words.
        headers: of the response.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        type: str = "invalid_request_error",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.param = message, status, param
        self.code, self.type = code, type
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The object that is sent."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def event(self) -> bytes:
        """The same as an event of a stream that has begun already."""
        return b"data: " + json.dumps(self.body()).encode() + b"\n\n"


def busy(message: str, *, status: int = 503, wait_s: float = 1.0) -> APIError:
    """A request that may be sent again later."""
    kind, code = (
        ("rate_limit_error", "rate_limit_exceeded")
        if status == 429
        else ("server_error", "unavailable")
    )
    # Clients of OpenAI's give up where they are to wait for longer than two minutes.
    headers = {"Retry-After": str(min(120, max(1, math.ceil(wait_s))))}
    return APIError(message, status=status, code=code, type=kind, headers=headers)


def too_long(tokens: int, context: int) -> APIError:
    """A prompt that leaves no room for an answer."""
    return APIError(
        f"This model's maximum context length is {context} tokens. However, your messages resulted "
        f"in {tokens} tokens. Please reduce the length of the messages.",
        param="messages",
        code="context_length_exceeded",
    )


def as_api_error(error: BaseException) -> APIError:
    """Any error as clients get it; one that nobody has foreseen is logged whole."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, ContextOverflowError):
        return APIError(str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, TemplateError):
        return APIError(str(error), param="messages")
    if isinstance(error, GrammarError):
        text = str(error).replace("simplify output_type", "simplify it")
        return APIError(text, param="response_format" if "the answer" in text else "tools")
    if isinstance(error, SettingError):
        return APIError(str(error))
    if isinstance(error, PassCancelledError):
        return busy("the request was ended by the server")
    if isinstance(error, ModelError):
        return APIError(str(error), status=500, code="model_error", type="server_error")
    if isinstance(error, MemoryError):
        return busy("the server has too little memory for this request")
    log.error("a request failed: %s", error, exc_info=error)
    return APIError(
        f"internal error: {type(error).__name__}", status=500, code="internal", type="server_error"
    )
