"""Reads input: with history and editing on a terminal, line by line from a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...arguments import open_regular, user_folder
from ..files import make_folder
from .job_control import when_stopped
from .output import Output

MAX_HISTORY = 1000  # lines that are kept
PROMPT = "? "
_MORE = "… "
_FENCE = '"""'


class Reader:
    """A reader of questions and commands.

    On a terminal a line that ends in a backslash continues in the next one, as does everything
    between two lines of three double quotes; several pasted lines are one question.
    History and editing come from the system's readline; Tab completes commands, files after ``@``,
    and files behind a command.

    Args:
        folder: the workspace, where the files are.

    Attributes:
        lines: number of lines read so far.
    """

    def __init__(self, output: Output, commands: Sequence[str], folder: str = ".") -> None:
        self.on_terminal = sys.stdin.isatty()
        self.lines = 0
        self._output = output
        self._commands = sorted(commands)
        self._folder = Path(folder)
        self._fitting: list[str] = []
        self._begun = False  # a question of several lines
        self._history: Path | None = None
        self._kept = 0  # lines of it that are in the file
        if self.on_terminal:
            with contextlib.suppress(ImportError, OSError):  # not on every system
                self._prepare()

    def read(self) -> str | None:
        """Read the next question or command, stripped; return None at the end of the input.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed on an empty line; else what was typed is dropped.
        """
        while True:
            try:
                line = self._typed() if self.on_terminal else sys.stdin.readline()
            except EOFError:
                self._output.aside.line()
                return None
            except KeyboardInterrupt as error:
                self._output.aside.line()
                if error.args or not (self._begun or self._half_typed()):
                    raise
                continue
            if not self.on_terminal and not line:
                return None
            self.lines += 1
            return line.strip()

    def _typed(self) -> str:
        self._begun = False
        line = self._line(PROMPT)
        self._begun = True
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
        if self._output.is_terminal:
            with self._stoppable(prompt):
                line = input(prompt)
            self._keep_history()
        else:  # answers go to a file: the prompt is for the person
            print(prompt, end="", file=sys.stderr, flush=True)
            if not (line := sys.stdin.readline()):
                raise EOFError
            line = line.removesuffix("\n")
        return line

    @contextlib.contextmanager
    def _stoppable(self, prompt: str) -> Iterator[None]:
        """Redraw the line that is being typed after Ctrl-Z and `fg`, as readline does not."""
        if self._history is None:
            yield
            return
        import readline
        import termios

        terminal = sys.stdin.fileno()
        try:
            before = typing = termios.tcgetattr(terminal)
        except termios.error:  # it has closed, which reading from it tells
            yield
            return

        def leave() -> None:
            nonlocal typing
            typing = termios.tcgetattr(terminal)
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

        def back() -> None:
            termios.tcsetattr(terminal, termios.TCSADRAIN, typing)
            sys.stdout.write(prompt + readline.get_line_buffer())
            sys.stdout.flush()

        with when_stopped(leave, back):
            yield

    def _half_typed(self) -> bool:
        """Return whether the line was not empty when Ctrl-C was pressed."""
        if self._history is None:  # no readline: the terminal has dropped it, and nobody knows
            return False
        import readline

        return bool(readline.get_line_buffer())

    def _keep_history(self) -> None:
        """Append the new lines to the history file, since other chats also append to it."""
        if self._history is None:
            return
        import readline

        length = readline.get_current_history_length()
        new, self._kept = length - self._kept, length
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: libedit's
            if new > 0:
                make_folder(self._history.parent)
                flags = os.O_CREAT | os.O_WRONLY | getattr(os, "O_NONBLOCK", 0)
                os.close(os.open(self._history, flags, 0o600))  # ours alone
                readline.append_history_file(new, self._history)

    def _prepare(self) -> None:
        import readline

        self._history = user_folder("state") / "chat_history"
        readline.set_completer(self._complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete")
        # Python turns it off, and each line of what is pasted would be a question of its own.
        readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_history_length(MAX_HISTORY)
        with contextlib.suppress(OSError):
            open_regular(self._history).close()  # nothing else, such as a FIFO, is a history
            readline.read_history_file(self._history)
        self._kept = readline.get_current_history_length()

    def _complete(self, text: str, number: int) -> str | None:
        import readline

        if number == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()]
            self._fitting = self._completions(text, before)
        return self._fitting[number] if number < len(self._fitting) else None

    def _completions(self, text: str, before: str) -> list[str]:
        """Return the completions of the word that is being typed."""
        if not before.strip() and text.startswith("/"):
            return [name for name in self._commands if name.startswith(text)]
        if text.startswith("@"):
            return [f"@{path}" for path in _paths(text[1:], self._folder)]
        if before.startswith(("/save ", "/model ")):  # those that take a file take it from here
            return _paths(text, Path())
        return []


def _paths(start: str, folder: Path) -> list[str]:
    """List paths that begin with `start`, in `folder`; hidden files only if their dot is typed."""
    head, slash, tail = start.rpartition("/")
    place = folder / Path(head + slash).expanduser()
    try:
        names = [entry.name + "/" * _is_folder(entry) for entry in os.scandir(place)]
    except (OSError, ValueError):
        return []
    shown = [n for n in names if n.startswith(tail) and (tail or not n.startswith("."))]
    return sorted(head + slash + name for name in shown if " " not in name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a symlink that leads to itself
        return False
