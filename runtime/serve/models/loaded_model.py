"""A loaded model, and the state of the files that it was loaded from."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable

from .... import __version__
from ....errors import ModelError
from ...engine.engine import Engine, resolve_model
from ...gguf.open import parts_of
from .prompts import Prompts

FileState = tuple[tuple[int, int, int, int], ...]
"""Device, inode, size and time of the last change of each file of a model."""


def file_state(source: str) -> FileState | None:
    """Return the state of a model's files, to detect changes; None if they cannot be found."""
    try:
        found = [path.stat() for path in parts_of(resolve_model(source)) if path.exists()]
    except (ModelError, OSError):
        return None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for one in found)


class LoadedModel:
    """A loaded model: its engine, prompts, and fingerprint."""

    def __init__(self, name: str, engine: Engine) -> None:
        self.name, self.engine = name, engine
        self.users = 0
        """Number of requests that use it now."""
        self.outdated = False
        """Whether its file has changed, so that a new load replaces it."""
        self.closed = False
        info = engine.model
        weights = [file.sampled() for file in info.files]
        what = (__version__, info.name, weights, info.quant, str(engine.target), engine.kv)
        self.fingerprint = f"fp_{hashlib.sha256(repr(what).encode()).hexdigest()[:12]}"
        """Hash of model, version, CPU target and KV format, for ``system_fingerprint``."""
        self.prompts = Prompts(engine.tokenizer, engine.context)


def read_public(engine: Engine, prefixes: Iterable[list[int]]) -> None:
    """Prefill the prompt prefixes that all callers share, and pin them in the prefix cache.

    Raises:
        ContextOverflowError: a prefix is longer than the context.
    """
    for ids in prefixes:
        session = engine.session()
        try:
            session.shares = True
            session.prefill(ids, borders=[len(ids)])
            engine.core.prefix_cache.keep(ids, math.inf)
        finally:
            session.close()
