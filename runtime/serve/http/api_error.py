"""Errors as clients get them: an HTTP status, and an error object in the wire format."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from ....errors import (
    ContextOverflowError,
    GrammarError,
    ModelError,
    PassCancelledError,
    SettingError,
    TemplateError,
)

log = logging.getLogger("triplepoint.serve")

_RESPONSES = {
    "messages": "input",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "chat_template_kwargs.reasoning_effort": "reasoning.effort",
}
"""Parameter names in the Responses format, where they differ from the chat format."""
_MESSAGES = {"response_format": "output_config.format"}
_ANTHROPIC_PATH = "/v1/messages"
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


@dataclass(eq=False, repr=False)
class APIError(Exception):
    """A request that is refused or has failed."""

    message: str
    """Message for people."""
    _: KW_ONLY
    status: int = 400
    """Status of the HTTP response."""
    param: str | None = None
    """Parameter at fault, as a path such as ``messages[2].content``."""
    code: str | None = None
    """Machine-readable error code."""
    type: str = "invalid_request_error"
    """Type of the error, in OpenAI's vocabulary."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers of the HTTP response."""
    overflow: tuple[int, int] | None = None
    """Tokens of the prompt and of the context, where the prompt is too long."""
    details: Mapping[str, Any] | None = None
    """Field ``details`` of the error object, in Anthropic's format only."""

    def body(self) -> dict[str, Any]:
        """Return the error object in OpenAI's format."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        if self.overflow is not None:  # as llama-server says it
            error["n_prompt_tokens"], error["n_ctx"] = self.overflow
        return {"error": error}

    def body_at(self, path: str, *, anthropic: bool = False) -> dict[str, Any]:
        """Return the error object in the wire format of a path, with its parameter names.

        Args:
            path: of the request.
            anthropic: whether to use Anthropic's format whatever the path.
        """
        error = self.body()["error"]
        if path.startswith(("/v1/responses", "/responses")):
            error["param"] = _RESPONSES.get(self.param or "", self.param)
            return {"error": error}
        if not (anthropic or path.startswith(_ANTHROPIC_PATH)):
            return {"error": error}
        error["type"] = _ANTHROPIC.get(self.status, "invalid_request_error")
        error["param"] = _MESSAGES.get(self.param or "", self.param)
        if self.overflow is not None:  # Claude Code looks for these words
            tokens, context = self.overflow
            error["message"] = f"prompt is too long: {tokens} tokens > {context} maximum"
        if self.details is not None:
            error["details"] = self.details
        return {"type": "error", "error": error}

    def event(self) -> bytes:
        """Return the error object as a server-sent event, for a stream that has already begun."""
        return b"data: " + json.dumps(self.body()).encode() + b"\n\n"


def by_anthropic(headers: Mapping[str, str]) -> bool:
    """Return whether Anthropic's client sent the request: it shares some paths with OpenAI's."""
    return "anthropic-version" in headers


def is_anthropic(path: str, headers: Mapping[str, str]) -> bool:
    """Return whether a request is in Anthropic's format."""
    return path.startswith(_ANTHROPIC_PATH) or by_anthropic(headers)


def unsupported(param: str, where: str = "by this server") -> APIError:
    """Return the error for a parameter that is not supported."""
    message = f"Unsupported parameter: '{param}' is not supported {where}."
    return APIError(message, param=param, code="unsupported_parameter")


def busy(
    message: str,
    *,
    status: int = 503,
    wait_s: float = 1.0,
    param: str | None = None,
    code: str = "unavailable",
) -> APIError:
    """Return the error for a request that may be retried after `wait_s`; 429: a rate limit."""
    kind = "server_error"
    if status == 429:
        kind, code = "rate_limit_error", "rate_limit_exceeded"
    # Clients of OpenAI's give up where they are to wait for longer than two minutes.
    headers = {"Retry-After": str(min(120, max(1, math.ceil(wait_s))))}
    return APIError(message, status=status, param=param, code=code, type=kind, headers=headers)


def too_long(
    tokens: int, context: int, param: str = "messages", *, minimum: bool = False
) -> APIError:
    """Return the error for a prompt that leaves no room for an answer in the context.

    litellm matches the beginning of the message, LangChain the code, and in the message too:
    openai-python shows no more of an error's body.
    """
    return APIError(
        f"This model's maximum context length is {context} tokens. However, your messages resulted "
        f"in {'at least ' * minimum}{tokens} tokens. Please reduce the length of the messages. "
        "(context_length_exceeded)",
        param=param,
        code="context_length_exceeded",
        type="exceed_context_size_error",
        overflow=(tokens, context),
    )


def as_api_error(error: BaseException, request_id: str = "") -> APIError:
    """Convert an exception to an `APIError`; an unforeseen one is logged with its traceback."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, ContextOverflowError):
        if error.memory is not None:
            return too_long(*error.memory)
        message = f"{error} (context_length_exceeded)"
        return APIError(message, param="messages", code="context_length_exceeded")
    if isinstance(error, TemplateError):
        # No request can give another one.
        return APIError(str(error).partition("; another template")[0], param="messages")
    if isinstance(error, GrammarError):
        text = str(error).replace("simplify output_type", "simplify it")
        held = "grammar" if "GBNF" in text else "response_format" if "the answer" in text else ""
        return APIError(text, param=held or "tools")
    if isinstance(error, SettingError):
        return APIError(str(error))
    if isinstance(error, PassCancelledError):
        return busy("the server stopped the request")
    if isinstance(error, ModelError):  # its file was changed in place: it is loaded anew soon
        return busy(str(error), wait_s=10, code="model_error")
    if isinstance(error, MemoryError):
        return busy("the server has too little memory for this request")
    of_it = f" {request_id}" if request_id else ""
    log.error("a request%s failed: %s", of_it, error, exc_info=error)
    return APIError(
        f"internal error: {type(error).__name__}", status=500, code="internal", type="server_error"
    )
