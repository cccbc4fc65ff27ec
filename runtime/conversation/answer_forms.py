"""Extractive grammar of answers: claims that a model's file declares and tool results support.

A file may hold such forms under `KEY`: terminals of a Lark grammar, of which `ANSWER` is the
whole answer. They may use three that are defined here, of the conversation so far:

    QUOTE    a run of whole words and signs, within one line, of questions and results
    NUMBER   one that is a number
    SETTING  a name and what follows it on its line of a result: "port is 80", "port in
             a.conf is 80", "port is 80 (line 3); 81 (line 9)", where the lines have numbers

and claims, one a line, each a form that is written once for each result, or each line of one, of
which it is true:

    %claim NAME "It is on line {number} of {file}."
    %claim NAME "{path} is empty." "(empty file)"

A field is of a call (`path`, `pattern`, `start`), of its result (`files`: all that a search found;
`lines`: all their numbers, in one file; `entries` of a folder, of a large one the first `and more`;
`places` that an error names), or of a line that it shows (`file`, `number` and `text`, or `blank`:
the number of an empty one; `end`: the line from any word on). A claim that ends with how results
begin is made of the results since the last question alone, and says so where the tool did not see
all (`Result.reservation`); the others, where no tool was called since then, of all before.

The embedded model's file has them: it cannot write a word that no source holds, a name with the
value of another, half of a list, or that a file is empty which is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer
    from .formats.toolcalls import ToolFormat

KEY = "triplepoint.answers"
RESULT_TAGS = ("<tool_response>", "</tool_response>")
"""The tokens around a result (`Hermes.reserved`), in the templates of files that declare forms."""

_CLAIM = re.compile(r'%claim (\w+) ("(?:[^"\\]|\\.)*")(?: ("(?:[^"\\]|\\.)*"))?')
_FIELD = re.compile(r"\{(\w+)\}")
_NEVER = r"/[^\s\S]/"
"""A terminal that matches nothing."""
_ANY = r"/[^\n]*/"
_PIECES = re.compile(r"\w+|\W", re.DOTALL)
"""The units that a quotation never splits: a word, a number, or one other character."""
_HIT = re.compile(r"(\S.*?):(\d+):(.*)")
_NUMBERED = re.compile(r"(\d+)\t(.*)")
_NAME = re.compile(r"[^\s=:\"'`,;(){}\[\]<>]+")
_WORD_CHARACTER = re.compile(r"\w|[^\x00-\x7f]")
"""A character that each value contains. A range up to U+10FFFF would take 6 ms to compile."""
_OTHER_PATHS = re.compile(r"\(there are (.*)\)$")
_PARTED = re.compile(r'["|]')
"""Characters that divide a line into parts; the end of each part may end a quotation."""
_CUT = "[cut: "
_ERROR = "error: "
AS_FAR = ", as far as I searched."
"""Suffix of a claim of absence, where the tool's result was truncated."""
_NAMES = 4
"""Number of words at the start of a line that may be the name of its setting."""
_BEFORE = re.compile(r"\s*((-|export|set|env|ENV|ARG|const|let|var)\s+)*[\"'<]?")
"""Text that may precede the name that a line sets; a comment sign is not among it."""
MAX_OCCURRENCES = 12
"""Maximum occurrences of a name that one answer lists."""
MAX_LISTED_BYTES = 1200
"""Maximum UTF-8 bytes of a folder's names in one answer; a longer list ends in `and more`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A numbered line that a tool result shows."""

    file: str
    number: int
    text: str

    def fields(self) -> dict[str, str]:
        number, text = str(self.number), self.text.strip()
        known = {"number": number, "text": text, "end": text} if text else {"blank": number}
        return known | ({"file": self.file} if self.file else {})


