"""A small real tokenizer, and an engine that decodes given texts through it.

The scripted engine stands in for a model where a test must decide what the model says. Everything
else is real: the tokens, the template, the grammar (each scripted token must be allowed by its
mask), the tools, the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.agents import LOG, MakeEngine

from triplepoint.errors import ContextOverflowError
from triplepoint.jit.compile import Library
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import detect
from triplepoint.runtime.conversation.grammar import Constraint, Mask
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.traces.events import PassEvent, PhaseEvent

ROOT = Path(__file__).parents[2]
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
TEXTS = (
    "What is the error in app.log? The error is on line 12: disk full, no space left on device.",
    '{"name": "read_file", "arguments": {"path": "app.log", "start": 1, "end": 20}}',
    '{"name": "search", "arguments": {"pattern": "error", "path": ".", "regex": true}}',
    "You answer questions about the files in one folder. Look with the tools, then answer.",
)


def write_vocabulary(
    path: Path,
    tags: Sequence[str],
    template: str | None,
    control: Sequence[str] = (),
    eot: str = "",
) -> None:
    """A GGUF file that holds only a byte-level vocabulary of a few hundred tokens.

    `control`: further control tokens; `eot`: the one that ends a turn, beside ``<|im_end|>``.
    """
    from tokenizers import Tokenizer as Trained
    from tokenizers import models, pre_tokenizers, trainers

    trained = Trained(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(alphabet), show_progress=False
    )
    trained.train_from_iterator(TEXTS, trainer)
    vocabulary = trained.get_vocab()
    tokens = [*sorted(vocabulary, key=lambda token: vocabulary[token])]
    tokens += [*CONTROL, *control, *tags]
    merges = _merges(trained)
    kinds = [TokenType.NORMAL] * len(vocabulary)
    kinds += [TokenType.CONTROL] * len([*CONTROL, *control])
    kinds += [TokenType.USER_DEFINED] * len(tags)
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "qwen3")
        writer.add("tokenizer.ggml.model", "gpt2")
        writer.add("tokenizer.ggml.pre", "qwen2")
        writer.add("tokenizer.ggml.tokens", tokens)
        writer.add("tokenizer.ggml.token_type", np.array(kinds, np.int32))
        writer.add("tokenizer.ggml.merges", merges)
        writer.add("tokenizer.ggml.eos_token_id", tokens.index("<|im_end|>"))
        writer.add("tokenizer.ggml.bos_token_id", tokens.index("<|endoftext|>"))
        writer.add("tokenizer.ggml.add_bos_token", False)
        if eot:
            writer.add("tokenizer.ggml.eot_token_id", tokens.index(eot))
        if template is not None:
            writer.add("tokenizer.chat_template", template)


def _merges(trained: Any) -> list[str]:
    import json

    merges = json.loads(trained.to_str())["model"]["merges"]
    return [" ".join(pair) if isinstance(pair, list) else pair for pair in merges]


@pytest.fixture(scope="module")
def library() -> Library:
    """Kernels of this machine's best feature set."""
    return Library(detect())


@pytest.fixture(scope="module")
def pool(library: Library) -> Iterator[Pool]:
    """Two threads that run them."""
    pool = Pool(library, 2)
    yield pool
    pool.close()


MakeTokenizer = Callable[..., Tokenizer]


@pytest.fixture(scope="session")
def make_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> MakeTokenizer:
    """Builds a small tokenizer: `tags` become tokens of their own, `template` its chat template.

    `control` are further control tokens; those that end a turn in some model do so here, and
    `eot` does.
    """
    made: dict[Any, Tokenizer] = {}
    nano = (ROOT / "runtime" / "nano" / "template.jinja").read_text(encoding="utf-8")

    def make(
        tags: Sequence[str] = TAGS,
        template: str | None = nano,
        control: Sequence[str] = (),
        eot: str = "",
    ) -> Tokenizer:
        key = (tuple(tags), template, tuple(control), eot)
        if key not in made:
            path = tmp_path_factory.mktemp("vocabulary") / "small.gguf"
            write_vocabulary(path, tags, template, control, eot)
            with open_gguf(path) as gguf:
                made[key] = Tokenizer.from_gguf(gguf)
        return made[key]

    return make


@pytest.fixture(scope="session")
def tokenizer(make_tokenizer: MakeTokenizer) -> Tokenizer:
    """The small tokenizer with nano's template and the tool tags as tokens."""
    return make_tokenizer()


def allowed(mask: Mask | None, n_vocab: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A constraint's mask as one bool a token."""
    if mask is None:
        return np.ones(n_vocab, np.bool_)
    return np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab].astype(np.bool_)


class ScriptedCore:
    """What the header of a trace asks of an engine's core: a regime map with one bound."""

    def __init__(self) -> None:
        self.drafting = SimpleNamespace(settings=SpeculativeConfig())
        bound = SimpleNamespace(seen=SimpleNamespace(bound="dispatch"))
        calibration = SimpleNamespace(name="scripted", estimate=lambda *_: bound)
        self.plans = SimpleNamespace(decode=None, prefill=None)
        self.loaded = SimpleNamespace(
            sampling_notes=[],
            cost=SimpleNamespace(kv_bytes=0, state_bytes=0, experts=0, experts_used=0),
            describe=dict,
            calibration=calibration,
        )


