"""Workers, which run rows and report events: an engine of this process, or a server.

A worker gets rows by `give` and puts events on a queue; it never waits, and never raises.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...errors import TriplepointError
from ...interrupts import held, start
from ..remote import RemoteEngine
from .answering import AgentFactory, Outcome, Recipe, Status, Stopper, answer, why_silent
from .dispatch import Task, WorkerState
from .forecast import predict_row_s

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from .rows import Row

LoadEngine = Callable[["str | None"], "Engine"]
"""Loads the engine of a model; None: the run's default model."""
PATIENCE_S = 60.0
"""Seconds after which a server that does not respond is given up."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 10.0


@dataclass
class Event:
    """A worker's report.

    Attributes:
        what: ``ready``: it takes rows; ``ended``: a try came to its end; ``away``: it does not
            respond, and may be back; ``lost``: it died, and begins anew, its rows end as lost;
            ``gone``: for good; ``new``: it joins.
        why: of ``away``, ``lost`` and ``gone``.
        predicted_s: of ``ready``: seconds that the latency model expects of a row; 0: not known.
    """

    what: str
    worker: Worker
    task: Task | None = None
    outcome: Outcome | None = None
    why: str = ""
    predicted_s: float = 0.0


Post = Callable[[Event], None]


class Worker(Protocol):
    """A worker: runs rows, and reports events.

    Attributes:
        state: as the dispatcher sees it; ready: it takes rows; gone: it never will again.
    """

    state: WorkerState
    ready: bool
    gone: bool

    def start(self, post: Post) -> None:
        """Start in the background; report events through `post`, such as when it is ready."""
        ...

    def give(self, task: Task) -> None:
        """Run the row of a task in the background; report its end as an event."""
        ...

    def close(self) -> None:
        """Stop running rows, and release all resources."""
        ...


@dataclass
class Work:
    """The settings that all rows of a run share.

    Attributes:
        make: builds the agents.
        traces: folder of their traces; None: there are none.
        mark: in the names of traces: which run they are of, where runs share a folder.
        hidden: files of the run itself, absolute: what rows read must not depend on other rows.
    """

    make: Recipe | AgentFactory
    traces: Path | None = None
    stopper: Stopper = field(default_factory=Stopper)
    mark: str = ""
    hidden: tuple[Path, ...] = ()

    def answer(
        self,
        engine_of: Callable[[str | None], Engine | RemoteEngine],
        row: Row,
        trace: Path | None,
        unusable: Status = "error",
    ) -> Outcome:
        """Answer a row on the engine of its model; never raises.

        unusable: the status if the engine cannot be loaded.
        """
        try:
            engine = engine_of(row.model)
            return answer(engine, row, self.make, trace, self.stopper, self.hidden)
        except TriplepointError as error:
            return Outcome(unusable, error=str(error))
        except Exception as error:
            return Outcome("retry", error=f"{type(error).__name__}: {error}")

    def trace_of(self, task: Task) -> Path | None:
        """Return the trace path of the row's try."""
        if self.traces is None:
            return None
        return self.traces / f"{trace_name(task)}{self.mark}.jsonl"


def trace_name(task: Task) -> str:
    """Return the trace name of a row's try, which is stable when a killed run resumes."""
    again = f".{task.tries}" if task.tries > 1 else ""
    return f"{task.row.number + 1:06d}-{task.row.key[:8]}{again}"


class OneEngine:
    """The engine of one model at a time; it is closed before that of another model is loaded.

    Args:
        load: gives the engine of a model.
        owned: whether engines are closed when they are not needed any more.
        loaded: called with each engine that is loaded.
    """

    def __init__(
        self,
        load: LoadEngine,
        *,
        owned: bool = True,
        loaded: Callable[[Engine], None] | None = None,
    ) -> None:
        self._load, self._owned, self._loaded = load, owned, loaded
        self._engine: Engine | None = None
        self._model: str | None = ""
        self._lock = threading.Lock()

    def of(self, model: str | None) -> Engine:
        """Return the engine of a model, loaded if need be."""
        with self._lock:
            if self._engine is None or self._model != model:
                self.close()
                self._engine, self._model = self._load(model), model
                if self._loaded is not None:
                    self._loaded(self._engine)
            return self._engine

    def close(self) -> None:
        """Close the current engine, if there is one."""
        if self._engine is not None and self._owned:
            self._engine.close()
        self._engine = None


