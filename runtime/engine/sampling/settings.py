"""Sampling settings: how the next token is picked from the logits by a `Sampler`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ....arguments import is_number
from ....errors import EngineError, SettingError

MAX_STOP = 256  # characters of a stop string, and of a sequence breaker
MAX_STOPS = 32
MAX_REPEATED = 1024  # tokens that DRY may allow to be repeated
ORDER = ("temperature", "top_k", "top_p", "min_p")
LLAMA_ORDER = ("top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""llama.cpp's default order; the default here where a filter outside `ORDER` is in use."""
BREAKERS = ("\n", ":", '"', "*")


def _is_order(names: Sequence[str]) -> bool:
    """Return whether these are filters, each once, with temperature; `infill` may be last."""
    own = names[:-1] if names[-1:] == ("infill",) else names
    return "temperature" in own and len(set(own)) == len(own) and {*own} <= {*LLAMA_ORDER}


def _are_texts(texts: Sequence[str]) -> bool:
    return len(texts) <= MAX_STOPS and all(0 < len(text) <= MAX_STOP for text in texts)


@dataclass(frozen=True, slots=True)
class ResolvedSampling:
    """Sampling settings of a decode, with defaults filled in (see `Sampling`)."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last: int = -1
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: Sequence[str] = ()
    order: Sequence[str] = ORDER
    min_keep: int = 0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: Sequence[str] = BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("logit_bias", *_TEXTS):
                continue
            if type(value) is int or (type(value) is float and one.name not in _COUNTS):
                continue  # the usual case, without a call
            if not is_number(value) or (one.name in _COUNTS and not isinstance(value, int)):
                raise _senseless(one.name, value)
        checks = {
            "temperature": 0 <= self.temperature < math.inf,
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "seed": 0 <= self.seed < 2**64,
            "repeat_penalty": 0 < self.repeat_penalty < math.inf,
            "presence_penalty": math.isfinite(self.presence_penalty),
            "frequency_penalty": math.isfinite(self.frequency_penalty),
            "penalty_last": self.penalty_last >= -1,
            "logit_bias": all(
                token >= 0 and bias < math.inf for token, bias in self.logit_bias.items()
            ),
            "order": _is_order(self.order),
            "stop": _are_texts(self.stop),
            "min_keep": self.min_keep >= 0,
            "typical_p": 0 < self.typical_p <= 1,
            "top_n_sigma": math.isfinite(self.top_n_sigma),
            "xtc_probability": 0 <= self.xtc_probability <= 1,
            "xtc_threshold": 0 <= self.xtc_threshold <= 1,
            "dynatemp_range": 0 <= self.dynatemp_range < math.inf,
            "dynatemp_exponent": 0 <= self.dynatemp_exponent < math.inf,
            "dry_multiplier": 0 <= self.dry_multiplier < math.inf,
            "dry_base": 1 <= self.dry_base < math.inf,
            "dry_allowed_length": 0 <= self.dry_allowed_length <= MAX_REPEATED,
            "dry_penalty_last_n": self.dry_penalty_last_n >= -1,
            "dry_sequence_breakers": _are_texts(self.dry_sequence_breakers),
            "mirostat": self.mirostat in (0, 1, 2),
            "mirostat_tau": 0 <= self.mirostat_tau < math.inf,
            "mirostat_eta": 0 <= self.mirostat_eta < math.inf,
        }
        for name, sound in checks.items():
            if not sound:  # NaN fails every comparison
                raise _senseless(name, getattr(self, name))

    @property
    def penalized(self) -> bool:
        """Whether repeat, presence or frequency penalties apply."""
        penalties = self.repeat_penalty, self.presence_penalty, self.frequency_penalty
        return penalties != (1, 0, 0) and not self.mirostat

    @property
    def dry(self) -> bool:
        """Whether DRY's penalties apply."""
        return self.dry_multiplier > 0 and self.dry_penalty_last_n != 0 and not self.mirostat

    @property
    def spread(self) -> float:
        """How far dynamic temperature may move; 0 if greedy."""
        return self.dynatemp_range if self.temperature > 0 else 0.0

    @property
    def plain(self) -> bool:
        """Whether the choice is greedy, on unmodified logits."""
        changed = self.penalized or self.dry or bool(self.logit_bias)
        return self.temperature <= 0 and not changed


