"""Python clients in an environment of their own, each driven once from question to answer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint import Engine

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).with_name("clients")
VERSIONS = (
    *("openai==3.54.0", "anthropic==2.12.0", "litellm==1.83.0", "langchain-openai==1.7.3"),
    *("pydantic-ai-slim[openai,anthropic]==2.68.0", "openai-agents==0.24.0"),
    "schemathesis==4.32.5",
)
FOUND = "app.log"  # in every answer: nano says what it has found, and where


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of one environment that has all of them; skips where it cannot be had."""
    folder = tmp_path_factory.mktemp("clients")
    made = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    found = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(found), "install", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--no-compile", *VERSIONS], capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the clients took too long to install")
    if done.returncode:
        pytest.skip(f"the clients cannot be installed: {done.stderr[-300:]}")
    return found


@pytest.fixture
def ask(server: Server, python: Path, tmp_path: Path) -> Callable[[str], Any]:
    """What a script of `clients` has to tell."""

    def run(name: str) -> Any:
        folder = tmp_path / "work"
        folder.mkdir()
        (folder / "app.log").write_text("ERROR db: connection refused\n")
        done = subprocess.run(
            [str(python), str(SCRIPTS / f"{name}_calls.py"), server.url, str(folder)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_openai(ask: Callable[[str], Any]) -> None:
    """Every call shape: streams and whole answers are the same, calls come in pieces, answers are
    typed, and errors are of their own classes with code and parameter."""
    told = ask("openai")

    assert (told["models"], told["model"], told["raw"]) == (["nano"], "nano", 200)
    assert (told["same"], told["usage"], told["responses"]) == (True, True, True)
    assert told["typed"].keys() == {"found"}
    assert told["pieces"] > 2
    assert FOUND in told["answer"]
    assert told["completion"] == 4
    assert told["errors"] == {
        "too long": ["BadRequestError", "context_length_exceeded", "messages"],
        "no model": ["NotFoundError", "model_not_found", "model"],
        "image": ["BadRequestError", "unsupported_content", "messages[0].content[0].type"],
    }


def test_anthropic(ask: Callable[[str], Any]) -> None:
    """Loops with a tool, whose input comes in pieces, and by the client's own runner; a count, the
    models, and an image that is refused."""
    told = ask("anthropic")

    assert told["count"] > 10
    assert (told["stop"], told["pieces"] > 2) == ("tool_use", True)
    assert FOUND in told["answer"]
    assert told["cached"] > 0
    assert (FOUND in told["runner"], told["names"]) == (True, ["nano"])
    assert told["image"] == ["BadRequestError", "messages[0].content[0].type"]


def test_litellm(ask: Callable[[str], Any]) -> None:
    """Streams are put together to the whole, calls too; a prompt that is too long is known."""
    told = ask("litellm")

    assert (told["same"], told["too long"]) == (True, 400)
    assert FOUND in told["answer"]


def test_langchain(ask: Callable[[str], Any]) -> None:
    """A tool, a typed answer, and its own class for a prompt that is too long."""
    told = ask("langchain")

    assert FOUND in told["answer"]
    assert told["usage"]
    assert told["typed"].keys() == {"found"}
    assert "ContextOverflowError" in told["too long"]


def test_pydantic_ai(ask: Callable[[str], Any]) -> None:
    """Its agent uses a tool through chat, Responses and Messages; a typed answer holds."""
    told = ask("pydantic_ai")

    for wire in ("chat", "responses", "messages"):
        assert FOUND in told[wire]["answer"]
        assert told[wire]["requests"] == 2
    assert told["typed"].keys() == {"found"}


def test_openai_agents(ask: Callable[[str], Any]) -> None:
    """Its agent calls a tool through Responses, and gets an answer to what that gave."""
    told = ask("openai_agents")

    assert told["kinds"] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert FOUND in told["answer"]


def test_compatcanary(server: Server, tmp_path: Path) -> None:
    """All that its profiles require of chats and Responses passes."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path)]
    done = subprocess.run([*command, "compatcanary@0.2.2"], capture_output=True, timeout=120)
    if done.returncode:
        pytest.skip(f"compatcanary cannot be installed: {done.stderr[-200:]!r}")
    report = tmp_path / "report.json"
    program = tmp_path / "node_modules" / ".bin" / "compatcanary"
    scan = ["scan", "--base-url", f"{server.url}/v1", "--model", "nano", "--format", "json"]
    done = subprocess.run(
        [str(program), *scan, "--output", str(report)],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, (done.stdout, done.stderr)
    found = {one["id"]: one["status"] for one in json.loads(report.read_text())["results"]}
    assert len(found) >= 7
    assert set(found.values()) == {"pass"}, found


def test_schemathesis(start: Callable[..., Server], python: Path, tmp_path: Path) -> None:
    """What it makes of the document at /openapi.json gets an answer or a refusal, never 5xx."""
    server = start(lambda source: Engine.load(source, context=256))
    server.wait()
    options = ("--phases", "fuzzing", "--checks", "not_a_server_error", "--max-examples", "6")
    options += ("--max-time", "30", "--seed", "1", "--generation-database", "none", "--no-color")
    done = subprocess.run(
        [str(python.with_name("schemathesis")), "run", f"{server.url}/openapi.json", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-5000:]
    cases = re.search(r"(\d+) generated", done.stdout)
    assert cases is not None
    assert int(cases[1]) > 50
    server.idle()
