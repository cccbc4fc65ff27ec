"""The lifecycle of requests: queueing, running, and cancellation when a client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from ..http.api_error import APIError, as_api_error, busy
from ..models.events import Call, Event, Failed, PromptRead, shifted
from ..models.generate import Generation, GenerationRequest, Pauses
from ..models.loaded_model import LoadedModel
from ..models.loading import Models
from ..models.model_request import Prepare
from ..settings import ServerSettings
from .admission import Caller, Line, QueueSlot, prefill_s
from .mailbox import Channel, Mailbox
from .metrics import Metrics
from .programs import Programs
from .request_record import RequestRecord
from .request_traces import RequestTraces, events_of
from .telemetry import Telemetry, TelemetryMetrics

if TYPE_CHECKING:
    from ...engine.session import Session

T = TypeVar("T")


class Job(Pauses):
    """A request from its arrival to its last event: prompt, queue, then execution."""

    def __init__(
        self,
        service: Service,
        name: str,
        prepare: Prepare,
        caller: Caller,
        channel: Channel[Event],
        first: int,
    ) -> None:
        self._channel, self._first = channel, first
        self._service, self._name, self._prepare = service, name, prepare
        self._caller = caller
        self.record = RequestRecord(name, service.metrics.meters, caller.request_id)
        self._awaited: int | None = None
        self._generation = Generation(self._post, caller.namespace, self, self.record)
        self._context = contextvars.copy_context()  # of the request: its notes
        self._future: Future[None] | None = None
        self._slot = QueueSlot(
            lambda: self._submit(service.workers, self._run),
            caller.namespace,
            written=lambda: self.record.tokens,
        )
        self._model: LoadedModel | None = None
        self._request: GenerationRequest | None = None
        self._held = contextlib.ExitStack()  # the model, as long as it is used
        self._called: list[str] = []
        self._came = time.monotonic()

    def start(self) -> None:
        """Start the first stage: build the prompt, or wait until the model is loaded."""
        service = self._service
        self._awaited = service.models.awaited(self._name)
        if self._awaited is None:
            self._submit(service.readers, self._begin)
        else:
            self._submit(service.loaders[self._name], self._load)

    def cancel(self, why: APIError | None = None) -> None:
        """Cancel the request, from any thread; its last event is posted in any case."""
        self._generation.cancel(why)
        if self._future is not None:
            self._future.cancel()
        if self._service.line.leave(self._slot):
            self._end(self._generation.last_event)

    def _submit(self, pool: ThreadPoolExecutor, stage: Callable[[], None]) -> None:
        """Run the next stage of the request in a thread of a pool."""

        def work() -> None:
            try:
                if self._generation.cancelled:
                    self._end(self._generation.last_event)
                else:
                    stage()
            except BaseException as error:  # of loading and preparing; `run` emits its own
                self._end(Failed(as_api_error(error, self.record.request_id)))

        def dropped(future: Future[None]) -> None:
            if future.cancelled():  # before it got a thread
                self._end(self._generation.last_event)

        try:
            future = pool.submit(self._context.copy().run, work)
        except RuntimeError:  # it was closed meanwhile
            self._end(Failed(busy("the server is shutting down")))
        else:
            self._future = future  # the other thread may have set the next one by now
            future.add_done_callback(dropped)

    def _load(self) -> None:
        """Load the model in its own thread: requests for other models do not wait."""
        models = self._service.models
        self._held.enter_context(models.hold(self._name))
        with models.use(self._name, self._awaited):
            pass
        self._submit(self._service.readers, self._begin)

    def _begin(self) -> None:
        """Build the prompt, and join the admission queue."""
        service, slot = self._service, self._slot
        if self._awaited is None:
            self._held.enter_context(service.models.hold(self._name))
        with service.models.use(self._name) as model:
            self._model = model
            self._request = self.record.request = request = self._prepare(model)
            self._expect(model, request)
        # What fails at once fails by its own reason.
        deadline = self._caller.deadline_s if slot.prefill_s else None
        left = None if deadline is None else deadline + self.record.arrived - time.perf_counter()
        service.line.join(slot, left)
        if self._generation.cancelled and service.line.leave(slot):
            self._end(self._generation.last_event)

    def _expect(self, model: LoadedModel, request: GenerationRequest) -> None:
        """Predict the cost of the request, and whether it continues a paused conversation."""
        ids, engine, slot = request.prompt.ids, model.engine, self._slot
        namespace = self._caller.namespace
        slot.returning = self._service.settings.programs and self._service.programs.knows(
            namespace, model.name, self._caller.session, ids
        )
        if request.lengths:  # each is read alone, and none is found in the prefix cache
            counts = Counter(request.lengths).items()
            slot.prefill_s = sum(many * prefill_s(engine, length, 0) for length, many in counts)
        elif 0 < len(ids) < engine.context:  # else it fails at once, or is an agent's work
            cached = engine.core.prefix_cache.count(ids, namespace)
            slot.prefill_s = prefill_s(engine, len(ids), cached)
            slot.token_s = engine.loaded.tuning.pass_s(1, len(ids))
        if (limit := request.turn.limits.max_tokens) is not None:
            slot.max_tokens = limit * request.choices

    def _run(self) -> None:
        """Run the request on the model, once `Line` has admitted it."""
        assert self._request is not None
        with self._service.models.use(self._name) as model:
            if model is not self._model:  # its file has changed meanwhile
                self._model = model
                self._request = self.record.request = self._prepare(model)
            if self._slot.returning:  # not before: it may have been refused
                caller, ids = self._caller, self._request.prompt.ids
                self._service.programs.returns(
                    caller.namespace, model.name, caller.session, ids, self._came
                )
            self.record.started = time.perf_counter()
            self._generation.run(model.engine, self._request)
            self._write_traces(model)
        self._end(None)

    def _write_traces(self, model: LoadedModel) -> None:
        """Write the trace and send the spans of a request that has ended, if they are wanted."""
        service, record = self._service, self.record
        service.traces.keep(record, model)
        if service.telemetry is not None and record.request and record.request.by is None:
            events = list(events_of(record, model))
            service.telemetry.keep(record, events, self._caller.parent)

    def _post(self, event: Event) -> None:
        self.record.heard(event)
        if isinstance(event, PromptRead):
            self._service.line.prompt_read(self._slot)
        elif isinstance(event, Call):
            self._called.append(event.name)
        self._channel.post(shifted(event, self._first))

    def paused(self, session: Session) -> None:
        """Keep the prefix cached of an answer that ends with calls, about as long as these take."""
        assert self._model is not None
        assert self._request is not None
        if not self._service.settings.programs:
            return
        prompt, caller = self._request.prompt, self._caller
        read = prompt.ids[: prompt.borders[-1]] if prompt.borders else prompt.ids
        self._pause(session, caller.session, read, self._called)

    def tool_began(self, session: Session, name: str) -> None:
        """Keep the prefix of an agent cached while its tool runs, as a conversation of its own."""
        self._pause(session, f"agent={self.record.id}", list(session.tokens), [name])

    def tool_ended(self, session: Session) -> None:
        """End the pause of an agent, and record how long its tool took."""
        assert self._model is not None
        self._service.programs.returns(
            self._caller.namespace,
            self._model.name,
            f"agent={self.record.id}",
            list(session.tokens),
        )

    def _pause(self, session: Session, name: str | None, read: list[int], tools: list[str]) -> None:
        assert self._model is not None
        namespace = self._caller.namespace
        ttl = self._service.programs.paused(namespace, self._model.name, name, read, tools)
        until = time.monotonic() + ttl
        session.phases.core.prefix_cache.keep(list(session.tokens), until, namespace)

    def _end(self, event: Event | None) -> None:
        """End the request; post `event` as its last one, unless that was posted already."""
        self._held.close()
        self._service.line.ended(self._slot)
        if event is not None:
            self.record.heard(event)
            self._channel.post(event)
        self._service.forget(self)


class Service:
    """The shared state of a server's requests; must be created in its event loop.

    Attributes:
        running: whether new requests are accepted.
        loaders: a thread for each model, in which requests wait until it is loaded.
        readers, workers: threads that build prompts, and that run requests.
        line: the admission queue.
        programs: conversations that pause for tools.
    """

    def __init__(self, settings: ServerSettings, models: Models, metrics: Metrics) -> None:
        self.settings, self.models, self.metrics = settings, models, metrics
        self.traces = RequestTraces(settings.trace, settings.trace_folder, settings.trace_bytes)
        url, content = settings.otlp, settings.otlp_content
        self.telemetry = Telemetry(url, content=content) if url else None
        self.mailbox = Mailbox()
        self.running = True
        self.began = time.time()
        parallel = settings.limits.parallel
        self.loaders = {
            name: ThreadPoolExecutor(1, thread_name_prefix="load") for name in models.names
        }
        self.readers = ThreadPoolExecutor(parallel, thread_name_prefix="prompt")
        self.workers = ThreadPoolExecutor(parallel, thread_name_prefix="request")
        self.line = Line(parallel)
        self.programs = Programs()
        self._jobs: set[Job] = set()
        self._lock = threading.Lock()
        self._askers, self._asking = anyio.CapacityLimiter(parallel), 0
        url, period_s = settings.otlp_metrics, settings.otlp_period_s
        self.telemetry_metrics = (
            TelemetryMetrics(url, period_s, metrics.registry, lambda: self.load) if url else None
        )

    @property
    def load(self) -> tuple[int, int]:
        """Numbers of running and of waiting requests."""
        running, _ = self.line.load
        return running, max(0, len(self._jobs) - running)

    @asynccontextmanager
    async def job(
        self,
        name: str,
        prepare: Prepare,
        caller: Caller,
        channel: Channel[Event],
        first: int,
    ) -> AsyncIterator[Job]:
        """Run a request for as long as the context is open.

        Args:
            channel: where its events arrive; several may share one.
            first: number that its first answer has in those events.

        Raises:
            APIError: too many wait already, or the server is shutting down.
        """
        if not self.running:
            raise busy("the server is shutting down")
        limits = self.settings.limits
        if len(self._jobs) >= limits.parallel + limits.queue:
            self.metrics.refused(name, 429)
            raise busy(
                f"{limits.queue} requests are already waiting; try again later",
                status=429,
                wait_s=self.line.slot_s(),
            )
        job = Job(self, name, prepare, caller, channel, first)
        self.metrics.arrived(job.record)
        with self._lock:
            self._jobs.add(job)
        job.start()
        try:
            yield job
        finally:
            job.cancel()

    def forget(self, job: Job) -> None:
        """Count a request that has ended in the metrics, and drop it."""
        self.metrics.ended(job.record)
        with self._lock:
            self._jobs.discard(job)

    async def with_model(self, name: str | None, ask: Callable[[LoadedModel], T]) -> T:
        """Run work that needs a model but no pass, in a thread; return its result.

        Raises:
            APIError: it has failed, too many wait already, or the server is shutting down.
        """
        if not self.running:
            raise busy("the server is shutting down")
        if self._asking >= self.settings.limits.queue:
            raise busy(f"{self._asking} requests are already waiting; try again later", status=429)

        name = self.models.check(name)
        awaited, context = self.models.awaited(name), contextvars.copy_context()

        def work() -> T:
            try:
                with self.models.use(name, awaited) as model:
                    return ask(model)
            except Exception as error:
                raise as_api_error(error) from error

        self._asking += 1
        try:
            if awaited is None:
                return await anyio.to_thread.run_sync(work, limiter=self._askers)
            loader = self.loaders[name]
            return await asyncio.wrap_future(loader.submit(context.run, work))
        finally:
            self._asking -= 1

    def end_requests(self) -> None:
        """Cancel all running and waiting requests, from any thread; their clients get an error."""
        with self._lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel(busy("the server is shutting down"))

    def close(self) -> None:
        """Cancel everything that runs, wait until it has ended, and close the models."""
        self.running = False
        self.end_requests()
        for loader in self.loaders.values():
            loader.shutdown(wait=True)  # those that still wait there end by themselves
        self.readers.shutdown(wait=True, cancel_futures=True)
        self.workers.shutdown(wait=True, cancel_futures=True)
        for sender in (self.telemetry, self.telemetry_metrics):
            if sender is not None:
                sender.close()
        self.models.close()