_COUNTS = (
    *("top_k", "seed", "penalty_last", "min_keep", "mirostat"),
    *("dry_allowed_length", "dry_penalty_last_n"),
)
_TEXTS = ("stop", "order", "dry_sequence_breakers")
_RANGES = {
    "temperature": "give 0 (greedy) or more",
    "top_k": "give 0 (all) or more",
    "top_p": "give more than 0, at most 1",
    "min_p": "give 0 to 1",
    "seed": "give 0 to 2^64 - 1",
    "repeat_penalty": "give a number above 0; 1 is off",
    "presence_penalty": "give a number; 0 is off",
    "frequency_penalty": "give a number; 0 is off",
    "penalty_last": "give a number of tokens, or -1 for all of the turn",
    "logit_bias": "give token ids, each with a number or -inf",
    "order": (
        f"give names of {', '.join(LLAMA_ORDER)}, including temperature; infill can only be the "
        "last"
    ),
    "stop": f"give at most {MAX_STOPS} texts of 1 to {MAX_STOP} characters",
    "min_keep": "give a number of tokens; 0 is off",
    "typical_p": "give a number above 0, at most 1 (all)",
    "top_n_sigma": "give a number of standard deviations; 0 or less is off",
    "xtc_probability": "give 0 (off) to 1",
    "xtc_threshold": "give 0 to 1; more than 0.5 is off",
    "dynatemp_range": "give 0 (off) or more",
    "dynatemp_exponent": "give 0 or more",
    "dry_multiplier": "give 0 (off) or more",
    "dry_base": "give 1 or more",
    "dry_allowed_length": f"give a number of tokens, at most {MAX_REPEATED}",
    "dry_penalty_last_n": "give a number of tokens, or -1 for all of them",
    "dry_sequence_breakers": f"give at most {MAX_STOPS} texts of 1 to {MAX_STOP} characters",
    "mirostat": "give 0 (off), 1 or 2",
    "mirostat_tau": "give a surprise in bits, 0 or more",
    "mirostat_eta": "give 0 or more",
}


