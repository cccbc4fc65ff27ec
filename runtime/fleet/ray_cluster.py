"""Workers on a Ray cluster: an actor with an engine each, placed by memory and cores.

Nothing here is a scheduler: Ray says where an actor runs, finds out that one or its node died, and
restarts it; its rows go back to the dispatcher. Machines that join get actors,
so an autoscaler of Ray's own works with it. Who may connect is Ray's, too: ``RAY_AUTH_MODE=token``
with ``RAY_AUTH_TOKEN`` holds for the driver as for the nodes.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arguments import pip_install
from ...errors import FleetError, SettingError, TriplepointError
from ..agent.run_metadata import versions
from ..config import default_model
from .answering import AgentFactory, Outcome, Recipe
from .dispatch import Task, WorkerState
from .forecast import predict_row_s
from .rows import Row
from .workers import Event, OneEngine, Post, Work, trace_name

if TYPE_CHECKING:
    from ..engine.engine import Engine

SCAN_S = 5.0  # between two looks for machines that have joined
_STARTS = 5  # times in a row that an actor may die before it is ready
_PAUSE_S = 0.5
_REACH_S = 10.0  # in which the head of a cluster takes a connection


@dataclass(frozen=True)
class EngineSpec:
    """The engine that an actor loads.

    Attributes:
        model: of rows that name none.
        options: arguments of `Engine.load`.
        threads: of its passes, and cores that it asks of the cluster.
        memory: bytes that it asks for; 0: it asks for none.
        node: identifier of the node that it is meant for; None: any.
    """

    model: str | None
    options: dict[str, Any] = field(default_factory=dict)
    threads: int = 1
    memory: int = 0
    node: str | None = None


class EngineActor:
    """An actor on a node: an engine, and an agent for each row that it receives."""

    def __init__(
        self,
        spec: EngineSpec,
        make: Recipe | AgentFactory,
        slots: int,
        hidden: tuple[Path, ...] = (),
    ) -> None:
        self._spec, self._slots = spec, slots
        self._work = Work(make, hidden=hidden)
        self._engine = OneEngine(self._load)
        self._folder = tempfile.TemporaryDirectory(prefix="triplepoint-")

    def place(self) -> tuple[str, str]:
        """Return the actor's node and the version of its kernels."""
        import ray

        return ray.get_runtime_context().get_node_id()[:8], versions()["kernels"]

    def prepare(self) -> float:
        """Load the model of rows that name none; return the predicted seconds of a row."""
        return predict_row_s(self._engine.of(None), self._slots)

    def do(self, row: Row, name: str, traced: bool) -> Outcome:
        """Answer a row; the outcome includes its trace."""
        began = time.perf_counter()
        path = Path(self._folder.name) / f"{name}.jsonl" if traced else None
        outcome = self._work.answer(self._engine.of, row, path)
        outcome.seconds = outcome.seconds or time.perf_counter() - began
        if path is not None and path.exists():
            outcome.trace = path.read_bytes()
            path.unlink()
        return outcome

    def _load(self, model: str | None) -> Engine:
        from ..engine.engine import Engine

        name = model or self._spec.model or default_model().value
        return Engine.load(name, **{"threads": self._spec.threads, **self._spec.options})


