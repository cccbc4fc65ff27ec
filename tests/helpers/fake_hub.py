"""A Hub on this machine that answers as the real one does, or misbehaves as it is told.

A file is asked for under ``/org/name/resolve/COMMIT/PATH``, which gives its size and hash and
redirects to ``/cdn/…``, which knows ranges. `faults` says what goes wrong with the next answers
of the second kind, one after the other.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from triplepoint.runtime.hub.names import ModelName
from triplepoint.runtime.hub.settings import HubSettings
from triplepoint.runtime.hub.transport import RetryPolicy

ONE = ModelName("org/one")
FILE = "One-Q4_K_M.gguf"
HURRIED = RetryPolicy(read_s=0.3, window_s=0.2, slowest=1000, tries=4, pause_s=0.001)
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"


@dataclass
class FakeRepo:
    """A repository: files by path, and whether they are large (LFS) ones."""

    files: dict[str, bytes]
    commit: str = COMMIT
    lfs: bool = True
    gated: bool = False
    architecture: str | None = None
    shrink: int = 0  # bytes that the listing says too few of each file

    def digest(self, path: str) -> str:
        data = self.files[path]
        if self.lfs:
            return hashlib.sha256(data).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    def listing(self) -> dict[str, object]:
        siblings: list[dict[str, object]] = []
        for path, data in self.files.items():
            one: dict[str, object] = {"rfilename": path, "size": len(data) - self.shrink}
            one["blobId"] = "ab" * 20
            if self.lfs:
                one["lfs"] = {"sha256": self.digest(path), "size": one["size"], "pointerSize": 134}
            else:
                one["blobId"] = self.digest(path)
            siblings.append(one)
        answer: dict[str, object] = {"id": "x/y", "sha": self.commit, "siblings": siblings}
        if self.architecture:
            answer["gguf"] = {"architecture": self.architecture, "total": 1}
        return answer


@dataclass
class FakeHub:
    """What is served, what goes wrong, and what was asked."""

    repos: dict[str, FakeRepo] = field(default_factory=dict)
    faults: deque[str] = field(default_factory=deque)  # of /cdn/
    api_faults: deque[str] = field(default_factory=deque)
    always: str = ""  # a fault of every answer of /cdn/
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    agents: set[str | None] = field(default_factory=set)  # what named itself
    pause_s: float = 0.0  # before a search is answered
    url: str = ""

    def ranges(self) -> list[str | None]:
        """The Range header of each request for contents."""
        return [range_ for path, range_, _ in self.asked if path.startswith("/cdn/")]


@contextlib.contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve until the block ends."""

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = _Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: that the other side hangs up is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        token = self.headers.get("Authorization")
        self.hub.agents.add(self.headers.get("User-Agent"))
        self.hub.asked.append((path, self.headers.get("Range"), token))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if path == "/api/models":
                self.search({key: values[0] for key, values in parse_qs(parts.query).items()})
            elif path.startswith("/api/models/"):
                self.api(parts.path)
            elif path.startswith("/cdn/"):
                self.contents(path.removeprefix("/cdn/"))
            else:
                self.resolve(path)

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    # --- answers

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str = "", message: str = "") -> None:
        self.answer(status, b"{}", X_Error_Code=code, X_Error_Message=message)

    def repo(self, name: str) -> FakeRepo | None:
        """The repository, or None when an error was answered: the Hub hides what it has not."""
        found = self.hub.repos.get(name)
        if found is None:
            self.refuse(401, "RepoNotFound")
        elif found.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo")
        else:
            return found
        return None

    def search(self, query: dict[str, str]) -> None:
        time.sleep(self.hub.pause_s)
        author, text = query.get("author"), query.get("search", "").lower()
        names = [
            name
            for name in self.hub.repos
            if (name.split("/")[0] == author if author else text in name.lower())
        ]
        self.answer(200, json.dumps([{"id": name} for name in names]).encode())

    def api(self, path: str) -> None:
        zipped = bool(self.hub.api_faults) and self.hub.api_faults[0] == "gzip"
        if zipped:
            self.hub.api_faults.popleft()
        elif self.hub.api_faults:
            fault = self.hub.api_faults.popleft()
            if fault == "disabled":
                return self.refuse(403, "", "Access to this resource is \x1b[2Jdisabled.")
            if fault == "token":
                return self.refuse(401, "", "Invalid credentials in Authorization header")
            if fault.isdigit():
                return self.answer(int(fault), b"busy", Retry_After="0")
            if fault.startswith("to:"):
                return self.answer(302, b"", Location=fault.removeprefix("to:"))
            if fault == "drip":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                return self.send(b" " * 1000, "drip", 50)
            return self.answer(200, fault.encode())
        match = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)", path)
        assert match, path
        repo = self.repo(match[1])
        if repo is None:
            return None
        if unquote(match[2]) not in ("main", "v1", "refs/pr/1", repo.commit):
            return self.refuse(404, "RevisionNotFound")
        body = json.dumps(repo.listing()).encode()
        if zipped:
            return self.answer(200, gzip.compress(body), Content_Encoding="gzip")
        return self.answer(200, body, X_HF_Warning="a topic; words \x1b[2J of the server")

    def resolve(self, path: str) -> None:
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        assert match, path
        repo = self.repo(match[1])
        if repo is None:
            return None
        if match[3] not in repo.files:
            return self.refuse(404, "EntryNotFound")
        fault = self.hub.faults[0] if self.hub.faults else self.hub.always
        digest = repo.digest(match[3])
        if fault == "changed":
            self.hub.faults.popleft()
            digest = "ef" * 32
        # Another host, as the real one's contents are.
        cdn = self.hub.url.replace("127.0.0.1", "localhost")
        target = f"{cdn}/cdn/{match[1]}/{match[3]}?signature=secret"
        if fault == "loop":
            target = self.hub.url + path
        elif fault.startswith("to:"):
            target = fault.removeprefix("to:")
        headers = {"Location": target, "X_Repo_Commit": repo.commit}
        if repo.lfs:
            headers |= {"X_Linked_Etag": f'"{digest}"'}
            headers |= {"X_Linked_Size": str(len(repo.files[match[3]]))}
        return self.answer(302, b"", **headers)

    def contents(self, path: str) -> None:
        owner, name, file = path.split("/", 2)
        data = self.hub.repos[f"{owner}/{name}"].files[file]
        fault = self.hub.faults.popleft() if self.hub.faults else self.hub.always
        kind, _, number = ("" if fault.startswith("to:") else fault).partition(":")
        if kind.isdigit():
            return self.answer(int(kind), b"no", Retry_After=number or "0")
        start = 0
        if asked := self.headers.get("Range"):
            start = int(asked.removeprefix("bytes=").rstrip("-"))
        if kind == "no-range":
            start = 0
        status, headers = 200, {"Content-Length": str(len(data) - start)}
        if asked and kind != "no-range":
            status = 206
            first = start + (1 if kind == "wrong-range" else 0)
            headers["Content-Range"] = f"bytes {first}-{len(data) - 1}/{len(data)}"
        body = data[start:]
        if kind == "wrong":
            body = bytes(len(body))
        elif kind == "gzip":
            body = gzip.compress(body)
            headers |= {"Content-Encoding": "gzip", "Content-Length": str(len(body))}
        elif kind == "short":  # says so itself
            body = body[: int(number)]
            headers["Content-Length"] = str(len(body))
        elif kind == "long":
            del headers["Content-Length"]
            headers["Connection"] = "close"
            body += b"more"
            self.close_connection = True
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        return self.send(body, kind, int(number or 0))

    def send(self, body: bytes, kind: str, number: int) -> None:
        """The body, or as much of it as the fault lets through."""
        if kind == "cut":
            self.wfile.write(body[:number])
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
        elif kind == "drip":
            for at in range(number):
                self.wfile.write(body[at : at + 1])
                self.wfile.flush()
                time.sleep(0.02)
            self.close_connection = True
        elif kind == "silence":
            self.wfile.write(body[:number])
            self.wfile.flush()
            time.sleep(1.0)
            self.close_connection = True
        else:
            self.wfile.write(body)


def visible(settings: HubSettings) -> list[Path]:
    """Files that another program would take for whole."""
    found = [p for p in settings.cache.rglob("*") if p.is_file() and ".locks" not in p.parts]
    return [p for p in found if "snapshots" in p.parts or (
        p.parent.name == "blobs" and not p.name.endswith(".incomplete"))]  # fmt: skip


def part_of(settings: HubSettings) -> Path:
    (part,) = settings.cache.rglob("*.incomplete")
    return part
