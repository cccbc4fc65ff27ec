"""Text embeddings: normed hidden states after the last layer, pooled.

The states come from passes of a plan of their own, which has no output head: what sequences
decode beside them does not change, and costs nothing more. One text is read at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np

from ...errors import ContextOverflowError, SettingError
from ..forward.kv import KVCache
from .passes.request import Request
from .passes.scheduler import IDLE_S
from .passes.sequence import TokenSequence

if TYPE_CHECKING:
    from .engine_core import EngineCore

Pooling = Literal["none", "mean", "cls", "last"]
"""No pooling; the mean of all states; the state of the first token; that of the last one."""
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
VECTORS = POOLINGS[1:]
"""Poolings that give one vector per text."""
_RANK = 4  # of `{arch}.pooling_type`: the others are the places in `POOLINGS`
LOOK_S = 0.05  # between looks whether a text that waits for others is still wanted


class Embedder:
    """The embedder of an engine: computes embeddings of texts.

    Attributes:
        pooling: that of the model's file (`{arch}.pooling_type`); None: unknown or missing.
        add_eos: whether a text ends with the token that ends texts: models whose vector is that of
            the last token learned it there.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core, self._lock = core, threading.Lock()
        network = core.loaded.network
        gguf = network.gguf
        kind = gguf.integer(f"{network.architecture}.pooling_type", -1, low=-1, high=_RANK)
        self.pooling: Pooling | None = POOLINGS[kind] if 0 <= kind < _RANK else None
        self.add_eos = gguf.boolean("tokenizer.ggml.add_eos_token", False)
        self.width = network.config.width
        self._scale = np.float32(network.logit_scale)

    def ids(self, text: str) -> list[int]:
        """Tokenize a text, with BOS and EOS where the model wants them."""
        tokenizer = self._core.loaded.tokenizer
        ids = tokenizer.encode(text, special=True)
        if tokenizer.add_bos and tokenizer.bos is not None:
            ids.insert(0, tokenizer.bos)
        if self.add_eos and tokenizer.eos is not None:
            ids.append(tokenizer.eos)
        return ids

    def pooling_of(self, wanted: str | None) -> Pooling:
        """Return the `wanted` pooling, else the one that the model's file defines.

        Raises:
            SettingError: the pooling is unknown, or neither defines one.
        """
        if wanted is not None:
            if wanted not in POOLINGS:
                raise SettingError(f"pooling must be one of {', '.join(POOLINGS)}, not {wanted!r}")
            return cast(Pooling, wanted)
        if self.pooling is None:
            model = self._core.loaded.model
            raise SettingError(
                f"{model.name} does not say how to pool its states into a vector "
                f"({model.architecture}.pooling_type); give pooling: mean, cls or last"
            )
        return self.pooling

    def vector(
        self, ids: Sequence[int], pooling: Pooling, check: Callable[[], None] | None = None
    ) -> np.ndarray:
        """Embed a text: float32 [width], not normalized; [len(ids), width] without pooling.

        check: called before each pass; an exception aborts.

        Raises:
            ContextOverflowError: the text does not fit the context.
            SettingError: the text has no tokens.
        """
        check = check or (lambda: None)
        total = np.zeros((1, self.width))
        states: list[np.ndarray] = []
        with self._opened(ids, check) as sequence:
            while sequence.n_cached < len(ids):
                check()
                if (found := self._pass(sequence)) is None:
                    time.sleep(IDLE_S)
                    continue
                at, rows = found
                if at == 0:  # also where its pages were evicted for others
                    total, states = np.zeros((1, self.width)), []
                if pooling == "mean":  # row after row: the same bits for all sizes of passes
                    total = np.concatenate([total, rows]).sum(0, keepdims=True)
                elif pooling == "none":
                    states.append(rows)
                elif pooling == "last" or at == 0:
                    states = [rows[-1:] if pooling == "last" else rows[:1]]
        if pooling == "mean":
            return (total[0] / len(ids)).astype(np.float32)
        found = np.concatenate(states)
        return found if pooling == "none" else found[0]

    @contextmanager
    def _opened(self, ids: Sequence[int], check: Callable[[], None]) -> Iterator[TokenSequence]:
        """Open a sequence with these tokens, none computed, while no other text is read."""
        core, loaded, size = self._core, self._core.loaded, len(ids)
        if not size:
            raise SettingError("an empty text has no vector")
        if size > loaded.context:
            raise ContextOverflowError(
                f"the text has {size} tokens, but the context holds {loaded.context}"
            )
        loaded.check_ids(ids)
        while not self._lock.acquire(timeout=LOOK_S):
            check()
        try:
            cache = KVCache(loaded.layout, size)
            sequence = TokenSequence(cache, size, core.prefix_cache, ids)
            core.scheduler.register(sequence)
            try:
                sequence.begin(())
                with core.scheduler.phase(sequence):
                    yield sequence
            finally:
                core.scheduler.close(sequence)
        finally:
            self._lock.release()

    def _pass(self, sequence: TokenSequence) -> tuple[int, np.ndarray] | None:
        """Run a pass and return its start and hidden states; None: there is no room yet."""
        core = self._core
        plan, scheduler = core.plans.hidden, core.scheduler
        with core.loaded.lock:
            at = sequence.n_cached
            most = min(plan.max_tokens, len(sequence.tokens) - at)
            part = sequence.tokens[at : at + scheduler.rows_aside(most, at)]
            request = Request(sequence, at, part)
            if not scheduler.admit(request):
                return None
            scheduler.run_on(plan, request)
            return at, plan.graph.hidden[: len(part), : self.width] * self._scale


def normalized(vector: np.ndarray, norm: int = 2) -> np.ndarray:
    """Scale vectors to norm 1 along the last axis, as llama-server does.

    Args:
        vector: float32 [width], or rows of it.
        norm: -1: unchanged; 0: by the largest value, which becomes 32,760; 1: by the sum of all;
            2: Euclidean; more: the p-norm.
    """
    wide = np.abs(vector.astype(np.float64))
    if norm == -1:
        return vector
    if norm == 0:
        length = wide.max(-1, keepdims=True) / 32760.0
    else:
        length = (wide**norm).sum(-1, keepdims=True) ** (1.0 / norm)
    return np.divide(vector, length, where=length > 0, out=np.zeros(vector.shape)).astype(
        np.float32
    )
