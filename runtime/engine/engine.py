"""The engine: loads a model by name, and runs sessions on it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ...arguments import Closing, ProcessBound, as_list, as_mapping, check_switch
from ...errors import ModelError, SettingError
from ...jit import targets
from ...jit.compile import Library
from ...jit.kv_formats import KV_FORMATS, KVFormat
from ...jit.pool import Pool
from .. import models
from ..config import default_model, keeps_packed_weights
from ..forward.kv import KVCache
from ..gguf.open import open_gguf
from ..physics.machine import pool_size
from .drafting.config import DRAFT_VOCABULARY, SpeculativeConfig
from .engine_core import EngineCore
from .model.loaded_model import LoadedModel, LoadOptions
from .policy.autotune import Overrides
from .session import Session

if TYPE_CHECKING:
    from .embedding import Embedder

NANO = Path(__file__).parents[1] / "nano" / "nano.gguf"


class Engine(ProcessBound, Closing):
    """A loaded model, whose sessions share its weights, threads and passes."""

    _instead = EngineCore._instead

    def __init__(self, core: EngineCore) -> None:
        """Use `Engine.load`."""
        loaded = core.loaded
        self.core = core
        """The parts that run passes: scheduler, runner, plans, prefix cache."""
        self.loaded = loaded
        """The model in memory: its weights, kernels and threads, and the machine's profile."""
        self.model = loaded.model
        """Facts about the model file."""
        self.tokenizer = loaded.tokenizer
        """Text to token ids and back."""
        self.context = loaded.context
        """Maximum positions of a session."""
        self.sampling = loaded.sampling
        """Default sampling settings, from the model file."""
        self.target = loaded.target
        """The CPU feature set that the kernels were generated for."""
        self.threads = loaded.threads
        """Maximum threads of a pass."""
        self.machine = loaded.machine
        """Measured limits of this machine."""
        self.kv: KVFormat = loaded.kv
        """Format of KV caches: ``bf16``, ``k16v8``, ``q8`` or ``f32``."""

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        threads: int | None = None,
        target: str | None = None,
        kv: str = "bf16",
        context: int | None = None,
        progress: Callable[[float], None] | None = None,
        cache_packed_weights: bool | None = None,
        jump_forward: bool = True,
        draft_tokens: int | Literal["auto"] = "auto",
        draft_source: str = "auto",
        draft_vocabulary: int = DRAFT_VOCABULARY,
        tune: Mapping[str, Any] | None = None,
        kv_memory: int | None = None,
        spill: int | None = None,
    ) -> Engine:
        """Load a model.

        Args:
            model: ``nano`` (the embedded one), a path to a GGUF file, the name or alias of a pulled
                model, such as ``Qwen/Qwen3-4B-GGUF:Q4_K_M`` or ``qwen3:4b``, or
                ``synthetic:NAME:QUANT`` (real shapes, random weights); default: what
                `triplepoint use` set, else nano.
            threads: threads of every pass, at most the cores that this process can use (more are
                reduced to these, with a warning); default: as many as are fastest for each kind of
                pass, up to the physical cores.
            target: CPU feature set, e.g. ``avx2``; default: the best of this machine.
            kv: KV cache format: ``bf16``, ``k16v8`` (keys as in bf16, values int8: three quarters
                of the bytes), ``q8`` (int8: half the bytes, and faster in long contexts) or
                ``f32``.
            context: maximum positions of a session; default: what the model was made for, at most
                32,768.
            progress: called with the share of the weights that is packed, 0 to 1.
            cache_packed_weights: keep the packed weights on disk, as large as the model's file, and
                map them on later loads; see `engine.loaded.packed_cache` for the outcome. Default:
                written while nothing else runs, where disk and file system suit.
            jump_forward: skip decoding of tokens that a grammar forces.
            draft_tokens: maximum tokens that a pass drafts; 0: none; ``auto``: chosen
                automatically. Drafting does not change the output.
            draft_source: ``lookup`` drafts from the context, ``mtp`` with the model's MTP layer,
                ``auto`` with whichever pays more.
            draft_vocabulary: ``mtp`` chooses from this many most frequent tokens; 0: from all.
            tune: overrides of settings that are otherwise chosen automatically: ``chunk`` (tokens),
                ``spin`` (seconds, or a string such as ``300us``), ``tile`` and ``max_single_tile``
                (tokens of a register tile), ``kv_split``, ``pages``, ``head_bound`` and
                ``adaptive`` (on or off).
            kv_memory: maximum bytes for all KV caches; default: three quarters of what is free
                after the weights are loaded. Sessions that do not fit at the same time wait, and
                recompute what was evicted.
            spill: bytes on disk, in the user's cache folder, for what agents begin with and for
                prefixes that do not fit in memory, where reading is faster than computing; 0: none.
                Default: 4 GiB, but at most a tenth of the free disk space; none for ``nano``.

        Raises:
            ModelError: the file cannot be found, is damaged, or cannot be run.
            TargetError: the target is unknown or cannot run here.
            SettingError: another setting is invalid.
        """
        if kv not in KV_FORMATS:
            known = ", ".join(KV_FORMATS)
            raise SettingError(f"unknown KV cache format {kv!r}; known: {known}")
        if cache_packed_weights is not None:
            check_switch(cache_packed_weights, "cache_packed_weights", SettingError)
        elif not keeps_packed_weights():
            cache_packed_weights = False
        if not (context is None or type(context) is int):
            raise SettingError(f"context must be a number of tokens, not {context!r}")
        if context is not None and context < 1:
            raise SettingError(f"context must be at least 1 token, not {context!r}")
        count = pool_size(threads)
        if kv_memory is not None and not (type(kv_memory) is int and kv_memory > 0):
            raise SettingError(f"kv_memory must be a number of bytes above 0, not {kv_memory!r}")
        if spill is not None and not (type(spill) is int and spill >= 0):
            raise SettingError(f"spill must be a number of bytes, or 0 for none, not {spill!r}")
        if progress is not None and not callable(progress):
            raise SettingError(f"progress must be a function, not {progress!r}")
        tune = as_mapping(tune or {}, "tune must map settings to values", SettingError)
        speculative = SpeculativeConfig(jump_forward, draft_tokens, draft_source, draft_vocabulary)
        fixed = Overrides.of({**tune, **({} if threads is None else {"threads": count})})
        chosen = targets.chosen(target)
        path = resolve_model(default_model().value if model is None else model)
        if spill is None and path == NANO:  # computing is as quick
            spill = 0
        options = LoadOptions(
            cast(KVFormat, kv), context, progress, cache_packed_weights, fixed, kv_memory,
            speculative.uses("mtp"), speculative.uses("mtp") and speculative.draft_source == "mtp",
        )  # fmt: skip
        gguf = open_gguf(path)
        models.architecture_of(gguf)
        library = Library(chosen)
        pool = Pool(library, count)
        try:
            loaded = LoadedModel(gguf, library, pool, options)
            return cls(EngineCore(loaded, speculative, spill))
        except BaseException:
            pool.close()
            raise

    def session(self, context: int | None = None) -> Session:
        """Open a conversation with an empty KV cache of `context` positions.

        Raises:
            EngineError: the engine is closed, or `context` is larger than the engine's own.
        """
        self.loaded.pool.check_open()
        size = self.context if context is None else context
        if not (type(size) is int and 1 <= size <= self.context):
            raise SettingError(
                f"a session's context must be 1 to {self.context}, the engine's own, not {size!r}"
            )
        self.core.plans.build()
        return Session(self.core, KVCache(self.loaded.layout, size), size)

    def load_session(self, folder: str | Path, context: int | None = None) -> Session:
        """Load a conversation and its KV cache from a folder that `Session.save` wrote.

        Every page is checked against its SHA-256 before it is used. If one is damaged or missing,
        the next prefill recomputes the tokens from there on; `Session.restore_error` says why.

        Raises:
            EngineError: the folder has no session, its index is damaged, it was saved with another
                model, KV format or target, or it does not fit the context.
        """
        from .session_files import load

        session = self.session(context)
        session.restore_error = load(self.loaded, session.sequence, folder, self.core.scheduler)
        return session

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of texts."""
        from .embedding import Embedder

        return Embedder(self.core)

    def embed(
        self,
        texts: Sequence[str | Sequence[int]],
        *,
        pooling: str | None = None,
        normalize: bool = True,
    ) -> np.ndarray:
        """Embed texts, or lists of token ids: float32 [texts, width].

        Args:
            texts: not empty; markers such as ``<|im_end|>`` are recognized in them.
            pooling: how to pool a text's token states into a vector: ``mean``, ``cls`` (the first
                token's) or ``last``; default: what the model's file says.
            normalize: scale each vector to length 1.

        Raises:
            SettingError: the model's file does not define pooling, or a text is empty.
            ContextOverflowError: a text is longer than the context.
        """
        from .embedding import VECTORS, normalized

        given = as_list(texts, "texts must be a list", SettingError)
        one = f"pooling must be one of {', '.join(VECTORS)}, which give one vector per text"
        if pooling is not None and pooling not in VECTORS:
            raise SettingError(f"{one}; not {pooling!r}")
        way = self.embedder.pooling_of(pooling)
        if way == "none":
            raise SettingError(f"{one}; this model's file says none")
        found = np.empty((len(given), self.embedder.width), np.float32)
        for n, text in enumerate(given):
            ids = self.embedder.ids(text) if isinstance(text, str) else self.loaded.as_ids(text)
            found[n] = self.embedder.vector(ids, way)
        return normalized(found) if normalize else found

    def close(self) -> None:
        """End the engine's threads; a running pass ends in an error, and later ones are refused."""
        self.core.close()


