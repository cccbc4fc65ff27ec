"""The definition of a suite: tasks with checks, models and settings (see docs/evaluation.md).

YAML, TOML and JSON hold the same fields. A field that is not known is an error that says where.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ...arguments import pip_install, read_text
from ...errors import SettingError
from ...jit.kv_formats import KVFormat
from ..config import BUILT_IN

WRITING = {"edit", "exec"}  # tools whose tasks get a copy of their folder

ToolGroup = Literal["find", "edit", "net", "exec"]
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _as_text(given: object) -> object:
    """Convert a number or date, as parsed by YAML or TOML, back to text."""
    plain = isinstance(given, int | float | date) and not isinstance(given, bool)
    return str(given) if plain else given


def _listed(given: object) -> object:
    """Wrap a single item in a list."""
    return [given] if isinstance(given, str | dict) else given


Version = Annotated[str, BeforeValidator(_as_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class FileCheck(_Strict):
    """The required state of a file after the answer."""

    contains: str | list[str] | None = None
    lacks: str | list[str] | None = None
    equals: str | None = None
    regex: str | None = None
    absent: bool = False


class Facts(_Strict):
    """Rules on the facts of an answer, as in `suite_files.Turn`."""

    has: list[str | list[str]] = []
    says: list[str | list[str]] = []
    lacks: list[str] = []
    none: bool = False
    absent: bool = False
    cannot: bool = False
    or_cannot: bool = False


class Check(_Strict):
    """One condition on an answer; exactly one of the fields up to `judge` selects its kind."""

    contains: str | list[str | list[str]] | None = None
    """Texts that the answer must contain; of an inner list, any one."""
    lacks: str | list[str] | None = None
    equals: str | list[str] | None = None
    """The expected answer, surrounding whitespace aside; of a list, any one."""
    regex: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    changed: list[str] | None = None
    """The files that must have been created, changed or removed, and no others."""
    files: dict[str, FileCheck] | None = None
    called: str | list[str] | None = None
    """Tools that must have been called, each with at least one success."""
    facts: Facts | None = None
    grounded: Literal[True] | None = None
    """Whether each fact of the answer must be in the questions or the tool results."""
    judge: str | None = None
    """Rubric that a judge model must find fulfilled."""

    ignore_case: bool = False
    name: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Check:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            shown = ", ".join("schema" if kind == "json_schema" else kind for kind in KINDS)
            raise ValueError(f"a check needs exactly one of {shown}")
        patterns = [self.regex, *(one.regex for one in (self.files or {}).values())]
        for pattern in patterns:
            try:
                re.compile(pattern or "")
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return self

    @property
    def kind(self) -> str:
        """Return the name of the field that selects the condition's kind."""
        found = next(kind for kind in KINDS if getattr(self, kind) is not None)
        return "schema" if found == "json_schema" else found


KINDS = (
    *("contains", "lacks", "equals", "regex", "json_schema", "changed", "files", "called"),
    *("facts", "grounded", "judge"),
)


class Question(_Strict):
    """One question of a conversation, with its checks."""

    ask: Name | Annotated[str, Field(min_length=1)]
    checks: list[Check] = Field(min_length=1)
    group: str | None = None


class Task(_Strict):
    """One conversation over one folder, usually of one question."""

    id: Name
    group: str = ""
    question: str | None = Field(default=None, min_length=1)
    checks: list[Check] = []
    turns: list[Question] = []
    dir: str | None = None
    files: dict[str, str] = {}
    """Texts by path, written into the task's copy of the folder first."""
    tools: list[ToolGroup] | None = None
    answer_schema: dict[str, Any] | None = None
    """JSON schema that constrains the answers."""
    version: Version = ""
    """Version of the task: a new one repeats its attempts; changes of a folder do not."""

    @model_validator(mode="after")
    def _either(self) -> Task:
        if (self.question is None) == (not self.turns):
            raise ValueError("a task needs either a question or turns")
        if self.question is not None and not self.checks:
            raise ValueError("a task with a question needs checks")
        if self.turns and self.checks:
            raise ValueError("with turns, each turn needs its own checks")
        return self

    @property
    def questions(self) -> list[Question]:
        """Return the task's questions: its turns, or its single question."""
        return self.turns or [Question(ask=self.question or "", checks=self.checks)]


