"""The documents say what is so: examples run, links lead somewhere, the README's claims hold."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers.pages import PAGES, ROOT, names, read, section, table_of, tables

from triplepoint import Engine, LimitReachedError
from triplepoint.jit.kernels.kvcache import KVFormat
from triplepoint.jit.kernels.panels import FORMATS
from triplepoint.jit.targets import TARGETS
from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.runtime.conversation.formats import FORMATS as CALL_FORMATS
from triplepoint.runtime.convert.settings import ARCHITECTURES as CHECKPOINTS
from triplepoint.runtime.models import ARCHITECTURES
from triplepoint.runtime.synthetic.shapes import SHAPES
from triplepoint.traces import Trace
from triplepoint.traces.events import RunEnd, RunStart

# --- the Python examples


def python_blocks(name: str) -> Iterator[Any]:
    """Each Python block of a page, for parametrize: its code, and the line where it begins."""
    text = read(name)
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text[: match.start(1)].count("\n") + 1
        yield pytest.param(match[1], line, id=f"{name}:{line}")


@pytest.mark.parametrize(
    ("code", "line"),
    [
        *python_blocks("README.md"),
        *python_blocks("docs/api.md"),
        *python_blocks("docs/sessions.md"),
        *python_blocks("docs/batching.md"),
    ],
)
def test_a_python_example_runs(
    code: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each example runs by itself where there is an examples/incident, and shows something."""
    shutil.copytree(ROOT / "examples" / "incident", tmp_path / "examples" / "incident")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    space: dict[str, Any] = {"__name__": "__main__"}
    # Line numbers of a traceback are those of the page.
    compiled = compile("\n" * (line - 1) + code, "example", "exec", dont_inherit=True)

    try:
        exec(compiled, space)
    except LimitReachedError as error:
        # The example is sound; what the model says is judged elsewhere (labs/nano/evaluate.py).
        pytest.xfail(f"the embedded model came to no answer: {error}")
    finally:
        for value in space.values():
            if isinstance(value, Engine):
                value.close()

    assert capsys.readouterr().out.strip()


# --- links, files and commands


def slug(heading: str) -> str:
    """The anchor that a heading gets on the usual sites."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_resolves(page: str) -> None:
    """A relative link leads to a file that is there, its anchor to a heading of that file."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        headings = ""
        if file.suffix == ".md" and file.is_file():
            headings = file.read_text(encoding="utf-8")
        anchors = [slug(text) for text in re.findall(r"^#+ (.+)$", headings, re.MULTILINE)]
        if not file.exists() or (anchor and anchor not in anchors):
            broken.append(target)

    assert not broken


def test_the_map_names_files_that_are_there() -> None:
    """Every file in the map's tables and every path in CONTRIBUTING exists."""
    rows = [row for table in tables(read("docs/map.md")) for row in table[1:]]
    named = [name for row in rows for name in names(row[0])]
    assert len(named) > 20
    named += [
        name for name in names(read("CONTRIBUTING.md")) if re.fullmatch(r"[\w./]+/[\w./]*", name)
    ]

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_map_names_every_file() -> None:
    """Each file of the package is in one of its tables, or a folder that holds it is."""
    named = {
        name for table in tables(read("docs/map.md")) for row in table[1:] for name in names(row[0])
    }
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in ("jit", "runtime", "tools", "traces")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    folders = tuple(name for name in named if name.endswith("/"))

    assert len(files) > 100
    assert [name for name in files if name not in named and not name.startswith(folders)] == []


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command in a page's indented lines."""
    for line in re.findall(r"^ {4}(.*\btriplepoint .*|pip .*)$", read(page), re.MULTILINE):
        command: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word in ("&&", "|"):
                yield command
                command = []
            else:
                command.append(word)


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page: str) -> None:
    """The command line takes every `triplepoint …` that a page shows."""
    parser = build_parser()
    for command in commands(page):
        if command[0] == "triplepoint":
            assert parser.parse_args(command[1:]).verb, command


def test_ci_runs_the_commands_of_the_readme() -> None:
    """The two lines at the top of the README are what CI executes, command by command."""
    lines = re.findall(r"^ {4}(python3 -m venv \.venv && .*)$", read("README.md"), re.MULTILINE)
    shown = [shlex.split(command) for line in lines for command in line.split(" && ")]
    environment = ["python3", ".", "pip"]
    assert [command[0] for command in shown] == [
        *(*environment, "triplepoint"),
        *(*environment, "pytest"),
    ]
    run = []
    for line in read(".ci/run").splitlines():
        if re.match(r"(python3|\.|pip|triplepoint|pytest) ?", line):
            run.append([word for word in shlex.split(line) if word != "-q"])

    rest = iter(run)
    missing = [command for command in shown if command not in rest]
    assert not missing, f"{missing} is not in its place in .ci/run: {run}"


