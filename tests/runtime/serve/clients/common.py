"""What all of these scripts ask for; each runs where its client is installed, with a server's
address and a folder, and prints what came of it as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
QUESTION = "What's the error in app.log?"
LONG = "word " * 6000


def read_file(path: str) -> str:
    """Read a text file.

    Args:
        path: of the file.
    """
    return (FOLDER / Path(path).name).read_text()
