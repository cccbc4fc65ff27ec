"""The public names: all there, typed, and free until they are used."""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from pathlib import Path

import pytest

import triplepoint

HEAVY = ("llvmlite", "numpy", "pydantic", "tokenizers", "llguidance", "jinja2", "rich", "httpx")


def test_every_public_name_is_there() -> None:
    """Each name of __all__ can be had, and says where it comes from."""
    for name in triplepoint.__all__:
        assert getattr(triplepoint, name) is not None, name
    assert set(triplepoint.__all__) <= set(dir(triplepoint))


def test_type_checkers_see_what_is_loaded() -> None:
    """The imports for type checkers and the table of lazy names say the same."""
    tree = ast.parse(Path(triplepoint.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: (node.module or "")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert typed == triplepoint._MODULE_OF
    errors = {name for name in triplepoint.__all__ if name.endswith("Error")}
    assert {*typed, *errors, "__version__"} == {*triplepoint.__all__}


def test_a_star_import_hides_no_builtin() -> None:
    """`from triplepoint import *` leaves the builtins."""
    assert set(triplepoint.__all__).isdisjoint(dir(builtins))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """A name that is not public is refused as any module does."""
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = triplepoint.Nonsense


def test_an_old_name_gives_the_new_one() -> None:
    """A name of an earlier version is refused with the one that it has now."""
    with pytest.raises(ImportError, match=r"is now triplepoint\.open_conversation"):
        from triplepoint import open_session  # noqa: F401  # pyright: ignore[reportAttributeAccessIssue]
    assert set(triplepoint._RENAMED.values()) <= {*triplepoint.__all__}
    assert set(triplepoint._RENAMED).isdisjoint(triplepoint.__all__)


def test_importing_loads_nothing_heavy() -> None:
    """`import triplepoint` leaves the heavy packages alone."""
    code = f"import sys, triplepoint; print([m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout

    assert shown.strip() == "[]"


def test_one_copy_in_memory() -> None:
    """The public class is the class of its module, loaded once."""
    from triplepoint.runtime.engine import engine

    assert triplepoint.Engine is engine.Engine
    assert [m for m in sys.modules if m.endswith("engine.engine")] == [engine.__name__]