class RayWorker:
    """An actor, which Ray restarts when it or its node dies.

    Args:
        patience_s: seconds that it may be without a node while no other worker is ready.
        alone: whether no other worker is ready.
        prepares: whether the model of rows that name none is loaded before it is ready.
    """

    def __init__(
        self,
        name: str,
        slots: int,
        work: Work,
        spec: EngineSpec,
        patience_s: float,
        alone: Callable[[], bool],
        *,
        prepares: bool,
    ) -> None:
        self.state = WorkerState(name, slots)
        self.ready = self.gone = False
        self._work, self._spec, self._prepares = work, spec, prepares
        self._patience, self._alone = patience_s, alone
        self._lock, self._preparing = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._actor: Any = None
        self._node = ""
        self._post: Post

    def start(self, post: Post) -> None:
        """Start in the background; report events through `post`, such as when it is ready."""
        self._post = post
        self._in_thread(self._prepare)

    def give(self, task: Task) -> None:
        """Run a row in the background; its end is reported as an event."""
        self._in_thread(self._do, task)

    def close(self) -> None:
        """Stop running rows, and release all resources."""
        import ray

        self._closed.set()
        self.ready = False
        with contextlib.suppress(Exception):  # it is dead already, or the cluster is
            ray.kill(self._actor, no_restart=True)
        if self._preparing.acquire(timeout=15):
            self._preparing.release()

    def _in_thread(self, target: Callable[..., None], *arguments: Any) -> None:
        # A thread that waits for ever, for a node that is cut off, must not hold up the end.
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _do(self, task: Task) -> None:
        import ray
        from ray import exceptions

        get: Any = ray.get
        traced, died = self._work.traces is not None, False
        try:
            outcome = get(self._actor.do.remote(task.row, trace_name(task), traced))
        except exceptions.RayTaskError as error:  # what cannot be pickled, say
            outcome = Outcome("retry", error=_first_line(error))
        except Exception as error:
            outcome, died = Outcome("lost", error=_first_line(error)), True
        outcome.host = self._node
        if self._closed.is_set():
            return
        with self._lock:
            first = died and self.ready  # of its rows that find out
            self.ready = self.ready and not died
        if first:
            self._post(Event("lost", self, why=outcome.error))
            self._in_thread(self._prepare)
        self._post(Event("ended", self, task, outcome))

    def _prepare(self) -> None:
        """Wait until the actor, or its replacement by Ray, is ready."""
        with self._preparing:
            why = ""
            for start in range(_STARTS):
                try:
                    predicted = self._prepared()
                except Exception as error:
                    why = _first_line(getattr(error, "cause", None) or error)
                    if self.gone or self._closed.wait(_PAUSE_S * 2**start):
                        break
                else:
                    self.ready = not self._closed.is_set()
                    self._post(Event("ready", self, predicted_s=predicted))
                    return
            if not self._closed.is_set():
                self.gone = True
                self._post(Event("gone", self, why=why))

    def _prepared(self) -> float:
        """Wait until the actor is ready; return the predicted seconds of a row.

        `gone` where another start would not help: its model cannot be loaded, for one.
        """
        import ray
        from ray import exceptions

        get: Any = ray.get
        self._actor = self._actor or self._create()
        self._node, version = self._wait(
            self._actor.place.options(max_task_retries=-1).remote()  # waits for a restart
        )
        if version != versions()["kernels"]:
            self.gone = True
            raise FleetError(f"node {self._node} has a different version of triplepoint")
        if not self._prepares:
            return 0.0
        try:
            return get(self._actor.prepare.remote())
        except exceptions.RayTaskError as error:
            self.gone = isinstance(error.cause, TriplepointError)
            raise

    def _create(self) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        spec = self._spec
        options: dict[str, Any] = {
            "num_cpus": spec.threads,
            "max_concurrency": self.state.slots + 1,
            "max_restarts": -1,
            "scheduling_strategy": "SPREAD",
        }
        if spec.memory:
            options["memory"] = spec.memory
        if spec.node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(spec.node, soft=True)
        made = ray.remote(EngineActor).options(**options)
        return made.remote(spec, self._work.make, self.state.slots, self._work.hidden)

    def _wait(self, reference: Any) -> Any:
        """Wait for an actor's result; raise FleetError if it gets no node within the patience."""
        import ray

        waited = 0.0
        while not self._closed.is_set():
            done, _ = ray.wait([reference], timeout=1.0)
            if done:
                return ray.get(reference)
            waited = waited + 1.0 if self._alone() else 0.0
            if waited > self._patience:
                self.gone = True
                raise FleetError(
                    f"the cluster had no room for {self._spec.threads} cores and "
                    f"{self._spec.memory / 1e9:,.2g} GB for {self._patience:g} s"
                )
        raise FleetError("the run has ended")