# --- the README's table


def simple(text: str) -> list[str]:
    """The items of a list as names in the code are written."""
    plain = re.sub(r"\(.*?\)|, from GGUF", "", text)
    return [re.sub(r"[\s.-]", "", item.lower()) for item in plain.split(",")]


def test_the_readme_shows_a_recorded_task() -> None:
    """What a real small model did: the page has the calls and the answer of its trace."""
    trace = Trace.load(ROOT / "tests" / "data" / "task.jsonl")
    (start,) = (one for one in trace.events if isinstance(one, RunStart))
    (end,) = (one for one in trace.events if isinstance(one, RunEnd))
    lines = [f'triplepoint run -m {start.model.path} "{start.task}"']
    for tool in trace.tools:
        given = ", ".join(f"{k}={json.dumps(v)}" for k, v in tool.arguments.items())
        looked = tool.by == "harness"
        lines.append(f"> {'looked: ' * looked}{tool.name}({given})")
        lines += [] if looked else [f"  {tool.result}"]
    lines.append(end.answer)
    shown = (ROOT / "README.md").read_text().partition(f"    {lines[0]}")[2].partition("\n\n")[0]
    shown_lines = [line.removeprefix("    ") for line in shown.split("\n")]
    assert shown_lines[1:] == lines[1:]


def test_the_readme_names_what_is_supported() -> None:
    """Architectures, weight types, KV formats and CPU targets are those of the code."""
    rows = {row[0]: row[1] for row in table_of(section(read("README.md"), "What it runs"), "")}

    known = [re.sub(r"[_-]", "", name) for name in ARCHITECTURES]
    assert sorted(simple(rows["architectures"])) == sorted(known)
    assert sorted(simple(rows["weights"])) == sorted(FORMATS)
    assert simple(rows["KV cache"]) == list(get_args(KVFormat))
    found = re.fullmatch(r"x86-64 \((.+)\) and aarch64 \((.+)\)", rows["CPUs"])
    assert found
    x86 = [
        name.lower().replace("avx-512", "avx512").replace(" ", "-") for name in found[1].split(", ")
    ]
    special = {"portable": "generic", "v2": "x86-64-v2"}
    arm = [name if name == "neon" else f"neon-{name}" for name in found[2].lower().split(", ")]
    assert [special.get(name, name) for name in x86] + arm == list(TARGETS)


# --- the pages about models


def test_the_models_page_has_what_is_supported() -> None:
    """Its architectures, weight types and synthetic models are those of the code."""
    page = read("docs/models.md")
    rows = table_of(page, "`general.architecture`")
    assert sorted(name for row in rows for name in names(row[0])) == sorted(ARCHITECTURES)

    listed = section(page, "Weight types").partition(":")[2].partition(", in any mixture")[0]
    assert sorted(listed.lower().replace(",", " ").split()) == sorted(FORMATS)

    shown = section(page, "Synthetic models").partition("`QUANT`")[0]
    assert sorted(names(shown)[1:]) == sorted(SHAPES)


def test_formats_of_calls_are_those_of_the_code() -> None:
    """The table has each, and the number elsewhere is right; all other templates get JSON."""
    rows = table_of(read("docs/models-talk.md").replace("\\|", ""), "format")
    shown = [name for row in rows for name in names(row[0])]

    assert sorted(shown) == sorted(CALL_FORMATS)
    assert f"a grammar for each of {len(CALL_FORMATS) - 1} formats, and JSON" in read(
        "docs/pains.md"
    )


def test_checkpoints_that_convert_takes() -> None:
    """Each type that the page names is known, and each architecture has one of them."""
    text = section(read("docs/models-make.md"), "From a checkpoint")
    listed = text.partition("It converts checkpoints of")[2].partition("It refuses")[0]

    assert set(names(listed)) <= set(CHECKPOINTS)
    assert {CHECKPOINTS[name] for name in names(listed)} == set(CHECKPOINTS.values())


def test_servers_of_the_examples_are_installed() -> None:
    """A documented server is a package of its own: the page says how to install it."""
    page = read("docs/cli.md")
    commands = re.findall(r'"command": "([\w-]+)"', page)

    assert commands
    for command in commands:
        assert f"pip install {command}" in page


def test_the_guides_diffs_apply() -> None:
    """Each line that a diff of CONTRIBUTING leaves as it is stands in the file that it names."""
    diffs = re.findall(
        r"```diff\n # ([\w/]+\.py)[^\n]*\n(.*?)```", read("CONTRIBUTING.md"), re.DOTALL
    )
    assert len(diffs) >= 6
    for path, diff in diffs:
        context = [line[1:] for line in diff.splitlines() if line.startswith("  ")]
        assert context, path
        assert set(context) <= {*(ROOT / path).read_text().split("\n")}, path
