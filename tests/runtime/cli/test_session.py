"""`triplepoint session`, and where a session that goes on takes its folder and model from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.runtime.agent.session_store import open_conversation
from triplepoint.runtime.cli.exit_codes import Exit

Run = Callable[..., "subprocess.CompletedProcess[str]"]

QUESTION = "Which files are here?"


@pytest.fixture
def kept(triplepoint: Run, nano: Path, folder: Path, tmp_path: Path) -> Path:
    """The folder of a session of one question about `folder`."""
    done = triplepoint("run", QUESTION, "--dir", folder, "--session", "first", "-q")
    assert done.returncode == 0, done.stderr
    return tmp_path / "state" / "triplepoint" / "sessions" / "first"


def test_listed_shown_and_removed(triplepoint: Run, kept: Path, folder: Path) -> None:
    """What it is about, how large it is, what was said; and then it is gone."""
    listed = triplepoint("session", "ls")
    assert "first" in listed.stdout
    assert str(folder) in listed.stdout
    assert "triplepoint-nano" in listed.stdout
    assert listed.stdout.split()[:3] == ["session", "saved", "questions"]
    (one,) = json.loads(triplepoint("session", "ls", "--json").stdout)["sessions"]
    assert (one["name"], one["questions"], one["workspace"]) == ("first", 1, str(folder))
    assert one["bytes"] == sum(path.stat().st_size for path in kept.iterdir())

    shown = triplepoint("session", "show", "first").stdout
    assert f"## {QUESTION}" in shown
    assert "app.log" in shown
    assert json.loads(triplepoint("session", "show", "first", "--json").stdout)["messages"]

    asked = triplepoint("session", "rm", "first")
    assert (asked.returncode, kept.exists()) == (2, True)
    assert "--yes removes without asking" in asked.stderr
    done = triplepoint("session", "rm", "-y", "first")
    assert (done.returncode, kept.exists()) == (0, False)
    assert "no sessions in" in triplepoint("session", "ls").stdout


@pytest.mark.slow
def test_which_ones_go(triplepoint: Run, kept: Path) -> None:
    """By age, or all; an empty choice and two ways at once are told apart from it."""
    none = triplepoint("session", "rm", "--older-than", "1h", "--json")
    assert json.loads(none.stdout) == {"removed": [], "freed": 0}
    for args in ([], ["first", "--all"], ["--all", "--older-than", "1h"]):
        assert triplepoint("session", "rm", *args).returncode == 2
    assert "not an age such as" in triplepoint("session", "rm", "--older-than", "soon").stderr
    unknown = triplepoint("session", "rm", "second", "-y")
    assert unknown.returncode == Exit.FILE
    assert "there is no session 'second'" in unknown.stderr
    assert "known: first" in unknown.stderr
    os.utime(kept / "conversation.json", (1, 1))
    done = triplepoint("session", "rm", "--older-than", "1h", "--yes", "--json")
    assert json.loads(done.stdout)["removed"] == ["first"]
    assert not kept.exists()


@pytest.mark.slow
def test_one_in_use_or_damaged(triplepoint: Run, kept: Path) -> None:
    """One that another process has stays; one that cannot be read is listed, and can go."""
    with open_conversation("first", kept.parent):
        busy = triplepoint("session", "rm", "first", "-y")
    assert busy.returncode == 1
    assert "in use by another process" in busy.stderr
    (kept / "conversation.json").write_text("damaged")

    assert "conversation.json is damaged" in triplepoint("session", "ls").stdout
    assert "cannot be shown" in triplepoint("session", "show", "first").stderr
    assert triplepoint("session", "rm", "first", "-y").returncode == 0
    assert not kept.exists()


@pytest.mark.slow
def test_from_another_folder(triplepoint: Run, kept: Path, folder: Path, tmp_path: Path) -> None:
    """It is said what it was about; which folder is meant has to be said."""
    for args in (["--continue"], ["--session", "first"]):
        done = triplepoint("run", QUESTION, *args)
        assert done.returncode == 2
        assert f"session first belongs to {folder}" in done.stderr
        assert f"--dir {folder}, or here with --dir ." in done.stderr

    done = triplepoint("run", QUESTION, "--continue", "--dir", folder)
    assert done.returncode == 0, done.stderr
    assert "belongs to" not in done.stdout + done.stderr
    done = triplepoint("run", QUESTION, "--continue", "--dir", ".")
    assert done.returncode == 0, done.stderr
    assert f"belongs to {folder}, but the tools use {tmp_path}" in done.stdout + done.stderr


@pytest.mark.slow
def test_the_model_of_a_session(
    env: dict[str, str], nano: Path, folder: Path, tmp_path: Path
) -> None:
    """Where no model is named, the session goes on with its own; also in its own folder."""
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(nano.read_bytes())
    command = [sys.executable, "-m", "triplepoint", "run", QUESTION]

    def run(*args: object) -> dict[str, object]:
        done = subprocess.run(
            [*command, "--json", *map(str, args)],
            capture_output=True,
            text=True,
            env=env,
            cwd=folder,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["run"]["model"]

    assert run("--session", "s", "-m", copy)["path"] == str(copy)
    assert run("--continue")["path"] == str(copy)
    assert run("--session", "t")["path"] != str(copy)


@pytest.mark.slow
def test_a_session_that_cannot_be_kept(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """The answer is given, what is missing is told, and the exit status says it."""
    index = tmp_path / "state" / "triplepoint" / "sessions" / "s" / "index.json"
    (index / "x").mkdir(parents=True)  # no file can take its place
    done = triplepoint("run", QUESTION, "--dir", folder, "--session", "s", "-q")

    assert "app.log" in done.stdout
    assert done.returncode == 1
    assert "session s is saved without the KV cache of this turn" in done.stderr
    chat = triplepoint("chat", "--dir", folder, "--session", "s", stdin=f"{QUESTION}\n")
    assert "app.log" in chat.stdout
    assert chat.returncode == 1
