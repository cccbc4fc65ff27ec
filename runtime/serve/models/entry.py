"""Entries for the models of a server, loaded or not: state, memory and description."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from ..http.api_error import APIError
from .loaded_model import FileState, LoadedModel

State = Literal["unloaded", "loading", "ready", "failed"]
SPARE = 1.15  # of a model's file: what it takes in memory, without KV caches


def memory_for(state: FileState | None) -> int:
    """Estimate the bytes of memory that a model of these files takes."""
    return int(SPARE * sum(size for _, _, size, _ in state or ()))


@dataclass
class Entry:
    """A model of the server, loaded or not."""

    name: str
    source: str
    """Path or name that `Engine.load` finds it by."""
    state: State = "unloaded"
    """State of the model; after ``failed`` the next request tries to load it again."""
    model: LoadedModel | None = None
    users: int = 0
    """Number of requests that prevent it from being unloaded."""
    used: float = 0.0
    """When a request last released it, by `time.monotonic`."""
    nbytes: int = 0
    """Bytes of its weights."""
    load_s: float = 0.0
    """Seconds that loading it took."""
    error: str = ""
    """Why it could not be loaded."""
    reserved: int = 0
    """Bytes that are reserved for it while it is being loaded."""
    loads: int = 0
    """Number of attempts to load it that have ended."""
    refused: APIError | None = None
    """Error of the last load, for requests that waited for it."""
    file: FileState | None = None
    """State of the files that it was loaded from."""
    changed: FileState | None = None
    """State of the files when they were last checked for changes."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is being loaded; other requests for it wait for the lock."""

    @property
    def busy(self) -> int:
        """Number of requests that run on it or wait for it."""
        return max(self.users, 0 if self.model is None else self.model.users)

    @property
    def takes(self) -> int:
        """Bytes of memory that it takes, those reserved for a load included."""
        return self.reserved + (0 if self.model is None else int(SPARE * self.nbytes))

    @property
    def meta(self) -> dict[str, Any]:
        """Sizes of the loaded model, as llama-server's ``/v1/models`` has them."""
        if (model := self.model) is None:
            return {}
        info, engine = model.engine.model, model.engine
        return {
            "n_ctx": engine.context,
            "n_ctx_train": info.context_length,
            "n_params": info.parameters,
            "n_vocab": engine.tokenizer.n_vocab,
            "n_embd": engine.loaded.network.config.width,
            "size": info.nbytes,
        }

    def status(self, keep_alive_s: float) -> dict[str, Any]:
        """Return its row in ``triplepoint ps``."""
        row: dict[str, Any] = {"name": self.name, "state": self.state, "users": self.busy}
        if self.error:
            row["error"] = self.error
        if (model := self.model) is None:
            return row
        engine, idle_s = model.engine, time.monotonic() - self.used
        return row | {
            "size": self.nbytes,
            "kv_used": engine.loaded.layout.memory.used,
            "kv_budget": engine.loaded.layout.memory.budget,
            "context": engine.context,
            "quant": engine.model.quant,
            "target": str(engine.target),
            "threads": engine.threads,
            "load_s": round(self.load_s, 3),
            "idle_s": 0.0 if self.busy else round(idle_s, 1),
            "kept_s": None if keep_alive_s == float("inf") else keep_alive_s,
        }
