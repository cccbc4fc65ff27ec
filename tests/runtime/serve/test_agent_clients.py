"""Agents' clients from npm, each with a home of its own, driven once from question to answer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint.runtime.serve.models.events import Call, Closed, Done, Event, PromptRead, Text
from triplepoint.runtime.serve.requests import service

pytestmark = pytest.mark.slow
QUESTION = "What's the error in app.log?"
VERSIONS = {"@anthropic-ai/claude-code": "2.1.197", "@openai/codex": "0.169.0"}


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Brings a program from npm; skips where it cannot be had."""

    def get(package: str, program: str) -> Path:
        if (found := shutil.which(program)) is not None:
            return Path(found)
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed")
        folder = tmp_path_factory.mktemp("npm")
        wanted = f"{package}@{VERSIONS[package]}"
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), wanted]
        try:
            done = subprocess.run(command, capture_output=True, timeout=240)
        except subprocess.TimeoutExpired:
            pytest.skip(f"{package} took too long to install")
        if done.returncode:
            pytest.skip(f"{package} cannot be installed: {done.stderr[-200:]!r}")
        script = folder / "node_modules" / package / "install.cjs"
        if script.exists():  # newer npm runs no scripts of packages
            subprocess.run(["node", str(script)], capture_output=True, timeout=240, check=True)
        return folder / "node_modules" / ".bin" / program

    return get


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to ask about."""
    made = tmp_path / "work"
    made.mkdir()
    (made / "app.log").write_text("ERROR db: connection refused\n")
    return made


def run(program: Path, arguments: list[str], folder: Path, **variables: str) -> str:
    """What a client writes that knows nothing of this user."""
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    own = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "127.0.0.1"}
    done = subprocess.run(
        [str(program), *arguments],
        cwd=folder, env={**own, **variables}, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def write_answers(monkeypatch: pytest.MonkeyPatch, call: Call) -> list[str]:
    """A server whose first answer is this call, and whose second tells of it; returns the prompts.

    What a model of nano's size does with a client's prompt depends on the day that it names.
    """
    asked: list[str] = []

    def answer(self: service.Generation, engine: Any, request: Any) -> None:
        asked.append(engine.tokenizer.decode(request.prompt.ids, special=True))
        if len(asked) > 1:
            events: list[Event] = [Text(0, "It says: connection "), Text(0, "refused.")]
        else:
            events = [Text(0, "I look."), call]
        reason = "stop" if len(asked) > 1 else "tool_calls"
        for event in (PromptRead(9, 0, 0.1), *events, Done(0, reason, 3, 0, 0.1), Closed()):
            self.emit(event)

    monkeypatch.setattr(service.Generation, "run", answer)
    return asked


CLAUDE_CODE = [
    "-p", QUESTION, "--model", "nano", "--tools", "Read", "--output-format", "json",
    "--system-prompt", "You answer questions about files.",
]  # fmt: skip


def run_claude_code(program: Path, url: str, folder: Path) -> dict[str, Any]:
    """What it tells of a question about the file."""
    told = run(
        program,
        CLAUDE_CODE,
        folder,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY="none",
        ANTHROPIC_DEFAULT_HAIKU_MODEL="nano",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    return json.loads(told)


def test_claude_code(
    start: Callable[..., Server],
    install: Callable[[str, str], Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the file with its own tool as it is told to, and takes what is said then."""
    program = install("@anthropic-ai/claude-code", "claude")
    path = json.dumps({"file_path": str(folder / "app.log")})
    asked = write_answers(monkeypatch, Call(0, 0, "x", "Read", path))
    server = start()
    server.wait()
    result = run_claude_code(program, server.url, folder)

    assert result["result"] == "It says: connection refused."
    assert result["num_turns"] == 2
    assert len(asked) == 2
    assert "ERROR db: connection refused" in asked[1]


def test_claude_code_and_nano(
    server: Server, install: Callable[[str, str], Path], folder: Path
) -> None:
    """Nano calls its tool, rightly or not, and what was read of the conversation stays read."""
    program = install("@anthropic-ai/claude-code", "claude")
    result = run_claude_code(program, server.url, folder)

    assert not result["is_error"]
    assert result["result"]
    assert result["num_turns"] >= 2
    assert result["usage"]["cache_read_input_tokens"] > 0


def test_codex(
    start: Callable[..., Server],
    install: Callable[[str, str], Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It runs the command that it is told to, and takes what is said then. Its prompt is longer
    than nano's context, so the answers are written here."""
    program = install("@openai/codex", "codex")
    call = Call(0, 0, "x", "exec_command", '{"cmd": "cat app.log"}')
    asked = write_answers(monkeypatch, call)
    server = start()
    server.wait()
    provider = f'{{name="tp",base_url="{server.url}/v1",wire_api="responses"}}'
    told = run(
        program,
        ["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
         "-m", "nano", "-c", "model_provider=tp", "-c", f"model_providers.tp={provider}", QUESTION],
        folder,
    )  # fmt: skip
    items = [json.loads(line).get("item", {}) for line in told.splitlines() if line[:1] == "{"]

    assert [item["text"] for item in items if item.get("type") == "agent_message"] == [
        "I look.", "It says: connection refused."
    ]  # fmt: skip
    assert len(asked) == 2
    assert "ERROR db: connection refused" in asked[1]