@dataclass(frozen=True)
class Result:
    """A tool call's arguments and its result."""

    arguments: Mapping[str, Any]
    text: str

    @cached_property
    def rows(self) -> list[Row]:
        """Return the lines that the result shows, with their numbers."""
        path, found = str(self.arguments.get("path", "")), list[Row]()
        for line in self.text.split("\n"):
            if "pattern" in self.arguments:
                if hit := _HIT.fullmatch(line):
                    found.append(Row(hit[1], int(hit[2]), hit[3]))
            elif row := _NUMBERED.fullmatch(line):
                found.append(Row(path, int(row[1]), row[2]))
        return found

    def begins(self, sign: str) -> bool:
        """Return whether the result begins with `sign`, whose fields are filled in first."""
        known = self.fields
        return self.text.startswith(_FIELD.sub(lambda match: known.get(match[1], match[0]), sign))

    @property
    def cut(self) -> bool:
        """Return whether the result ends with a truncation marker."""
        return is_cut(self.text)

    def reservation(self, sign: str | None) -> str | None:
        """Return the suffix that a claim made from `sign` needs; empty where it needs none.

        That nothing was found is not that it is nowhere, where the tool did not see all. None: of a
        call that failed for reasons of its own there is no claim.
        """
        if sign is None or sign.startswith(_ERROR):
            return ""
        if not self.text.startswith(_ERROR):
            return AS_FAR if self.cut else ""
        message = self.text.removeprefix(_ERROR).split("\n")[0]
        return f" that I could see: {message}" if self.fields.get("path", "\n") in message else None

    @cached_property
    def fields(self) -> dict[str, str]:
        """Return the values that claims may quote from the call and its result, by field."""
        arguments = self.arguments
        known = {name: str(arguments[name]) for name in ("path", "start") if name in arguments}
        rows, cut = self.rows, self.cut
        if "pattern" in arguments:
            pattern = str(arguments["pattern"]).replace(".?", " ")
            if not (arguments.get("regex") and "|" in pattern):
                known["pattern"] = pattern
            files = list(dict.fromkeys(row.file for row in rows))
            if rows:
                known["files"] = ", ".join(files) + ", and maybe in more files" * cut
            if len(files) == 1:
                known["file"] = files[0]
            if len(files) == 1 and len(rows) > 1 and not cut:
                known["lines"] = ", ".join(str(row.number) for row in rows)
        elif not rows and not self.text.startswith(("error: ", "(")):
            known["entries"] = entries(self.text)
        if paths := _OTHER_PATHS.search(self.text):
            known["places"] = paths[1]
        return known


@dataclass(frozen=True, slots=True)
class Evidence:
    """The tool results of a conversation, as evidence for the next answer."""

    text: str = ""
    """The text that an answer may quote."""
    results: Sequence[Result] = ()
    """Results since the last question; all earlier ones where no tool was called since."""
    fresh: bool = False
    """Whether `results` are from since the last question."""


@dataclass(slots=True)
class _Rules:
    """Builds the grammar rules of answer forms from the evidence."""

    evidence: Evidence
    lines: list[str] = field(default_factory=list)
    ends: dict[str, str] = field(default_factory=dict)

    def claim(self, template: str, sign: str | None) -> Iterator[str]:
        """Expand a template to one alternative for each fact that makes it true."""
        wanted = set(_FIELD.findall(template))
        seen: dict[str, None] = {}
        for result in self.evidence.results:
            if sign is not None and not (self.evidence.fresh and result.begins(sign)):
                continue
            if (reserved := result.reservation(sign)) is None:
                continue
            stem = template.removesuffix(".") if reserved else template
            whole = result.fields
            rows = [whole] if wanted <= {*whole, "QUOTE", "NUMBER"} else []
            for known in rows or (whole | row.fields() for row in result.rows):
                if all(name in known or name.isupper() for name in wanted):
                    end = f" {_quoted(reserved)}" if reserved else ""
                    seen[self._filled(stem, known) + end] = None
        yield from seen

    def _filled(self, template: str, known: Mapping[str, str]) -> str:
        parts: list[str] = []
        text = ""
        for number, part in enumerate(_FIELD.split(template)):
            if number % 2 == 0:
                text += part
            elif part == "end" or part not in known:
                parts += [_quoted(text)] * bool(text)
                parts.append(self._end(known[part]) if part == "end" else part)
                text = ""
            else:
                text += known[part]
        return " ".join([*parts, *[_quoted(text)] * bool(text)])

    def _end(self, text: str) -> str:
        """Return a terminal of `text`'s suffixes from word starts; in JSON, from any character."""
        if text in self.ends:
            return self.ends[text]
        pieces, parted = _PIECES.findall(text), _PARTED.search(text)
        name = self.ends[text] = f"END{len(self.ends)}"
        last = ""  # the shortest end that occurs nowhere else
        while not parted and text.count(last) != 1:
            last = pieces.pop() + last
        rest = f" & ({_ANY} {_quoted(last)})" if last else r" & /[^\n]+/"
        self.lines += [f"{name}: P{name}{rest}", f"P{name}: {_part_of(text)}"]
        return name


def is_cut(result: str) -> bool:
    """Return whether a tool's result ends with a truncation marker."""
    _, line_end, last = result.rpartition("\n")
    return bool(line_end) and last.startswith(_CUT)


def entries(listing: str) -> str:
    """Join the names of a folder listing for an answer; a long list ends with `and more`."""
    names, cut = listing.split("\n"), is_cut(listing)
    shown, size = 0, 0
    for name in names[: len(names) - cut]:
        size += len(name.encode()) + len(", ")
        if shown and size > MAX_LISTED_BYTES:
            cut = True
            break
        shown += 1
    return ", ".join(names[:shown]) + " and more" * cut


