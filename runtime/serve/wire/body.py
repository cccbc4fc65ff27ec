"""Request bodies: read, with foreign parameters translated, and validated."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import anyio.to_thread
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, from_json
from starlette.requests import Request

from ..http.api_error import APIError, unsupported
from ..http.scope import BODY
from ..settings import Limits
from .foreign import translated
from .tools import check_turns, without_halves

B = TypeVar("B", bound="Body")
MAX_ERRORS = 1000  # in a body, of which the first is reported
LARGE = 64 << 10  # bytes of a body: a larger one is checked in a thread, while others are served


def _failing_fast(schema: Any) -> Any:
    """Return a pydantic schema whose lists stop validating at their first error."""
    if isinstance(schema, list):
        return [_failing_fast(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _failing_fast(item) for name, item in schema.items() if name != "metadata"}
    if made.get("type") == "list":
        made["fail_fast"] = True
    return schema | made


class WireModel(BaseModel):
    """The base of parts of a request: null counts as not given, and lists stop at an error."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if item is not None}

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Stop lists at their first error: an error takes more memory than the item in error."""
        return _failing_fast(handler(source))

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Allow null in the JSON schema of each optional property."""
        found = handler(core_schema)
        made = handler.resolve_ref_schema(found)
        properties, needed = made.get("properties", {}), made.get("required", ())
        for name, part in properties.items():
            if name not in needed:
                properties[name] = _or_null(part)
        return found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema that also takes null, unless it has a constant that selects a kind."""
    about = {name: schema[name] for name in ("title", "description", "default") if name in schema}
    rest = {name: item for name, item in schema.items() if name not in about}
    parts = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    if not rest or "const" in rest or {"type": "null"} in parts:
        return schema
    return {"anyOf": [*parts, {"type": "null"}], **about}


class Body(WireModel):
    """The base of request bodies: types are strict, and unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    turns: ClassVar[str] = ""
    """Name of the parameter that holds a conversation, whose length the server limits."""

    @classmethod
    def check_headers(cls, headers: Mapping[str, str]) -> None:
        """Raise `APIError` for headers that the format does not accept, before the body is read."""

    @property
    def fields_set(self) -> set[str]:
        """Names of the parameters that differ from their defaults, which clients may write out."""
        usual = {
            name: field.get_default(call_default_factory=True)
            for name, field in type(self).model_fields.items()
        }
        return {name for name in self.model_fields_set if getattr(self, name) != usual[name]}


@functools.cache
def _names(kind: type[Body]) -> set[str]:
    """Return the names of all parameters that a body may have."""
    return {*kind.model_json_schema()["properties"]}


async def read_body(request: Request, kind: type[B]) -> B:
    """Read and check the body of a request.

    Raises:
        APIError: it is too large, no JSON, or invalid; names the parameter.
    """
    kind.check_headers(request.headers)
    limits: Limits = request.app.state.service.settings.limits
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise APIError(
            f"the request's body must not be compressed, but its encoding is {coding:.50}",
            status=415,
            param="content-encoding",
            code="unsupported_encoding",
        )
    too_large = APIError(
        f"the request is larger than {limits.body:,} bytes", status=413, code="request_too_large"
    )
    if int(request.headers.get("content-length", 0)) > limits.body:
        raise too_large  # before the client is invited to send it
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > limits.body:
            raise too_large
    request.scope[BODY] = bytes(data)
    try:
        value = from_json(bytes(data), allow_inf_nan=False)
    except ValueError as error:
        try:
            whole = without_halves(data.decode("utf-8", "surrogatepass")).encode()
            value = from_json(whole, allow_inf_nan=False)
        except (ValueError, RecursionError):
            message = f"the request's body is not JSON: {error}"
            raise APIError(message, code="invalid_json") from None
        request.scope[BODY] = whole
    if not isinstance(value, dict):
        raise APIError("the request's body must be a JSON object", code="invalid_json")
    value = translated(value, _names(kind))
    check_turns(value.get(kind.turns), kind.turns, limits)
    if len(data) <= LARGE:
        return checked(kind, value)
    return await anyio.to_thread.run_sync(checked, kind, value)


def checked(kind: type[B], value: Mapping[str, Any]) -> B:
    """Validate the JSON of a body.

    Raises:
        APIError: it is invalid; names the parameter.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        if (count := error.error_count()) > MAX_ERRORS:
            raise APIError(
                f"{count:,} parts of the request are unsupported or invalid",
                code="invalid_value",
            ) from None
        raise _refusal(error.errors(include_url=False), value) from None


def _refusal(errors: Sequence[ErrorDetails], value: Any) -> APIError:
    # Of a union, each member has errors: those of the one that was meant are found deeper.
    first = _path(errors[0], value)
    near = [error for error in errors if _path(error, value).startswith(first)]
    found = max(near, key=lambda error: len(error["loc"]))
    param = _path(found, value)
    if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
        return unsupported(param)
    if found["type"] == "missing":
        message = f"Missing required parameter: '{param}'."
        return APIError(message, param=param, code="missing_required_parameter")
    what = found["msg"].removeprefix("Value error, ")
    return APIError(f"Invalid '{param}': {what}.", param=param, code="invalid_value")


def _path(found: ErrorDetails, value: Any) -> str:
    """Return the path of the parameter in error as a client writes it, without union members."""
    path = ""
    for number, step in enumerate(found["loc"], 1):
        if isinstance(step, int):
            path += f"[{step}]"
            value = value[step] if isinstance(value, list) and step < len(value) else None
        elif isinstance(value, Mapping) and step in value:
            path += f".{step}" if path else step
            value = value[step]
        elif number == len(found["loc"]) and found["type"] == "missing":
            path += f".{step}" if path else step
    return path
