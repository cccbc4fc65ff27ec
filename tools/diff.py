"""The diff that a user sees before a file is changed."""

from __future__ import annotations

import difflib
import re

from .formats import split_lines

MAX_DIFF = 120  # lines of a diff that is shown
MAX_COMPARED = 1000  # lines from the first that differs on which are compared
CUT = "[cut: "  # begins the placeholder for lines that are not shown
CONTEXT = 2  # lines of a diff before and after what differs


def diff(old: str, new: str, name: str) -> str:
    """Return a unified diff of two texts, cut to a readable length."""
    before, after = split_lines(old), split_lines(new)
    start = same_lines(before, after)
    # Only what differs is compared, which takes up to the square of its length.
    end = same_lines(before[start:][::-1], after[start:][::-1])
    differ = before[start : len(before) - end], after[start : len(after) - end]
    parts = _compared(*differ)
    left = max(len(whole) - len(part) for whole, part in zip(differ, parts, strict=True))
    head = before[max(start - CONTEXT, 0) : start]
    tail = before[len(before) - end :][:CONTEXT] if left == 0 else []
    one, other = (head + part + tail for part in parts)
    lines = list(difflib.unified_diff(one, other, f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT))
    lines = [_moved(line, start - len(head)) if line[:2] == "@@" else line for line in lines]
    if not lines and old != new:
        return f"{name}: only line ends or the end of the file differ"
    if len(lines) > MAX_DIFF:  # in the middle: what comes last may be what matters
        half = MAX_DIFF // 2
        lines[half:-half] = [f"{CUT}{len(lines) - 2 * half} lines of the diff]"]
    if left:
        lines.append(f"{CUT}{left} more lines were not compared]")
    return "\n".join(lines) or f"{name}: nothing changes"


def _compared(old: list[str], new: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines to compare of two lists: up to lines that are equal in both."""
    if max(len(old), len(new)) <= MAX_COMPARED:
        return old, new
    old, new = old[:MAX_COMPARED], new[:MAX_COMPARED]
    *same, _ = difflib.SequenceMatcher(None, old, new).get_matching_blocks()
    if not same:
        return old, new
    return old[: same[-1].a + same[-1].size], new[: same[-1].b + same[-1].size]


def same_lines(one: list[str], other: list[str]) -> int:
    """Return the length of the common prefix of two texts, in lines."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )


def _moved(header: str, by: int) -> str:
    """Shift a diff's ``@@ -1,5 +1,6 @@`` by a number of lines."""
    return re.sub(r"(?<=[-+])\d+", lambda found: str(int(found[0]) + by), header)
