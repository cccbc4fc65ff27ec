"""Settings of speculative decoding and jump-forward. None changes the output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, get_args

from ....arguments import check_switch
from ....errors import SettingError
from ..passes.request import WHOLE_ROWS

VERIFY_TOKENS = WHOLE_ROWS  # of a pass that verifies: what was forced before, and the draft
VERIFY_ROWS = 17  # of logits that it looks at: after the last known token, and after each drafted
MAX_DRAFT_TOKENS = VERIFY_ROWS - 1  # tokens of one pass
DRAFT_VOCABULARY = 32768  # nothing is right so far down that would pay for the rest of the head
DraftSource = Literal["auto", "lookup", "mtp"]


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Settings of a decode."""

    jump_forward: bool = True
    """Whether tokens that the grammar forces are taken without a pass of their own, and the output
    head computes only the rows that it allows, where they are few."""
    draft_tokens: int | Literal["auto"] = "auto"
    """Maximum tokens drafted before a pass; ``auto``: as many as have paid so far, which may be
    none."""
    draft_source: DraftSource = "auto"
    """What drafts: ``lookup``, the context; ``mtp``, the model's MTP layer, if it has one;
    ``auto``, whichever is worth more before each pass. An engine that is loaded with ``lookup``
    leaves that layer out."""
    draft_vocabulary: int = DRAFT_VOCABULARY
    """How many tokens ``mtp`` chooses from: the first ones of the vocabulary, which are usually the
    most frequent, and those with a role; 0: all."""

    @property
    def mtp(self) -> bool:
        """Whether the model's own layer may draft."""
        return self.draft_tokens != 0 and self.draft_source != "lookup"

    @property
    def lookup(self) -> bool:
        """Whether the context may."""
        return self.draft_tokens != 0 and self.draft_source != "mtp"

    as_dict = asdict
    """For a trace."""

    def __post_init__(self) -> None:
        check_switch(self.jump_forward, "jump_forward", SettingError)
        drafted = self.draft_tokens
        if drafted != "auto" and not (
            isinstance(drafted, int)
            and not isinstance(drafted, bool)
            and 0 <= drafted <= MAX_DRAFT_TOKENS
        ):
            raise SettingError(
                f"draft_tokens={self.draft_tokens!r} is out of range; give auto, or tokens "
                f"from 0 (off) to {MAX_DRAFT_TOKENS}"
            )
        if self.draft_source not in get_args(DraftSource):
            raise SettingError(
                f"draft_source={self.draft_source!r} is not one of "
                f"{', '.join(get_args(DraftSource))}"
            )
        most = self.draft_vocabulary
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise SettingError(
                f"draft_vocabulary={most!r} must be a number of tokens, or 0 for all of them"
            )
