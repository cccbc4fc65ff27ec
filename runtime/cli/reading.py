"""Reads what a person types: with history and editing on a terminal, line by line from a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..files import make_folder
from .output import Output

MAX_HISTORY = 1000  # lines that are kept
PROMPT = "? "
_MORE = "… "
_FENCE = '"""'


class Reader:
    """Reads questions and commands.

    On a terminal a line that ends in a backslash goes on in the next one, and so does everything
    between two lines of three double quotes. History and editing come from the system's readline.
    """

    def __init__(self, output: Output, commands: Sequence[str]) -> None:
        self.on_terminal = sys.stdin.isatty()
        self._output = output
        self._commands = sorted(commands)
        self._history: Path | None = None
        if self.on_terminal:
            with contextlib.suppress(ImportError, OSError):  # not on every system
                self._prepare()

    def read(self) -> str | None:
        """The next question or command without the space around it; None at the end of the input.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        if not self.on_terminal:
            line = sys.stdin.readline()
            return line.strip() if line else None
        try:
            return self._typed()
        except EOFError:
            self._output.line()
            return None

    def _typed(self) -> str:
        line = self._line(PROMPT)
        if line.strip() == _FENCE:
            lines: list[str] = []
            while (line := self._line(_MORE)).strip() != _FENCE:
                lines.append(line)
            return "\n".join(lines).strip()
        whole = ""
        while line.endswith("\\"):
            whole += line[:-1] + "\n"
            line = self._line(_MORE)
        return (whole + line).strip()

    def _line(self, prompt: str) -> str:
        # A terminal in another encoding may send bytes that are none: they must not end the chat.
        return input(prompt).encode("utf-8", "replace").decode("utf-8")

    def close(self) -> None:
        """Keep the history."""
        if self._history is None:
            return
        import readline

        with contextlib.suppress(OSError):
            make_folder(self._history.parent)
            descriptor = os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600)  # ours alone
            os.close(descriptor)
            readline.set_history_length(MAX_HISTORY)
            readline.write_history_file(self._history)

    def _prepare(self) -> None:
        import readline

        from platformdirs import user_state_path

        self._history = user_state_path("triplepoint", appauthor=False) / "chat_history"
        readline.set_completer(self._complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        with contextlib.suppress(OSError):
            readline.read_history_file(self._history)

    def _complete(self, text: str, number: int) -> str | None:
        fitting = [
            name for name in self._commands if text.startswith("/") and name.startswith(text)
        ]
        return fitting[number] if number < len(fitting) else None
