"""`triplepoint completion`: the scripts complete what the parsers take."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from triplepoint.runtime.cli import main
from triplepoint.runtime.cli.arguments import SHORT, VERBS, build_parser
from triplepoint.runtime.cli.exit_codes import Exit


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The one for bash."""
    assert main(["completion", "bash"]) == Exit.OK
    path = tmp_path / "completion.bash"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash completes the last word to."""
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; '
        '_shtab_triplepoint; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", code, "-", str(script), "triplepoint", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=script.parent)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_what_the_parsers_take(script: Path) -> None:
    """Verbs, their commands, options, choices of an option, and files."""
    assert sorted(completed(script, "")) == sorted([*VERBS, *SHORT])
    assert completed(script, "trace", "sh") == ["show"]
    assert completed(script, "session", "r") == ["rm"]
    assert completed(script, "models", "sh") == completed(script, "sh") == ["show"]
    assert completed(script, "bench", "--n-p") == ["--n-prompt"]
    assert completed(script, "run", "--max-") == ["--max-steps", "--max-tokens"]
    assert completed(script, "run", "what?", "--kv", "b") == ["bf16"]
    (script.parent / "rows.jsonl").touch()
    assert completed(script, "map", "ro") == ["rows.jsonl"]
    assert completed(script, "run", "--schema", "ro") == ["rows.jsonl"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_its_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has every option of every verb; the shell, where there is one, finds no mistake in it."""
    assert main(["completion", shell]) == Exit.OK
    text = capsys.readouterr().out
    verbs = next(action for action in build_parser(whole=True)._actions if action.dest == "verb")
    assert verbs.choices is not None
    for verb in VERBS:
        for name in verbs.choices[verb]._option_string_actions:  # type: ignore[index]
            assert (f"-l {name[2:]}" if shell == "fish" and name[:2] == "--" else name) in text
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(text, encoding="utf-8")
    environ = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run([shell, "-n", path], check=True, env=environ)


def test_a_shell_without_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    """The error lists those that there are."""
    assert main(["completion", "tcsh"]) == Exit.USAGE
    assert "bash" in capsys.readouterr().err
