"""Ways to fewer passes than tokens, and whether they are taken. None changes what is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import SettingError

VERIFY_TOKENS = 32  # of a pass that verifies: what was forced before, and the draft
VERIFY_ROWS = 17  # of logits that it looks at: after the last known token, and after each drafted
MOST_GUESSED = VERIFY_ROWS - 1  # tokens of one pass


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """Settings of a decode.

    Attributes:
        jump: whether tokens that the grammar forces are taken without a pass of their own, and only
            those rows of the output head are multiplied that it allows, where they are few.
        speculate: most tokens that are guessed from the context before a pass; ``auto``: as many as
            have paid so far, and none where none do.
    """

    jump: bool = True
    speculate: int | Literal["auto"] = "auto"

    def as_dict(self) -> dict[str, Any]:
        """For a trace."""
        return asdict(self)

    def __post_init__(self) -> None:
        if self.speculate != "auto" and not (
            isinstance(self.speculate, int) and 0 <= self.speculate <= MOST_GUESSED
        ):
            raise SettingError(
                f"speculate={self.speculate!r} is out of range; give auto, or a number of tokens "
                f"from 0 (off) to {MOST_GUESSED}"
            )
