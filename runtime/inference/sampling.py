"""How the next token is picked from the logits.

    logits + bias ─► penalties ─► softmax at a temperature ─► top-k ─► top-p ─► min-p ─► one draw

or what comes after the penalties in another order.

The draw for a token depends on the seed and on the token's position alone. So the same seed gives
the same text, whatever came between two tokens, and each token takes exactly one draw.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arguments import is_number
from ...errors import EngineError, SettingError
from .fill_sampling import MOST as FILLS
from .fill_sampling import FillChooser, drawn

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer
    from .logit_ranking import LogitRanker

MAX_STOP = 256  # characters of a stop string
MAX_STOPS = 32
ORDER = ("temperature", "top_k", "top_p", "min_p")


def _is_order(names: Sequence[str]) -> bool:
    """Whether these are of `ORDER`, each once, temperature among them; `infill` may be the last."""
    own = names[:-1] if names[-1:] == ("infill",) else names
    return "temperature" in own and len(set(own)) == len(own) and {*own} <= {*ORDER}


@dataclass(frozen=True, slots=True)
class ResolvedSampling:
    """Settings of a decode, all decided (see `Sampling`)."""

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

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("logit_bias", "stop", "order"):
                continue
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
            "stop": len(self.stop) <= MAX_STOPS and all(0 < len(s) <= MAX_STOP for s in self.stop),
        }
        for name, sound in checks.items():
            if not sound:  # NaN fails every comparison
                raise _senseless(name, getattr(self, name))

    @property
    def penalized(self) -> bool:
        """Whether what was written counts against writing it again."""
        return (self.repeat_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)

    @property
    def plain(self) -> bool:
        """Whether the token of the largest logit is taken, as it is."""
        return self.temperature <= 0 and not self.penalized and not self.logit_bias


_COUNTS = ("top_k", "seed", "penalty_last")
_RANGES = {
    "temperature": "give 0 (greedy) or more",
    "top_k": "give 0 (all) or more",
    "top_p": "give more than 0, at most 1",
    "min_p": "give 0 to 1",
    "seed": "give 0 to 2^64 - 1",
    "repeat_penalty": "give more than 0; 1 is none",
    "presence_penalty": "give a number; 0 is none",
    "frequency_penalty": "give a number; 0 is none",
    "penalty_last": "give a number of tokens, or -1 for all of the turn",
    "logit_bias": "give ids of tokens, each with a number or -inf",
    "order": f"give names of {', '.join(ORDER)}, temperature among them; infill may be the last",
    "stop": f"give at most {MAX_STOPS} texts of 1 to {MAX_STOP} characters",
}


def _senseless(name: str, value: object) -> SettingError:
    return SettingError(f"sampling: {name}={value!r} is out of range; {_RANGES[name]}")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of a decode. What is None is left to the model's file, or else to the default.

    Attributes:
        temperature: 0 (the default) takes the likeliest token.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: of these keep the likeliest that together reach this probability.
        min_p: of these drop the ones less likely than this share of the likeliest.
        seed: the same seed gives the same text (0).
        repeat_penalty: divide the logit of what was written by it (multiply a negative one).
        presence_penalty: subtract it from the logit of what was written.
        frequency_penalty: subtract it for each time that it was written.
        penalty_last: tokens of the turn, counted from its end, that penalties look at; -1 is all.
        logit_bias: what is added to the logits of tokens, by id; -inf forbids one.
        stop: texts that end the answer; they are no part of it.
        order: in which temperature, top-k, top-p and min-p come, after the penalties; what is not
            in it is left out. ``infill`` may be the last: see `fill_sampling.py`.

    Penalties are for what the model writes in one turn. They do not look at what it was given,
    which it may have to quote, and leave tool calls alone.

    Raises:
        EngineError: a setting makes no sense.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    penalty_last: int | None = None
    logit_bias: Mapping[int, float] | None = None
    stop: str | Sequence[str] | None = None
    order: Sequence[str] | None = None

    def __post_init__(self) -> None:
        # What a trace holds comes as JSON: its keys are texts, and it has no -inf.
        if self.logit_bias is not None:
            try:
                bias = {int(token): float(value) for token, value in self.logit_bias.items()}
            except (AttributeError, TypeError, ValueError, OverflowError):
                raise _senseless("logit_bias", self.logit_bias) from None
            object.__setattr__(self, "logit_bias", bias)
        if self.stop is not None:
            stop = (self.stop,) if isinstance(self.stop, str) else self.stop
            if not isinstance(stop, list | tuple) or not all(isinstance(s, str) for s in stop):
                raise _senseless("stop", stop)
            object.__setattr__(self, "stop", tuple(stop))
        if self.order is not None:
            if not isinstance(self.order, list | tuple):
                raise _senseless("order", self.order)
            object.__setattr__(self, "order", tuple(map(str, self.order)))
        self.filled()

    def given(self) -> dict[str, Any]:
        """What is not None."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def check(self, n_vocab: int) -> None:
        """See whether a vocabulary of so many tokens has those that are named.

        Raises:
            SettingError: it has not.
        """
        most = max(self.logit_bias or (), default=-1)
        if most >= n_vocab:
            raise SettingError(
                f"sampling: logit_bias names token {most}, but the vocabulary has {n_vocab}"
            )

    def filled(self) -> ResolvedSampling:
        """The defaults in place of what is None."""
        return ResolvedSampling(**self.given())

    def over(self, others: Sampling) -> Sampling:
        """These settings, and those of `others` where they leave a choice."""
        return replace(others, **self.given())

    @property
    def greedy(self) -> bool:
        """Whether nothing is left to chance."""
        return not self.temperature

    def as_dict(self) -> dict[str, Any]:
        """All that counts, for a trace: the usual settings, and others where they are in use."""
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
        if "stop" in values:
            values["stop"] = list(values["stop"])
        if "order" in values:
            values["order"] = list(values["order"])
        return values


