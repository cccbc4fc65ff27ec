"""Settings of the harness that were found to pay for one model file, by the SHA-256 of the file.

`doctor --agent` finds and keeps them (`runtime/suites/harness_tuning.py`); agents on that file use
them where no setting is given. What is kept here counts before what is shipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ....arguments import read_own, user_folder
from ...files import write_file

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Tuned:
    """What was found for one file.

    Attributes:
        settings: those that are better than the default; none where the default was.
        date, version: when, and of which triplepoint.
        questions: that were answered with these settings and with the default.
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
    def name(self) -> str:
        """The settings, as `--harness` takes them."""
        return shown(self.settings)

    @property
    def text(self) -> str:
        """All of it, for a person."""
        default = f"; default {self.default_rate:.0%}" if self.settings else ""
        return (
            f"{self.name} ({self.rate:.0%} of {self.questions} questions right, "
            f"{self.low:.0%} to {self.high:.0%}{default}; {self.date})"
        )


SHIPPED: dict[str, Tuned] = {}
"""What was measured here, by SHA-256 of the file."""


def shown(settings: Mapping[str, object]) -> str:
    """Settings as `--harness` takes them, with commas between; "default" for none."""
    words = {True: "on", False: "off"}
    told = [f"{n}={words[v] if isinstance(v, bool) else v}" for n, v in settings.items()]
    return ", ".join(told) or "default"


def tuned_for(digest: str) -> Tuned | None:
    """What is known for the file with this SHA-256; None where nothing is, or for no digest."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        return Tuned(**json.loads(read_own(_path(digest))))
    except (OSError, ValueError, TypeError):  # none, damaged, or of another version
        return SHIPPED.get(digest)


def keep(digest: str, found: Tuned) -> Path:
    """Write what was found, whole or not at all; returns the file.

    Raises:
        OSError: it cannot be written.
    """
    path = _path(digest)
    write_file(path, json.dumps(asdict(found), indent=1))
    return path


def _path(digest: str) -> Path:
    return user_folder("cache") / "harness" / f"{digest}.json"
