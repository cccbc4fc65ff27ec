"""Checks of answers: one function for each kind."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ...arguments import pip_install
from ...errors import SettingError
from ...tools.globs import glob_matcher
from ...tools.timed_regex import LIMIT_S, RegexTimeoutError, searched
from .definition import Check, FileCheck, Suite
from .suite_files import Turn
from .verdict import LONGEST, accept, evidence, fold, invented

Snapshot = Mapping[str, str]
"""Digest of each file's content, or target of a link, by path."""


class Judge(Protocol):
    """Callable that decides checks by a rubric, such as a model."""

    def __call__(self, rubric: str, question: str, answer: str) -> tuple[bool, str]:
        """Return whether the answer is right, and why."""
        ...


@dataclass
class Outcome:
    """Outcome of one question, for its checks.

    Attributes:
        calls: names of the tools that were called, and whether the call succeeded.
        questions: all so far; results: tool results so far.
        root: the task's folder; before: its snapshot before the questions.
    """

    question: str
    answer: str
    calls: Sequence[tuple[str, bool]] = ()
    questions: Sequence[str] = ()
    results: Sequence[str] = ()
    root: Path | None = None
    before: Snapshot = field(default_factory=dict)
    judge: Judge | None = None


def run_check(check: Check, outcome: Outcome) -> dict[str, Any]:
    """Run a check; return its entry in the results file, with ``why`` where it failed."""
    try:
        why = _CHECKS[check.kind](check, outcome)
    except RegexTimeoutError:
        why = f"the regex took too long: more than {LIMIT_S:g} s"
    found: dict[str, Any] = {"check": check.name or check.kind, "passed": not why}
    return {**found, "why": why} if why else found


def snapshot(root: Path) -> dict[str, str]:
    """Return the digest of each file in a folder, and the target of each link."""
    found: dict[str, str] = {}
    for parent, _, names in os.walk(root):
        for name in names:
            path = Path(parent, name)
            key = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[key] = f"link to {os.readlink(path)}"
            elif path.is_file():
                found[key] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def check_requirements(suite: Suite) -> None:
    """Check early that each check's package is installed and its schema is valid.

    Raises:
        SettingError: names the package, or the task whose schema is none.
    """
    schemas = [
        (task.id, check.json_schema)
        for task in suite.tasks
        for question in task.questions
        for check in question.checks
        if check.json_schema is not None
    ]
    if schemas and find_spec("jsonschema") is None:
        raise SettingError(
            f"schema checks need jsonschema, which is not installed: {pip_install('eval')}"
        )
    for task, schema in schemas:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise SettingError(
                f"task {task}: a check has an invalid schema: {error.message}"
            ) from None


# --- each kind: what is wrong, empty if nothing


def _folded(check: Check, text: str) -> str:
    return text.casefold() if check.ignore_case else text


def _contains(check: Check, outcome: Outcome) -> str:
    given = check.contains or []
    answer = _folded(check, outcome.answer)
    for part in [given] if isinstance(given, str) else given:
        some = [part] if isinstance(part, str) else part
        if not any(_folded(check, one) in answer for one in some):
            return f"it lacks {' or '.join(map(repr, some))}"
    return ""


def _lacks(check: Check, outcome: Outcome) -> str:
    answer = _folded(check, outcome.answer)
    found = [one for one in _texts(check.lacks) if _folded(check, one) in answer]
    return f"it has {found[0]!r}" if found else ""


def _equals(check: Check, outcome: Outcome) -> str:
    answer = _folded(check, outcome.answer.strip())
    if any(answer == _folded(check, one.strip()) for one in _texts(check.equals)):
        return ""
    return f"it is not {' or '.join(map(repr, _texts(check.equals)))}"


def _regex(check: Check, outcome: Outcome) -> str:
    flags = re.IGNORECASE if check.ignore_case else re.RegexFlag(0)
    found = searched(check.regex or "", outcome.answer, flags | re.MULTILINE)
    return "" if found else f"it has no match for {check.regex!r}"


