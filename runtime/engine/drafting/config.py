"""Settings of speculative decoding and jump-forward. None of them changes the output."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from ....arguments import check_switch
from ....errors import SettingError
from ..passes.request import WHOLE_ROWS

VERIFY_TOKENS = WHOLE_ROWS  # of a pass that verifies: what was forced before, and the draft
VERIFY_ROWS = 17  # of logits that it looks at: after the last known token, and after each drafted
MAX_DRAFT_TOKENS = VERIFY_ROWS - 1  # tokens of one pass
DRAFT_VOCABULARY = 32768  # nothing is right so far down that would pay for the rest of the head
SOURCES = {
    "lookup": "LookupSource",
    "mtp": "MTPSource",
}
"""Class by draft source; the module of that name here is imported when it is used. Of sources that
gain equally the first one drafts."""


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Settings of speculative decoding and jump-forward."""

    jump_forward: bool = True
    """Whether tokens that the grammar forces take no pass of their own, and the output head
    computes only the panels of tokens that the grammar allows, where they are few."""
    draft_tokens: int | Literal["auto"] = "auto"
    """Maximum drafts of a pass; ``auto``: by acceptance rates and pass times, possibly 0."""
    draft_source: str = "auto"
    """Source of drafts, one of `SOURCES`: ``lookup``, n-gram matches in the context; ``mtp``, the
    model's MTP layer, if it has one; ``auto``, whichever is worth more before each pass. An engine
    that is loaded with ``lookup`` does not load that layer."""
    draft_vocabulary: int = DRAFT_VOCABULARY
    """Tokens that ``mtp`` chooses from: so many first ones of the vocabulary, which are usually the
    most frequent, and control tokens; 0: all."""

    def uses(self, source: str) -> bool:
        """Return whether drafts may come from this source."""
        return self.draft_tokens != 0 and self.draft_source in ("auto", source)

    as_dict = asdict
    """The settings as a dict, for a trace."""

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
        if self.draft_source not in ("auto", *SOURCES):
            raise SettingError(
                f"draft_source={self.draft_source!r} is not one of {', '.join(('auto', *SOURCES))}"
            )
        most = self.draft_vocabulary
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise SettingError(
                f"draft_vocabulary={most!r} must be a number of tokens, or 0 for all of them"
            )
