"""The server process: listens, serves, and shuts down on signals."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from ....arguments import pip_install
from ....errors import EngineError, SettingError
from ..models.loading import Load
from ..settings import ServerSettings

if TYPE_CHECKING:
    from ..requests.service import Service

EXTRA = ("uvicorn", "starlette", "anyio", "httptools")  # packages of the extra `serve`


def serve(
    settings: ServerSettings, load: Load, started: Callable[[str], None] | None = None
) -> None:
    """Serve until a signal: the first lets running requests end, the second cancels them.

    A third one ends the process at once.

    Args:
        settings, load: see `Models`.
        started: called with the URL once the port is open.

    Raises:
        SettingError: the extra ``serve`` is not installed.
        EngineError: the address cannot be listened on.
        Exception: why no model can be served, once every one has failed to load.
    """
    try:
        import uvicorn
        from uvicorn.server import HANDLED_SIGNALS

        from ..http.protocol import BoundedProtocol, make_room
        from .application import build_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        message = f"a server needs starlette and uvicorn: {pip_install('serve')}"
        raise SettingError(message) from None

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """Handle a signal as `serve` describes; uvicorn's own handler would cut off streams."""
            service: Service | None = getattr(app.state, "service", None)
            if service is not None:  # else it has not begun
                service.running = False
                if self.should_exit:  # in a thread: the locks may be held by what is interrupted
                    threading.Thread(target=service.end_requests, daemon=True).start()
            if self.should_exit:
                for one in list(self.server_state.connections):
                    if isinstance(one, BoundedProtocol):
                        one.end_soon()
                for one in HANDLED_SIGNALS:
                    signal.signal(one, signal.SIG_DFL)
            self.should_exit = True

    make_room()
    failures: list[BaseException] = []

    def end_hopeless(error: BaseException) -> None:
        failures.append(error)
        server.should_exit = True

    app = build_app(settings, load, end_hopeless)
    bound = bound_socket(settings)
    with contextlib.closing(bound):
        if started is not None:
            started(address_of(bound))
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_keep_alive=75,
        )
        server = Server(config)
        try:
            server.run(sockets=[bound])
        finally:
            if (service := getattr(app.state, "service", None)) is not None:
                service.close()  # where it could not end by itself
    if failures:
        raise failures[0]


def bound_socket(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens on the host and port of the settings.

    Raises:
        EngineError: the address cannot be listened on.
    """
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP: else asyncio does not turn off Nagle's algorithm on its connections, and each
    # answer on one that is kept waits 40 ms for the client's delayed acknowledgment.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, settings.port))
        made.listen(1024)
    except (OSError, UnicodeError) as error:
        made.close()
        raise EngineError(
            f"cannot listen on {settings.host}:{settings.port}: {error}; is another server "
            "running (triplepoint ps)? Choose another port with --port"
        ) from None
    return made


def address_of(bound: socket.socket) -> str:
    """Return the URL of a listening socket, without a path."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
