"""The tools that change files: write_file, edit_file, move, delete."""

from __future__ import annotations

import codecs
import difflib
import hashlib
import heapq
import json
import re
import stat
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..errors import ToolError
from . import seen
from .alike import locate, meant, other_names
from .atomic_changes import Content, check_size, place, to_trash
from .diff import diff, same_lines
from .formats import binary_file, no_such_file, plural, split_lines
from .paths import check_text, clean_path, printable, shown
from .text import is_binary, is_utf16
from .tool import ToolGroup, tool
from .workspace import Workspace

MAX_IN_FOLDER = 100_000  # files of a folder that are checked against a policy's rules
MAX_COMPARED = 50  # lines that are compared letter by letter with what was not found
MAX_OCCURRENCES = 5  # places of a text that are named
MAX_COUNTED = 1000  # that are counted
KEEPS = 4  # lines of a file that is not replaced unasked by one that has few of them
FIRST = 5  # lines of a file that was never read, in the refusal to replace it
MAX_EDIT = 300  # characters of an edit that is proposed in its place
MAX_PREVIEWS = 64  # whose files are remembered; most are called at once, and forgotten
_ANY_ENDING = re.compile(r"\r*\n")


class EditTools(ToolGroup):
    """The tools write_file, edit_file, move and delete for one folder, for an agent.

    Each has the effect ``write`` and can preview what it would do. Iterating yields the four `Tool`
    objects; you can also call the methods directly.
    """

    def __init__(self, root: str | Path | Workspace) -> None:
        """Open the folder.

        Raises:
            ToolError: there is no such folder.
        """
        self.workspace = root if isinstance(root, Workspace) else Workspace(root)
        self._insisted: set[tuple[str, str]] = set()  # what was refused last
        self._previews: dict[tuple[str, ...], str | None] = {}  # by call: what the file held
        other = self._other_name
        self._tools = (
            tool(effect="write", preview=self._show_write, reaches=other)(self.write_file),
            tool(effect="write", preview=self._show_edit, reaches=other)(self.edit_file),
            tool(effect="write", reaches=self._in_folder)(self.move),
            tool(effect="write", reaches=self._in_folder)(self.delete),
        )
        for one, new in zip(self._tools, ("path", "", "to", ""), strict=True):
            one.normalize = partial(locate, self.workspace, new=new)
        self._tools[1].existing, self._tools[1].group = {"path": "file"}, self
        self._tools[2].whole_file, self._tools[3].whole_file = "moves", "removes"
        for one in self._tools[:2]:
            one.declined = partial(self._take_preview, one.name)

    def write_file(self, path: str, content: str) -> str:
        """Write a whole text file; folders on the way are made. An existing file is replaced.

        Args:
            path: The file, relative to the workspace.
            content: The whole new text of the file.
        """
        name = self._shown(path)
        _check_new("the content", content)
        check_size(content.encode())  # before folders are made for it
        previewed = self._take_preview("write_file", path=path, content=content)
        with place(self.workspace, path, make=True) as here:
            before = here.read()
            _check_preview(previewed, before, name)
            self._check_known(here.path, before)
            text = _text_of(before, name) if before is not None else None
            self._check_read(here.path, text, content)
            data = _encode(_with_line_ends(content, text), text)
            if before is not None and data == before.data and seen.is_guarded():
                raise ToolError(f"{name} has exactly this text already: nothing is left to write")
            here.write(data, before)
            seen.note(self.workspace, here.path, _digest(data))
        what = f"{_count(content)}, {len(data):,} bytes"
        return f"wrote {name}: {what}" if text is None else f"replaced {name}: {what}"

    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace one piece of text in a file. The old text must be in it exactly once.

        Args:
            path: The file, relative to the workspace.
            old: The text to replace, exactly as it is in the file, without line numbers.
            new: The text to put there.
        """
        name = self._shown(path)
        check_text("old", old)
        _check_new("new", new)
        previewed = self._take_preview("edit_file", path=path, old=old, new=new)
        with place(self.workspace, path) as here:
            before = here.read()
            if before is None:
                raise ToolError(no_such_file(name))
            text = _text_of(before, name)
            start, edited = _edited(text, old, new, name)
            _check_preview(previewed, before, name)
            data = _encode(edited, text)
            here.write(data, before)
            # Else the model knows a part of it.
            if seen.known(self.workspace, here.path) == _digest(before.data):
                seen.note(self.workspace, here.path, _digest(data))
        line = text.count("\n", 0, start) + 1
        return f"edited {name} at line {line}: {_count(old)} replaced by {_count(new)}"

    def move(self, path: str, to: str) -> str:
        """Move or rename a file or folder. Nothing is overwritten.

        Args:
            path: What to move, relative to the workspace.
            to: Its new path, with its new name at the end.
        """
        with place(self.workspace, path) as here:
            if here.stat() is None:
                raise ToolError(f"no such file or folder: {shown(here.path)}")
            if meant(self.workspace, to).startswith(f"{here.path}/"):
                raise ToolError(f"cannot move {shown(here.path)} into itself")
            with place(self.workspace, to, make=True) as there:
                here.rename_to(there)
                seen.note_move(self.workspace, here.path, there.path)
        return f"moved {self._shown(path)} to {self._shown(to)}"

    def delete(self, path: str) -> str:
        """Delete a file or folder. It is kept in a trash folder, from where move brings it back.

        Args:
            path: What to delete, relative to the workspace.
        """
        trashed = printable(to_trash(self.workspace, path))
        return f"deleted {self._shown(path)}; it is kept as {trashed}"

    def _shown(self, path: str) -> str:
        return shown(clean_path(self.workspace.relative(path)))

    def _check_known(self, path: str, before: Content | None) -> None:
        """Raise ToolError if the file has changed since the conversation saw it."""
        known = seen.known(self.workspace, path)
        if known and before is not None and known != _digest(before.data):
            raise ToolError(
                f"{shown(path)} has changed since you last read or wrote it, so nothing was "
                "written; read it again"
            )

    def _check_read(self, path: str, text: str | None, content: str) -> None:
        """Raise ToolError if the conversation never read the text that it would replace."""
        readable = seen.unread(self.workspace, path)
        if not text or readable is None:
            return self._check_loss(path, text, content)
        message = f"{shown(path)} exists and was never read here, so nothing was written"
        if not readable(path):
            raise ToolError(f"{message}; write to another file")
        new = _with_line_ends(content, text)
        lines, instead = split_lines(text), _append_instead(text, new) or _edit_instead(text, new)
        first = "\n".join(f"{n}\t{line[:120]}" for n, line in enumerate(lines[:FIRST], 1))
        more = ", the first" if len(lines) > FIRST else ""
        raise ToolError(f"{message}; read it first{instead}. It has {_count(text)}{more}:\n{first}")

    def _check_loss(self, path: str, text: str | None, content: str) -> None:
        """Raise ToolError, once, if most lines would be lost; usually edit_file is meant."""
        lines = split_lines(text or "")
        common = (Counter(lines) & Counter(split_lines(content))).total()
        if len(lines) < KEEPS or 2 * common >= len(lines) or not seen.is_guarded():
            return
        if (path, content) not in self._insisted:
            self._insisted = {(path, content)}
            raise ToolError(
                f"nothing was written: of the {len(lines)} lines of {shown(path)} this keeps "
                f"{common}; change a piece of it with edit_file"
                f"{_append_instead(text or '', _with_line_ends(content, text))}, or call "
                "write_file again with the same text to replace all of it"
            )

    # What the rules of a policy hold for besides the path that is named.

    def _other_name(self, path: str, **_: object) -> Iterator[str]:
        return other_names(self.workspace, path)

    def _in_folder(self, path: str, to: str | None = None) -> Iterator[str]:
        """Yield the paths in a moved or deleted folder, before and after."""
        yield from other_names(self.workspace, path, to)
        path = meant(self.workspace, path)
        to = to and meant(self.workspace, to)
        with place(self.workspace, path) as here:
            found = here.stat()
        if found is None or not stat.S_ISDIR(found.st_mode):
            return
        for number, below in enumerate(self.workspace.everything(path)):
            if number == MAX_IN_FOLDER:
                raise ToolError(
                    f"{shown(path)} holds more than {MAX_IN_FOLDER:,} files, too many to check "
                    "against the rules of the policy; move or delete the folders in it"
                )
            yield below
            if to is not None:
                yield to + below[len(path) :]

    # What a person is shown before a change is made.

    def _show_write(self, path: str, content: str) -> str:
        name = self._shown(path)
        _check_new("the content", content)
        before, path_meant = None, path
        # A folder on the way may not be there yet; the call reports what else is wrong.
        with suppress(ToolError), place(self.workspace, path) as here:
            before, path_meant = here.read(), here.path
        self._check_known(path_meant, before)  # the user is not asked about what will be refused
        text = "" if before is None else _text_of(before, name)
        self._check_read(path_meant, text, content)
        self._keep_preview(_call("write_file", path=path, content=content), before)
        return diff(text, _with_line_ends(content, text or None), name)

    def _show_edit(self, path: str, old: str, new: str) -> str:
        name = self._shown(path)
        check_text("old", old)
        _check_new("new", new)
        with place(self.workspace, path) as here:
            before = here.read()
        if before is None:
            raise ToolError(no_such_file(name))
        text = _text_of(before, name)
        shown_text = _edited(text, old, new, name)[1]
        self._keep_preview(_call("edit_file", path=path, old=old, new=new), before)
        return diff(text, shown_text, name)

    # A person may take minutes over a preview, and save the same file meanwhile.

    def _keep_preview(self, call: tuple[str, ...], before: Content | None) -> None:
        if len(self._previews) >= MAX_PREVIEWS:
            self._previews.clear()
        self._previews[call] = None if before is None else _digest(before.data)

    def _take_preview(self, name: str, **arguments: str) -> tuple[str | None, ...]:
        """Return the file's contents at the user's preview; empty without one.

        It counts for one call: one that was denied may be allowed unseen the next time.
        """
        call = _call(name, **arguments)
        return (self._previews.pop(call),) if call in self._previews else ()


def _call(name: str, **arguments: str) -> tuple[str, ...]:
    return (name, *(word for pair in sorted(arguments.items()) for word in pair))


def _check_preview(previewed: tuple[str | None, ...], before: Content | None, name: str) -> None:
    """Raise ToolError if the file has changed since the user's preview."""
    if previewed and previewed[0] != (None if before is None else _digest(before.data)):
        raise ToolError(
            f"{name} was changed while this change waited for approval, so nothing was "
            "written; read it again"
        )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _text_of(content: Content, name: str) -> str:
    """Decode the file exactly; refuse what would not encode to the same bytes."""
    if is_utf16(content.data[:8192]):
        raise ToolError(f"{name} is text in UTF-16; it can be read, but not changed without harm")
    if is_binary(content.data[:8192]):
        raise ToolError(binary_file(name, len(content.data)))
    try:
        return content.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{name} is not valid UTF-8 at byte {error.start}; it cannot be changed without harm"
        ) from None