def _first_line(error: BaseException) -> str:
    """Return the first line of a Ray error, without its pages of detail."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]


class RayPool:
    """The workers of a cluster, and the connection to it.

    Args:
        address: ``auto``, or that of a Ray client server (``ray://…``).
        workers: engines; None: as many as fit, also on machines that join.
        threads: of each engine; None: all cores of a node.
        memory: bytes of each; None: by the model's file.
        prepares: see `RayWorker`.

    Raises:
        SettingError: Ray is not installed.
        FleetError: the cluster cannot be reached.
    """

    def __init__(
        self,
        address: str,
        slots: int,
        work: Work,
        *,
        model: str | None,
        options: dict[str, Any],
        patience_s: float,
        workers: int | None = None,
        threads: int | None = None,
        memory: int | None = None,
        prepares: bool = True,
    ) -> None:
        self._ray = _connected(address)
        self._slots, self._work, self._patience = slots, work, patience_s
        self._threads, self._count, self._prepares = threads, workers, prepares
        self._memory = _memory_of(model, options) if memory is None else memory
        given = {name: value for name, value in options.items() if name != "threads"}
        self._spec = EngineSpec(model, given, memory=self._memory)
        self._known: set[str] = set()
        self._closed = threading.Event()
        self._scan = threading.Thread(target=self._look, daemon=True)
        self._post: Post
        self.workers: list[RayWorker] = []
        for spec in self._first():
            self._add(spec)

    def start(self, post: Post) -> None:
        """Watch for joining machines; report their workers as events."""
        self._post = post
        if self._count is None:
            self._scan.start()

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._closed.set()
        if self._scan.is_alive():
            self._scan.join(timeout=15)
        if self._ray is not None:
            with contextlib.suppress(Exception):
                self._ray.shutdown()
            _let_speak(True)

    def _first(self) -> list[EngineSpec]:
        """Return the specs of the engines to request from the cluster's current nodes."""
        specs = self._on_new_nodes()
        if self._count is not None:
            nodes = max(1, len(specs))
            threads = max((spec.threads for spec in specs), default=1)
            each = self._threads or max(1, threads // -(-self._count // nodes))
            return [replace(self._spec, threads=each)] * self._count
        # A cluster that has no machine yet gets one from its autoscaler on request.
        return specs or [replace(self._spec, threads=self._threads or 1)]

    def _on_new_nodes(self) -> list[EngineSpec]:
        """Add a worker for each engine that fits on a new node."""
        import ray

        specs: list[EngineSpec] = []
        for node in ray.nodes():
            name, resources = node["NodeID"], node["Resources"]
            if not node["Alive"] or name in self._known:
                continue
            self._known.add(name)
            cores = int(resources.get("CPU", 0))
            threads = self._threads or cores
            if not threads:
                continue
            count = cores // threads
            if self._memory:
                count = min(count, int(resources.get("memory", 0) // self._memory))
            specs += [replace(self._spec, threads=threads, node=name)] * count
        return specs

    def _look(self) -> None:
        while not self._closed.wait(SCAN_S):
            with contextlib.suppress(Exception):  # the cluster is away: its actors tell
                for spec in self._on_new_nodes():
                    self._post(Event("new", self._add(spec)))

    def _add(self, spec: EngineSpec) -> RayWorker:
        worker = RayWorker(
            f"ray/{len(self.workers) + 1}",
            self._slots,
            self._work,
            spec,
            self._patience,
            lambda: not any(one.ready for one in self.workers),
            prepares=self._prepares,
        )
        self.workers.append(worker)
        return worker


def _connected(address: str) -> Any:
    """Connect to Ray and return it; None where the caller is connected already.

    Raises:
        SettingError: it is not installed.
        FleetError: there is no such cluster, or it refuses the connection.
    """
    try:
        import ray
    except ImportError:
        raise SettingError(f"Ray is not installed: {pip_install('fleet')}") from None
    if ray.is_initialized():
        return None
    _check_listening(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise _unreachable(address, _first_line(error)) from None
    _let_speak(False)
    return ray


def _check_listening(address: str) -> None:
    """Check that the cluster named by RAY_ADDRESS or by `ray start` accepts connections.

    Ray itself retries a dead one for minutes (more than four were seen).

    Raises:
        FleetError: nothing takes a connection there.
    """
    try:
        from ray._private.services import canonicalize_bootstrap_address

        host, _, port = (canonicalize_bootstrap_address(address) or "").rpartition(":")
        endpoint = (host.strip("[]"), int(port))
    except Exception:  # none, or not of this form: Ray says so soon enough
        return
    try:
        socket.create_connection(endpoint, timeout=_REACH_S).close()
    except OSError as error:
        why = f"{host}:{port}: {error.strerror or error}"
        raise _unreachable(address, why) from None


def _unreachable(address: str, why: str) -> FleetError:
    return FleetError(
        f"cannot reach the Ray cluster {address!r}: {why}. Is it running (ray start --head), and "
        "does RAY_AUTH_TOKEN match the cluster's?"
    )


def _let_speak(yes: bool) -> None:
    """Set whether Ray prints reports of dead workers to our stdout.

    ``log_to_driver`` does not hold for that, and nothing public does.
    """
    worker = sys.modules.get("ray._private.worker")
    if hasattr(worker, "_worker_logs_enabled"):
        setattr(worker, "_worker_logs_enabled", yes)  # noqa: B010


def _memory_of(model: str | None, options: dict[str, Any]) -> int:
    """Predict the bytes of an engine, as far as the model's file is known here."""
    from ..engine.engine import resolve_model

    try:
        size = resolve_model(model or default_model().value).stat().st_size
    except (TriplepointError, OSError):
        return 0
    return 2 * size + int(options.get("kv_memory") or 256e6) + int(256e6)