_FILE_KEYS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "penalty_last",
}
_FILE_ELSE = {"xtc_probability": "XTC", "mirostat": "Mirostat"}  # 0 is off


def file_sampling(metadata: Mapping[str, Any]) -> tuple[Sampling, list[str]]:
    """What a model's file says of sampling, and what of it is not used, with the reason."""
    found, notes = Sampling(), []
    for key, name in _FILE_KEYS.items():
        value = metadata.get(f"general.sampling.{key}")
        if value is None:
            continue
        if name in ("top_k", "penalty_last") and isinstance(value, int):
            value = max(value, 0 if name == "top_k" else -1)  # below is off, or all, elsewhere
        try:
            found = replace(found, **{name: _number(value, name in ("top_k", "penalty_last"))})
        except (EngineError, ValueError, OverflowError):
            shown = str(value)[:40]
            notes.append(f"the file's general.sampling.{key} ({shown}) is out of range; not used")
    for key, name in _FILE_ELSE.items():
        if metadata.get(f"general.sampling.{key}"):
            notes.append(f"the file asks for {name} sampling, which is not done here")
    return found, notes


def _number(value: Any, whole: bool) -> float:
    """The number that a value of a file is.

    Raises:
        ValueError: it is none, or should be whole and is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or (whole and value % 1):
        raise ValueError
    return int(value) if whole else float(value)


MOST_BIAS = 1e30  # as good as infinite, and a number for JSON
_DEFAULTS = ResolvedSampling()
GREEDY = Sampling(temperature=0.0)


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that belongs to a seed and a position, by Philox 4x64."""
    bits = np.random.Philox(key=seed, counter=position).random_raw()
    return (int(bits) >> 11) * 2.0**-53


