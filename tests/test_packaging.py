"""The package: what it is made of, what goes into the wheel, and which file may know which."""

from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import triplepoint

ROOT = Path(__file__).parents[1]
ROOMS = ("jit", "runtime", "tools", "traces")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _sources() -> list[Path]:
    return [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def test_every_package_is_declared() -> None:
    """The list in pyproject.toml is what is in the tree: a forgotten one would not be shipped."""
    found = {
        ".".join(("triplepoint", *path.parent.relative_to(ROOT).parts))
        for path in _sources()
        if path.name == "__init__.py"
    }
    assert set(SETTINGS["tool"]["setuptools"]["packages"]) == found | {"triplepoint"}


def test_every_module_is_in_a_package() -> None:
    """No folder with modules lacks its __init__.py."""
    assert all((path.parent / "__init__.py").exists() for path in _sources())


def _declared_data() -> set[str]:
    data = SETTINGS["tool"]["setuptools"]["package-data"]
    return {
        "/".join((*package.split(".")[1:], name))
        for package, names in data.items()
        for name in names
    }


def test_every_data_file_is_declared() -> None:
    """Whatever the packages hold besides Python is declared, and what is declared is there."""
    rooms = [path for room in ROOMS for path in (ROOT / room).rglob("*")]
    data = {
        path.relative_to(ROOT).as_posix()
        for path in (*rooms, ROOT / "py.typed")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert data == _declared_data()


# Every data file that ships, with the bytes that it may have.
SHIPPED_DATA = {
    "jit/kernels/grids.npz": 12_000,
    "py.typed": 0,
    "runtime/hub/models.toml": 12_000,
    "runtime/nano/MODEL_CARD.md": 14_000,
    "runtime/nano/nano.gguf": 8_000_000,
    "runtime/nano/template.jinja": 2_000,
    "runtime/physics/machines.toml": 2_500,
    "runtime/planning/prices.toml": 5_000,
    "runtime/serve/app/assets/status.html": 11_000,
    "runtime/synthetic/shapes.toml": 6_000,
    "traces/assets/charts.css": 2_500,
    "traces/assets/charts.js": 4_000,
    "traces/assets/dom.js": 3_500,
    "traces/assets/page.html": 1_000,
    "traces/assets/regimes.js": 2_500,
    "traces/assets/theme.css": 6_500,
    "traces/assets/view.css": 10_000,
    "traces/assets/view.html": 2_000,
    "traces/assets/view.js": 24_000,
    "traces/warehouse/reports.sql": 11_000,
}
SHIPPED_BYTES = 4_570_000
"""Of all that ships but the embedded model's weights, sources included."""


def test_what_ships_is_listed_and_small() -> None:
    """Data files ship by name and within their bounds, and all together stay below one."""
    sizes = {name: (ROOT / name).stat().st_size for name in _declared_data()}
    assert set(sizes) == set(SHIPPED_DATA)
    assert [name for name, size in sizes.items() if size > SHIPPED_DATA[name]] == []

    sources = [*ROOT.glob("*.py"), *_sources()]
    total = sum(sizes.values()) + sum(path.stat().st_size for path in sources)
    assert total - sizes["runtime/nano/nano.gguf"] <= SHIPPED_BYTES


def test_the_package_knows_nothing_of_labs() -> None:
    """What does not ship is imported by nothing that does, and knows the package by its name."""
    for path in [*ROOT.glob("*.py"), *_sources()]:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert "labs" not in [name.split(".")[0] for name in modules], path
    for path in sorted((ROOT / "labs").rglob("*.py")):
        depth = len(path.relative_to(ROOT).parts) - 1
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level <= depth, f"{path}, line {node.lineno}"


def test_the_version_is_one() -> None:
    """pyproject.toml and the package say the same version."""
    assert SETTINGS["project"]["version"] == triplepoint.__version__


def _check_contents(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"triplepoint"}
    inside = {name.removeprefix("triplepoint/") for name in names}
    assert {path.relative_to(ROOT).as_posix() for path in _sources()} <= inside
    assert _declared_data() <= inside
    assert not [name for name in inside if name.startswith(("labs", "tests", "docs", "build"))]


def test_what_is_installed() -> None:
    """Where the package is installed as users install it: all of it, and no tests."""
    found = importlib.metadata.distribution("triplepoint")
    files = found.files or []
    names = [file.as_posix() for file in files if not file.as_posix().startswith("..")]
    here = Path(str(found.locate_file(""))).resolve() == ROOT  # `python -m pytest` in a checkout
    if here or any("__editable__" in name for name in names):
        pytest.skip("installed in place, for work on triplepoint itself")
    _check_contents([name for name in names if not name.endswith(".pyc")])


@pytest.mark.slow
def test_what_is_in_the_wheel(tmp_path: Path) -> None:
    """A built wheel holds the package, its data files and nothing else."""
    setuptools = pytest.importorskip("setuptools", reason="a wheel is built with setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"pyproject.toml asks for setuptools 77, this is {setuptools.__version__}")
    checkout = tmp_path / "checkout"  # a build leaves files behind
    for path in [*_sources(), *(ROOT / name for name in _declared_data())]:
        _copy(path, checkout)
    for name in (
        "__init__.py",
        "__main__.py",
        "errors.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ):
        _copy(ROOT / name, checkout)
    code = f"import setuptools.build_meta as b; print(b.build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")

    _check_contents(zipfile.ZipFile(wheel).namelist())


def _copy(path: Path, checkout: Path) -> None:
    to = checkout / path.relative_to(ROOT)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes(path.read_bytes())


BESIDE = ("errors", "arguments", "interrupts")  # the rooms, and used by every one of them
# Which rooms a room may import from.
MAY_KNOW = {
    "jit": {"jit"},
    "tools": {"tools"},
    "traces": {"traces"},
    "runtime": {*ROOMS, "__version__"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_point_down(room: str) -> None:
    """jit, tools and traces know nothing of ours but what lies beside them; runtime knows all."""
    for path in sorted((ROOT / room).rglob("*.py")):
        package = path.relative_to(ROOT).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = package[: len(package) - node.level + 1]
                whole = [*base, *(node.module or "").split(".")]
                names = [alias.name for alias in node.names] if whole == [""] else [whole[0]]
                reached = {name for name in names if name not in BESIDE}
                assert reached <= MAY_KNOW[room], f"{path}, line {node.lineno}"
            elif isinstance(node, ast.ImportFrom):
                top = (node.module or "").split(".")[0]
                assert top not in (*ROOMS, "triplepoint"), f"{path}, line {node.lineno}"


# The rooms of runtime/, from the ground up: each may know those before it.
FLOORS = (
    "files",
    "config",
    "cgroups",
    "proxies",
    "sse",
    "remote",
    "memory",
    "checked_files",
    "gguf",
    "physics",
    "tokens",
    "weights",
    "forward",
    "models",
    "quantize",
    "convert",
    "synthetic",
    "hub",
    "engine",
    "conversation",
    "evaluate",
    "evidence",
    "agent",
    "bench",
    "replay",
    "regimes",
    "planning",
    "nano",
    "suites",
    "serve",
    "fleet",
    "cli",
)


def test_every_room_of_runtime_has_its_floor() -> None:
    """The list above is whole."""
    rooms = {
        path.relative_to(ROOT / "runtime").parts[0].removesuffix(".py")
        for path in (ROOT / "runtime").rglob("*.py")
    }
    assert rooms - {"__init__"} == set(FLOORS)


@pytest.mark.parametrize("room", FLOORS)
def test_rooms_of_runtime_know_those_below(room: str) -> None:
    """No room of runtime/ imports from one above it, not even for a type."""
    above = set(FLOORS[FLOORS.index(room) + 1 :])
    for path in sorted((ROOT / "runtime").rglob("*.py")):
        package = path.relative_to(ROOT).parts[:-1]
        if room != (package[1] if package[1:] else path.stem):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = [*package[: len(package) - node.level + 1]]
            whole = [*base, *(node.module.split(".") if node.module else ())]
            if whole[:1] != ["runtime"]:
                continue
            reached = {whole[1]} if whole[1:] else {alias.name for alias in node.names}
            assert not reached & above, f"{path}, line {node.lineno}"


def _imported(path: Path) -> set[Path]:
    """The files of ours that a file imports from: in functions and for types alone, too."""
    found: set[Path] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        for alias in node.names:
            name = base / alias.name
            files = (f"{name}.py", name / "__init__.py", f"{base}.py", base / "__init__.py")
            found.add(next(file for file in map(Path, files) if file.is_file()))
    return found - {path}


def _circle(files: Iterable[Path]) -> list[Path]:
    """Files of which each imports the next one, the first one again at the end; none: no circle."""
    try:
        TopologicalSorter({path: _imported(path) for path in files}).prepare()
    except CycleError as error:
        return error.args[1][::-1]  # it names first what is imported
    return []


@pytest.mark.slow
def test_no_import_circles() -> None:
    """No file of the package imports itself by way of others, not even in a function or for a type.

    What a package loads by name when it is first asked for does not count.
    """
    files = [*ROOT.glob("*.py"), *_sources()]
    circle = [path.relative_to(ROOT).as_posix() for path in _circle(files)]

    assert not circle, " imports ".join(circle)


def test_circles_are_found(tmp_path: Path) -> None:
    """A circle of three files, one of which needs a type and one imports late, is seen."""
    room = tmp_path / "room"
    room.mkdir()
    sources = {
        "__init__.py": "",
        "above.py": "from .a import x\nfrom . import b\n",
        "a.py": "from ..room import b\n",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import C\n",
        "c.py": "def f():\n    from ..room.a import x\n",
    }
    for name, text in sources.items():
        (room / name).write_text(text)

    found = [path.name for path in _circle(sorted(room.iterdir()))]
    assert set(pairwise(found)) == {("a.py", "b.py"), ("b.py", "c.py"), ("c.py", "a.py")}
    (room / "c.py").write_text("")
    assert _circle(sorted(room.iterdir())) == []
