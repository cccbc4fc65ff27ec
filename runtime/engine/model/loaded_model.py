"""A model in memory, ready for passes: kernels, packed weights, threads, the machine's profile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....arguments import ProcessBound, as_list
from ....errors import EngineError, GGUFError, SettingError
from ....jit import cores
from ....jit.compile import Library
from ....jit.kernels.attention import token_tile
from ....jit.kernels.kvcache import PAGE, KVFormat
from ....jit.pool import Pool
from ... import memory, models
from ...cgroups import require_address_space
from ...forward.kv import KVLayout
from ...forward.kv_memory import KVMemory
from ...forward.logits import OutputBuffers
from ...forward.state import StateLayout
from ...forward.tensors import Workspace
from ...gguf.file import GGUFFile
from ...gguf.mapped_file_guard import MappedFileGuard, sha256_of
from ...physics import calibration, register_tiles, thread_sweep
from ...physics.calibration import Calibration
from ...physics.costs import LayerParts, ModelCost
from ...physics.huge_pages import page_gain
from ...physics.latency_model import Efficiency, Passes
from ...physics.machine import MachineProfile, profile
from ...tokens.tokenizer import Tokenizer
from ...weights.loader import WeightLoader
from ...weights.packed_cache import CacheStatus, pack_or_map
from ..policy import choices as policy
from ..policy.autotune import ActiveThreads, Autotuner, Overrides
from ..policy.contention import ContentionMonitor
from ..policy.drift import PhaseDrift
from ..sampling.logit_ranking import LogitRanker
from ..sampling.settings import file_sampling
from .model_cost import layer_parts, model_cost

if TYPE_CHECKING:
    import numpy as np

DEFAULT_CONTEXT = 32768
"""Default context in positions, if the model has as many: unused pages cost nothing."""
KV_SHARE = 0.75  # of the memory that is free once the weights are there, for KV caches at most


@dataclass(frozen=True)
class ModelInfo:
    """Facts about the model file that was loaded, whatever its path names now."""

    name: str
    path: Path
    architecture: str
    quant: str
    """The type that most weights have, e.g. ``Q4_0``."""
    parameters: int
    """Weights in all tensors."""
    n_layers: int
    context_length: int
    """Positions that the model was trained for."""
    nbytes: int
    """Size of the file, or of all parts of a split one."""
    parts: tuple[Path, ...] = ()
    """The files of a split model; `path` is the first."""
    files: tuple[MappedFileGuard, ...] = field(default=(), repr=False, compare=False)
    """The loaded files, held open."""

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file; of the digests of its parts if it is split. Remembered on disk.

        Raises:
            ModelError: the file was overwritten before it was hashed.
        """
        return sha256_of(self.files)

    def __getstate__(self) -> dict[str, object]:
        """Return the facts without the open files, which no copy or other process can have."""
        return {**self.__dict__, "sha256": self.sha256, "files": ()}


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded: see `Engine.load`."""

    kv: KVFormat
    context: int | None
    progress: Callable[[float], None] | None
    cache_packed_weights: bool | None
    fixed: Overrides
    kv_memory: int | None
    mtp: bool
    """Whether the MTP layer is loaded, if the model has one."""
    needs_mtp: bool
    """Whether a model without an MTP layer is an error."""


class LoadedModel(ProcessBound):
    """A model in memory, and all that its passes need. Only one pass runs at a time.

    Attributes:
        model: facts about the model file.
        tokenizer: text to ids and back.
        target: the CPU feature set that the kernels were generated for.
        machine: measured limits of this machine.
        threads: threads that run a pass.
        active_threads, contention: the threads that have a core; the monitor leaves out those
            whose core another process has.
        tuning: how passes are run; drift: how phases differ from the calibration.
        layout: what the pages of KV caches are made of.
        kv: format of KV caches: ``bf16``, ``k16v8``, ``q8`` or ``f32``.
        attention_tile: tokens of a pass that share one read of the cache.
        packed_cache: the packed copy of the weights on disk, if one is there or will be written.
        sampling: the settings of the model's file (`general.sampling.*`).
        sampling_notes: settings of the file that are not used, and why.
        lock: held while a pass runs.
        trying: threads that take `lock` without `with`: see `give_back`.
    """

    _instead = "call Engine.load there; in this process, agents and sessions share an engine"

    def __init__(self, gguf: GGUFFile, library: Library, pool: Pool, options: LoadOptions) -> None:
        """Use `Engine.load`."""
        self.library, self.pool = library, pool
        self.active_threads = ActiveThreads(pool)
        self.contention = ContentionMonitor(self.active_threads)
        self.target = library.target
        self.threads = pool.threads
        self.kv: KVFormat = options.kv
        self.tokenizer = Tokenizer.from_gguf(gguf)
        weights = WeightLoader(gguf, library)
        bound = options.fixed.head_bound
        self.network = models.build(gguf, weights, mtp=options.mtp, head_bound=bound)
        if options.needs_mtp and self.network.mtp is None:
            raise SettingError(
                "draft_source='mtp' needs a model with an MTP head, which this one lacks; give "
                "'auto', or 'lookup' to draft from the context"
            )
        if self.tokenizer.n_vocab != self.network.config.n_vocab:
            raise GGUFError(
                f"it has {self.tokenizer.n_vocab:,} tokens, but its embedding table has "
                f"{self.network.config.n_vocab:,} rows",
                field="tokenizer.ggml.tokens",
                offset=None,
                path=gguf.path,
            )
        config = self.network.config
        self.attention_tile = token_tile(config.heads.group)
        self.drift = PhaseDrift()
        self.model = _info(gguf, config.layers, config.context)
        context = options.context
        self.context = min(config.context, DEFAULT_CONTEXT) if context is None else context
        if self.context > config.context:
            raise SettingError(
                f"a context of {self.context} tokens is too long; {self.model.name} was made for "
                f"{config.context} at most"
            )
        # Measured first: what they read for that is free again before the weights need room.
        fixed = options.fixed
        pages = policy.override(fixed.pages) or policy.choose_pages(page_gain(library, pool))
        memory.advise_huge_pages(bool(pages.value))
        self.machine: MachineProfile = profile(library, pool)
        # Beside weights, as measured with nano and vocabularies of 49,152 and 151,936 tokens.
        beside = 100_000_000 + 3_000 * self.tokenizer.n_vocab
        require_address_space(weights.arena_bytes + beside, self.model.name)
        self.packed_cache: CacheStatus | None
        self.weights, self.packed_cache = pack_or_map(
            weights, pool, options.progress, keep=options.cache_packed_weights
        )
        self.sampling, self.sampling_notes = file_sampling(gguf.metadata)
        self.buffers = Workspace()
        self.outputs = OutputBuffers(config.n_vocab)
        if self.network.mtp is not None:
            self.outputs.hidden = self.network.mtp.wanted
        self.lock = threading.RLock()
        self.trying: set[int] = set()
        self._gguf = gguf  # tables of embeddings are read from its mapping
        capacity = -(-self.context // PAGE) * PAGE
        tables = self.network.tables(capacity, self.context)
        available = memory.available_bytes()
        if self.packed_cache is not None and self.packed_cache.mapped:
            # Pages of a file count as available, but passes read these.
            available = max(available - self.packed_cache.copy.nbytes, available // 8)
        room = KVMemory(budget=options.kv_memory or int(KV_SHARE * available))
        shapes, windows = zip(*self.network.cached, strict=True)
        states = StateLayout.of(found) if (found := self.network.states) else None
        kept = self.network.row_width
        self.layout = KVLayout(self.kv, shapes, capacity, tables, room, windows, states, kept)
        self.network.norm_keys(self.layout, pool)
        self.tuning = Autotuner(
            pool, self.active_threads, self.contention, self._known(), fixed, pages
        )

    def describe(self) -> dict[str, dict[str, Any]]:
        """Describe how passes are run, and what stored keys are: each setting, and why."""
        forms = self.network.key_forms(self.layout).items()
        why = f"layers whose keys have biases that {self.kv} would round"
        keys = {f"{form} keys": {"value": layers, "why": why} for form, layers in forms}
        return {**self.tuning.describe(), **keys}

    def check_ids(self, ids: Sequence[int]) -> None:
        """Raise EngineError if a token id is not in the vocabulary."""
        most = self.outputs.n_vocab
        bad = next((i for i in ids if not 0 <= i < most), None)
        if bad is not None:
            raise EngineError(f"token id {bad} is not in the vocabulary of {most}")

    def give_back(self) -> None:
        """Release the lock if an interrupt came right after this thread took it."""
        if (thread := threading.get_ident()) in self.trying:
            self.trying.discard(thread)
            if self.lock._is_owned():  # pyright: ignore[reportAttributeAccessIssue]
                self.lock.release()

    def as_ids(self, ids: object) -> list[int]:
        """Return a caller's token ids as a list of ints.

        Raises:
            EngineError: an id is not an integer, or not in the vocabulary.
        """
        try:
            found = [index(i) for i in as_list(ids, "token ids must be a list", EngineError)]
        except TypeError as error:
            raise EngineError(f"a token id must be a whole number: {error}") from None
        self.check_ids(found)
        return found

    @property
    def rotary(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """Rotary tables: cos and sin of each, float32 [positions, rotated dims / 2]."""
        return self.layout.tables

    @cached_property
    def cost(self) -> ModelCost:
        """The cost model's inputs for this model."""
        return model_cost(self.network, self.layout)

    @cached_property
    def layer_parts(self) -> list[LayerParts]:
        """The cost model's inputs for each layer."""
        return layer_parts(self.network, self.layout)

    @cached_property
    def logit_ranker(self) -> LogitRanker:
        """The ranking of logits that samplers use, one session at a time, under `lock`."""
        return LogitRanker(self.outputs.n_vocab, self.library, self.pool)

    @cached_property
    def calibration(self) -> Calibration | None:
        """The saved calibration of this model on this machine; None if not measured yet."""
        return calibration.load(calibration.path_of(self.cost, self.machine, self.kv))

    @property
    def attained(self) -> tuple[MachineProfile, Efficiency]:
        """The machine's limits and the kernels' efficiency: calibrated, else typical."""
        known = self.calibration
        return (known.machine, known.efficiency) if known else (self.machine, Efficiency())

    def apply_calibration(self, found: Calibration) -> None:
        """Set a new calibration, and rechoose the execution settings."""
        self.calibration, self.drift = found, PhaseDrift()
        self.tuning = self.tuning.renewed(self._known())

    def _known(self) -> policy.TuningInputs:
        """Collect the inputs of tuning: measured limits, and what kernels reach of them."""
        swept = thread_sweep.load(self.library)
        profiles = [p for p in swept.profiles if not p.doubtful] if swept is not None else ()
        layers, kept = self.network.config.layers, self.calibration
        passes, cost = Passes(1, self.attention_tile, 5 * layers + 4, 8 * layers + 4), self.cost
        if kept is not None:
            passes = kept.passes
            cost = replace(cost, expert_diversity=kept.expert_diversity)
        machines = policy.by_threads(self.machine, profiles)
        tiles = register_tiles.load(self.library) or register_tiles.default(self.target)
        decode = cores.plan(cores.usable_cpus(), "decode")
        return policy.TuningInputs(
            cost, machines, self.attained[1], passes, self.target, tiles, decode
        )


def _info(gguf: GGUFFile, layers: int, context: int) -> ModelInfo:
    totals: dict[str, int] = {}
    for tensor in gguf.tensors.values():
        count = 1
        for n in tensor.shape:
            count *= int(n)
        totals[tensor.type.name] = totals.get(tensor.type.name, 0) + count
    return ModelInfo(
        name=gguf.string("general.name", "") or gguf.path.stem,
        path=gguf.path,
        architecture=gguf.string("general.architecture"),
        quant=max(totals, key=lambda name: totals[name]),
        parameters=sum(totals.values()),
        n_layers=layers,
        context_length=context,
        nbytes=gguf.nbytes,
        parts=gguf.parts,
        files=gguf.files,
    )