class ScriptedSequence:
    """The settings that callers make, and accounts of no passes."""

    def __init__(self, session: ScriptedSession) -> None:
        self._session = session
        self.on_progress = None
        self.label = ""
        self.drafting = SimpleNamespace(settings=SpeculativeConfig(), sources=[])
        self.metrics = self
        self.cache = SimpleNamespace(state=None)
        self.core, self.max_tokens = session.core, 1

    def warmup(self) -> None:
        """There is nothing to build."""

    def pass_events(self) -> list[PassEvent]:
        """No pass was run."""
        return []

    def adopted(self, purpose: str, wall_s: float) -> PhaseEvent:
        """A phase without a pass."""
        session = self._session
        phase = session._phase("prefill", purpose, list(session.tokens), session.n_cached)
        phase.tokens, phase.wall_s = 0, wall_s
        return phase


class ScriptedSession:
    """The session API over a list of replies; nothing is computed."""

    def __init__(
        self, tokenizer: Tokenizer, replies: list[Any], context: int, core: ScriptedCore
    ) -> None:
        self.core = core
        self.tokens: list[int] = []
        self.n_cached = 0
        self.context = context
        self.last_phase: PhaseEvent | None = None
        self.sequence = self.phases = ScriptedSequence(self)
        self.prefills: list[list[int]] = []
        """What each prefill was given."""
        self.masks: list[bool] = []
        """Of each decoded token: whether it was constrained."""
        self._tokenizer = tokenizer
        self._replies = replies

    def prefill(
        self,
        ids: Sequence[int],
        *,
        purpose: str = "prompt",
        check: Callable[[], None] | None = None,
        borders: Sequence[int] = (),
    ) -> PhaseEvent:
        """Append, as the real one does."""
        if check is not None:
            check()
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError("too long")
        before = self.n_cached
        self.tokens += ids
        self.prefills.append(list(ids))
        self.n_cached = len(self.tokens)
        new = self.tokens[before:]
        return self._phase("prefill", purpose, new, before)

    def decode(
        self,
        *,
        max_tokens: int,
        stop: Any,
        constraint: Constraint | None = None,
        sampling: Any = None,
        purpose: str = "answer",
    ) -> Iterator[int]:
        """The next reply's tokens; an exception among the replies is raised in its place."""
        reply = self._replies.pop(0)
        parts = reply if isinstance(reply, list) else [reply]
        before, sampled = self.n_cached, []
        try:
            for token in self._tokens_of(parts):
                if len(sampled) == max_tokens:
                    break
                if constraint is not None:
                    mask = constraint.mask()
                    fits = allowed(mask, self._tokenizer.n_vocab)
                    assert fits[token], f"{self._tokenizer.token_bytes(token)!r} is not allowed"
                    self.masks.append(bool(fits.sum() < self._tokenizer.n_vocab // 2))
                    constraint.advance(token)
                self.tokens.append(token)
                self.n_cached = len(self.tokens) - 1
                sampled.append(token)
                yield token
                if token in stop:
                    break
        finally:
            self.last_phase = self._phase("decode", purpose, sampled, before)

    @property
    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """All alike: nothing is computed."""
        return np.zeros(self._tokenizer.n_vocab, np.float32)

    def truncate(self, n: int) -> None:
        """Forget everything from position n on."""
        del self.tokens[n:]
        self.n_cached = min(self.n_cached, n)

    def fork(self, n: int | None = None) -> ScriptedSession:
        """Another one that goes on from here, with the same replies to come."""
        other = ScriptedSession(self._tokenizer, self._replies, self.context, self.core)
        other.tokens = self.tokens[:n]
        other.n_cached = min(self.n_cached, len(other.tokens))
        return other

    def stop(self) -> None:
        """Nothing runs long here."""

    def close(self) -> None:
        """Nothing is held here."""

    def _tokens_of(self, parts: Sequence[Any]) -> Iterator[int]:
        for part in parts:
            if isinstance(part, BaseException):
                raise part
            yield from self._tokenizer.encode(part, special=True)

    def _phase(self, phase: Any, purpose: str, ids: list[int], before: int) -> PhaseEvent:
        return PhaseEvent(
            phase=phase,
            purpose=purpose,
            predicted="dispatch",
            observed="dispatch",
            tokens=len(ids),
            kv_before=before,
            kv_after=self.n_cached,
            cached_tokens=before,
            wall_s=0.001,
            token_ids=ids,
        )


class ScriptedEngine:
    """The engine API; each session decodes `replies` in turn."""

    def __init__(self, tokenizer: Tokenizer, replies: Sequence[Any], context: int) -> None:
        self.tokenizer = tokenizer
        self.replies = list(replies)
        self.context = context
        self.model = SimpleNamespace(
            name="scripted",
            path="",
            sha256="",
            architecture="none",
            quant="",
            parameters=0,
            n_layers=0,
            context_length=context,
        )
        self.target, self.threads, self.kv = "none", 1, "f32"
        self.sampling = Sampling()
        self.core = ScriptedCore()
        self.loaded = self.core.loaded
        self.machine = SimpleNamespace(cpu="none", cores=1, as_dict=dict)

    def session(self, context: int | None = None) -> ScriptedSession:
        """A fresh session."""
        return ScriptedSession(self.tokenizer, self.replies, context or self.context, self.core)


@pytest.fixture
def scripted(tokenizer: Tokenizer) -> MakeEngine:
    """Makes an engine that says the given replies; an answer needs its <|im_end|>."""

    def make(*replies: Any, context: int = 4096, tokenizer: Tokenizer = tokenizer) -> Any:
        return ScriptedEngine(tokenizer, replies, context)

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a log and a folder."""
    root = tmp_path / "work"
    (root / "logs").mkdir(parents=True)
    (root / "app.log").write_text(LOG)
    (root / "logs" / "old.log").write_text("all fine\n")
    return root
