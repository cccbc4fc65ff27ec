"""``triplepoint serve`` and ``ps``, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from helpers.notices import without_notices
from helpers.serving import LONG_CHAT

from triplepoint.arguments import pip_install

COMMAND = [sys.executable, "-m", "triplepoint", "serve", "--port", "0", "--json"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
pytest.importorskip("uvicorn", reason="the server needs pip install 'triplepoint[serve]'")


@contextmanager
def serving(env: dict[str, str], *args: str) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A server, and what it says at its start."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*COMMAND, *args], env=env, **pipes)
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if line == "}\n":
                break
        yield process, json.loads(said)
    finally:
        process.kill()
        process.communicate()


def test_from_start_to_end(env: dict[str, str], triplepoint: Run) -> None:
    """It says where it listens, answers, shows in ps, and ends quietly with a signal."""
    with serving(env, "-m", "small=nano") as (process, said):
        assert said["models"] == ["small"]
        body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        answer = httpx.post(f"{said['url']}/chat/completions", json=body, timeout=60)
        assert answer.json()["model"] == "small"
        shown = triplepoint("ps", "--url", said["url"])
        assert shown.returncode == 0, shown.stderr
        assert "small  ready" in shown.stdout
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, "Traceback" in errors) == (0, False)


@pytest.mark.slow
def test_signals_while_a_request_runs(env: dict[str, str]) -> None:
    """The first lets it end and takes no new one; the second ends it, and its client is told."""
    body = {**LONG_CHAT, "stream": True}
    with (
        serving(env) as (process, said),
        httpx.stream("POST", f"{said['url']}/chat/completions", json=body, timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        next(lines)
        process.send_signal(signal.SIGTERM)
        for _ in range(50):
            next(lines)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        *_, failed, done = filter(None, lines)
        assert json.loads(failed.removeprefix("data: "))["error"]["code"] == "unavailable"
        assert done == "data: [DONE]"
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, without_notices(errors)) == (0, "")


@pytest.mark.slow
def test_signals_while_a_client_does_not_read(env: dict[str, str]) -> None:
    """The second one ends the process, although nobody takes what is left of an answer."""
    body = json.dumps({**LONG_CHAT, "stream": True, "logprobs": True, "top_logprobs": 20}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    with serving(env) as (process, said), socket.socket() as client:
        url = urlsplit(said["url"])
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((url.hostname, url.port))
        client.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        running = f"http://{url.netloc}/ps"
        until = time.monotonic() + 60
        for state in (1, 0):  # it begins, and all is written that there is room for
            while httpx.get(running).json()["running"] != state:
                assert time.monotonic() < until
                time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, without_notices(errors)) == (0, "")


@pytest.mark.slow
def test_signals_while_a_model_is_loaded(env: dict[str, str]) -> None:
    """A third one ends the process, although loading cannot be ended."""
    script = """
import time
from triplepoint.arguments import pip_install
from triplepoint.runtime.serve.app.run import serve
from triplepoint.runtime.serve.settings import ServerSettings
serve(ServerSettings({"nano": "nano"}, port=0), lambda _: time.sleep(300), print)
"""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", script], env=env, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    for _ in range(600):
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/health").status_code == 503:
                break
        time.sleep(0.1)
    for _ in range(3):
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM


def test_a_model_that_cannot_be_loaded(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """The only one, whose file looks well at the start: the server ends, and says which and why."""
    data = nano.read_bytes().replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_gone.weight")
    (tmp_path / "odd.gguf").write_bytes(data)
    done = triplepoint("serve", "--port", "0", "-m", str(tmp_path / "odd.gguf"))
    first, *_, last = done.stderr.splitlines()
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert any("the model odd could not be loaded: " in line for line in done.stderr.splitlines())
    assert "triplepoint: error: " in last
    assert "ffn_g" in last
    assert first.startswith("serving odd at ")


@pytest.mark.slow
def test_what_does_not_start(triplepoint: Run, env: dict[str, str], tmp_path: Path) -> None:
    """A missing model, a name twice, an open address without a key, a port that is taken."""
    for args, status, says in (
        (("-m", "no/such.gguf"), 3, "no/such.gguf"),
        (("-m", "nano", "-m", "nano"), 2, "two models have the name nano"),
        (("--host", "0.0.0.0"), 2, "--api-key"),
        (("--keep-alive", "soon"), 2, "'soon' is not a time"),
    ):
        done = triplepoint("serve", "--port", "0", *args)
        assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    with serving(env) as (_, said):
        port = said["url"].rpartition(":")[2].partition("/")[0]
        done = triplepoint("serve", "--port", port)
        assert (done.returncode, "is another server running" in done.stderr) == (1, True)


def test_no_server_to_ask(triplepoint: Run) -> None:
    """It says how one is started."""
    done = triplepoint("ps", "--url", "http://127.0.0.1:9")

    assert (done.returncode, "triplepoint serve" in done.stderr) == (3, True)


def test_without_the_extra(env: dict[str, str], tmp_path: Path) -> None:
    """The error says what to install."""
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('none', name='uvicorn')\n")
    path = os.pathsep.join([str(tmp_path), *env.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        COMMAND, env=env | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert pip_install("serve") in done.stderr


@pytest.mark.slow
def test_keys_and_public_prefixes_of_files(env: dict[str, str], tmp_path: Path) -> None:
    """Keys may have names; a prefix that is public is computed before anybody asks."""
    keys, public = tmp_path / "keys", tmp_path / "public"
    keys.write_text("ann one\n\n  two\n")
    public.write_text("Answer in one word. " * 40)
    options = ("--api-key-file", str(keys), "--public-prefix", str(public))
    system = {"role": "system", "content": public.read_text()}
    body = {"messages": [system, {"role": "user", "content": "hello"}], "max_tokens": 1}
    with serving(env, *options) as (_, said):
        found: dict[str, tuple[int, int]] = {}
        for key in ("one", "two", "ann"):
            headers = {"Authorization": f"Bearer {key}"}
            url = f"{said['url']}/chat/completions"
            answer = httpx.post(url, json=body, headers=headers, timeout=60)
            usage = answer.json().get("usage", {"prompt_tokens_details": {"cached_tokens": 0}})
            found[key] = answer.status_code, usage["prompt_tokens_details"]["cached_tokens"]

    assert found["one"][0] == 200
    assert found["one"][1] > 100
    assert found["two"] == found["one"]
    assert found["ann"] == (401, 0)


def test_a_file_of_keys_that_is_none(env: dict[str, str], tmp_path: Path, triplepoint: Run) -> None:
    """It is refused with the line, which is not shown."""
    keys = tmp_path / "keys"
    keys.write_text("one\na secret key\n")
    refused = triplepoint("serve", "--api-key-file", str(keys))

    assert refused.returncode != 0
    assert f"{keys}:2" in refused.stderr
    assert "secret" not in refused.stderr
    keys.unlink()
    missing = triplepoint("serve", "--api-key-file", str(keys)).stderr
    assert missing.endswith(f"cannot read {keys}: No such file or directory\n")
