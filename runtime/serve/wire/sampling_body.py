"""Parameters that several wire formats share: sampling, limits, streams and logprobs.

They are OpenAI's and llama-server's; those of other services are in `foreign.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from ...conversation.turn import Limits as TurnLimits
from ...conversation.turn import TurnRequest
from ...engine.sampling.fill_sampling import MOST as FILLS
from ...engine.sampling.settings import LLAMA_ORDER, MAX_REPEATED, MAX_STOP, MAX_STOPS, Sampling
from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from ..models.generate import GenerationRequest
from ..models.loaded_model import LoadedModel
from ..models.prompts import Prompt
from ..settings import Limits
from .body import Body
from .tools import schema_of

Bias = float | Literal[False]
"""Bias of a token's logit; False forbids the token."""
MAX_BIASES = 4096
_DIGITS = 20  # of a token's number: Python converts no more than some thousand
MIN_P = 1e-9  # of top_p: 0 leaves the likeliest token, as it does elsewhere
_MAX = 1e6  # of numbers that may as well be large
_SAMPLERS = ("penalties", "dry", *LLAMA_ORDER, "infill", "adaptive_p")
_LETTERS = dict(zip("edskypmxtia", _SAMPLERS, strict=True))
_ALIASES = {
    **{name.replace("_", "-"): name for name in _SAMPLERS},
    **{name.replace("_", ""): name for name in _SAMPLERS},
    **{"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"},
}
"""llama-server's aliases for the names of its samplers."""
_NAMED = (
    *("temperature", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty"),
    *("min_keep", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_exponent"),
    *("dry_multiplier", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
)
"""Settings that have the same name and range in the engine."""


def _pairs(bias: Any) -> list[tuple[int | str, Any]]:
    return list(bias.items() if isinstance(bias, dict) else bias or ())


class StreamOptions(Body):
    """What a stream holds besides the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingBody(Body):
    """The parameters of sampling and limits that several formats share."""

    is_completion: ClassVar[bool] = False
    """Whether an answer completes a text, rather than a conversation."""

    native: ClassVar[bool] = False
    """Whether the format is llama-server's own, with token IDs and post-sampling probabilities."""

    limit_names: ClassVar[tuple[str, ...]] = ()
    """Parameters that limit the tokens of an answer, besides `n_predict`; the first one given
    counts."""

    model: str | None = None
    stream: bool = False
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
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    repeat_penalty: float | None = Field(default=None, ge=0.01, le=100)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    presence_penalty: float | None = Field(default=None, ge=-100, le=100)
    frequency_penalty: float | None = Field(default=None, ge=-100, le=100)
    logit_bias: dict[str, Bias] | list[tuple[int | str, Bias]] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] = Field(default_factory=list, max_length=MAX_STOPS)
    min_tokens: int = Field(default=0, ge=0)
    samplers: list[str] | None = None
    min_keep: int | None = Field(default=None, ge=0, le=2**31 - 1)
    typical_p: float | None = Field(default=None, ge=0, le=_MAX)
    typ_p: float | None = Field(default=None, ge=0, le=_MAX)  # the same, by its sampler's name
    top_n_sigma: float | None = Field(default=None, ge=-_MAX, le=_MAX)
    xtc_probability: float | None = Field(default=None, ge=0, le=1)
    xtc_threshold: float | None = Field(default=None, ge=0, le=1)
    dynatemp_range: float | None = Field(default=None, ge=-_MAX, le=100)
    dynatemp_exponent: float | None = Field(default=None, ge=0, le=_MAX)
    dry_multiplier: float | None = Field(default=None, ge=0, le=_MAX)
    dry_base: float | None = Field(default=None, ge=0, le=_MAX)
    dry_allowed_length: int | None = Field(default=None, ge=0, le=MAX_REPEATED)
    dry_penalty_last_n: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    dry_sequence_breakers: list[str] | None = Field(default=None, max_length=MAX_STOPS)
    mirostat: int | None = Field(default=None, ge=0, le=2)
    mirostat_tau: float | None = Field(default=None, ge=0, le=_MAX)
    mirostat_eta: float | None = Field(default=None, ge=0, le=_MAX)

    @field_validator("ignore_eos", "n_indent", "post_sampling_probs")
    @classmethod
    def _applies_here(cls, given: Any, info: ValidationInfo) -> Any:
        own = info.field_name == "post_sampling_probs"
        if given and not (cls.native if own else cls.is_completion):
            where = "llama-server's own formats of " if own else ""
            raise ValueError(f"it works only for {where}completions")
        return given

    @field_validator("sse_ping_interval")
    @classmethod
    def _is_time(cls, given: int | None) -> int | None:
        if given == 0:
            raise ValueError("give -1 (no pings) or at least one second")
        return given

    @property
    def max_answer(self) -> int | None:
        """Maximum tokens of an answer: the first limit that is given.

        None, or -1 in a request: as many as fit. 0: prefill only.
        """
        limits = (getattr(self, name) for name in (*self.limit_names, "n_predict"))
        found = next((limit for limit in limits if limit is not None), -1)
        return None if found < 0 else found

    @property
    def ping_s(self) -> float | None:
        """Seconds of silence after which a stream gets a comment; None: the server's setting."""
        if self.sse_ping_interval is None:
            return None
        return inf if self.sse_ping_interval < 0 else float(self.sse_ping_interval)

    @field_validator("mirostat", "min_keep", mode="before")
    @classmethod
    def _is_whole(cls, given: Any) -> Any:
        """Convert whole floats, such as 0.0, to integers, since some clients write them."""
        return int(given) if isinstance(given, float) and given.is_integer() else given

    @field_validator("dry_sequence_breakers")
    @classmethod
    def _are_texts(cls, given: list[str] | None) -> list[str] | None:
        if not all(0 < len(text) <= MAX_STOP for text in given or ()):
            raise ValueError(f"give texts of 1 to {MAX_STOP} characters")
        return given

    @field_validator("samplers", mode="before")
    @classmethod
    def _are_named(cls, given: Any) -> Any:
        """Convert a string of sampler letters, and other spellings, to the samplers' names."""
        if isinstance(given, str):
            given = [_LETTERS.get(letter, letter) for letter in given]
        if isinstance(given, list):
            texts = [one.lower() if isinstance(one, str) else one for one in given]
            return [_ALIASES.get(one, one) if isinstance(one, str) else one for one in texts]
        return given

    @field_validator("samplers")
    @classmethod
    def _are_samplers(cls, given: list[str] | None) -> list[str] | None:
        names = given or []
        if unknown := [name for name in names if name not in _SAMPLERS]:
            raise ValueError(f"no such sampler: {unknown[0]:.40}")
        if len(set(names)) < len(names):
            raise ValueError("each sampler can occur only once")
        if "infill" in names[:-1] or ("infill" in names and "top_k" not in names):
            raise ValueError("infill must be the last sampler, and needs top_k before it")
        return given

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _are_pairs(cls, bias: Any) -> Any:
        """Convert pairs, which are lists in JSON, to tuples."""
        if isinstance(bias, dict | list) and len(bias) > MAX_BIASES:
            raise ValueError(f"at most {MAX_BIASES:,} tokens can have a bias")
        if isinstance(bias, list):
            return [tuple(one) if isinstance(one, list) else one for one in bias]
        return bias

    @field_validator("logit_bias")
    @classmethod
    def _are_small(cls, bias: Any) -> Any:
        values = [value for _, value in _pairs(bias)]
        if not all(-100 <= value <= 100 for value in values):
            raise ValueError("a bias must be from -100 to 100, or false")
        return bias

    def sampling(self, tokenizer: Tokenizer) -> Sampling:
        """Return the sampling settings for the engine."""
        found = {name: getattr(self, name) for name in _NAMED}
        typical = self.typ_p if self.typical_p is None else self.typical_p
        bias: dict[int, float] = {}
        for key, value in _pairs(self.logit_bias):
            digits = isinstance(key, int) or (key.isascii() and key.isdigit())
            if not isinstance(key, int) and digits:
                key = key.lstrip("0")[:_DIGITS] or "0"  # so many are in no vocabulary
            for token in (int(key),) if digits else tokenizer.encode(str(key)):
                check_token(token, tokenizer, "logit_bias")
                bias[token] = bias.get(token, 0.0) + (-inf if value is False else value)
        sampling = Sampling(
            **found,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            top_p=None if self.top_p is None else max(self.top_p, MIN_P),
            typical_p=None if typical is None else min(max(typical, MIN_P), 1.0),
            dynatemp_range=None if self.dynatemp_range is None else max(self.dynatemp_range, 0.0),
            dry_base=None if self.dry_base is None or self.dry_base < 1 else self.dry_base,
            seed=None if self.seed in (None, -1) else self.seed % 2**64,
            penalty_last=self.repeat_last_n,
            logit_bias=bias or None,
        )
        return sampling if self.samplers is None else self._ordered(sampling, self.samplers)

    def _ordered(self, sampling: Sampling, names: list[str]) -> Sampling:
        """Return settings with these samplers in this order, and all others disabled."""
        if sampling.mirostat:  # which leaves all others out, and needs a temperature
            return sampling
        self._check_first(sampling, names)
        order = tuple(name for name in names if name in LLAMA_ORDER)
        if "temperature" not in order:
            sampling = replace(sampling, temperature=1.0, dynatemp_range=0.0)
            order = ("temperature", *order)
        if "penalties" not in names:
            none = {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
            sampling = replace(sampling, **none)
        if "dry" not in names:
            sampling = replace(sampling, dry_multiplier=0.0)
        if "infill" in names:
            if not 0 < (sampling.top_k or 0) <= FILLS:
                raise APIError(f"with infill, give top_k from 1 to {FILLS}", param="samplers")
            order = (*order, "infill")
        return replace(sampling, order=order)

    def _check_first(self, sampling: Sampling, names: list[str]) -> None:
        """Raise `APIError` unless penalties come first, then DRY, of the samplers that are on."""
        used = sampling.filled()
        off = {
            "adaptive_p": True,
            "dry": not used.dry,
            "top_n_sigma": used.top_n_sigma <= 0,
            "typ_p": used.typical_p >= 1,
            "xtc": not used.xtc_probability,
        }
        active = [name for name in names if not off.get(name)]
        for first in ("penalties", "dry"):
            if first in active[1:]:
                raise APIError("penalties must come first, followed by dry", param="samplers")
            active = [name for name in active if name != first]

    @property
    def logprob_count(self) -> int | None:
        """Number of likeliest tokens to return with each token; None: no logprobs."""
        return None

    def request_for(self, prompt: Prompt, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """Build the engine request for one prompt.

        Raises:
            APIError: a setting is invalid for this model or this format; names it.
        """
        tokenizer, line_s = model.engine.tokenizer, max(self.t_max_predict_ms, 0.0) / 1e3
        turn = TurnRequest(
            self.sampling(tokenizer),
            limits=TurnLimits(self.max_answer, self.min_tokens, line_s, self.n_indent),
            stops=stops_of(self.stops, limits),
            ends=frozenset(self.stop_token_ids),
            endless=self.ignore_eos,
            logprobs=self.logprob_count,
            sampled_probs=self.post_sampling_probs,
        )
        for token in self.stop_token_ids:
            check_token(token, tokenizer, "stop_token_ids")
        return GenerationRequest(prompt, turn, cached=self.cache_prompt, pieces=self.stream)

    @property
    def stops(self) -> list[str]:
        """Stop strings that end an answer."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


def check_token(token: int, tokenizer: Tokenizer, param: str) -> None:
    """Raise `APIError` unless a token is in the vocabulary."""
    if not 0 <= token < tokenizer.n_vocab:
        raise APIError(f"{token} is not in the vocabulary of {tokenizer.n_vocab}", param=param)


def stops_of(given: list[str], limits: Limits, param: str = "stop") -> tuple[str, ...]:
    """Return the stop strings, after checking them.

    Raises:
        APIError: they are too many, empty or too long.
    """
    if len(given) > (limit := limits.stops) or not all(0 < len(stop) <= 256 for stop in given):
        message = f"Invalid '{param}': at most {limit} texts of 1 to 256 characters"
        raise APIError(message, param=param)
    return tuple(given)


class StreamBody(SamplingBody):
    """The parameters that chats and completions share."""

    stream_options: StreamOptions | None = None
    grammar: str | None = None  # GBNF
    json_schema: dict[str, Any] | None = None
    return_progress: bool = False
    n_probs: int | None = Field(default=None, ge=0)
    n: int = Field(default=1, ge=1)

    @property
    def logprob_count(self) -> int | None:
        return self.n_probs or None

    def request_for(self, prompt: Prompt, model: LoadedModel, limits: Limits) -> GenerationRequest:
        return replace(
            super().request_for(prompt, model, limits),
            choices=self.n,
            progress=self.return_progress and self.stream,
            pieces=self.stream and not self.is_completion,
            ids=self.native,
            timed=self.timings_per_token and self.stream,
            operation="text_completion" if self.is_completion else "chat",
        )

    def output_format(self, limits: Limits) -> dict[str, Any] | str | None:
        """Return the JSON schema or GBNF grammar of the answer; None: any text.

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
        return schema_of(self.json_schema, "json_schema", limits)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    def check(self, limits: Limits) -> None:
        """Refuse too many choices or logprobs, and stream options without a stream."""
        if self.n > limits.choices:
            raise APIError(f"Invalid 'n': at most {limits.choices}, not {self.n}.", param="n")
        if self.stream_options is not None and not self.stream:
            raise APIError("stream_options needs stream: true", param="stream_options")
        check_logprobs(True, self.n_probs, limits, "n_probs")


def check_logprobs(
    wanted: bool, top: int | None, limits: Limits, name: str = "top_logprobs"
) -> None:
    """Raise `APIError` if `top` logprobs are too many, or were not wanted."""
    if top and not wanted:  # some clients write out the 0, and responses say it
        raise APIError("top_logprobs needs logprobs: true", param="top_logprobs")
    if top is not None and top > limits.logprobs:
        raise APIError(f"Invalid '{name}': at most {limits.logprobs}, not {top}.", param=name)
