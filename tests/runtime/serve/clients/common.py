"""What all of these scripts ask for; each runs where its client is installed, with a server's
address and a folder, and prints what came of it as JSON."""

from __future__ import annotations

import re
import sys
from pathlib import Path

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
QUESTION = "Which files mention refused?"
LONG = "word " * 6000


def search(pattern: str) -> str:
    """Search the files for a pattern.

    Args:
        pattern: a regular expression.
    """
    return "\n".join(
        f"{path.name}:{number}: {line}"
        for path in sorted(FOLDER.iterdir())
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line)
    )
