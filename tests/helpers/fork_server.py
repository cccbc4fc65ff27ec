"""A warm process that runs the command line in forks of its own, one for each call.

Importing what a command needs takes longer than most commands do. A fork has its own working
folder, environment, streams and end, so a call is as apart from others as a process is.

    python fork_server.py PID      serve on the socket that is its stdin, while that process lives
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

WARM = (
    *("numpy", "llvmlite.binding", "jinja2", "llguidance", "tokenizers", "rich.console", "httpx"),
    *(
        f"triplepoint.runtime.cli.{verb}"
        for verb in ("run", "chat", "bench.speed", "replay", "regimes")
    ),
    *(
        "triplepoint.__main__",
        "triplepoint.runtime.cli.trace",
        "triplepoint.runtime.cli.doctor.check",
    ),
    *("triplepoint.runtime.engine.engine", "triplepoint.runtime.agent.agent"),
)


class ForkServer:
    """The caller's side: starts the server, and runs commands through it."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "fork-server")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self._path)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(os.getpid())],
                stdin=listener.fileno(),
                start_new_session=True,
                env=os.environ | {"PYTHONWARNINGS": "error"},
            )

    def run(
        self, args: Sequence[str], stdin: str, env: Mapping[str, str], folder: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with pipes, in text; without a `stdin` that is /dev/null."""
        pipes = [os.pipe() for _ in range(3)]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        if not stdin:
            os.dup2(null := os.open(os.devnull, os.O_RDONLY), theirs[0])
            os.close(null)
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(timeout)
            channel.connect(self._path)
            socket.send_fds(channel, [b"+"], theirs)
            for end in theirs:
                os.close(end)
            os.umask(mask := os.umask(0))  # the only way to ask for it
            call = {"args": list(args), "env": dict(env), "folder": str(folder), "umask": mask}
            channel.sendall(json.dumps(call).encode() + b"\n")
            read: dict[int, bytes] = {}

            def drain(number: int) -> None:
                with open(pipes[number][0], "rb") as stream:
                    read[number] = stream.read()

            readers = [threading.Thread(target=drain, args=(number,)) for number in (1, 2)]
            for reader in readers:
                reader.start()
            with contextlib.suppress(BrokenPipeError), open(pipes[0][1], "wb") as stream:
                stream.write(stdin.encode())
            told = channel.makefile().readline()
            for reader in readers:
                reader.join(timeout)
        out, error = (read[number].decode() for number in (1, 2))
        return subprocess.CompletedProcess(list(args), int(told), out, error)

    def close(self) -> None:
        """End the server, and the commands that still run."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.unlink(self._path)


def _serve(listener: socket.socket, caller: int) -> None:
    for name in WARM:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer callers
    listener.settimeout(5)
    while os.getppid() == caller:
        try:
            channel, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(channel)
        channel.close()


def _answer(channel: socket.socket) -> None:
    """Run one command in a child, and say how it ended."""
    _, streams, _, _ = socket.recv_fds(channel, 1, 3)
    call = json.loads(channel.makefile().readline())
    child = os.fork()
    if child == 0:
        channel.close()
        _run(call, streams)
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        channel.sendall(f"{code}\n".encode())
    os._exit(0)


def _run(call: dict[str, Any], streams: list[int]) -> None:
    """What a fresh interpreter would do, from the streams to the exit status."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        if stream > 2:
            os.close(stream)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        errors = ("surrogateescape", "strict", "backslashreplace")[number]
        opened = os.fdopen(
            number, "w" if number else "r", 1 if number == 2 else -1, "utf-8", errors, closefd=False
        )
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)
    os.environ.clear()
    os.environ.update(call["env"])
    os.umask(call["umask"])
    os.chdir(call["folder"])
    sys.argv = ["triplepoint", *call["args"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status: object = 1
    try:
        status = import_module("triplepoint.__main__").main()
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status if isinstance(status, int) else 0 if status is None else 1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=0), int(sys.argv[1]))
