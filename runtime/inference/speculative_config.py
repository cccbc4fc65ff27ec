"""Ways to fewer passes than tokens, and whether they are taken. None changes what is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import SettingError

VERIFY_TOKENS = 32  # of a pass that verifies: what was forced before, and the draft
VERIFY_ROWS = 17  # of logits that it looks at: after the last known token, and after each drafted
MAX_DRAFT_TOKENS = VERIFY_ROWS - 1  # tokens of one pass


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Settings of a decode.

    Attributes:
        jump_forward: whether tokens that the grammar forces are taken without a pass of their own,
            and only those rows of the output head are multiplied that it allows, where they are
            few.
        draft_tokens: most tokens that are drafted from the context before a pass; ``auto``: as many
            as have paid so far, and none where none do.
    """

    jump_forward: bool = True
    draft_tokens: int | Literal["auto"] = "auto"

    def as_dict(self) -> dict[str, Any]:
        """For a trace."""
        return asdict(self)

    def __post_init__(self) -> None:
        if self.draft_tokens != "auto" and not (
            isinstance(self.draft_tokens, int) and 0 <= self.draft_tokens <= MAX_DRAFT_TOKENS
        ):
            raise SettingError(
                f"draft_tokens={self.draft_tokens!r} is out of range; give auto, or tokens "
                f"from 0 (off) to {MAX_DRAFT_TOKENS}"
            )
