"""What the makers of a family recommend for sampling, where a file does not say it itself."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class MakerSampling:
    """One recommendation; `models.toml` beside this has them."""

    architectures: list[str]
    name: str
    """What the model's name contains, in letters and digits alone."""
    plain: dict[str, Any]
    """Fields of `Sampling`, where the model does not think, or for both."""
    source: str
    date: str
    """Year and month in which it was looked up."""
    thinking: dict[str, Any] = field(default_factory=dict)
    """The same where it thinks, if it differs."""
    never_greedy: bool = False
    """Whether the makers say that the model must not decode greedily while it thinks."""

    def values(self, *, thinks: bool) -> dict[str, Any]:
        """Fields of `Sampling`."""
        return self.thinking if thinks and self.thinking else self.plain


@functools.cache
def _known() -> tuple[MakerSampling, ...]:
    text = files(__package__ or "").joinpath("models.toml").read_text(encoding="utf-8")
    return tuple(MakerSampling(**entry) for entry in tomllib.loads(text)["sampling"])


def maker_sampling(name: str, architecture: str) -> MakerSampling | None:
    """The recommendation for a model; None where none is known.

    Args:
        name: `general.name` of its file, such as ``Qwen3 4B``.
        architecture: `general.architecture`.
    """
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    known = (one for one in _known() if architecture in one.architectures)
    return next((one for one in known if one.name in plain), None)
