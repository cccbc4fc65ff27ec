"""A model of the server, whether it is loaded or not: its state, memory and description."""

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
    """Return the bytes of memory that a model of these files takes."""
    return int(SPARE * sum(size for _, _, size, _ in state or ()))


@dataclass
class Entry:
    """A model of the server."""

    name: str
    source: str
    """What it is loaded by."""
    state: State = "unloaded"
    """After ``failed`` the next request tries again."""
    model: LoadedModel | None = None
    users: int = 0
    """Requests that prevent it from being unloaded."""
    used: float = 0.0
    """When the last one gave it back, by `time.monotonic`."""
    nbytes: int = 0
    """Bytes of its weights."""
    load_s: float = 0.0
    """Seconds that loading it took."""
    error: str = ""
    """Why it could not be loaded."""
    reserved: int = 0
    """Bytes that it will take, while it is loaded."""
    loads: int = 0
    """How often loading was tried, to its end."""
    refused: APIError | None = None
    """The error of requests for which it could not be loaded."""
    file: FileState | None = None
    """What was loaded."""
    changed: FileState | None = None
    """What the last look found in its place."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is loaded: requests that want it meanwhile wait for it."""

    @property
    def busy(self) -> int:
        """Requests that have it, or wait for their turn."""
        return max(self.users, 0 if self.model is None else self.model.users)

    @property
    def takes(self) -> int:
        """Bytes of memory, and those that are about to be taken."""
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
        """Return what ``triplepoint ps`` shows of it."""
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
