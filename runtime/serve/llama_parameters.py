"""Settings that llama-server has beside OpenAI's, and what its clients send of them.

What is not done here is taken with the value that switches it off, as its clients write it out, and
refused by name with any other.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from .wire import Body


def _only(value: float) -> Any:
    """A number that has to be this one: with it, what it belongs to is off."""
    return Field(default=None, ge=value, le=value)


class LlamaBody(Body):
    """See above."""

    n_predict: int | None = Field(default=None, ge=-1)
    cache_prompt: bool = True
    # There are no slots: what was computed before is found in any case.
    id_slot: int | None = Field(default=None, ge=-1, le=2**31 - 1)
    typical_p: float | None = _only(1.0)
    dynatemp_range: float | None = _only(0.0)
    xtc_probability: float | None = _only(0.0)
    dry_multiplier: float | None = _only(0.0)
    mirostat: float | None = _only(0.0)
    top_n_sigma: float | None = _only(-1.0)
    n_keep: float | None = _only(0.0)
    min_keep: float | None = _only(0.0)
    t_max_predict_ms: float | None = _only(0.0)
    n_indent: float | None = _only(0.0)
    ignore_eos: Literal[False] | None = None
    post_sampling_probs: Literal[False] | None = None
    timings_per_token: Literal[False] | None = None
    # Of what is off above:
    dynatemp_exponent: float | None = None
    xtc_threshold: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None

    @field_validator("n_predict")
    @classmethod
    def _is_some(cls, given: int | None) -> int | None:
        if given == 0:
            raise ValueError("give -1 (no limit) or at least 1; an answer of nothing is none")
        return given

    def most_tokens(self, *given: int | None) -> int | None:
        """Of an answer: the first that was given, in OpenAI's words or llama-server's."""
        predict = self.n_predict if self.n_predict is not None and self.n_predict > 0 else None
        return next((one for one in (*given, predict) if one is not None), None)