def _check_new(what: str, text: str) -> None:
    """Refuse contents that no tool could read or change again."""
    check_text(what, text)
    if "\0" in text:
        raise ToolError(f"{what} holds a NUL character, which no text file has; leave it out")


def _encode(text: str, before: str | None) -> bytes:
    bom = codecs.BOM_UTF8.decode()
    if before is not None and before.startswith(bom) and not text.startswith(bom):
        text = bom + text
    return text.encode("utf-8")


def _with_line_ends(text: str, before: str | None) -> str:
    """Convert to the line endings of the replaced file, where those are uniform."""
    lines, crlf = (0, 0) if before is None else (before.count("\n"), before.count("\r\n"))
    if not lines or 0 < crlf < lines:
        return text
    return _ANY_ENDING.sub("\r\n" if crlf else "\n", text)


def _edited(text: str, old: str, new: str, name: str) -> tuple[int, str]:
    """Return the index of the old text, and the whole text with the new one there.

    Raises:
        ToolError: it is not there, or more than once; says where.
    """
    if not old:
        raise ToolError("old is empty: give the text to replace, or use write_file")
    if old == new:
        raise ToolError("old and new are the same: nothing would change")
    occurrences = _occurrences(text, old)
    if not occurrences:
        raise ToolError(f"no such text in {name}{_nearest(text, old)}")
    if len(occurrences) > 1:
        lines = [str(text.count("\n", 0, start) + 1) for start, _ in occurrences[:MAX_OCCURRENCES]]
        more = (
            ""
            if len(occurrences) <= MAX_OCCURRENCES
            else f" and {len(occurrences) - MAX_OCCURRENCES} more"
        )
        times = f"{len(occurrences)} times"
        if len(occurrences) > MAX_COUNTED:
            times, more = f"more than {MAX_COUNTED} times", " and more"
        raise ToolError(
            f"the text is in {name} {times}, at lines {', '.join(lines)}{more}; "
            "give more of what is around it"
        )
    start, end = occurrences[0]
    if not new and (start == 0 or text[start - 1] == "\n") and not old.endswith("\n"):
        ending = _ANY_ENDING.match(text, end)  # a whole line goes with its end
        end = ending.end() if ending else end
    if "\n" in text:
        new = _ANY_ENDING.sub("\r\n" if _crlf(text, start, text[start:end]) else "\n", new)
    if text.startswith(("\n", "\r\n"), end):
        new = new.rstrip("\r")  # half of a line ending, before the file's own
    edited = text[:start] + new + text[end:]
    if edited == text:
        raise ToolError("old and new differ only in line endings: those of the file stay")
    return start, edited


