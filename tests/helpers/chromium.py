"""A headless Chromium, driven through the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 30.0  # seconds for anything; a loaded machine is slow


def find() -> str | None:
    """The browser's path; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _high_pipe() -> tuple[int, int]:
    """A pipe whose descriptors are neither 3 nor 4, which the browser will want."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low)
    for fd in low:
        os.close(fd)
    return high[0], high[1]


class Chromium:
    """One browser with one page."""

    def __init__(self, binary: str, folder: Path) -> None:
        to_browser, commands = _high_pipe()
        answers, from_browser = _high_pipe()
        arguments = [
            *(binary, "--headless=new", "--remote-debugging-pipe", "--no-sandbox"),
            *("--disable-gpu", "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *(f"--user-data-dir={folder}", "about:blank"),
        ]
        # It reads commands from descriptor 3 and writes answers to 4.
        actions: list[Any] = [
            (os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)
        ]
        actions += [
            (os.POSIX_SPAWN_DUP2, to_browser, 3),
            (os.POSIX_SPAWN_DUP2, from_browser, 4),
        ]
        self._pid = os.posix_spawn(binary, arguments, os.environ, file_actions=actions)
        os.close(to_browser)
        os.close(from_browser)
        self._commands, self._answers = commands, answers
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []
        """What the browser told unasked."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def open(
        self, path: Path | str, *, width: int = 1500, height: int = 950, dark: bool = False
    ) -> None:
        """Load a file, or an address, and wait until its script has run; forgets earlier events."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.events.clear()
        self.call("Page.navigate", url=path if isinstance(path, str) else path.as_uri())
        self.wait(lambda: self.value("document.readyState") == "complete")

    def wait(self, ready: Callable[[], object]) -> None:
        """Until something is so."""
        end = time.monotonic() + _PATIENCE
        while not ready():
            assert time.monotonic() < end, "the page did not get there"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression gives in the page, as JSON."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def key(self, key: str) -> None:
        """Press and release a key."""
        text: dict[str, Any] = {"text": "\r" if key == "Enter" else key if len(key) == 1 else ""}
        text |= {"windowsVirtualKeyCode": 27} if key == "Escape" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector: str) -> None:
        """Click the middle of the first element that fits."""
        place = self.value(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def screenshot(self, path: Path) -> None:
        """What is to be seen, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def fits(self, path: Path | str, ready: str = "document.readyState == 'complete'") -> None:
        """Assert that a page is as wide as its screen, phone or desk, light or dark, and silent."""
        for width, height in ((390, 844), (1280, 900)):
            for dark in (False, True):
                self.open(path, width=width, height=height, dark=dark)
                self.wait(lambda: self.value(ready))
                assert self.value("document.documentElement.scrollWidth") <= width, (path, width)
                assert self.complaints == [], path

    @property
    def complaints(self) -> list[str]:
        """Exceptions, errors in the log (a violated policy is one) and dialogs since `open`."""
        self.value("0")  # whatever is on its way arrives before this answer
        wrong = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                wrong.append(str(params["exceptionDetails"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                wrong.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
                wrong.append(str(params["args"]))
            elif method == "Page.javascriptDialogOpening":
                wrong.append(f"dialog: {params['message']}")
        return wrong

    @property
    def requests(self) -> list[str]:
        """Addresses that the page asked for since `open`."""
        self.value("0")
        sent = [e["params"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def close(self) -> None:
        """End the browser."""
        os.write(self._commands, b'{"id":0,"method":"Browser.close"}\0')
        os.close(self._commands)
        end = time.monotonic() + _PATIENCE
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            time.sleep(0.02)
            if time.monotonic() > end:
                os.kill(self._pid, signal.SIGKILL)
        os.close(self._answers)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._answers, 1 << 20)
            assert chunk, "the browser has gone"
            self._rest += chunk
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)
