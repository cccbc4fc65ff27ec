"""Settings of the harness that were found to pay for one model file, by the SHA-256 of the file.

`doctor --agent` finds and keeps them (`runtime/suites/harness_tuning.py`).
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
    """What was found for one file."""

    settings: Mapping[str, bool | int]
    """Those that are better than the default; empty if the default was best."""
    date: str
    """When they were measured."""
    version: str
    """Of triplepoint."""
    questions: int
    """How many these settings and the default have answered."""
    rate: float
    """The share of right answers with these settings."""
    low: float
    """Of the 95 % interval of the rate."""
    high: float
    """Of the 95 % interval of the rate."""
    default_rate: float
    """The share of right answers with the default."""

    @property
    def text(self) -> str:
        """Return a summary for a person."""
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
    """Write what was found, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_file(path_of(digest), json.dumps(asdict(found), indent=1))


def path_of(digest: str) -> Path:
    """Return the path of the file that stores them."""
    return user_folder("cache") / "harness" / f"{digest}.json"
