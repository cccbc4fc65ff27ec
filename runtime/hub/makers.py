"""Sampling settings that a model family's makers recommend, where its file has none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .aliases import models_toml


@dataclass(frozen=True, slots=True)
class MakerSampling:
    """A recommendation of sampling settings; `models.toml` lists them and describes the fields."""

    architectures: list[str]
    name: str
    plain: dict[str, Any]
    source: str
    date: str
    thinking: dict[str, Any] = field(default_factory=dict)
    never_greedy: bool = False

    def values(self, *, thinks: bool) -> dict[str, Any]:
        """Return the recommended values, by field of `Sampling`."""
        return self.thinking if thinks and self.thinking else self.plain

    def text(self, *, thinks: bool) -> str:
        """Format the recommendation for a person, with its source."""
        fields = (f"{n.replace('_', ' ')} {v}" for n, v in self.values(thinks=thinks).items())
        return f"{', '.join(fields)} ({self.source}, {self.date})"


def maker_sampling(name: str, architecture: str) -> MakerSampling | None:
    """Return the recommendation for a file's `general.name` and `general.architecture`."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    known = (MakerSampling(**entry) for entry in models_toml()["sampling"])
    return next((o for o in known if architecture in o.architectures and o.name in plain), None)