def _schema(check: Check, outcome: Outcome) -> str:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    text = outcome.answer.strip()
    if fenced := re.fullmatch(r"```(?:json)?\s*\n(.*?)\n?```", text, re.DOTALL):
        text = fenced[1]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    try:
        validator = extend(Draft202012Validator, {"pattern": _pattern})
        error = next(validator(check.json_schema or {}).iter_errors(value), None)
    except RegexTimeoutError:
        raise
    except Exception as failure:  # a reference that leads nowhere, or in circles
        raise SettingError(f"the schema is unusable: {failure}") from None
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{f'{where}: ' if where else ''}{error.message[:200]}"


def _pattern(validator: Any, pattern: str, value: object, schema: object) -> Iterator[Any]:
    """Check JSON Schema's `pattern` keyword in bounded time."""
    from jsonschema import ValidationError

    if isinstance(value, str) and not searched(pattern, value, re.RegexFlag(0)):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _changed(check: Check, outcome: Outcome) -> str:
    if outcome.root is None:
        return "the task has no folder"
    now, before = snapshot(outcome.root), outcome.before
    changed = {name for name in {*now, *before} if now.get(name) != before.get(name)}
    wanted = check.changed or []
    matchers = [glob_matcher(one) for one in wanted]
    wrong = sorted(name for name in changed if not any(fits(name) for fits in matchers))
    missing = [
        one for one, fits in zip(wanted, matchers, strict=True) if not any(map(fits, changed))
    ]
    parts = [f"also changed: {', '.join(wrong)}"] if wrong else []
    parts += [f"not changed: {', '.join(missing)}"] if missing else []
    return "; ".join(parts)


def _files(check: Check, outcome: Outcome) -> str:
    if outcome.root is None:
        return "the task has no folder"
    for name, rule in (check.files or {}).items():
        if why := _file(outcome.root, name, rule):
            return f"{name}: {why}"
    return ""


def _file(root: Path, name: str, rule: FileCheck) -> str:
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        return "it is outside of the folder"
    if rule.absent:
        return "it exists" if path.exists() else ""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        return str(error.strerror)
    missing = [one for one in _texts(rule.contains) if one not in text]
    surplus = [one for one in _texts(rule.lacks) if one in text]
    if missing:
        return f"it lacks {missing[0]!r}"
    if surplus:
        return f"it has {surplus[0]!r}"
    if rule.equals is not None and text.strip() != rule.equals.strip():
        return "its text is different"
    if rule.regex is not None and not searched(rule.regex, text):
        return f"it has no match for {rule.regex!r}"
    return ""


def _called(check: Check, outcome: Outcome) -> str:
    done = {name for name, succeeded in outcome.calls if succeeded}
    missing = [name for name in _texts(check.called) if name not in done]
    return f"{', '.join(missing)} was not called successfully" if missing else ""


def _facts(check: Check, outcome: Outcome) -> str:
    assert check.facts is not None
    if len(fold(outcome.answer)) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    turn = Turn.read({"ask": outcome.question, **check.facts.model_dump()})
    return "" if accept(turn, outcome.answer) else "its facts are not the requested ones"


def _grounded(check: Check, outcome: Outcome) -> str:
    made_up = invented(outcome.answer, evidence(outcome.questions, outcome.results))
    return f"invented: {', '.join(made_up[:5])}" if made_up else ""


def _judge(check: Check, outcome: Outcome) -> str:
    if outcome.judge is None:
        raise SettingError("a judge check needs a judge")
    passed, why = outcome.judge(check.judge or "", outcome.question, outcome.answer)
    return "" if passed else why or "the judge said no"


def _texts(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


_CHECKS: dict[str, Callable[[Check, Outcome], str]] = {
    "contains": _contains,
    "lacks": _lacks,
    "equals": _equals,
    "regex": _regex,
    "schema": _schema,
    "changed": _changed,
    "files": _files,
    "called": _called,
    "facts": _facts,
    "grounded": _grounded,
    "judge": _judge,
}
