"""Suites from files: three forms of the same, and mistakes that are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.pages import names, read, section, table_of
from pydantic import BaseModel

from triplepoint.errors import SettingError
from triplepoint.runtime.suites.definition import Check, Model, Setting, Suite, Task, read_suite

ROOT = Path(__file__).parents[3]
TASK: dict[str, Any] = {"id": "a", "question": "What?", "checks": [{"contains": "x"}]}
TOML = """
models = ["nano", {model = "qwen3:4b", kv = "q8", price_per_million = 2}]
repeats = 3
k = [1, 3]
price_per_million = {input = 1, output = 4}
settings = [{name = "warm", temperature = 0.7}]
[[tasks]]
id = "a"
question = "What?"
checks = [{contains = "x"}]
"""
YAML = """
models: [nano, {model: "qwen3:4b", kv: q8, price_per_million: 2}]
repeats: 3
k: [1, 3]
price_per_million: {input: 1, output: 4}
settings: [{name: warm, temperature: 0.7}]
tasks:
  - {id: a, question: "What?", checks: [{contains: x}]}
"""


def test_three_forms_of_one_suite(tmp_path: Path) -> None:
    """YAML, TOML and JSON give the same suite; a number is the price of all tokens."""
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    import tomllib

    for suffix, text in (("toml", TOML), ("yaml", YAML), ("json", json.dumps(tomllib.loads(TOML)))):
        (tmp_path / f"s.{suffix}").write_text(text)
    suites = [read_suite(tmp_path / f"s.{suffix}") for suffix in ("toml", "yaml", "json")]

    assert suites[0] == suites[1] == suites[2]
    suite = suites[0]
    assert [model.name for model in suite.models] == ["nano", "qwen3:4b"]
    prices = [suite.price_of(model) for model in suite.models]
    assert [(p.input, p.cached, p.output) for p in prices if p] == [(1, None, 4), (2, None, 2)]
    assert suite.tasks[0].questions[0].ask == "What?"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tasks": []}, "tasks: List should have at least 1 item"),
        ({"task": [TASK]}, "task: there is no such field"),
        ({"tasks": [{**TASK, "cheks": []}]}, r"tasks\.a\.cheks"),
        ({"tasks": [{**TASK, "checks": []}]}, r"tasks\.a: a task with a question needs checks"),
        ({"tasks": [{**TASK, "turns": [{"ask": "b", "checks": [{"grounded": True}]}]}]}, "either"),
        ({"tasks": [{**TASK, "checks": [{}]}]}, "exactly one of contains, lacks"),
        ({"tasks": [{**TASK, "checks": [{"contains": "a", "equals": "b"}]}]}, "exactly one of"),
        ({"tasks": [{**TASK, "checks": [{"regex": "("}]}]}, "not a regular expression"),
        ({"tasks": [{**TASK, "checks": [{"judge": "ok?"}]}]}, "task a has a judge check"),
        ({"tasks": [TASK, TASK]}, "task ids must be unique: a occur twice"),
        ({"tasks": [TASK], "models": ["x", "x"]}, "model names must be unique"),
        ({"tasks": [TASK], "k": [2]}, "pass@2 needs at least 2 repeats"),
        ({"tasks": [TASK], "repeats": 0}, "repeats: Input should be greater"),
        ({"tasks": [{**TASK, "tools": ["rockets"]}]}, r"tasks\.a\.tools\.0"),
        ({"tasks": "many"}, "tasks: "),
        ({"folders": "none/*.toml"}, "no file matches folders"),
        ({"tasks": [TASK], "models": 7}, "models"),
    ],
)
def test_mistakes_are_named(
    suite_of: Callable[..., Suite], fields: dict[str, Any], message: str
) -> None:
    """The file, the task and the field."""
    with pytest.raises(SettingError, match=message) as caught:
        suite_of(**fields)
    assert "suite.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.toml", "tasks = [", "not TOML"),
        ("s.json", "{", "not JSON"),
        ("s.json", "[" * 100_000, "not JSON"),
        ("s.yaml", "a: [", "not YAML"),
        ("s.yaml", "!!python/object/apply:os.system ['true']", "not YAML"),
        ("s.yaml", "- a", "a table with name"),
        ("s.txt", "", r"end in \.yaml"),
        ("s.json", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_files_that_are_no_suite(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    """Each is an error of one line."""
    if name.endswith("yaml"):
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())

    with pytest.raises(SettingError, match=message) as caught:
        read_suite(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_without_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, and the forms that need nothing."""
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    (tmp_path / "s.yaml").write_text("tasks: []")

    with pytest.raises(SettingError, match=r"pip install .*\[eval\].*TOML or JSON"):
        read_suite(tmp_path / "s.yaml")