def _senseless(name: str, value: object) -> SettingError:
    return SettingError(f"sampling: {name}={value!r} is out of range; {_RANGES[name]}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings of a decode. None means the model file's setting, else the default.

    Penalties apply to what the model writes in one turn. They ignore its input, which it may have
    to quote, and tool calls.

    Raises:
        EngineError: a setting is out of range.
    """

    temperature: float | None = None
    """0 (the default) takes the most likely token."""
    top_k: int | None = None
    """Keep the k most likely tokens; 0 keeps all."""
    top_p: float | None = None
    """Keep the most likely tokens whose probabilities add up to this; 1 (the default) keeps all."""
    min_p: float | None = None
    """Drop tokens less likely than this share of the most likely one; 0 (the default): none."""
    seed: int | None = None
    """The same seed gives the same text (0)."""
    repeat_penalty: float | None = None
    """Divide the logits of written tokens by this (multiply negative ones)."""
    presence_penalty: float | None = None
    """Subtract this from the logits of written tokens."""
    frequency_penalty: float | None = None
    """Subtract this for each time that a token was written."""
    penalty_last: int | None = None
    """Penalties apply to the turn's last N tokens; -1 is all."""
    logit_bias: Mapping[int, float] | None = None
    """Values added to the logits of tokens, by id; -inf forbids a token."""
    stop: str | Sequence[str] | None = None
    """Texts that end the answer; they are not part of it."""
    order: Sequence[str] | None = None
    """Order of the filters (temperature, top-k, top-p, min-p and the like), after the penalties;
    filters not in it are off. ``infill`` may be the last: see `fill_sampling.py`. By default
    `ORDER`, or `LLAMA_ORDER` where dynamic temperature, typical-p, top-n-sigma or XTC is in use."""
    min_keep: int | None = None
    """Minimum number of tokens that top-p, min-p, typical-p and XTC keep (0)."""
    typical_p: float | None = None
    """Keep tokens whose surprise is nearest to the entropy, up to this probability (1)."""
    top_n_sigma: float | None = None
    """Keep logits at most so many standard deviations below the highest (-1: off)."""
    xtc_probability: float | None = None
    """How often XTC drops all but the last of the likely tokens (0)."""
    xtc_threshold: float | None = None
    """Probability at which XTC considers a token likely (0.1)."""
    dynatemp_range: float | None = None
    """The temperature varies by up to this with the entropy (0)."""
    dynatemp_exponent: float | None = None
    """Exponent of the entropy, as a share of its maximum (1)."""
    dry_multiplier: float | None = None
    """Factor of DRY's penalty for a token that continues a repetition (0)."""
    dry_base: float | None = None
    """DRY's penalty grows by this factor with each token of the repetition (1.75)."""
    dry_allowed_length: int | None = None
    """Tokens that may be repeated before DRY penalizes the next (2)."""
    dry_penalty_last_n: int | None = None
    """DRY looks at the session's last N tokens, including the prompt (64); -1 is all."""
    dry_sequence_breakers: Sequence[str] | None = None
    """Texts that end a repetition."""
    mirostat: int | None = None
    """1 or 2 keeps the surprise of tokens near `mirostat_tau`, and uses only bias and temperature
    besides (0)."""
    mirostat_tau: float | None = None
    """Target surprise in bits (5)."""
    mirostat_eta: float | None = None
    """How fast Mirostat learns from each token (0.1)."""

    def __post_init__(self) -> None:
        # What a trace holds comes as JSON: its keys are texts, and it has no -inf.
        if self.logit_bias is not None:
            try:
                bias = {int(token): float(value) for token, value in self.logit_bias.items()}
            except (AttributeError, TypeError, ValueError, OverflowError):
                raise _senseless("logit_bias", self.logit_bias) from None
            object.__setattr__(self, "logit_bias", bias)
        for name in _TEXTS:
            texts = getattr(self, name)
            if texts is None:
                continue
            if isinstance(texts, str) and name == "stop":
                texts = (texts,)
            if not isinstance(texts, list | tuple) or not all(isinstance(s, str) for s in texts):
                raise _senseless(name, texts)
            object.__setattr__(self, name, tuple(texts))
        self.filled()

    def given(self) -> dict[str, Any]:
        """Return the settings that are not None, by name."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, n_vocab: int) -> None:
        """Check the ids of `logit_bias` against the size of the vocabulary.

        Raises:
            SettingError: an id is not in it.
        """
        most = max(self.logit_bias or (), default=-1)
        if most >= n_vocab:
            raise SettingError(
                f"sampling: logit_bias names token {most}, but the vocabulary has {n_vocab}"
            )

    def filled(self) -> ResolvedSampling:
        """Return all settings, with defaults for those that are None."""
        settings = ResolvedSampling(**self.given())
        if self.order is None and (
            settings.spread > 0
            or settings.typical_p < 1
            or settings.top_n_sigma > 0
            or (settings.xtc_probability > 0 and settings.xtc_threshold <= 0.5)
        ):
            settings = replace(settings, order=LLAMA_ORDER)
        return settings

    def over(self, others: Sampling) -> Sampling:
        """Return these settings, with None replaced by the setting of `others`."""
        return replace(others, **self.given())

    @property
    def greedy(self) -> bool:
        """Whether decoding is greedy (temperature 0)."""
        return not self.temperature

    def as_dict(self) -> dict[str, Any]:
        """Return the usual settings, and others that differ from the default, for a trace."""
        settings = self.filled()
        usual = ("temperature", "top_k", "top_p", "min_p", "seed")
        values: dict[str, Any] = {
            one.name: getattr(settings, one.name)
            for one in fields(settings)
            if one.name in usual or getattr(settings, one.name) != getattr(_DEFAULTS, one.name)
        }
        if "logit_bias" in values:  # JSON has no -inf
            bias: Mapping[int, float] = values["logit_bias"]
            values["logit_bias"] = {str(t): max(b, -MOST_BIAS) for t, b in bias.items()}
        values.update({name: list(values[name]) for name in _TEXTS if name in values})
        return values


_FILE_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "penalty_last",
    **{name: name for name in ("xtc_probability", "xtc_threshold")},
    **{name: name for name in ("mirostat", "mirostat_tau", "mirostat_eta")},
}


def file_sampling(metadata: Mapping[str, Any]) -> tuple[Sampling, list[str]]:
    """Read a model file's sampling settings; also return notes on those not used, with why."""
    found, notes = Sampling(), []
    for key, name in _FILE_KEYS.items():
        value = metadata.get(f"general.sampling.{key}")
        if value is None:
            continue
        if name in ("top_k", "penalty_last") and isinstance(value, int):
            value = max(value, 0 if name == "top_k" else -1)  # below is off, or all, elsewhere
        try:
            found = replace(found, **{name: _number(value, name in _COUNTS)})
        except (EngineError, ValueError, OverflowError):
            shown = str(value)[:40]
            notes.append(
                f"the file's general.sampling.{key} ({shown}) is out of range and is not used"
            )
    return found, notes


def _number(value: Any, whole: bool) -> float:
    """Return a file's value as a number.

    Raises:
        ValueError: it is none, or should be whole and is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or (whole and value % 1):
        raise ValueError
    return int(value) if whole else float(value)


MOST_BIAS = 1e30  # as good as infinite, and a number for JSON
_DEFAULTS = ResolvedSampling()
GREEDY = Sampling(temperature=0.0)
