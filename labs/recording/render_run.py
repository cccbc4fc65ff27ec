"""Render docs/run.svg: the README's first command, as a terminal shows it.

python -m labs.recording.render_run
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
COMMAND = ["triplepoint", "run", "What's the error in app.log?", "-v", "--dir", "examples/incident"]
COLUMNS = 100


def main() -> None:
    """Run the command in a pseudo-terminal and write what it showed as SVG."""
    os.chdir(ROOT)
    os.environ |= {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = bytearray()

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        shown.extend(data)
        return data

    pty.spawn(COMMAND, keep)
    text = shown.decode().replace("\r\n", "\n")
    # Progress lines overwrite themselves: only what was left standing is shown.
    text = "\n".join(line.rsplit("\r", 1)[-1] for line in text.split("\n"))
    text = re.sub(r"\x1b\[\??\d*[A-KSThl]", "", text)
    home = str(Path.home())
    text = text.replace(home, "~").strip("\n")
    command = f'$ triplepoint run "What\'s the error in app.log?" -v --dir {COMMAND[-1]}\n'
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text(command, style="bold"), Text.from_ansi(text))
    console.save_svg(str(ROOT / "docs" / "run.svg"), title="triplepoint")


if __name__ == "__main__":
    if (
        shutil.which("triplepoint") is None
        and not (Path(sys.executable).parent / "triplepoint").exists()
    ):
        sys.exit("install triplepoint first: pip install .")
    main()
