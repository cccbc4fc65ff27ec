"""A server in its own process, for the duration of a benchmark."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import httpx

from ....errors import EngineError
from ..load_engine import load_calibrated
from ..output import Output
from ..serve import named_models

if TYPE_CHECKING:
    from ...bench.load_work import Work
    from ...engine.engine import Engine

_START_S = 300.0  # a model may have to be written first
PARALLEL = 32


@contextmanager
def running(args: argparse.Namespace, output: Output, work: Work) -> Iterator[str]:
    """Start a server with the model and options of `args`, yield its URL, and stop it.

    Raises:
        EngineError: it did not start.
        SettingError: the work does not fit its model's context.
    """
    method = multiprocessing.get_context("spawn")  # threads of ours are not to be copied
    mine, its = method.Pipe()
    models = named_models([args.model] if args.model else None, output)
    process = method.Process(target=_serve, args=(args, models, its), daemon=True)
    process.start()
    its.close()
    try:
        said = mine.recv() if mine.poll(_START_S) else None
        if said is None:
            raise EngineError("the server did not start")
        _until_loaded(said)
        _check_room(said, work)
        yield said
    except EOFError:
        raise EngineError("the server did not start; see its output above") from None
    finally:
        process.terminate()
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


def _until_loaded(url: str) -> None:
    until = time.monotonic() + _START_S
    with httpx.Client(trust_env=False) as client:
        while (status := client.get(f"{url}/health").status_code) != 200:
            if time.monotonic() > until:
                raise EngineError(f"the server did not load its model: HTTP {status}")
            time.sleep(0.1)


def _check_room(url: str, work: Work) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        props = client.get("/props").raise_for_status().json()

        def count(text: str) -> int:
            said = client.post("/tokenize", json={"content": text}).raise_for_status()
            return len(said.json()["tokens"])

        work.check_room(props["default_generation_settings"]["n_ctx"], count)


def _serve(args: argparse.Namespace, models: dict[str, str], out: Connection) -> None:
    """Serve until SIGTERM; the main function of the server's process."""
    from ...serve.app.run import serve
    from ...serve.settings import Limits, ServerSettings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who has started it
    without = args.without or ()
    settings = ServerSettings(
        models,
        port=0,
        programs="programs" not in without,
        trace="off",
        limits=Limits(parallel=args.parallel or PARALLEL),
    )

    def load(source: str) -> Engine:
        engine = load_calibrated(args, Output(as_json=True), source)
        leave_out(engine, without)
        return engine

    serve(settings, load, out.send)


def leave_out(engine: Engine, without: Any) -> None:
    """Disable the named scheduling features of an engine, for comparison."""
    scheduler = engine.core.scheduler
    if "deadline" in without:
        scheduler.deadline_s = math.inf
    engine.core.prefix_cache.running = "sharing" not in without
    scheduler.pages.parks = "parking" not in without
