"""Input rows: a question and a folder each, from JSON lines, CSV, Parquet, or folders.

A row has a `question` and may have `dir`, `schema`, `tools`, `model` and `id`; every other field is
passed through to its result. An invalid row is refused with its line before anything starts.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...arguments import pip_install, read_text
from ...errors import RowError
from ...tools.groups import GROUPS
from .plain_values import plain

RESULT_FIELDS = (
    *("row", "key", "status", "answer", "output", "error", "trace", "usage", "seconds"),
    *("attempt", "deaths", "worker", "cost"),
)
"""Fields that a result adds to its row; a row cannot have fields of these names."""
_MAX_BYTES = 2**24  # of a line: a device may have no end
_PREFIX = 256  # characters of a question by which rows without a folder count as alike


@dataclass(frozen=True)
class Row:
    """A row: one task for an agent.

    Attributes:
        number: index in the input, from 0.
        key: hash of its contents, by which its result is found again.
        fields: all that was given, with the final question.
        question, dir, schema, tools, model: what of it the agent is made of; None: not given.
    """

    number: int
    key: str
    fields: dict[str, Any] = field(hash=False)
    question: str
    dir: str | None = None
    schema: dict[str, Any] | None = field(default=None, hash=False)
    tools: tuple[str, ...] | None = None
    model: str | None = None

    @property
    def affinity(self) -> tuple[object, ...]:
        """Key of rows that share a folder or prompt prefix, for routing to one cache."""
        schema = None if self.schema is None else json.dumps(self.schema, sort_keys=True)
        start = self.question[:_PREFIX] if self.dir is None else None
        return self.model, self.dir, self.tools, schema, start


def read_rows(path: str | Path, question: str | None = None) -> list[Row]:
    """Read the rows of a file: CSV and Parquet by suffix, else JSON lines; ``-`` is stdin.

    Args:
        path: the file.
        question: template of each row's question, such as ``"What failed in {name}?"``.

    Raises:
        RowError: a row is invalid; names the line, and why.
        OSError: the file cannot be read.
    """
    name, suffix = str(path), Path(path).suffix.lower()
    if name != "-" and Path(path).is_dir():
        raise RowError(
            f"{name} is a folder, not a file of rows; for a row per folder in it, "
            "use --dir-from and --question"
        )
    if suffix in (".parquet", ".pq"):
        given = _parquet(Path(path))
    elif suffix in (".csv", ".tsv"):
        given = _csv(Path(path), "\t" if suffix == ".tsv" else ",")
    else:
        given = _json_lines(name)
    rows = make_rows(given, question)
    if not rows:
        raise RowError(f"{name} has no rows")
    return rows


def folder_rows(folder: str | Path, question: str) -> list[Row]:
    """Return a row for each subfolder, by name, with the fields ``name`` and ``dir``.

    Raises:
        RowError: there is none, or the template asks for another field.
        OSError: the folder cannot be read.
    """
    found = sorted(
        path for path in Path(folder).iterdir() if path.is_dir() and path.name[:1] != "."
    )
    if not found:
        raise RowError(f"{folder} contains no folders")
    given = ((str(path), {"name": path.name, "dir": str(path)}) for path in found)
    return make_rows(given, question)


def make_rows(
    given: Iterable[tuple[str, Mapping[str, Any]]], question: str | None = None
) -> list[Row]:
    """Build rows from mappings, and check them.

    Args:
        given: the location of each, for messages, and its fields.
        question: template of their questions; without it each has one.

    Raises:
        RowError: one is invalid, or two have the same id.
    """
    rows: list[Row] = []
    locations: dict[str, str] = {}
    copies: dict[str, int] = {}
    for where, fields in given:
        row = _row(where, len(rows), fields, question)
        if (name := row.fields.get("id")) is not None:
            if (before := locations.setdefault(f"{type(name)}{name}", where)) is not where:
                raise RowError(f"{where}: the id {name!r} is already used by {before}")
        else:
            # Equal rows are distinguished by their order.
            copies[row.key] = copies.get(row.key, 0) + 1
            if copies[row.key] > 1:
                row = replace(row, key=f"{row.key}-{copies[row.key]}")
        rows.append(row)
    return rows


def _row(where: str, number: int, given: Mapping[str, Any], template: str | None) -> Row:
    try:
        read = {name: plain(value) for name, value in given.items()}
    except RecursionError as error:
        raise RowError(f"{where}: it cannot be written as JSON: {error}") from None
    fields = {name: value for name, value in read.items() if value is not None}
    for name in fields:
        if not isinstance(name, str) or name in RESULT_FIELDS:
            raise RowError(f"{where}: a field cannot be called {name!r}: results have one; rename")
    if template is not None:
        asked = {"question": _filled(template, fields, where)}
        fields = asked | fields | asked  # first, whether there was one or not
    question = fields.get("question")
    if not isinstance(question, str) or not question.strip():
        wanted = (
            "it must be a string" if "question" in fields else "give one, or a question template"
        )
        raise RowError(f"{where}: the row has no question; {wanted}")
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, default=str)
        content = json.loads(text)
        text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise RowError(f"{where}: {_culprit(fields)} as JSON: {error}") from None
    schema = _schema(where, content.get("schema"))
    keyed = content | {"schema": schema} if _is_file_name(content.get("schema")) else content
    text_key = json.dumps(keyed, sort_keys=True, ensure_ascii=False)  # in whatever order
    key = hashlib.sha256(text_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    for name in ("dir", "model"):
        value = fields.get(name)
        if value is not None and not (isinstance(value, str) and value and "\0" not in value):
            raise RowError(f"{where}: {name} must be a string, not {value!r}")
    if not isinstance(fields.get("id", ""), str | int) or isinstance(fields.get("id"), bool):
        raise RowError(f"{where}: id must be a string or a whole number, not {fields['id']!r}")
    return Row(
        number,
        key,
        content,
        question,
        fields.get("dir"),
        schema,
        _tools(where, fields.get("tools")),
        fields.get("model"),
    )


def _culprit(fields: Mapping[str, Any]) -> str:
    """Return the field that cannot be serialized."""
    for name, value in fields.items():
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False, default=str).encode()
        except (ValueError, TypeError, RecursionError):
            return f"the field {name!r} cannot be written"
    return "it cannot be written"


def _filled(template: str, fields: Mapping[str, Any], where: str) -> str:
    """Fill a template with the values of the fields; ``{{`` is a brace."""

    def value(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        name = found[1]
        if name not in fields:
            known = ", ".join(map(str, fields)) or "none"
            raise RowError(f"{where}: the question needs the field {name!r}; the row has {known}")
        text = fields[name]
        return text if isinstance(text, str) else json.dumps(text, default=str)

    return re.sub(r"\{\{|\}\}|\{([^{}]+)\}", value, template)


def _schema(where: str, value: Any) -> dict[str, Any] | None:
    """Return a JSON schema, given itself, its text, or its file."""
    if isinstance(value, str):
        try:
            value = json.loads(read_text(value) if _is_file_name(value) else value)
        except (OSError, ValueError, RecursionError) as error:
            raise RowError(f"{where}: cannot read the schema: {error}") from None
    if value is not None and not isinstance(value, dict):
        raise RowError(f"{where}: schema must be a JSON schema or a file with one, not {value!r}")
    return value


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] != "{"


def _tools(where: str, value: Any) -> tuple[str, ...] | None:
    """Parse tool groups: a list, or a comma-separated text."""
    if value is None:
        return None
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if names == ["all"]:
        return tuple(GROUPS)
    if not isinstance(names, list) or any(name not in GROUPS for name in names):
        known = ", ".join(GROUPS)
        raise RowError(f"{where}: tools must be a list of {known}, not {value!r}")
    return tuple(name for name in GROUPS if name in names)


# --- files


def _json_lines(name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # stdin stays open: it is not ours, and the command line looks at it later.
    with contextlib.nullcontext(sys.stdin.buffer) if name == "-" else open(name, "rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(_MAX_BYTES), b""), 1):
            where = f"{name}, line {number}"
            if len(line) >= _MAX_BYTES:
                raise RowError(f"{where}: it has {_MAX_BYTES:,} bytes or more")
            if not line.strip():
                continue
            try:
                fields = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
            except (ValueError, RecursionError) as error:
                raise RowError(f"{where}: not JSON: {error}") from None
            if not isinstance(fields, dict):
                raise RowError(f"{where}: not a JSON object; each line must be one")
            yield where, fields


def _csv(path: Path, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, delimiter=delimiter, strict=True)
        before = csv.field_size_limit(_MAX_BYTES)  # of the whole process: it is put back
        try:
            names = [name for name in reader.fieldnames or () if name]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise RowError(f"{path}: two columns are called {twice!r}; rename one of them")
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if None in cells:
                    raise RowError(f"{where}: it has more cells than the header has names")
                yield where, {name: cell for name, cell in cells.items() if cell}
        except csv.Error as error:
            raise RowError(f"{path}, line {reader.line_num}: not CSV: {error}") from None
        except UnicodeDecodeError as error:  # of a block of lines
            raise RowError(f"{path}, line {_not_utf8(path)}: not UTF-8: {error.reason}") from None
        finally:
            csv.field_size_limit(before)


def _not_utf8(path: Path) -> int:
    """Return the first line that is not UTF-8."""
    number = 0
    with path.open("rb") as file, contextlib.suppress(UnicodeDecodeError):
        for number, line in enumerate(file, 1):  # noqa: B007
            line.decode("utf-8")
    return number


def _parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        import duckdb
    except ImportError:
        raise RowError(f"{path}: Parquet is read by duckdb: {pip_install('analysis')}") from None
    path.open("rb").close()  # an error of the system names the file
    with duckdb.connect() as database:
        try:
            found = database.execute("SELECT * FROM read_parquet(?)", [glob.escape(str(path))])
            names = [column[0] for column in found.description or ()]
            number = 0
            while batch := found.fetchmany(1000):
                for values in batch:
                    number += 1
                    yield f"{path}, row {number}", dict(zip(names, values, strict=True))
        except duckdb.Error as error:
            first = str(error).strip().partition("\n")[0]
            raise RowError(f"{path}: not Parquet: {first}") from None
