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
    """What was found for one file.

    Attributes:
        settings: those that are better than the default; none where the default was.
        date, version: when, and of which triplepoint.
        questions: that these settings and the default have answered.
        rate, low, high: share of right answers with these settings, and its 95 % interval.
        default_rate: the share with the default.
    """

    settings: Mapping[str, bool | int]
    date: str
    version: str
    questions: int
    rate: float
    low: float
    high: float
    default_rate: float

    @property
    def text(self) -> str:
        """For a person."""
        return (
            f"{shown(self.settings)} ({self.rate:.0%} of {self.questions} questions right, "
            f"{self.low:.0%} to {self.high:.0%}; default {self.default_rate:.0%}; {self.date})"
        )


SHIPPED: dict[str, Tuned] = {}
"""What was measured here, by SHA-256; what `doctor --agent` has kept counts before it."""


def shown(settings: Mapping[str, object]) -> str:
    """Settings as `--harness` takes them, with commas between."""
    words = {True: "on", False: "off"}
    told = [f"{n}={words[v] if isinstance(v, bool) else v}" for n, v in settings.items()]
    return ", ".join(told) or "default"


def tuned_for(digest: str) -> Tuned | None:
    """What is known for the file with this SHA-256; None where nothing is, or for no digest."""
    try:
        return Tuned(**json.loads(read_own(place_of(digest))))
    except (OSError, ValueError, TypeError):  # none, damaged, or of another version
        return SHIPPED.get(digest)


def keep(digest: str, found: Tuned) -> None:
    """Write what was found, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_file(place_of(digest), json.dumps(asdict(found), indent=1))


def place_of(digest: str) -> Path:
    """The file that keeps it."""
    return user_folder("cache") / "harness" / f"{digest}.json"
