"""Requests of one server: who runs, who waits, and what becomes of them when a client goes."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio.to_thread

from .api_error import APIError, as_api_error, busy
from .generate import Event, Failed, Generation, GenerationRequest
from .mailbox import Channel, Mailbox
from .metrics import Metrics
from .models import LoadedModel, Models
from .request_record import RequestRecord
from .request_traces import RequestTraces
from .settings import ServerSettings

T = TypeVar("T")

Prepare = Callable[[LoadedModel], GenerationRequest]


class Job:
    """One request, from its arrival to its last event.

    Attributes:
        channel: where its events arrive.
        record: what is known of it.
        fingerprint: of the model as it runs here, once that is loaded.
    """

    def __init__(self, service: Service, name: str | None, prepare: Prepare) -> None:
        self.channel: Channel[Event] = Channel(service.mailbox)
        self._service, self._name, self._prepare = service, name, prepare
        self.record = RequestRecord(service.models.known(name))
        self._generation = Generation(self._emit, self.record)
        self._future: Future[None] | None = None
        self.arrived = time.perf_counter()

    def start(self, pool: ThreadPoolExecutor) -> None:
        """Begin, or wait for a thread."""
        self._future = pool.submit(self._run)
        self._future.add_done_callback(self._ended)

    def cancel(self, why: APIError | None = None) -> None:
        """Nobody wants it any more; from any thread. Its last event comes in any case."""
        self._generation.cancel(why)
        if self._future is not None:
            self._future.cancel()

    def _run(self) -> None:
        try:
            if self._generation.cancelled:
                self._emit(self._generation.last_event)
                return
            with self._service.models.use(self._name) as model:
                self.record.started = time.perf_counter()
                self.record.request = request = self._prepare(model)
                self._generation.run(model.engine, request)
                self._service.traces.keep(self.record, model)
        except BaseException as error:  # of loading and preparing; `run` tells of its own
            self._emit(Failed(as_api_error(error)))

    def _emit(self, event: Event) -> None:
        self.record.heard(event)
        self.channel.post(event)

    def _ended(self, future: Future[None]) -> None:
        if future.cancelled():
            self._emit(self._generation.last_event)
        self._service.forget(self)


class Service:
    """What all requests of a server share. Made in its event loop.

    Attributes:
        running: whether new requests are taken.
    """

    def __init__(self, settings: ServerSettings, models: Models, metrics: Metrics) -> None:
        self.settings, self.models, self.metrics = settings, models, metrics
        self.traces = RequestTraces(settings.trace, settings.trace_folder, settings.trace_bytes)
        self.mailbox = Mailbox()
        self.running = True
        self.began = time.time()
        self._pool = ThreadPoolExecutor(settings.limits.parallel, thread_name_prefix="request")
        self._jobs: set[Job] = set()
        self._lock = threading.Lock()

    @property
    def load(self) -> tuple[int, int]:
        """Requests that run, and that wait."""
        count, most = len(self._jobs), self.settings.limits.parallel
        return min(count, most), max(0, count - most)

    @asynccontextmanager
    async def job(self, name: str | None, prepare: Prepare) -> AsyncIterator[Job]:
        """A request that runs as long as the context is open.

        Raises:
            APIError: too many wait already, or the server is shutting down.
        """
        if not self.running:
            raise busy("the server is shutting down")
        limits = self.settings.limits
        if len(self._jobs) >= limits.parallel + limits.queue:
            raise busy(f"{limits.queue} requests are waiting already; try again later", status=429)
        job = Job(self, name, prepare)
        self.metrics.arrived(job.record)
        with self._lock:
            self._jobs.add(job)
        job.start(self._pool)
        try:
            yield job
        finally:
            job.cancel()

    def forget(self, job: Job) -> None:
        """It has ended."""
        self.metrics.ended(job.record)
        with self._lock:
            self._jobs.discard(job)

    async def with_model(self, name: str | None, ask: Callable[[LoadedModel], T]) -> T:
        """Ask something of a model that takes no pass, in a thread.

        Raises:
            APIError: it has failed.
        """

        def work() -> T:
            try:
                with self.models.use(name) as model:
                    return ask(model)
            except Exception as error:
                raise as_api_error(error) from error

        return await anyio.to_thread.run_sync(work)

    def close(self) -> None:
        """End everything: what still runs is cancelled. Blocks until it has ended."""
        self.running = False
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel(busy("the server is shutting down"))
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.models.close()
