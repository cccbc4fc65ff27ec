"""What a command announces on a first run, or on a busy machine, and no test depends on."""

from __future__ import annotations

import re


def without_notices(errors: str) -> str:
    """A command's stderr without its lines on what is compiled or measured."""
    return re.sub(r"^triplepoint: .*…\n", "", errors, flags=re.MULTILINE)