def _edit_instead(text: str, new: str) -> str:
    """Return the small edit that turns one text into another, if there is one."""
    old_lines, new_lines = split_lines(text), split_lines(new)
    head = same_lines(old_lines, new_lines)
    tail = same_lines(old_lines[head:][::-1], new_lines[head:][::-1])
    if head + tail in (len(old_lines), len(new_lines)):  # nothing is there, or comes: with a line
        head, tail = (head - 1, tail) if head else (head, max(0, tail - 1))
    old = "\n".join(old_lines[head : len(old_lines) - tail])
    put = "\n".join(new_lines[head : len(new_lines) - tail])
    small = head + tail > 0 and len(old) + len(put) <= MAX_EDIT
    if not small or len(_occurrences(text, old)) != 1 or text.replace(old, put) != new:
        return ", or change one piece of it with edit_file"
    arguments = json.dumps({"old": old, "new": put}, ensure_ascii=False)
    return f", or call edit_file with {arguments}, which does the same"


def _append_instead(text: str, new: str) -> str:
    """Return the edit that appends a text, if it is short and shares no line with the file."""
    last = text.rstrip().rpartition("\n")[2].removesuffix("\r")
    has_lines = set(split_lines(text)) & set(split_lines(new))
    if has_lines or len(last) + len(new) > MAX_EDIT or len(_occurrences(text, last)) != 1:
        return ""
    arguments = {"old": last, "new": "\n".join([last, *split_lines(new.strip("\r\n"))])}
    call = json.dumps(arguments, ensure_ascii=False)
    return f"; to add it at the end, call edit_file with {call}"


