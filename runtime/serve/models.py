"""The models of a server: loaded when asked for, let go when nobody has used them for a while."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ... import __version__
from ...errors import TriplepointError
from ...traces import log
from .. import memory
from ..inference.engine import Engine, resolve_model
from .api_error import APIError, busy
from .programs import read_public
from .prompts import Prompts
from .settings import ServerSettings

State = Literal["unloaded", "loading", "ready", "failed"]
Load = Callable[[str], Engine]

SPARE = 1.15  # of a model's file: what it takes in memory, without KV caches


class LoadedModel:
    """A model that is ready.

    Attributes:
        fingerprint: the same as long as model, kernels and program are.
        prompts: makes its prompts.
    """

    def __init__(self, name: str, engine: Engine) -> None:
        self.name, self.engine = name, engine
        info = engine.model
        what = (__version__, info.name, info.nbytes, info.quant, str(engine.target), engine.kv)
        self.fingerprint = f"fp_{hashlib.sha256(repr(what).encode()).hexdigest()[:12]}"
        self.prompts = Prompts(engine.tokenizer)


@dataclass
class Entry:
    """A model of the server.

    Attributes:
        source: what it is loaded by.
        state: see above; after ``failed`` the next request tries again.
        users: requests that have it now.
        used: when the last one gave it back, by `time.monotonic`.
        error: why it could not be loaded.
        lock: of its loading: those who want it meanwhile wait for that.
    """

    name: str
    source: str
    state: State = "unloaded"
    model: LoadedModel | None = None
    users: int = 0
    used: float = 0.0
    nbytes: int = 0
    load_s: float = 0.0
    error: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)


class Models:
    """The models of one server, by name. Safe to use from several threads.

    Args:
        settings: of the server.
        load: loads a model by what `ServerSettings.models` says of it.
    """

    def __init__(self, settings: ServerSettings, load: Load) -> None:
        self._settings, self._load = settings, load
        self._entries = {name: Entry(name, source) for name, source in settings.models.items()}
        self._lock = threading.Lock()
        self._budget = settings.memory or memory.available_bytes()
        self._closed = False
        self.created = int(time.time())

    @property
    def names(self) -> list[str]:
        """Of all models; the first is the one that is meant where none is named."""
        return list(self._entries)

    @property
    def ready(self) -> bool:
        """Whether nothing is being loaded, and the first model could be loaded once."""
        states = [entry.state for entry in self._entries.values()]
        first = next(iter(self._entries.values()))
        return "loading" not in states and first.state != "failed" and first.used > 0

    def check(self, name: str | None) -> str:
        """The name of the model that a request means.

        Raises:
            APIError: there is none of that name.
        """
        if name is None:
            return next(iter(self._entries))
        if name not in self._entries:
            known = ", ".join(self._entries)
            raise APIError(
                f"The model '{name:.100}' does not exist; there are: {known}",
                status=404,
                param="model",
                code="model_not_found",
            )
        return name

    def known(self, name: str | None) -> str:
        """The name of the model that a request means; empty where there is none."""
        name = next(iter(self._entries)) if name is None else name
        return name if name in self._entries else ""

    @contextlib.contextmanager
    def use(self, name: str | None) -> Iterator[LoadedModel]:
        """Have a model, loaded if need be; it stays as long as it is used.

        Raises:
            APIError: there is no such model, it cannot be loaded, or there is no room for it.
        """
        entry = self._entries[self.check(name)]
        with self._lock:
            entry.users += 1
        try:
            yield self._loaded(entry)
        finally:
            with self._lock:
                entry.users -= 1
                entry.used = time.monotonic()

    def _loaded(self, entry: Entry) -> LoadedModel:
        if (model := entry.model) is not None:
            return model
        with entry.lock:
            if entry.model is not None:
                return entry.model
            if self._closed:
                raise busy("the server is shutting down")
            began = time.perf_counter()
            entry.state, entry.error = "loading", ""
            try:
                self._make_room(entry)
                engine = self._load(entry.source)
                with contextlib.closing(engine.session()) as session:
                    session.warmup()
                model = LoadedModel(entry.name, engine)
                read_public(engine, map(model.prompts.beginning, self._settings.public))
            except (TriplepointError, MemoryError, OSError) as error:
                entry.state, entry.error = "failed", str(error)
                log.warning("a model could not be loaded", model=entry.name, error=entry.error)
                raise APIError(
                    f"the model {entry.name} could not be loaded: {error}",
                    status=503,
                    param="model",
                    code="model_not_loaded",
                    type="server_error",
                ) from error
            except APIError:
                entry.state = "unloaded"
                raise
            except BaseException:
                entry.state = "failed"
                raise
            entry.nbytes = engine.model.nbytes
            entry.model = model
            entry.load_s = time.perf_counter() - began
            entry.used = time.monotonic()
            entry.state = "ready"
            return entry.model

    def _make_room(self, entry: Entry) -> None:
        """Let go of models that nobody uses until this one fits."""
        wanted = int(SPARE * resolve_model(entry.source).stat().st_size)
        while True:
            with self._lock:
                others = [e for e in self._entries.values() if e.model is not None]
                taken = sum(int(SPARE * e.nbytes) for e in others)
                if not others or taken + wanted <= self._budget:
                    return
                idle = [e for e in others if not e.users]
                victim = min(idle, key=lambda e: e.used, default=None)
            if victim is None:
                raise busy(
                    f"there is no room for {entry.name} beside the models that are in use; "
                    "try again later",
                    wait_s=10,
                )
            self._let_go(victim)

    def let_go_idle(self) -> None:
        """Let go of the models that were not used for as long as they are kept."""
        now = time.monotonic()
        for entry in self._entries.values():
            if entry.model is not None and now - entry.used > self._settings.keep_alive_s:
                self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        with self._lock:
            if entry.users or (model := entry.model) is None:
                return
            entry.model, entry.state = None, "unloaded"
        model.engine.close()
        del model
        gc.collect()  # engine and sessions refer to each other, and the weights are large

    def close(self) -> None:
        """End all engines; requests that still run fail."""
        self._closed = True
        for entry in self._entries.values():
            with entry.lock:
                model, entry.model = entry.model, None
                entry.state = "unloaded"
                if model is not None:
                    model.engine.close()

    def loaded(self) -> list[LoadedModel]:
        """Those that are there now."""
        return [e.model for e in self._entries.values() if e.model is not None]

    def listing(self) -> list[dict[str, Any]]:
        """What ``/v1/models`` says of them."""
        return [self.describe(name) for name in self._entries]

    def describe(self, name: str) -> dict[str, Any]:
        """What ``/v1/models/NAME`` says."""
        entry = self._entries[name]
        found: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "triplepoint",
        }
        if (model := entry.model) is not None:
            info, engine = model.engine.model, model.engine
            found["meta"] = {
                "n_ctx": engine.context,
                "n_ctx_train": info.context_length,
                "n_params": info.parameters,
                "n_vocab": engine.tokenizer.n_vocab,
                "size": info.nbytes,
            }
        return found

    def status(self) -> list[dict[str, Any]]:
        """What ``triplepoint ps`` shows."""
        now, keep = time.monotonic(), self._settings.keep_alive_s
        rows: list[dict[str, Any]] = []
        for entry in self._entries.values():
            row: dict[str, Any] = {"name": entry.name, "state": entry.state, "users": entry.users}
            if entry.error:
                row["error"] = entry.error
            if (model := entry.model) is not None:
                engine = model.engine
                row |= {
                    "size": entry.nbytes,
                    "kv_used": engine.layout.memory.used,
                    "kv_budget": engine.layout.memory.budget,
                    "context": engine.context,
                    "quant": engine.model.quant,
                    "target": str(engine.target),
                    "threads": engine.threads,
                    "load_s": round(entry.load_s, 3),
                    "idle_s": 0.0 if entry.users else round(now - entry.used, 1),
                    "kept_s": None if keep == float("inf") else keep,
                }
            rows.append(row)
        return rows