def test_a_cell_changes_with_what_it_is_of(suite_of: Callable[..., Suite]) -> None:
    """The task, the model, the setting; not its price, not its group, not the other tasks."""
    base: dict[str, Any] = {"tasks": [TASK]}

    def cell(**fields: Any) -> str:
        suite = suite_of(**{**base, **fields})
        return suite.cell(suite.tasks[0], suite.models[0], suite.settings[0])

    same = [
        {},
        {"price_per_million": 3},
        {"tasks": [{**TASK, "group": "g"}, {**TASK, "id": "b"}]},
        {"repeats": 9},
    ]
    others = [
        {"tasks": [{**TASK, "question": "Who?"}]},
        {"tasks": [{**TASK, "checks": [{"contains": "y"}]}]},
        {"tasks": [{**TASK, "version": "2"}]},
        {"models": [{"model": "nano", "kv": "q8"}]},
        {"settings": [{"temperature": 1}]},
        {"tools": ["find"]},
        {"dir": "elsewhere"},
    ]
    assert {cell(**fields) for fields in same} == {cell()}
    assert len({cell(**fields) for fields in [*others, {}]}) == len(others) + 1


def test_the_example_is_a_suite() -> None:
    """The suite of the examples can be read."""
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    if not (ROOT / "examples").exists():
        pytest.skip("the examples are not installed")

    for path in sorted((ROOT / "examples" / "eval").glob("*.yaml")):
        assert read_suite(path).tasks


def test_the_example_asks_for_what_its_folder_has() -> None:
    """Each text that an answer must contain is in a file, or is a file's name."""
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    if not (ROOT / "examples").exists():
        pytest.skip("the examples are not installed")
    suite = read_suite(ROOT / "examples" / "eval" / "incident.yaml")

    wanted: list[list[str]] = []
    for task in suite.tasks:
        for check in [check for question in task.questions for check in question.checks]:
            given = [check.contains] if isinstance(check.contains, str) else check.contains or []
            wanted += [[text] if isinstance(text, str) else text for text in given]
    folder = suite.folder_of(suite.tasks[0])
    assert folder is not None
    files = [path for path in folder.rglob("*") if path.is_file()]
    there = "\n".join(f"{path.name}\n{path.read_text()}" for path in files)
    assert len(wanted) > 3
    assert [texts for texts in wanted if not any(text in there for text in texts)] == []


@pytest.mark.parametrize("given", [2, 1.5, "2026-11-28"])
def test_a_version_is_a_text_or_a_number_or_a_date(tmp_path: Path, given: object) -> None:
    """As people write versions, without quotes; not a list."""
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    path = tmp_path / "s.yaml"
    task = "- {id: a, question: Who, checks: [{contains: x}], version: VERSION}"
    path.write_text(f"tasks:\n{task}\n".replace("VERSION", str(given)))
    assert read_suite(path).tasks[0].version == str(given)

    path.write_text(path.read_text().replace(f"version: {given}", "version: [1]"))
    with pytest.raises(SettingError, match=r"tasks\.a\.version"):
        read_suite(path)


@pytest.mark.parametrize(
    ("heading", "model", "inner"),
    [
        ("field of a suite", Suite, {"place"}),
        ("field of a task", Task, set()),
        ("field of a model", Model, set()),
        ("field of a setting", Setting, set()),
        ("check", Check, {"ignore_case", "name"}),
    ],
)
def test_the_fields_are_documented(heading: str, model: type[BaseModel], inner: set[str]) -> None:
    """docs/evaluation.md names every field of every table."""
    rows = table_of(section(read("docs/evaluation.md"), "A suite"), heading)
    named = {name for row in rows for name in names(row[0])}
    fields = {field.alias or name for name, field in model.model_fields.items()} - inner

    assert named - {"folders"} == fields
