"""Settings that several wire formats share: of decodes, streams and probabilities."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, Literal

from pydantic import Field, field_validator

from ..inference.fill_sampling import MOST as FILLS
from ..inference.sampling import ORDER, Sampling
from ..tokens.tokenizer import Tokenizer
from .api_error import APIError
from .llama_parameters import LlamaBody
from .settings import Limits
from .wire import Body

Bias = float | Literal[False]
"""Of a token's logit; False forbids it."""
MOST_BIASES = 4096
_DIGITS = 20  # of a token's number: Python converts no more than some thousand
LEAST_P = 1e-9  # of top_p: 0 leaves the likeliest token, as it does elsewhere


def _pairs(bias: Any) -> list[tuple[int | str, Any]]:
    return list(bias.items() if isinstance(bias, dict) else bias or ())


class StreamOptions(Body):
    """What a stream holds besides the answer."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SamplingBody(LlamaBody):
    """The settings of decodes, which several formats share."""

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

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _are_pairs(cls, bias: Any) -> Any:
        """Pairs are lists in JSON."""
        if isinstance(bias, list):
            return [tuple(one) if isinstance(one, list) else one for one in bias]
        return bias

    @field_validator("logit_bias")
    @classmethod
    def _are_small(cls, bias: Any) -> Any:
        values = [value for _, value in _pairs(bias)]
        if not all(-100 <= value <= 100 for value in values):
            raise ValueError("a bias is from -100 to 100, or false")
        if len(values) > MOST_BIASES:
            raise ValueError(f"there are more than {MOST_BIASES:,}")
        return bias

    def sampling(self, tokenizer: Tokenizer) -> Sampling:
        """For the engine."""
        names = ("temperature", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
        found = {name: getattr(self, name) for name in names}
        bias: dict[int, float] = {}
        for key, value in _pairs(self.logit_bias):
            digits = isinstance(key, int) or (key.isascii() and key.isdigit())
            if not isinstance(key, int) and digits:
                key = key.lstrip("0")[:_DIGITS] or "0"  # so many are in no vocabulary
            for token in (int(key),) if digits else tokenizer.encode(str(key)):
                if not 0 <= token < tokenizer.n_vocab:
                    raise APIError(
                        f"{token} is not in the vocabulary of {tokenizer.n_vocab}",
                        param="logit_bias",
                    )
                bias[token] = bias.get(token, 0.0) + (-inf if value is False else value)
        sampling = Sampling(
            **found,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            top_p=None if self.top_p is None else max(self.top_p, LEAST_P),
            seed=None if self.seed in (None, -1) else self.seed % 2**64,
            penalty_last=self.repeat_last_n,
            logit_bias=bias or None,
        )
        return sampling if self.samplers is None else self._ordered(sampling, self.samplers)

    def _ordered(self, sampling: Sampling, names: list[str]) -> Sampling:
        """With these samplers in this order, and no others."""
        order = tuple(name for name in names if name in ORDER)
        if "temperature" not in order:
            sampling, order = replace(sampling, temperature=1.0), ("temperature", *order)
        if "penalties" not in names:
            none = {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
            sampling = replace(sampling, **none)
        if "infill" in names:
            if not 0 < (sampling.top_k or 0) <= FILLS:
                raise APIError(f"with infill, give top_k from 1 to {FILLS}", param="samplers")
            order = (*order, "infill")
        return replace(sampling, order=order)

    def stops(self, limits: Limits) -> tuple[str, ...]:
        """Texts that end an answer.

        Raises:
            APIError: they are too many, empty or too long.
        """
        stops = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if len(stops) > limits.stops or not all(0 < len(stop) <= 256 for stop in stops):
            raise APIError(
                f"Invalid 'stop': give at most {limits.stops} texts of 1 to 256 characters.",
                param="stop",
            )
        return stops


def check_logprobs(
    wanted: bool, top: int | None, limits: Limits, name: str = "top_logprobs"
) -> None:
    """Whether probabilities can be told as asked.

    Raises:
        APIError: they cannot; names the parameter.
    """
    if top is not None and not wanted:
        raise APIError("top_logprobs needs logprobs: true", param="top_logprobs")
    if top is not None and top > limits.logprobs:
        raise APIError(f"Invalid '{name}': at most {limits.logprobs}, not {top}.", param=name)
