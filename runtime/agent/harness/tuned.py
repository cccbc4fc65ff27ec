"""Tuned settings of the harness per model file, by the SHA-256 of the file.

`doctor --agent` measures and saves them (`runtime/suites/harness_tuning.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ....arguments import read_own, user_folder
from ...files import write_file


@dataclass(frozen=True, slots=True)
class Tuned:
    """Result of tuning the harness for one model file."""

    settings: Mapping[str, bool | int]
    """Settings that beat the default; empty if the default was best."""
    date: str
    """Date of the measurement."""
    version: str
    """Version of triplepoint that measured."""
    questions: int
    """Number of questions that these settings and the default have answered."""
    rate: float
    """The share of right answers with these settings."""
    low: float
    """Lower bound of the 95 % interval of `rate`."""
    high: float
    """Upper bound of the 95 % interval of `rate`."""
    default_rate: float
    """The share of right answers with the default."""

    @property
    def text(self) -> str:
        """Return a summary for the user."""
        return (
            f"{shown(self.settings)} ({self.rate:.0%} of {self.questions} questions right, "
            f"{self.low:.0%} to {self.high:.0%}; default {self.default_rate:.0%}; {self.date})"
        )


SHIPPED: dict[str, Tuned] = {}
"""Settings measured here, by SHA-256; those that `doctor --agent` saved take precedence."""


def shown(settings: Mapping[str, object]) -> str:
    """Format settings as `--harness` takes them, separated by commas."""
    words = {True: "on", False: "off"}
    texts = [f"{n}={words[v] if isinstance(v, bool) else v}" for n, v in settings.items()]
    return ", ".join(texts) or "default"


def tuned_for(digest: str) -> Tuned | None:
    """Return the tuned settings of the file with this SHA-256; None if there are none."""
    try:
        return Tuned(**json.loads(read_own(path_of(digest))))
    except (OSError, ValueError, TypeError):  # none, damaged, or of another version
        return SHIPPED.get(digest)


def keep(digest: str, found: Tuned) -> None:
    """Save tuned settings for the file with this SHA-256, atomically.

    Raises:
        OSError: it cannot be written.
    """
    write_file(path_of(digest), json.dumps(asdict(found), indent=1))


def path_of(digest: str) -> Path:
    """Return the path of the file that stores the tuned settings for a SHA-256."""
    return user_folder("cache") / "harness" / f"{digest}.json"
