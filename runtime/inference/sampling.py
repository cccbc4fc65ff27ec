"""How the next token is picked from the logits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...errors import EngineError


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of a decode.

    Attributes:
        temperature: 0 is greedy, and the rest is not looked at.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the likeliest tokens that together reach this probability.
        min_p: drop tokens less likely than this share of the likeliest.
        seed: the same seed gives the same text.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        checks = {
            "temperature": 0 <= self.temperature < float("inf"),
            "top_k": self.top_k >= 0,
            "top_p": 0 < self.top_p <= 1,
            "min_p": 0 <= self.min_p <= 1,
            "seed": self.seed >= 0,
        }
        for name, sound in checks.items():
            if not sound:  # NaN fails every comparison
                raise EngineError(f"sampling: {name}={getattr(self, name)} makes no sense")

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


GREEDY = Sampling()


class Sampler:
    """Draws tokens from one seeded stream."""

    def __init__(self, settings: Sampling) -> None:
        self.settings = settings
        self._rng = np.random.default_rng(settings.seed)

    def pick(self, logits: np.ndarray, mask: np.ndarray | None) -> int:
        """A token id. logits: float32 [n_vocab]; mask: uint32 bits of the allowed tokens, or None.

        Raises:
            EngineError: no token is allowed, or the logits are not finite.
        """
        s = self.settings
        scores = logits.astype(np.float64)
        if mask is not None:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(scores)]
            scores[bits == 0] = -np.inf
        best = float(np.max(scores))
        if not np.isfinite(best):
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )
        keep = np.flatnonzero(np.isfinite(scores))
        scaled = (scores[keep] - best) / s.temperature
        order = np.argsort(-scaled, kind="stable")
        if s.top_k > 0:
            order = order[: s.top_k]
        p = np.exp(scaled[order])
        p /= p.sum()
        if s.min_p > 0:
            p, order = p[p >= s.min_p * p[0]], order[p >= s.min_p * p[0]]
        if s.top_p < 1:
            upto = int(np.searchsorted(np.cumsum(p), s.top_p * p.sum())) + 1
            p, order = p[:upto], order[:upto]
        return int(keep[order[self._rng.choice(len(p), p=p / p.sum())]])
