"""Drafts of a model's MTP layer (`models/mtp.py`): a tape of one row, run once for each draft.

A draft reads that layer and a part of the output head: the tokens that it may choose. It runs in
the thread of the sequence that decodes, between two passes, and appends to the pages of its KV
cache behind what is known; the pass that verifies the drafts writes there again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from ....jit.kernels.lm_head import panels_of
from ....jit.pool import aligned
from ....jit.tape import PerThread
from ...forward.batch import Span
from ...forward.graph import GraphBuilder
from ...forward.logits import OutputBuffers, argmax_ops
from ...forward.tensors import padded

if TYPE_CHECKING:
    from ...models.mtp import MTP
    from ..model.loaded_model import LoadedModel
    from ..passes.runner import Runner
    from ..passes.sequence import TokenSequence

MOST = 8  # drafts of one pass
WEIGHT = 0.05  # of the newest time of a draft


class DraftHead:
    """A draft head: drafts tokens with the model's MTP layer.

    Attributes:
        vocabulary: number of tokens it chooses from; tokens: bool [n_vocab], which they are.
        draft_s: seconds that a draft takes, as a running mean; 0: there was none.
        read_bytes: bytes of weights that a draft reads.
    """

    def __init__(self, loaded: LoadedModel, runner: Runner, mtp: MTP, vocabulary: int) -> None:
        """vocabulary: it chooses from so many first tokens, and control tokens; 0: all."""
        self._loaded, self._runner = loaded, runner
        n_vocab = loaded.outputs.n_vocab
        self._hidden = aligned((1, padded(mtp.width)), np.float32)
        self._choice = OutputBuffers(n_vocab, rows=1)
        with loaded.lock:  # plans share buffers
            self._graph = GraphBuilder(
                "mtp",
                loaded.target,
                loaded.threads,
                1,
                loaded.buffers,
                mtp.heads,
                loaded.layout,
            )
            self._graph.register_tiles = loaded.tuning.tiles
            self._after = mtp.draft(self._graph, self._hidden, self._choice.logits)
            argmax_ops(self._graph.tape, self._choice)
            self._tape = self._graph.tape.finish(loaded.library, loaded.pool)
        self._panels: np.ndarray | None = None
        self.tokens, share = np.ones(n_vocab, bool), 1.0
        if 0 < vocabulary < n_vocab:
            mask = self._usual(vocabulary)
            rows = 2 * loaded.target.lanes
            self._panels = panels_of(mask, rows)
            share = len(self._panels) / self._graph.head_panels
            # Whole panels are computed: all of their tokens may come.
            self.tokens = np.isin(np.arange(n_vocab) // rows, self._panels)
            self._choice.set_masks(0, (_bits(self.tokens),))
        self.vocabulary = int(self.tokens.sum())
        *inside, head = mtp.drafting
        self.read_bytes = sum(m.nbytes * _share(m.experts, loaded.network.config.experts_used)
                              for m in inside) + share * head.nbytes  # fmt: skip
        self.draft_s = 0.0

    def _usual(self, vocabulary: int) -> np.ndarray:
        """Return the first `vocabulary` tokens and the control tokens, as uint32 bits.

        Byte-pair vocabularies are in the order in which pairs were merged, the most frequent first.
        """
        tokenizer = self._loaded.tokenizer
        wanted = np.zeros(self._loaded.outputs.n_vocab, bool)
        wanted[:vocabulary] = True
        named = [*tokenizer.control_ids, *tokenizer.stop_ids]
        # Thousands of them are kept free for the user in some vocabularies: of no use here.
        text = tokenizer.vocabulary.tokens
        wanted[[token for token in named if not _is_reserved(text[token])]] = True
        return _bits(wanted)

    @property
    def last_logits(self) -> np.ndarray:
        """Logits that the last draft was chosen from: float32 [n_vocab]."""
        return self._choice.logits[0, : len(self.tokens)]

    def draft(
        self, sequence: TokenSequence, hidden: np.ndarray, count: int
    ) -> tuple[list[int], float]:
        """Draft at most `count` tokens to follow the last one; also return the seconds taken.

        hidden: float32 [padded width], of the token before the last one. Returns fewer
        drafts where the page of the KV cache ends, and none where its pages were evicted.
        """
        loaded, found = self._loaded, list[int]()
        position, token = len(sequence.tokens) - 1, sequence.tokens[-1]
        with loaded.lock:
            began = time.perf_counter()
            self._hidden[0] = hidden
            while len(found) < count:
                at = position + len(found)
                if not sequence.cache.ready(at, at + 1):
                    break
                self._graph.set_pass((Span(sequence.cache.table, at, [token], 1),), self._panels)
                self._runner.run_aside(self._tape)
                token = int(self._choice.chosen[0])
                if token < 0:
                    break
                found.append(token)
                data = self._after.data
                after = data.buffers[0] if isinstance(data, PerThread) else data
                self._hidden[0] = after.reshape(-1)[: self._hidden.shape[1]]
            seconds = time.perf_counter() - began
        if found:
            each = seconds / len(found)
            each = min(each, 2 * self.draft_s) if self.draft_s else each
            self.draft_s += (each - self.draft_s) * (WEIGHT if self.draft_s else 1.0)
        return found, seconds


def _share(experts: int, used: int) -> float:
    """Return the share of a matrix's bytes that a row reads."""
    return used / experts if experts else 1.0


def _is_reserved(text: str) -> bool:
    return "reserved" in text or "unused" in text


def _bits(tokens: np.ndarray) -> np.ndarray:
    """Pack bool [n_vocab] into uint32 bits, padded to a multiple of 64."""
    padded_to = np.pad(tokens, (0, -len(tokens) % 64))
    return np.packbits(padded_to, bitorder="little").view(np.uint32)
