"""What a line is counted under: a field of it, told in words that a small model can write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from ..errors import ToolError
from .paths import check_text, shown
from .search import MAX_PATTERN
from .timed_regex import captured

MAX_KEY = 200  # characters of a group's name
MAX_LINE = 4096  # characters of a line that an expression looks at
MAX_FIELDS = 12  # names of fields in a message

_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# A date as logs write it, and the time behind it: ISO, nginx's, syslog's, the German one.
_DATE = (
    rf"\d{{4}}[-/]\d\d[-/]\d\d|\d\d/(?:{_MONTH})/\d{{4}}|(?:{_MONTH}) [ \d]\d|\d\d\.\d\d\.\d{{4}}"
)
_WHEN = re.compile(rf"\b(?P<day>{_DATE})(?:[T :,]{{1,2}}(?P<hour>\d\d)(?::(?P<minute>\d\d))?)?")
_TIME = re.compile(r"\b(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)\b")
_LEVELS = (
    "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERR|ERROR|SEVERE|CRIT|CRITICAL|ALERT|FATAL|EMERG|PANIC"
)
_LEVEL = re.compile(
    rf"\b({_LEVELS})\b|(?i:\[({_LEVELS})\]|\b(?:level|severity|lvl)\W{{1,4}}(\w{{1,20}}))"
)
_HEX = "[0-9a-fA-F]{1,4}"
_METHOD = "GET|HEAD|POST|PUT|DELETE|PATCH|OPTIONS|CONNECT"

# Each takes time that grows with the line at most: what stands before a repetition is fixed.
_EXPRESSIONS = {
    "ip": rf"(?<![\w.:])((?:\d{{1,3}}\.){{3}}\d{{1,3}}|(?:{_HEX}:){{7}}{_HEX}"
    rf"|(?:{_HEX}:){{1,6}}:(?:{_HEX}:){{0,5}}{_HEX}|::1)(?!\.?\w)",
    "status": r'(?:" |\bHTTP/\d(?:\.\d)? |\bstatus\W{1,4})([1-5]\d\d)\b',
    "method": rf"\b({_METHOD})\b",
    "url": rf"\b(?:{_METHOD}) (\S{{1,2000}})",
    "line": r"(.*)",
}
_SAME = {
    "path": "file", "filename": "file", "date": "day", "severity": "level", "address": "ip",
    "ip address": "ip", "client": "ip", "code": "status", "status code": "status",
    "request": "url", "text": "line", "message": "line",
}  # fmt: skip
WORDS = ("file", "day", "hour", "minute", "level", "ip", "status", "method", "url", "line")

Keys = Callable[[list[str], float], list[str | None]]
"""What each of some lines is counted under, None for none; takes the seconds that there are."""


def grouping(by: str) -> Keys | None:
    """How lines are grouped; None: by the file that they are in.

    Args:
        by: a regular expression with one group, one of `WORDS`, the number of a field between
            spaces, or the name of a field: of JSON, or before ``=`` or ``:``.

    Raises:
        ToolError: it is none of these.
    """
    check_text("by", by)
    if len(by) > MAX_PATTERN:
        raise ToolError(f"by has {len(by)} characters; {MAX_PATTERN} are allowed")
    word = re.sub(r"^(?:(?:by|per|each|the)\s+)+", "", by.strip().casefold())
    if number := re.fullmatch(r"\$?(?:(?:field|column|word)\s*)?(\d{1,4})", word):
        return _each(_field(int(number[1])))
    word = word if word in WORDS or word in _SAME else word.removesuffix("s")
    word = _SAME.get(word, word)
    if word == "file":
        return None
    if word in ("day", "hour", "minute"):
        return _each(_named(by.strip(), lambda line: _time_of(line, word)))
    if word == "level":
        return _each(_named(by.strip(), _level_of))
    if word in _EXPRESSIONS:
        return _each(_named(by.strip(), _first(_EXPRESSIONS[word])))
    if re.fullmatch(r"[\w.@ -]{1,100}", by.strip()):
        return _each(_named(by.strip(), lambda line: None))
    return _expression(by)


def fields(lines: list[str]) -> list[str]:
    """The names of the fields that some lines have, the first of them."""
    found: dict[str, None] = {}
    for line in lines:
        row = _object(line)
        names = re.findall(r"(?<![\w.])([A-Za-z_]\w{0,40})=", line) if row is None else list(row)
        found.update(dict.fromkeys(map(shown, names)))
    return list(found)[:MAX_FIELDS]


def _each(key: Callable[[str], str | None]) -> Keys:
    return lambda lines, _: [key(line) for line in lines]


def _expression(by: str) -> Keys:
    try:
        groups = re.compile(by).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"by is a bad regular expression: {shown(str(error))}") from None
    if groups > 1:
        raise ToolError(f"by has {groups} groups in brackets; it must have one: what to group by")
    return lambda lines, seconds: captured(by, [line[:MAX_LINE] for line in lines], seconds)


def _field(number: int) -> Callable[[str], str | None]:
    if not number:
        raise ToolError("by=0: fields are counted from 1")

    def key(line: str) -> str | None:
        words = line.split(None, number)
        return words[number - 1] if len(words) >= number else None

    return key


def _first(pattern: str) -> Callable[[str], str | None]:
    find = re.compile(pattern).search

    def key(line: str) -> str | None:
        return found[1] if (found := find(line[:MAX_LINE])) else None

    return key


def _named(name: str, other: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The field of that name, of JSON or before ``=`` or ``:``; where there is none, `other`."""
    before = rf"(?<![\w.]){re.escape(name)}[\"']?\s?[=:]\s?"
    find = re.compile(rf"(?i){before}(?:\"([^\"]{{0,500}})|([^\s,;\"{{\[]{{1,500}}))").search

    def key(line: str) -> str | None:
        row = _object(line)
        if row is not None and (value := _inside(row, name)) is not None:
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if (value := other(line)) is not None or row is not None:
            return value
        found = find(line[:MAX_LINE])
        return None if found is None else next(one for one in found.groups() if one is not None)

    return key


def _object(line: str) -> Mapping[str, object] | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        row = json.loads(line, parse_float=str, parse_int=str)  # as they are written
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _inside(row: Mapping[str, object], name: str) -> object:
    """The value of a name, or of one within another: ``user.id``."""
    value: object = row
    if name in row:
        return row[name]
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return value


def _time_of(line: str, unit: str) -> str | None:
    line = line[:MAX_LINE]
    found = _WHEN.search(line)
    if found is None or (unit != "day" and found["hour"] is None):
        alone = None if unit == "day" else _TIME.search(line)
        if alone is None:
            return None
        return f"{alone['hour']}:00" if unit == "hour" else f"{alone['hour']}:{alone['minute']}"
    if unit == "day":
        return found["day"]
    return f"{found['day']} {found['hour']}:{'00' if unit == 'hour' else found['minute']}"


def _level_of(line: str) -> str | None:
    found = _LEVEL.search(line[:MAX_LINE])
    return next(one for one in found.groups() if one is not None).upper() if found else None