class Sampler:
    """Picks the tokens of one turn of a model.

    Args:
        settings: of the decode.
        ranking: of the engine.
        position: of the first token to be picked, counted from the beginning of the session.
        constraint: of the turn; where its ``calling`` is true, penalties rest.
        tokenizer: of the model, for ``infill``.
    """

    def __init__(
        self,
        settings: Sampling,
        ranking: LogitRanker,
        position: int = 0,
        constraint: Any = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.settings = settings.filled()
        self.position = position
        self._ranking = ranking
        self._constraint = constraint
        s = self.settings
        settings.check(ranking.n_vocab)
        self._biased = np.fromiter(s.logit_bias, np.int64)
        self._bias = np.maximum(np.fromiter(s.logit_bias.values(), np.float32), -MOST_BIAS)
        self._fills = FillChooser(tokenizer) if tokenizer and "infill" in s.order else None
        self._written: deque[int] = deque()
        self._times: Counter[int] = Counter()

    @property
    def _calling(self) -> bool:
        return getattr(self._constraint, "calling", False)

    def pick(self, logits: np.ndarray, mask: np.ndarray | None) -> int:
        """The token for the position. logits: float32 [n_vocab]; they stay as they are.

        Changes nothing: it is `accept` that goes on to the next position.

        Args:
            logits: after the token before.
            mask: uint32 bits of the allowed tokens, or None.

        Raises:
            EngineError: no token is allowed, or the logits are not finite.
        """
        s, ranking = self.settings, self._ranking
        self._look(logits, mask)
        if s.temperature <= 0:
            return ranking.largest
        rank, mass = self.kept()
        if self._fills is not None:
            chances = self._fills.choose(self._top(rank, mass, FILLS), free=mask is None)
            return drawn(chances, uniform(s.seed, self.position))
        place = ranking.at_mass(uniform(s.seed, self.position) * mass, past=True)
        # By rounding it may lie just past the last one that is kept.
        return place.token if place.rank <= rank else ranking.at_rank(rank).token

    def chances(
        self, logits: np.ndarray, mask: np.ndarray | None, token: int, most: int
    ) -> tuple[float, list[tuple[int, float]]]:
        """How likely `pick` is to take a token; and the likeliest ones, `most` of them at most."""
        ranking = self._ranking
        self._look(logits, mask)
        if self.settings.temperature <= 0:
            largest = ranking.largest
            return float(token == largest), [(largest, 1.0)][:most]
        rank, mass = self.kept()
        if self._fills is not None:
            left = self._fills.choose(self._top(rank, mass, FILLS), free=mask is None)
            left.sort(key=lambda one: -one[1])
            return dict(left).get(token, 0.0), left[:most]
        return min(1.0, ranking.weight(token) / mass), self._top(rank, mass, most)

    def _top(self, rank: int, mass: float, most: int) -> list[tuple[int, float]]:
        """The likeliest tokens of so many that have this weight, each with its share of it."""
        places = (self._ranking.at_rank(n) for n in range(1, min(rank, most) + 1))
        return [(place.token, self._ranking.weight(place.token) / mass) for place in places]

    def _look(self, logits: np.ndarray, mask: np.ndarray | None) -> None:
        s = self.settings
        self._ranking.load(logits, mask)
        self._change(self._ranking.logits)
        if s.order[0] == "temperature" or s.temperature <= 0:  # else `kept` looks
            self._ranking.look(s.temperature or 1.0)

    def kept(self) -> tuple[int, float]:
        """How many of the likeliest tokens top-k, top-p and min-p leave, and their weight."""
        s, ranking = self.settings, self._ranking
        if s.order[0] != "temperature":
            ranking.look(1.0)
        rank, mass, gap, temperature = ranking.all.rank, ranking.all.mass, math.inf, 1.0
        for name in s.order:
            if name == "temperature":
                temperature = s.temperature
                if name != s.order[0]:
                    ranking.look(temperature)
                    mass = ranking.at_rank(rank).mass
            elif name == "top_k" and 0 < s.top_k < rank:
                last = ranking.at_rank(s.top_k)
                rank, mass, gap = last.rank, last.mass, last.gap
            elif name == "top_p" and s.top_p < 1:
                last = ranking.at_mass(s.top_p * mass)
                if last.rank < rank:
                    rank, mass, gap = last.rank, last.mass, last.gap
            elif name == "min_p" and s.min_p > 0:
                least = -temperature * math.log(s.min_p)
                if least < gap and (kept := ranking.within(least)).rank < rank:
                    rank, mass, gap = kept.rank, kept.mass, kept.gap
        return rank, mass

    def accept(self, token: int) -> None:
        """`token` is at the position now, whether it was picked or not."""
        self.position += 1
        s = self.settings
        if not s.penalized or s.penalty_last == 0 or self._calling:
            return
        self._written.append(token)
        self._times[token] += 1
        if 0 < s.penalty_last < len(self._written):
            gone = self._written.popleft()
            self._times[gone] -= 1
            if not self._times[gone]:
                del self._times[gone]

    def _change(self, logits: np.ndarray) -> None:
        """Add the bias, then hold what was written against the tokens."""
        s = self.settings
        if len(self._biased):
            logits[self._biased] += self._bias
        if self._times and not self._calling:
            ids = np.fromiter(self._times, np.int64)
            times = np.fromiter(self._times.values(), np.float32)
            x = logits[ids]
            x = np.where(x > 0, x / s.repeat_penalty, x * s.repeat_penalty)
            logits[ids] = x - s.presence_penalty - s.frequency_penalty * times