class LocalWorker:
    """An engine of this process; its agents share the engine's passes.

    Args:
        load: gives the engine of a model; it has been loaded already, or is loaded now.
        owned: whether engines are closed when they are not needed any more.
    """

    def __init__(
        self, name: str, slots: int, work: Work, load: LoadEngine, *, owned: bool = True
    ) -> None:
        self.state = WorkerState(name, slots)
        self.ready = self.gone = False
        self._work = work
        self._engine = OneEngine(load, owned=owned, loaded=self._predict)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix=name)
        self._post: Post = queue.SimpleQueue[Event]().put

    def start(self, post: Post) -> None:
        """Become ready; an engine is loaded with the first row that needs it."""
        self._post = post
        self.ready = True
        post(Event("ready", self))

    def give(self, task: Task) -> None:
        """Run the row of a task in the background; report its end as an event."""
        with held():
            self._threads.submit(self._do, task)

    def _do(self, task: Task) -> None:
        began = time.perf_counter()
        outcome = self._work.answer(self._engine.of, task.row, self._work.trace_of(task))
        outcome.seconds = outcome.seconds or time.perf_counter() - began
        self._post(Event("ended", self, task, outcome))

    def _predict(self, engine: Engine) -> None:
        with contextlib.suppress(TriplepointError):
            predicted = predict_row_s(engine, self.state.slots)
            self._post(Event("ready", self, predicted_s=predicted))

    def close(self) -> None:
        """Stop running rows, and release all resources."""
        self._work.stopper.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._engine.close()


class ServerWorker:
    """A server that speaks OpenAI's format; agents and tools run here.

    Args:
        patience_s: seconds after which it is given up when it does not respond.
        model: the requested one; None: the first that it lists.
    """

    def __init__(
        self,
        url: str,
        slots: int,
        work: Work,
        *,
        model: str | None = None,
        api_key: str | None = None,
        context: int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.state = WorkerState(url, slots, one_model=False, model=None)
        self.ready = self.gone = False
        self._url = url if url.count("/") > 2 else f"{url}/v1"
        self._work, self._model, self._key = work, model, api_key
        self._context, self._patience = context, patience_s
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix=url)
        self._prober: threading.Thread | None = None
        self._closed = threading.Event()
        self._engines: dict[str | None, RemoteEngine] = {}
        self._lock = threading.Lock()
        self._away_since = 0.0  # 0: it is not
        self._post: Post = queue.SimpleQueue[Event]().put

    def start(self, post: Post) -> None:
        """Start in the background; report events through `post`, such as when it is ready."""
        self._post = post
        self._probe_in_thread("")

    def give(self, task: Task) -> None:
        """Run the row of a task in the background; report its end as an event."""
        with held():
            self._threads.submit(self._do, task)

    def _do(self, task: Task) -> None:
        trace = self._work.trace_of(task)
        outcome = self._work.answer(self._engine_of, task.row, trace, unusable="away")
        away = outcome.status in ("away", "dropped")
        if not away:
            self._away_since = 0.0
        self._post(Event("ended", self, task, outcome))
        if away:
            self._probe_in_thread(outcome.error)

    def _engine_of(self, model: str | None) -> RemoteEngine:
        name = model or self._model
        with self._lock:
            if name not in self._engines:
                more = {} if self._context is None else {"context": self._context}
                self._engines[name] = RemoteEngine(
                    self._url, model=name, api_key=self._key, tries=2, **more
                )
            return self._engines[name]

    def _probe_in_thread(self, why: str) -> None:
        """Poll until the server responds or patience runs out."""
        with self._lock:
            if self._prober is not None and self._prober.is_alive():
                return
            self.ready = False
            self._away_since = self._away_since or time.monotonic()
            self._prober = threading.Thread(target=self._probe, args=(why,), daemon=True)
            start(self._prober)

    def _probe(self, why: str) -> None:
        if why:
            self._post(Event("away", self, why=why))
        pause = _FIRST_PAUSE
        while not self._closed.is_set():
            try:
                silent = why_silent(self._engine_of("probe"))
            except TriplepointError as error:
                self._give_up(str(error))
                return
            except Exception as error:  # such as a proxy's scheme: else it would be lost
                self._give_up(f"{self.state.name}: {type(error).__name__}: {error}")
                return
            # One that takes no requests but says which models it has is busy: let it be a while.
            # A row that was under way may have been answered meanwhile: patience begins again.
            since = self._away_since = self._away_since or time.monotonic()
            # One that works on a row of ours may refuse others for as long as that takes.
            works = not silent and bool(self.state.tasks)
            late = time.monotonic() - since > self._patience and not works
            if not silent and not (why and (late or self._closed.wait(pause))):
                if not why:  # the first row may take longer than patience: it begins now
                    self._away_since = 0.0
                self.ready = True
                self._post(Event("ready", self))
                return
            if late:
                what = "has not responded" if silent else "has taken no row"
                last = f": {silent or why}"
                self._give_up(f"{self.state.name} {what} for {self._patience:g} s{last}")
                return
            self._closed.wait(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _give_up(self, why: str) -> None:
        self.gone = True
        self._post(Event("gone", self, why=why))

    def close(self) -> None:
        """Stop running rows, and release all resources."""
        with held():
            self._closed.set()
        self._work.stopper.stop()
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._prober is not None:
            self._prober.join(timeout=15)
