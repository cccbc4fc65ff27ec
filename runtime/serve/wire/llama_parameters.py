"""Settings that llama-server has beside OpenAI's, and what its clients send of them.

Those of sampling are in `sampling_body.py`. What is not done here is in `foreign.py`.
"""

from __future__ import annotations

from math import inf
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from ..http.api_error import APIError
from ..settings import Limits
from .body import Body
from .tools import check_size


class LlamaBody(Body):
    """Request fields that llama-server accepts beside OpenAI's."""

    goes_on: ClassVar[bool] = False
    """Whether an answer is a text that only goes on, and no turn of a conversation."""

    native: ClassVar[bool] = False
    """Whether the format is llama-server's own: with tokens, and probabilities after sampling."""

    n_predict: int | None = Field(default=None, ge=-1)
    cache_prompt: bool = True
    timings_per_token: bool = False
    ignore_eos: bool = False
    sse_ping_interval: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    n_indent: int = Field(default=0, ge=0)
    t_max_predict_ms: float = Field(default=0.0, le=1e9)
    post_sampling_probs: bool = False
    adaptive_target: float | None = Field(default=None, lt=0)
    adaptive_decay: float | None = None  # of what is off above

    @field_validator("ignore_eos", "n_indent", "post_sampling_probs")
    @classmethod
    def _has_place(cls, given: Any, info: ValidationInfo) -> Any:
        own = info.field_name == "post_sampling_probs"
        if given and not (cls.native if own else cls.goes_on):
            where = "llama-server's own formats of " if own else ""
            raise ValueError(f"it works only for {where}completions")
        return given

    @field_validator("sse_ping_interval")
    @classmethod
    def _is_time(cls, given: int | None) -> int | None:
        if given == 0:
            raise ValueError("give -1 (no pings) or at least one second")
        return given

    def most_tokens(self, *given: int | None) -> int | None:
        """Of an answer: the first that was given, in OpenAI's words or llama-server's.

        None, or -1 in a request: as many as fit. 0: the prompt is read only.
        """
        found = next((one for one in (*given, self.n_predict) if one is not None), -1)
        return None if found < 0 else found

    @property
    def predict_s(self) -> float:
        """Seconds after which an answer ends with its next line break; 0: none."""
        return max(self.t_max_predict_ms, 0.0) / 1e3

    @property
    def ping_s(self) -> float | None:
        """Silence after which a stream gets a comment, in seconds; None: as the server says."""
        if self.sse_ping_interval is None:
            return None
        return inf if self.sse_ping_interval < 0 else float(self.sse_ping_interval)


class OutputFormatBody(Body):
    """What an answer has to fit, as llama-server's clients say it."""

    grammar: str | None = None  # GBNF
    json_schema: dict[str, Any] | None = None

    def output_format(self, limits: Limits) -> dict[str, Any] | str | None:
        """A JSON schema, or a GBNF grammar; None: every answer fits.

        Raises:
            APIError: both are given, or it is too large.
        """
        if self.json_schema is None:
            if len(self.grammar or "") > limits.schema:
                raise APIError(
                    f"the grammar has {len(self.grammar or ''):,} characters; the limit is "
                    f"{limits.schema:,}",
                    param="grammar",
                )
            return self.grammar or None
        if self.grammar:
            raise APIError("give either json_schema or grammar", param="json_schema")
        check_size(self.json_schema, "json_schema", limits)
        return self.json_schema or {"type": "object"}
