"""The models of a server: loaded on request, and unloaded after an idle time."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ....errors import (
    CompileError,
    ContextOverflowError,
    ModelError,
    SettingError,
    TargetError,
    TemplateError,
    TriplepointError,
)
from ....traces import log
from ... import memory
from ...engine.engine import Engine
from ..http.api_error import APIError, as_api_error, busy
from ..http.notes import note
from ..settings import ServerSettings
from .entry import Entry, memory_for
from .loaded_model import FileState, LoadedModel, file_state, read_public

Load = Callable[[str], Engine]

LASTING = (ModelError, SettingError, TargetError, CompileError, TemplateError, ContextOverflowError)
"""Errors of a load that a later attempt cannot fix."""
LOOK_AGAIN_S = 0.05  # for the end of those that use what is to be replaced


class Watcher:
    """A listener for the engines of models; this one does nothing."""

    def loaded(self, name: str, engine: Engine) -> None:
        """Handle a newly loaded engine, before its first request."""

    def closed(self, engine: Engine) -> None:
        """Handle an engine that was closed."""


def _not_found(
    message: str, code: str = "model_not_found", headers: Mapping[str, str] | None = None
) -> APIError:
    return APIError(message, status=404, param="model", code=code, headers=headers or {})


class Models:
    """The models of one server, by name; safe to use from several threads.

    `load` returns the engine for a source, a value of `ServerSettings.models`.
    """

    def __init__(
        self, settings: ServerSettings, load: Load, watcher: Watcher | None = None
    ) -> None:
        self._settings, self._load, self._watcher = settings, load, watcher or Watcher()
        self._entries = {name: Entry(name, source) for name, source in settings.models.items()}
        self._lock = threading.Lock()
        self._budget = settings.memory or memory.available_bytes()
        self._closed = False
        self.created = int(time.time())

    @property
    def names(self) -> list[str]:
        """Names of all models."""
        return list(self._entries)

    @property
    def default(self) -> str:
        """Name of the model for requests that name none; it is loaded at startup."""
        return self._settings.default_model or next(iter(self._entries))

    @property
    def ready(self) -> bool:
        """Whether no model is being loaded, and the default model was loaded once."""
        states = [entry.state for entry in self._entries.values()]
        first = self._entries[self.default]
        return "loading" not in states and first.state != "failed" and first.used > 0

    @property
    def failure(self) -> str:
        """Why the default model could not be loaded; empty if it could, or was not tried yet."""
        first = self._entries[self.default]
        return first.error if first.state == "failed" else ""

    def answering(self, name: str | None) -> tuple[str, str, Path | None]:
        """Resolve a requested name to the answering name, its model, and an agent's folder.

        An unknown name becomes the default model if one is set or there is only one, with a note.

        Raises:
            APIError: no model or agent has that name; the message lists those available.
        """
        settings, default = self._settings, self.default
        found = settings.aliases.get(name or "", name or default)  # some clients send an empty one
        if (folder := settings.agents.get(found)) is not None:
            return found, default, folder
        if found not in self._entries:
            lenient = settings.default_model or len(self._entries) == 1
            if not lenient or found.startswith("agent:"):
                known = ", ".join([*self._entries, *settings.aliases, *settings.agents])
                raise _not_found(f"The model '{found:.100}' does not exist; available: {known}")
            note(f"the model '{found:.100}' does not exist; {default} answers")
            found = default
        return found, found, None

    def check(self, name: str | None) -> str:
        """Resolve a requested name to the name of a model.

        Raises:
            APIError: no model has that name, or an agent does.
        """
        found, _, folder = self.answering(name)
        if folder is not None:
            where = "/v1/chat/completions, /v1/responses and /v1/messages"
            raise _not_found(f"{found} is an agent; agents answer at {where}")
        return found

    def awaited(self, name: str) -> int | None:
        """Return the number of attempts to load a model; None if it is loaded. See `use`."""
        entry = self._entries[name]
        return None if entry.model is not None else entry.loads

    @contextlib.contextmanager
    def hold(self, name: str | None) -> Iterator[None]:
        """Prevent a model from being unloaded while a request waits for its turn.

        Raises:
            APIError: there is no such model.
        """
        entry = self._entries[self.check(name)]
        with self._lock:
            entry.users += 1
        try:
            yield
        finally:
            with self._lock:
                entry.users -= 1
                entry.used = time.monotonic()

    @contextlib.contextmanager
    def use(self, name: str | None, awaited: int | None = None) -> Iterator[LoadedModel]:
        """Yield a model, loaded if need be, which is not unloaded while the context is open.

        Args:
            name: of the model.
            awaited: what `awaited` returned when the request came: if a load has failed since
                then, it is not tried again. None: as of now.

        Raises:
            APIError: there is no such model, it cannot be loaded, or there is no room for it.
        """
        entry = self._entries[self.check(name)]
        model = self._taken(entry, entry.loads if awaited is None else awaited)
        try:
            yield model
        finally:
            with self._lock:
                entry.used = time.monotonic()
                model.users -= 1
            self._end_outdated(model)

    def _taken(self, entry: Entry, awaited: int) -> LoadedModel:
        """Return the model of an entry, loaded if need be, with one more user counted."""
        while True:
            with self._lock:
                if (model := entry.model) is not None:
                    model.users += 1
                    return model
            with entry.lock:
                if entry.model is None:
                    if entry.loads != awaited and entry.refused is not None:
                        raise copy.copy(entry.refused)
                    self._fill(entry)

    def _fill(self, entry: Entry) -> None:
        """Load the model of an entry, whose lock is held."""
        if self._closed:
            raise busy("the server is shutting down")
        entry.state, entry.error = "loading", ""
        try:
            self._make_room(entry)
            self._put(entry, *self._read(entry))
        except BaseException as error:
            refused = self._refusal(entry, error)
            # A copy has no traceback and no cause: their frames hold what was loaded so far.
            entry.refused = copy.copy(refused)
            if refused is error:
                raise
            raise refused from error
        finally:
            with self._lock:
                entry.reserved = 0
                entry.loads += 1

    def _refusal(self, entry: Entry, error: BaseException) -> APIError:
        """Record a failed load; return the error for requests that want the model."""
        if isinstance(error, APIError):  # there is no room for it now
            entry.state = "unloaded"
            return error
        entry.state, entry.error = "failed", str(error) or type(error).__name__
        log.warning(f"the model {entry.name} could not be loaded: {entry.error}")
        if not isinstance(error, TriplepointError | MemoryError | OSError):
            return as_api_error(error)
        message = f"the model {entry.name} could not be loaded: {error}"
        if isinstance(error, LASTING):
            # No client asks again by itself after this.
            return _not_found(message, "model_not_loaded", {"x-should-retry": "false"})
        return busy(message, wait_s=30, param="model", code="model_not_loaded")

    def _read(self, entry: Entry) -> tuple[LoadedModel, FileState | None, float]:
        """Load the model of an entry; return it, the state of its files, and the seconds taken."""
        began, file = time.perf_counter(), file_state(entry.source)
        engine = self._load(entry.source)
        self._watcher.loaded(entry.name, engine)
        with contextlib.ExitStack() as stack:
            stack.callback(self._close, engine)
            with contextlib.closing(engine.session()) as session:
                session.phases.warmup()
            model = LoadedModel(entry.name, engine)
            read_public(engine, map(model.prompts.beginning, self._settings.public))
            stack.pop_all()
        return model, file, time.perf_counter() - began

    def _put(
        self,
        entry: Entry,
        model: LoadedModel,
        file: FileState | None,
        seconds: float,
        *,
        replaces: LoadedModel | None = None,
    ) -> bool:
        """Publish a model, unless `replaces` is no longer the entry's; return whether it was."""
        with self._lock:
            if entry.model is not replaces:
                entry.reserved = 0
                return False
            if replaces is not None:
                replaces.outdated = True
            entry.nbytes = model.engine.model.nbytes
            entry.file, entry.changed, entry.load_s = file, None, seconds
            entry.used = time.monotonic()
            entry.model, entry.state, entry.error = model, "ready", ""
            entry.refused, entry.reserved = None, 0
        return True

    def reload_changed(self) -> None:
        """Reload the models whose files have changed and were the same in two checks.

        Running requests end on the old model. Waiting and new ones get the new model; if there is
        no room for both, they wait until it is loaded.
        """
        for entry in self._entries.values():
            if entry.model is None or entry.file is None:
                continue
            now = file_state(entry.source)
            before, entry.changed = entry.changed, now
            if now is not None and now != entry.file and now == before:
                with entry.lock:
                    self._reload(entry, now)

    def _reload(self, entry: Entry, now: FileState) -> None:
        old = entry.model
        if old is None or self._closed:
            return
        wanted = memory_for(now)
        with self._lock:
            both_fit = wanted + sum(e.takes for e in self._entries.values()) <= self._budget
            entry.reserved = wanted if both_fit else max(wanted, entry.takes)
            if not both_fit:
                entry.model, entry.state, old.outdated = None, "loading", True
        if not both_fit:
            while old.users and not self._closed:
                time.sleep(LOOK_AGAIN_S)
            self._end_outdated(old)
            with contextlib.suppress(APIError):  # it is logged, and shows in ps
                self._fill(entry)
            return
        try:
            found = self._read(entry)
        except Exception as error:
            entry.reserved = 0
            entry.file = now  # until it changes once more
            entry.error = f"its file changed and could not be reloaded: {error}"
            log.warning(f"the model {entry.name} could not be reloaded: {error}")
            return
        if not self._put(entry, *found, replaces=old):
            self._close(found[0].engine)  # it was unloaded meanwhile, to make room for another one
            return
        self._end_outdated(old)

    def _end_outdated(self, model: LoadedModel) -> None:
        """Close a replaced model, once it has no users."""
        with self._lock:
            if not model.outdated or model.users or model.closed:
                return
            model.closed = True
        self._close(model.engine)
        gc.collect()

    def _close(self, engine: Engine) -> None:
        engine.close()
        self._watcher.closed(engine)

    def _make_room(self, entry: Entry) -> None:
        """Unload idle models until this one fits into memory."""
        wanted = memory_for(file_state(entry.source))
        while True:
            with self._lock:
                others = [e for e in self._entries.values() if e is not entry]
                taken = sum(e.takes for e in others)
                if not taken or taken + wanted <= self._budget:
                    entry.reserved = wanted  # others that are loaded meanwhile count it
                    return
                idle = [e for e in others if e.model is not None and not e.busy]
                victim = min(idle, key=lambda e: e.used, default=None)
            if victim is None:
                raise busy(
                    f"not enough memory for {entry.name} while other models are in use; try "
                    "again later",
                    wait_s=10,
                )
            self._let_go(victim)

    def let_go_idle(self) -> None:
        """Unload the models that were idle for longer than `keep_alive_s`."""
        now = time.monotonic()
        for entry in self._entries.values():
            if entry.model is not None and now - entry.used > self._settings.keep_alive_s:
                self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        with self._lock:
            if entry.busy or (model := entry.model) is None:
                return
            entry.model, entry.state, model.closed = None, "unloaded", True
        self._close(model.engine)
        del model
        gc.collect()  # engine and sessions refer to each other, and the weights are large

    def close(self) -> None:
        """Close all engines; requests that still run fail."""
        self._closed = True
        for entry in self._entries.values():
            with entry.lock:
                model, entry.model = entry.model, None
                entry.state = "unloaded"
                if model is not None:
                    self._close(model.engine)

    def loaded(self) -> list[LoadedModel]:
        """Return the models that are currently loaded."""
        return [e.model for e in self._entries.values() if e.model is not None]

    def describe(self, name: str) -> dict[str, Any]:
        """Return the model object of ``/v1/models/NAME``."""
        found: dict[str, Any] = {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "triplepoint",
        }
        if aliases := [one for one, real in self._settings.aliases.items() if real == name]:
            found["aliases"] = aliases
        if meta := self._entries[name].meta:
            found["meta"] = meta
        return found

    def status(self) -> list[dict[str, Any]]:
        """Return the rows of ``triplepoint ps``, one for each model."""
        return [one.status(self._settings.keep_alive_s) for one in self._entries.values()]