def _occurrences(text: str, old: str) -> list[tuple[int, int]]:
    """Return the bounds of every occurrence of the old text, overlapping ones included.

    A line ending of either text matches one of the other kind. No place begins or ends within one.
    """
    plain = text.replace("\r\n", "\n")
    # Where in the plain text a CR was taken out: what lies behind it is that much further on.
    cut = [] if len(plain) == len(text) else [m.start() for m in re.finditer("\r\n", text)]
    cut = [at - number for number, at in enumerate(cut)]
    found: list[tuple[int, int]] = []
    if old not in plain:  # else a CR of it is one within a line
        old = _ANY_ENDING.sub("\n", old).rstrip("\r")
    start = plain.find(old) if old else -1
    while start >= 0 and len(found) <= MAX_COUNTED:
        end = start + len(old)
        found.append((start + bisect_left(cut, start), end + bisect_left(cut, end)))
        start = plain.find(old, start + 1)
    return found


def _crlf(text: str, at: int, found: str) -> bool:
    """Return whether the replaced lines, else the line around them, end in CRLF."""
    if "\n" in found:
        return "\r\n" in found
    end = text.find("\n", at)
    if end < 0:
        return text.count("\r\n") * 2 > text.count("\n")
    return text[end - 1 : end] == "\r"


def _nearest(text: str, old: str) -> str:
    """Return the line most similar to the old text's first, for the error message."""
    lines, old = split_lines(text), _ANY_ENDING.sub("\n", old)
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")
    if re.match(r"\d+\t", wanted):
        return "; leave out the line numbers that read_file shows"
    if not wanted or len(lines) > 5000 or len(wanted) > 300:
        return ""
    stripped = [line.strip()[:300] for line in lines]
    # Those with the most of its words, since to compare two long lines may take milliseconds.
    words = _words(wanted)
    likely = heapq.nlargest(MAX_COMPARED, stripped, key=lambda line: len(words & _words(line)))
    near = difflib.get_close_matches(wanted, likely, n=1, cutoff=0.7)
    if not near:
        return ""
    at = stripped.index(near[0])
    if near[0] == wanted:  # then what differs is in its spaces, or in a line after it
        ended = text.endswith("\n")
        return _difference(lines, at, old.strip("\n") if ended else old, ended)
    return f"; line {at + 1} is like it: {near[0][:120]}"


def _difference(lines: list[str], at: int, old: str, ended: bool) -> str:
    """Return where a file's lines from `at` on first differ from the old text."""
    wanted = old.lstrip("\n").split("\n")
    for number, want in enumerate(wanted, at):
        if number == len(lines):
            return f"; the file ends with line {number}" + ("" if ended else ", without a line end")
        line = lines[number]
        # The old text may begin and end within a line.
        found = line[-len(want) :] if number == at and want else line
        found = found[: len(want)] if number == at + len(wanted) - 1 else found
        if found == want:
            continue
        spaces = " in spaces" if line.split() == want.split() else ""
        # As Python writes it: a tab must differ from spaces.
        return f"; line {number + 1} differs{spaces}: {line[:120]!r}"
    return f"; line {at + 1} is like it: {lines[at].strip()[:120]}"


def _words(line: str) -> set[str]:
    """Return the words and their fragments, most of which survive a misspelling."""
    parts = re.findall(r"\w+|[^\w\s]", line)
    return {piece for part in parts for piece in (part, part[:3], part[-3:])}


def _count(text: str) -> str:
    return plural(len(split_lines(text)), "line")
