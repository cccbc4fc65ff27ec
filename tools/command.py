"""The tool run_command: a program with arguments, without a shell, within limits.

The program is no guest of the workspace jail: it can do whatever the user can. That is why this
tool is there only on request, and why every call goes through the policy as ``exec``.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ..arguments import as_mapping, check_whole
from ..errors import ToolError
from ..interrupts import held
from .paths import check_text, shown
from .schema import brief
from .text import is_binary
from .timeouts import limit_of, on_abandon
from .tool import ToolGroup, tool
from .workspace import folder_at

MAX_SECONDS = 60.0
MAX_OUTPUT = 256 * 1024  # bytes that are shown, half of the beginning and half of the end
GRACE = 1.0  # seconds between asking a program to end and ending it

# What a program needs to work at all. Not the rest: keys and tokens often live there.
PASSED_VARIABLES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LC_ALL", "LC_CTYPE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"),
    *("JAVA_HOME", "GOPATH", "CARGO_HOME", "RUSTUP_HOME"),
)


class CommandTools(ToolGroup):
    """The tool run_command for one folder, for an agent. Iterating yields the `Tool`.

    Args:
        root: the folder that programs start in.
        max_seconds: time limit of one program; then its whole process group is killed.
        max_output: bytes of its output to keep.
        environment: its variables; default: a few of ours, without keys and tokens.

    Raises:
        ToolError: there is no such folder, or a limit or a variable cannot be one.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        max_seconds: float = MAX_SECONDS,
        max_output: int = MAX_OUTPUT,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.root = folder_at(root)
        if not os.path.isdir(self.root):  # False also for a name that is too long
            raise ToolError(f"no such folder: {shown(str(root))}")
        self._max_seconds = limit_of(max_seconds, "max_seconds")
        check_whole(max_output, "max_output", ToolError, least=1)
        self._max_output = max_output
        if environment is None:
            environment = {k: os.environ[k] for k in PASSED_VARIABLES if k in os.environ}
        environment = as_mapping(environment, "environment must map names to strings", ToolError)
        if odd := [kv for kv in environment.items() if not _is_variable(*kv)]:
            raise ToolError(f"environment must map names to strings, not {brief(odd[0])}")
        self._environment = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", **environment}
        self._tools = (tool(effect="exec", preview=_preview)(self.run_command),)

    def run_command(self, command: list[str]) -> str:
        """Run a program in the workspace folder and return what it prints. There is no shell.

        Args:
            command: The program and its arguments, each an item, such as ["ls", "-l"].
        """
        _check_words(command)
        began = time.monotonic()
        with contextlib.ExitStack() as ending:
            with held():  # or Ctrl-C would leave behind what has just begun
                process = self._start(command)
                ending.callback(_end, process)
            with on_abandon(lambda: _end_group(process)):
                output, timed_out = self._read(process, began + self._max_seconds)
                if not timed_out:
                    timed_out = _wait(process, began + self._max_seconds)
        return self._report(command, process.returncode, timed_out, output)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own, and no terminal to ask on
            )
        except FileNotFoundError:
            if not os.path.isdir(self.root):
                raise ToolError(f"the workspace folder is gone: {shown(str(self.root))}") from None
            raise ToolError(f"no such program: {shown(command[0])}") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error  # its text repeats the whole name
            raise ToolError(f"cannot run {shown(command[0])}: {why}") from None

    def _read(self, process: subprocess.Popen[bytes], until: float) -> tuple[_HeadAndTail, bool]:
        """Read the output until the program closes it, ends, or times out."""
        assert process.stdout is not None
        output = _HeadAndTail(self._max_output)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            ended = False  # a child that it left behind may keep the pipe open
            while (left := until - time.monotonic()) > 0:
                if selector.select(0 if ended else min(left, 0.1)):
                    if not (chunk := os.read(process.stdout.fileno(), 65536)):
                        return output, False
                    output.add(chunk)
                elif ended:
                    break
                else:
                    ended = process.poll() is not None  # its last words may still be in the pipe
        return output, not ended

    def _report(
        self, command: list[str], status: int, timed_out: bool, output: _HeadAndTail
    ) -> str:
        name = shown(command[0])
        if timed_out:
            end = f"[{name} was ended after {self._max_seconds:g} seconds]"
        elif status < 0:
            end = f"[{name} was ended by signal {-status}]"
        else:
            end = f"[exit status {status}]"
        text = output.text()
        return f"{text}\n{end}" if text else end


class _HeadAndTail:
    """The beginning and the end of an output of any length."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes) -> None:
        self._total += len(chunk)
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[max(room, 0) :]
        if len(self._tail) > 2 * self._half:
            del self._tail[: len(self._tail) - self._half]

    def text(self) -> str:
        if is_binary(bytes(self._head[:8192])):
            return f"[{self._total:,} bytes that are no text]"
        head, tail = self._head, self._tail[-self._half :] if self._half else b""
        if len(head) + len(tail) >= self._total:
            return (head + tail).decode("utf-8", "replace").rstrip()
        head, tail = _without_torn_end(head), _without_torn_start(tail)
        missing = self._total - len(head) - len(tail)
        head = head.decode("utf-8", "replace")
        note = f"\n[cut: {missing:,} bytes of the output are left out here]\n"
        return f"{head}{note}{tail.decode('utf-8', 'replace')}".rstrip()


def _without_torn_end(data: bytearray) -> bytearray:
    """Return the bytes without an incomplete last character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(bytes(data))
    return data[: len(data) - len(decoder.getstate()[0])]


def _without_torn_start(data: bytes | bytearray) -> bytes | bytearray:
    """Return the bytes without an incomplete first character."""
    start = next((n for n, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), min(3, len(data)))
    return data[start:]


def _check_words(command: list[str]) -> None:
    if not isinstance(command, list | tuple):
        raise ToolError(f"a command must be a list of words, not {type(command).__name__}")
    for word in command:
        check_text("a word of the command", word)
        if "\0" in word:
            raise ToolError("a word of the command holds a NUL character")
    if not command or not command[0]:
        raise ToolError('the command is empty: give a program and its arguments, ["ls", "-l"]')


def _is_variable(name: object, value: object) -> bool:
    both = (name, value)
    return all(isinstance(one, str) and "\0" not in one for one in both) and "=" not in str(name)


def _preview(command: list[str]) -> str:
    _check_words(command)
    return f"$ {shlex.join(command)}"


def _wait(process: subprocess.Popen[bytes], until: float) -> bool:
    """Wait for the program to end; return True when it timed out."""
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group, and close its pipe."""
    _end_group(process)
    if process.stdout is not None:
        process.stdout.close()


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the program's process group: itself if it still runs, and its children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
        stop_at = time.monotonic() + GRACE
        while time.monotonic() < stop_at:
            process.poll()
            os.killpg(process.pid, 0)  # raises when the group is gone
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