class Price(_Strict):
    """The price of a million tokens, in dollars or any other currency; or one number for all."""

    input: float = Field(default=0.0, ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Price of cached input tokens; default: `input`."""
    output: float = Field(default=0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _of_number(cls, given: Any) -> Any:
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return {"input": given, "output": given} if is_number else given


class Model(_Strict):
    """A model and its load options, named as those of `triplepoint run`; or its name alone."""

    name: Name
    model: Name
    threads: int | None = Field(default=None, ge=1)
    kv: KVFormat | None = None
    context: int | None = Field(default=None, ge=1)
    price_per_million: Price | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, given: Any) -> Any:
        given = {"model": given} if isinstance(given, str) else given
        return {"name": given.get("model"), **given} if isinstance(given, dict) else given


class Setting(_Strict):
    """Named settings of the agent and its sampling."""

    name: Name = "default"
    system: str | None = None
    max_steps: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    thinking: bool | None = None
    thinking_tokens: int | None = Field(default=None, ge=0)
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    seed: int = 0
    """Seed of the first repeat; each further one adds 1."""


class Suite(_Strict):
    """An evaluation suite; relative paths start from the folder `place`."""

    name: Name
    about: str = ""
    dir: str | None = None
    tools: list[ToolGroup] = []
    models: Annotated[list[Model], BeforeValidator(_listed)] = Field(
        default=[Model(name=BUILT_IN, model=BUILT_IN)], min_length=1
    )
    settings: list[Setting] = Field(default=[Setting()], min_length=1)
    repeats: int = Field(default=1, ge=1, le=10_000)
    k: list[Annotated[int, Field(ge=1)]] = [1]
    judge: Model | None = None
    price_per_million: Price | None = None
    tasks: list[Task] = Field(min_length=1)
    place: Path = Path()

    @model_validator(mode="after")
    def _whole(self) -> Suite:
        for what, names in (
            ("task ids", [task.id for task in self.tasks]),
            ("model names", [model.name for model in self.models]),
            ("setting names", [setting.name for setting in self.settings]),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} must be unique: {', '.join(twice)} occur twice")
        judged = [t.id for t in self.tasks for q in t.questions for c in q.checks if c.judge]
        if judged and self.judge is None:
            raise ValueError(f"task {judged[0]} has a judge check, and the suite names no judge")
        if max(self.k) > self.repeats:
            raise ValueError(f"pass@{max(self.k)} needs at least {max(self.k)} repeats")
        return self

    def tools_of(self, task: Task) -> list[ToolGroup]:
        """Return the tool groups of a task, in addition to the three file tools."""
        return self.tools if task.tools is None else task.tools

    def folder_of(self, task: Task) -> Path | None:
        """Return the path of a task's folder, or None."""
        given = task.dir if task.dir is not None else self.dir
        return None if given is None else self.place / given

    def price_of(self, model: Model) -> Price | None:
        """Return the price of a million tokens, or None where it is unknown."""
        return model.price_per_million or self.price_per_million

    def cell(self, task: Task, model: Model, setting: Setting) -> str:
        """Return a digest of task, model and setting, by which earlier attempts are matched."""
        judged = any(check.judge for question in task.questions for check in question.checks)
        content = {
            "task": task.model_dump(exclude={"group"}),
            "dir": self.dir if task.dir is None else task.dir,
            "tools": self.tools_of(task),
            "model": model.model_dump(exclude={"price_per_million"}),
            "setting": setting.model_dump(),
            "judge": self.judge.model_dump() if judged and self.judge else None,
        }
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


SUFFIXES = (".yaml", ".yml", ".toml", ".json")


def read_suite(path: str | Path) -> Suite:
    """Read a suite from its file.

    Raises:
        SettingError: it cannot be read, or is invalid; names the location.
    """
    path = Path(path)
    data = _parsed(path)
    if not isinstance(data, dict):
        raise SettingError(f"{path}: a suite must be a table with name, models and tasks")
    data = {"name": path.stem, **data, "place": path.resolve().parent}
    if "folders" in data:
        from .folders import tasks_of

        found, own = tasks_of(path, data.pop("folders")), data.get("tasks", [])
        data["tasks"] = [*own, *found] if isinstance(own, list) else own
    try:
        return Suite.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        # A field that was misspelt is also one that is missing: say the first.
        first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])
        where = _where(first["loc"], data)
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            message = "there is no such field"
        raise SettingError(f"{path}{where}: {message}") from None


def _parsed(path: Path) -> Any:
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else why
        raise SettingError(f"cannot read the suite {path}: {why}") from None
    if path.suffix not in SUFFIXES:
        raise SettingError(f"{path}: a suite's file name must end in {', '.join(SUFFIXES)}")
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == ".json":
            return json.loads(text)
        return _yaml(path, text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{path}: not {path.suffix[1:].upper()}: {error}") from None


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise SettingError(
            f"{path}: YAML needs PyYAML, which is not installed: {pip_install('eval')}, "
            "or write the suite as TOML or JSON"
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _where(location: tuple[int | str, ...], data: dict[str, Any]) -> str:
    """Format the location of a validation error, with the task's id where there is one."""
    parts = [str(part) for part in location]
    tasks = data.get("tasks")
    if len(location) > 1 and location[0] == "tasks" and isinstance(location[1], int):
        task = tasks[location[1]] if isinstance(tasks, list) else None
        if isinstance(task, dict) and isinstance(task.get("id"), str):
            parts[1] = task["id"]
    return f", {'.'.join(parts)}" if parts else ""
