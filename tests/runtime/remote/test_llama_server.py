"""The agent on a real server: llama-cpp-python's, with the embedded model's file."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import triplepoint
from triplepoint import Agent, ModelError, RemoteEngine

NANO = Path(triplepoint.__file__).parent / "runtime" / "nano" / "nano.gguf"
PYTHON = os.environ.get("LLAMA_SERVER_PYTHON", sys.executable)


@pytest.fixture(scope="module")
def server() -> Iterator[RemoteEngine]:
    """A server on a free port; LLAMA_SERVER_PYTHON names an interpreter that has it."""
    probe = subprocess.run([PYTHON, "-c", "import llama_cpp.server.app"], capture_output=True)
    if probe.returncode:
        pytest.skip("llama-cpp-python[server] is not installed (LLAMA_SERVER_PYTHON names one)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "llama_cpp.server", "--model", str(NANO), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--n_ctx", "2048", "--n_threads", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield reached(f"http://127.0.0.1:{port}/v1")
    finally:
        process.terminate()
        process.wait(30)


def reached(url: str) -> RemoteEngine:
    """The engine, once the server has loaded its model."""
    for _ in range(300):
        try:
            return RemoteEngine(url, context=2048)
        except ModelError:
            time.sleep(0.2)
    pytest.fail("the server did not start within a minute")


@pytest.mark.slow
def test_nano_on_llama_cpp_calls_a_tool_and_answers(server: RemoteEngine, tmp_path: Path) -> None:
    """The same question as with our engine: a call, its result, an answer that names the file."""
    (tmp_path / "report.txt").write_text("all is well\n")
    agent = Agent(server, workspace=tmp_path, trace=False)

    result = agent.run("Which files are in this folder?")

    assert "report.txt" in result.answer
    assert [(t.name, t.result) for t in agent.trace.tools] == [("list_dir", "report.txt")]
    assert [p.phase for p in agent.trace.phases] == ["prefill", "decode"] * 2
    assert all(p.source == "remote" and p.wall_s > 0 for p in agent.trace.phases)
