"""Attachments of a question: piped text, and files that it names with ``@``.

    journalctl -u web | triplepoint run "what failed?"
    triplepoint run "What does @/var/log/app.log say of @config/db.ini?"

A file in the workspace is just named. A file outside becomes a document of the workspace
(`Workspace.attach`): the model learns its name and reads it through the same tools, so a long one
comes in pages, and its text is never part of the question.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ...errors import SettingError, ToolError
from ...tools.alike import meant
from ...tools.paths import printable
from ...tools.text import BUDGET, CHUNK, HEAD, is_text

if TYPE_CHECKING:
    from ...tools import Workspace
    from ..agent.agent import Agent
    from .output import Output

STDIN = "stdin.txt"
ORIGIN = "standard input"
NOTE_AFTER_S = 2.0  # of waiting for a pipe
SOCKET_S = 3.0  # that are waited for a socket: no shell makes one, and programs leave them open
_SOMEWHERE_ELSE = "add </dev/null to skip it"

# An address or a decorator in running code is no mention: it begins a word, or stands in brackets.
_MENTION = re.compile(r'(?<![^\s(\[{])@(?:"([^"\n]+)"|(\S+))')
_STDIN_MENTION = re.compile(r"(?<![^\s(\[{])@-(?![^\s.,;:!?)\]}])")
_AFTER = ".,;:!?)]}'\"`"  # may follow a path and be none of it
_ONE_QUESTION = re.compile(r"(?!.*[.?!]\s)[^\n]*\?", re.DOTALL)


def question_of(argument: str) -> str:
    """Return the question: the argument, or standard input for ``-``.

    Raises:
        SettingError: there is none.
    """
    if argument != "-":
        if not argument.strip():
            raise SettingError('the question is empty; give one: triplepoint run "What failed?"')
        return argument
    # The newline at the end is the shell's: the same question has the same tokens either way.
    question = sys.stdin.read().removesuffix("\n")
    if not question.strip():
        raise SettingError("the question is empty: - reads it from stdin, which is empty")
    return question


def with_attachments(question: str, agent: Agent, output: Output, *, piped: bool) -> str:
    """Attach piped text and mentioned files to the agent; return the question that names them.

    Args:
        piped: whether what is on stdin belongs to it.

    Raises:
        SettingError: ``@-`` is in the question, and nothing was piped in.
        ToolError: a file that is named cannot be attached.
    """
    files = agent.setup.files
    assert files is not None, "agents of the command line have a folder"
    waits = piped and _STDIN_MENTION.search(question) is not None
    name = ""
    if piped and (document := read_stdin(output, wait=waits)) is not None:
        said = [one.content for one in agent.messages]
        with document:
            name = files.attach(STDIN, document, ORIGIN, taken=lambda n: any(n in s for s in said))
    if waits and not name:
        raise SettingError("@- names standard input, but nothing was piped in")
    if name:
        question = _STDIN_MENTION.sub(name, question)
    named = _MENTION.sub(lambda found: _mention(found, files, output), question)
    if not name or name in named:
        return named
    if named == question and _ONE_QUESTION.fullmatch(question.strip()):
        return f"{question.strip()[:-1].rstrip()} in {name}?"
    return f"{named}\n\nLook in {name}."


def read_stdin(output: Output, *, wait: bool) -> IO[bytes] | None:
    """Read stdin into a temporary file; return None if nothing was piped in.

    A pipe is waited for as `grep` does: one that is slow must not be lost. A terminal and
    /dev/null hold nothing.

    Args:
        wait: for a socket as well, however long it takes.

    Raises:
        ToolError: it is no text.
    """
    try:
        source = sys.stdin.fileno()
        mode = os.fstat(source).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or not the system's
        return None
    socket = stat.S_ISSOCK(mode)
    if not (socket or stat.S_ISFIFO(mode) or stat.S_ISREG(mode)):
        return None
    seconds = SOCKET_S if socket else NOTE_AFTER_S
    if not select.select([source], [], [], seconds)[0]:
        if socket and not wait:
            output.note(
                f"no input on stdin for {seconds:g} s, so it is ignored; use @- in the question "
                f"to wait for it, or {_SOMEWHERE_ELSE}"
            )
            return None
        output.note(f"waiting for stdin; {_SOMEWHERE_ELSE}")
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    try:
        # A byte more than the tools read of a file: so they say that there is more.
        while (room := BUDGET + 1 - file.tell()) and (chunk := os.read(source, min(CHUNK, room))):
            file.write(chunk)
        if not room:
            output.note(f"stdin was cut after {BUDGET >> 20} MiB")
        file.seek(0)
        head = file.read(HEAD)
        if not is_text(head):
            raise ToolError("stdin is not text; convert it first, e.g. with pdftotext")
    except BaseException:
        file.close()
        raise
    if not head.strip():
        file.close()
        if stat.S_ISFIFO(mode):  # what should have written failed, or its filter let nothing pass
            output.note("stdin is empty, so the question is about the folder alone")
        return None
    return file


def _mention(found: re.Match[str], files: Workspace, output: Output) -> str:
    """Replace ``@path`` by the name under which the model can read the file."""
    quoted, text = found[1] is not None, found[1] or found[2]
    if text.startswith("@"):
        return text  # @@ is @
    for end in range(len(text), 0, -1):
        if end < len(text) and (quoted or text[end] not in _AFTER):
            break
        if (path := _look_up(text[:end], files)) is not None:
            return _named(path, text[:end], files) + text[end:]
    if "/" in text or "." in text.strip(_AFTER):
        output.note(f"@{text} names no file and stays as text")
    return found[0]


def _look_up(text: str, files: Workspace) -> Path | None:
    """Find a file or folder: in the workspace, else relative to the current folder.

    Raises:
        ToolError: it is in a folder that may not be entered.
    """
    root = files.root
    for place in (root / text, Path(text), root / _meant(text, files)):
        try:
            path = place if place.is_relative_to(root) else place.expanduser()
            if path.exists():
                return path
        except PermissionError:
            if "/" not in text:  # where we are may not be entered, and this may be a mere word
                continue
            shown = printable(text.rstrip(_AFTER))
            raise ToolError(f"cannot read @{shown}: Permission denied") from None
        except (OSError, RuntimeError, ValueError):  # too long, no such user, a NUL
            continue
    return None


def _meant(text: str, files: Workspace) -> str:
    """Return the path of a workspace file with a similar name; else `text` unchanged."""
    try:
        return meant(files, text)
    except ToolError:  # no path in the workspace
        return text


def _named(path: Path, text: str, files: Workspace) -> str:
    real = path.resolve()
    if real.is_relative_to(files.root):
        inside = real.relative_to(files.root).as_posix()
        return inside + "/" * (real.is_dir() and inside != ".")
    if Path(os.path.abspath(path)).is_relative_to(files.root):  # a folder may be anybody's
        raise ToolError(
            f"@{printable(text)} is a link that leads out of {files.root}, to "
            f"{printable(str(real))}; name that file if you mean it"
        )
    if real.is_dir():
        raise ToolError(
            f"@{printable(text)} is a folder outside of {files.root}; name a file in it, or make "
            "it the workspace with --dir"
        )
    try:
        # What is no regular file is refused before it is opened: that could block or do harm.
        if not real.is_file():
            raise ToolError(f"@{printable(text)} is not a regular file; pipe its output instead")
        with real.open("rb") as file:
            if not is_text(file.peek(HEAD)[:HEAD]):
                raise ToolError(f"@{printable(text)} is not text")
            return files.attach(printable(path.name), file, str(real))
    except OSError as error:
        raise ToolError(f"cannot read @{printable(text)}: {error.strerror}") from None