def resolve_model(model: str | Path) -> Path:
    """Return the file that a model's name refers to.

    Raises:
        ModelError: there is no such model.
    """
    if not isinstance(model, str | Path) or not (name := str(model).strip()):
        raise ModelError(
            f"{model!r} is not a model; give nano, the path of a GGUF file, or a pulled model"
        )
    if name == "nano":
        if not NANO.exists():
            raise ModelError(f"the embedded model is missing ({NANO}); reinstall triplepoint")
        return NANO
    if name.startswith("synthetic:"):
        from ..synthetic.write import synthetic_path

        return synthetic_path(name)
    path = Path(os.path.expanduser(name))  # which leaves the name of an unknown user as it is
    if os.path.exists(path):  # False also for a name that no file can have
        return path
    from ..hub.names import alias_hint, is_hub_name, parse_name

    if is_hub_name(name):
        from ..hub.find import find
        from ..hub.settings import HubSettings

        return find(parse_name(name), HubSettings.from_environ()).paths[0]
    if name.startswith(("http://", "https://")):
        raise ModelError(f"{name} is a server's URL, and this needs a model of this machine")
    server = re.match(r"[\w.-]+:\d+(/|$)", name)
    raise ModelError(
        f"no such model: {name}; a server's URL begins with http://"
        if server
        else f"no such model: {name}; give a path to a GGUF file, the name or alias of a pulled "
        f"model, nano, or synthetic:NAME:QUANT{alias_hint(name)}"
    )