def rules(forms: str, evidence: Evidence) -> str:
    """Return the Lark rules of `answer` for the declared `forms` and the `evidence`."""
    made = _Rules(evidence)
    claims: dict[str, list[str]] = {}
    others: list[str] = []
    for line in forms.split("\n"):
        if claim := _CLAIM.fullmatch(line):
            sign = None if claim[3] is None else json.loads(claim[3])
            claims.setdefault(claim[1], []).extend(made.claim(json.loads(claim[2]), sign))
        else:
            others.append(line)
    return "\n".join(
        [
            "answer: ANSWER",
            *others,
            *(_one_of(name, found) for name, found in claims.items()),
            *made.lines,
            r"QUOTE: GIVEN & /[^\n]+/",
            "NUMBER: GIVEN & /[0-9]+/",
            f"GIVEN: {_part_of(evidence.text or ' ')}",
            *(_settings(evidence.results) if "SETTING" in forms else ()),
        ]
    )


def _quoted(text: str) -> str:
    """Quote a text as a literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)


def _part_of(text: str) -> str:
    return f"%regex {json.dumps({'substring_chunks': _PIECES.findall(text)})}"


def _one_of(name: str, found: Sequence[str]) -> str:
    return f"{name}: " + ("\n    | ".join(found) or _NEVER)


def _settings(results: Iterable[Result]) -> list[str]:
    """Return the rules of `SETTING`: one for each name in each file, with its value there."""
    behind: dict[tuple[str, str], dict[int, list[tuple[str, bool]]]] = {}
    for result in results:
        for row in result.rows:
            for name in islice(_NAME.finditer(row.text), _NAMES):
                rest = row.text[name.end() :].strip()
                if _WORD_CHARACTER.search(rest):
                    first = _BEFORE.fullmatch(row.text, 0, name.start()) is not None
                    rows = behind.setdefault((name[0], row.file), {})
                    rows.setdefault(row.number, []).append((rest, first))
    names: dict[str, str] = {}

    def value(rest: str) -> str:
        return names.setdefault(rest, f"V{len(names)}")

    found: list[str] = []
    for (name, file), rows in behind.items():
        values = dict.fromkeys(value(rest) for rests in rows.values() for rest, _ in rests)
        inside = f"({_quoted(f' in {file}')})? " if file else ""
        listed = _occurrences(rows, value)
        found.append(f'{_quoted(name)} {inside}" is " ({" | ".join([*values, *listed])})')
    return [
        _one_of("SETTING", found),
        *(f"{v}: R{v} & /.+/\nR{v}: {_part_of(rest)}" for rest, v in names.items()),
    ]


def _occurrences(
    rows: Mapping[int, Sequence[tuple[str, bool]]], value: Callable[[str], str]
) -> list[str]:
    """Return expressions that list a name's occurrences in order; none for a single occurrence.

    A list has every line on which the name comes first, and any of the others.
    """
    numbers = sorted(rows)[:MAX_OCCURRENCES]
    behind = ""
    lists: list[str] = []
    for number in reversed(numbers):
        rests = dict.fromkeys(value(rest) for rest, _ in rows[number])
        occurrence = f'({" | ".join(rests)}) " (line {number})"'
        from_here = [f"{occurrence} {behind}"] if behind else []
        if any(first for _, first in rows[number]):
            lists = from_here
            behind = f'"; " {occurrence} {behind}'
        else:
            lists = from_here + lists
            behind = f'("; " {occurrence})? {behind}'
    return lists


def read_evidence(
    tokenizer: Tokenizer, ids: Sequence[int], form: ToolFormat, tags: Mapping[str, int]
) -> Evidence:
    """Read the tool results of a conversation from its tokens, without the patterns searched for.

    Args:
        tokenizer: of the model.
        ids: the tokens so far.
        form: how calls are written.
        tags: the tokens of the tags that the vocabulary has.
    """
    call, called, result, returned = map(tags.get, (form.opening, form.closing, *RESULT_TAGS))
    quotable: list[int] = []
    results: list[Result] = []
    pending: list[Mapping[str, Any]] = []  # arguments of calls that have no result yet
    begun = first = 0
    opened: int | None = None
    stops = 0  # how many messages ended since the last call or result began
    stop_ids = tokenizer.stop_ids
    for at, token in enumerate(ids):
        if opened is None:
            if token in (call, result):
                opened, begun = token, at + 1
                if token == call and stops > 1:  # a question came in between
                    first = len(results)
                stops = 0
        elif opened == call:
            if token == called or token in stop_ids:  # a call that was cut ends with its turn
                opened = None
                with suppress(ValueError):
                    text = tokenizer.decode(ids[begun:at])
                    pending += [one.arguments for one in form.parse(text)]
        elif token == returned:
            text = tokenizer.decode(ids[begun:at]).strip("\n")
            results.append(Result(pending.pop(0) if pending else {}, text))
            opened = None
        if opened is None or opened != call:
            quotable.append(token)
        if opened is None and token in stop_ids:
            stops += 1
    fresh = stops <= 1 and len(results) > first
    return Evidence(tokenizer.decode(quotable), results[first:] if fresh else results, fresh)
