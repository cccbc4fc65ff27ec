"""The field's words in names and summaries: a list of what reads as translated, by room."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

IGNORES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
(CLEAN,) = (
    pattern[2:].partition("}")[0].split(",")
    for pattern, rules in IGNORES["per-file-ignores"].items()
    if rules == ["D401"]
)
"""Rooms whose summaries are imperative, by ruff's D401, and that keep to the words."""

BANNED = re.compile(
    r"told|tells?|said|asked|kept|most|least|stands|whoever|somebody|twins|places?|manner|beside"
    r"|turned"
)
PHRASES = re.compile(r"\b(told|tells?|said|stands|goes on|whoever|somebody|twins|manner)\b")

UNNAMED = (
    "labs/harness",
    "labs/nano",
    "runtime/cli",
    "runtime/engine",
    "runtime/fleet",
    "runtime/suites",
    "tools",
    "traces",
)
"""Rooms whose summaries are clean, but not yet their names."""

PUBLISHED = {
    "runtime/agent/session_store.py": {"told"},
    "runtime/bench/compare.py": {"most"},
    "labs/bench/decode_under_prefill.py": {"kept", "Beside", "beside_s"},
    "labs/bench/causal_profile.py": {"most"},
    "labs/bench/scenario.py": {"said"},
    "runtime/bench/load_client.py": {"asked"},
    "runtime/bench/load_work.py": {"least", "most"},
    "runtime/bench/runner.py": {"least"},
    "runtime/evidence/sources.py": {"place"},
    "runtime/physics/latency_model.py": {"least"},
    "runtime/planning/programs.py": {"kept"},
    "runtime/weights/loader.py": {"place"},
}
"""Names that JSON, options, other rooms or recorded files show."""


def named(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words(name: str) -> set[str]:
    """Split an identifier in snake or camel case into its words."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def summaries(tree: ast.AST) -> Iterator[str]:
    """Yield the first paragraph of each docstring of a module, a class or a function."""
    nodes = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    texts = map(ast.get_docstring, nodes)
    yield from (text.partition("\n\n")[0] for text in texts if text)


@pytest.mark.parametrize("room", CLEAN)
def test_names_and_summaries(room: str) -> None:
    """No name and no summary of a clean room has a word that the list bans."""
    found: list[str] = []
    for path in sorted((ROOT / room).rglob("*.py")):
        tree, file = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix()
        names = {name for name in named(tree) if any(map(BANNED.fullmatch, words(name)))}
        names -= names if room in UNNAMED else PUBLISHED.get(file, set())
        found += [f"{file}: {name}" for name in sorted(names)]
        found += [f"{file}: {text}" for text in summaries(tree) if PHRASES.search(text)]

    assert not found, "\n".join(found)
