"""The commands of README and docs/cli.md run, or the table in docs/cli.md says what they need."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.pages import names, read, section, table_of

from triplepoint.traces import Trace

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/cli.md"]
PATTERNS = [
    name
    for row in table_of(section(read("docs/cli.md"), "What the examples need"), "in the command")
    for name in names(row[0])
]
REMOVING = ["trace rm", "session rm", "cache clean"]


def lines(page: str) -> list[str]:
    """The indented lines of a page that run the program, without their comments."""
    found = re.findall(r"^ {4}(.*\btriplepoint .*)$", read(page), re.MULTILINE)
    return [re.sub(r"\s+# .*", "", line) for line in found if "pip install" not in line]


def free(page: str) -> list[str]:
    """Those that need nothing but the example's folder and runs that were recorded before.

    What removes things asks first, and has tests of its own.
    """
    return [line for line in lines(page) if not any(p in line for p in [*PATTERNS, *REMOVING])]


def test_no_pattern_is_idle() -> None:
    """Each row of the table is about a command that is shown."""
    shown = [line for page in PAGES for line in re.findall(r"^ {4}\S.*$", read(page), re.MULTILINE)]

    assert [p for p in PATTERNS if not any(p in line for line in shown)] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, env: dict[str, str]) -> None:
    """One after the other, in a folder with the examples, each ends with status 0."""
    if not (ROOT / "examples").exists():
        pytest.skip("the examples are not installed")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = free(page)
    assert len(commands) > 8
    program = f"{shlex.quote(sys.executable)} -m triplepoint "
    env["XDG_CONFIG_HOME"] = str(tmp_path / "config")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        script = re.sub(r"\btriplepoint (?=[a-z-])", lambda _: program, line)
        shell = ["bash", "-o", "pipefail", "-c", script]
        return subprocess.run(
            shell,
            cwd=tmp_path,
            env=env,
            input="Which files are in this folder?\n" if "chat" in line else "",
            capture_output=True,
            text=True,
            timeout=300,
        )

    asked = 'triplepoint run "Which file mentions retry?" --dir examples/incident --trace '
    for name in ("run", "a", "b"):
        assert run(f"{asked}{name}.jsonl").returncode == 0
    for line in commands:
        done = run(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert Trace.load(tmp_path / "run.jsonl").answer
