"""A loaded model, ready to run: kernels, packed weights, threads, the machine's profile."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from ...arguments import as_mapping
from ...errors import ModelError, SettingError
from ...jit import sigbus, targets
from ...jit.compile import Library, ObjectCache, default_folder
from ...jit.kernels.attention import token_tile
from ...jit.kernels.kvcache import PAGE, KVFormat
from ...jit.pool import Pool
from .. import memory, models
from ..config import default_model
from ..forward.kv import KVCache, KVLayout, KVMemory
from ..forward.logits import OutputBuffers
from ..forward.state import StateLayout
from ..forward.tensors import Workspace
from ..gguf.file import GGUFFile
from ..gguf.filehash import sha256_of_parts
from ..gguf.open import open_gguf
from ..physics import calibration, register_tiles, thread_sweep
from ..physics.calibration import Calibration
from ..physics.costs import AttentionLayers, ModelCost
from ..physics.huge_pages import page_gain
from ..physics.latency_model import Efficiency, Passes
from ..physics.machine import MachineProfile, physical_cores, profile
from ..tokens.tokenizer import Tokenizer
from ..weights.loader import WeightLoader
from ..weights.packed_cache import CacheStatus, pack_or_map
from . import policy
from .autotune import ActiveThreads, Autotuner, Overrides
from .contention import ContentionMonitor
from .draft_length import PassLatency
from .logit_ranking import LogitRanker
from .plan import Plans
from .prefix_cache import PrefixCache
from .runner import Runner
from .sampling import file_sampling
from .scheduler import Scheduler
from .session import Session
from .speculative_config import SpeculativeConfig
from .spill import Spill

if TYPE_CHECKING:
    import numpy as np

DEFAULT_CONTEXT = (
    32768  # positions, if the model has as many: a page costs nothing until it is used
)
KV_SHARE = 0.75  # of the memory that is free once the weights are there, for KV caches at most
LOOK_S = 0.001  # between looks at the files that are mapped
NANO = Path(__file__).parents[1] / "nano" / "nano.gguf"


@dataclass(frozen=True)
class ModelInfo:
    """Facts about the model file.

    Attributes:
        quant: the type that most weights have, e.g. ``Q4_0``.
        parameters: weights in all tensors.
        context_length: positions that the model was trained for.
        nbytes: size of the file, or of all parts of a split one.
        parts: the files of a split model; `path` is the first.
    """

    name: str
    path: Path
    architecture: str
    quant: str
    parameters: int
    n_layers: int
    context_length: int
    nbytes: int
    parts: tuple[Path, ...] = ()

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file; of the digests of its parts if it is split. Remembered on disk."""
        return sha256_of_parts(self.parts or (self.path,))


class Engine:
    """Runs one model. Sessions of an engine share its weights and take turns on its threads.

    Attributes:
        model: facts about the model file.
        tokenizer: text to ids and back.
        target: the CPU feature set that the kernels were generated for.
        machine: measured limits of this machine.
        threads: threads that run a pass.
        active_threads, contention: the threads that have a core; leaves out those whose core
        another has.
        tuning: how passes are run.
        speculative: how new sessions need fewer passes than tokens.
        times: what its passes take, as they were measured.
        plans: its passes, as they were built; runner: runs them.
        scheduler: puts rows of sessions into passes.
        sessions: those that there are.
        prefix_cache: beginnings of texts that sessions have computed, for those that share them.
        spill: those of them that are on disk.
        layout: what the pages of KV caches are made of.
        kv: format of KV caches: ``bf16``, ``q8`` or ``f32``.
        kept: the packed copy of the weights on disk, if one was asked for.
        sampling: what the model's file says of it (`general.sampling.*`).
        sampling_notes: what of that makes no sense, or is not done here.
    """

    def __init__(
        self,
        gguf: GGUFFile,
        library: Library,
        pool: Pool,
        kv: KVFormat,
        context: int | None,
        progress: Callable[[float], None] | None,
        cache_packed_weights: bool,
        fixed: Overrides,
        kv_memory: int | None = None,
        spill: int | None = None,
    ) -> None:
        """Use `Engine.load`."""
        self.library, self.pool = library, pool
        self.active_threads = ActiveThreads(pool)
        self.contention = ContentionMonitor(self.active_threads)
        self.target = library.target
        self.threads = pool.threads
        self.kv: KVFormat = kv
        self.tokenizer = Tokenizer.from_gguf(gguf)
        weights = WeightLoader(gguf, library)
        self.network = models.build(gguf, weights)
        # Measured first: what they read for that is free again before the weights need room.
        pages = policy.override(fixed.pages) or policy.choose_pages(page_gain(library, pool))
        memory.advise_huge_pages(bool(pages.value))
        self.machine: MachineProfile = profile(library, pool)
        self.packed_cache: CacheStatus | None = None
        if cache_packed_weights:
            self.weights, self.packed_cache = pack_or_map(weights, pool, progress)
        else:
            self.weights = weights.pack_all(pool, progress)
        config = self.network.config
        self.model = _info(gguf, config.layers, config.context)
        self.context = min(config.context, DEFAULT_CONTEXT) if context is None else context
        if self.context > config.context:
            raise SettingError(
                f"a context of {self.context} tokens was asked for, but {self.model.name} was made "
                f"for {config.context}; ask for at most that"
            )
        self.sampling, self.sampling_notes = file_sampling(gguf.metadata)
        self.buffers = Workspace()
        self.outputs = OutputBuffers(config.n_vocab)
        self.lock = threading.RLock()
        self.speculative = SpeculativeConfig()
        self.pass_latency = PassLatency()
        self._gguf = gguf  # tables of embeddings are read from its mapping
        self._looked, self._faults = 0.0, sigbus.faults()
        self._mapped = [gguf.held(name).check for name in weights.tables]
        if self.weights.check is not None:
            self._mapped.append(self.weights.check)
        capacity = -(-self.context // PAGE) * PAGE
        tables = self.network.tables(capacity, self.context)
        room = KVMemory(budget=kv_memory or int(KV_SHARE * memory.available_bytes()))
        recurrent = self.network.recurrent
        states = StateLayout.of((n, part.state_floats) for n, part in recurrent.items())
        self.layout = KVLayout(
            kv, config.cached, capacity, tables, room, tuple(self.network.windows),
            states if recurrent else None,
        )  # fmt: skip
        self.tuning = Autotuner(
            pool, self.active_threads, self.contention, self._known(), fixed, pages
        )
        self.plans = Plans(self)
        self.spill = Spill(self, spill)
        self.prefix_cache = PrefixCache(self.layout, self.spill.offer)
        self.sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self.runner = Runner(self)
        self.scheduler = Scheduler(self)

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
        cache_packed_weights: bool = False,
        jump_forward: bool = True,
        draft_tokens: int | Literal["auto"] = "auto",
        tune: Mapping[str, Any] | None = None,
        kv_memory: int | None = None,
        spill: int | None = None,
    ) -> Engine:
        """Load a model.

        Args:
            model: ``nano`` (the embedded one), a path to a GGUF file, the name or alias of a model
                that `triplepoint pull` brought, such as ``Qwen/Qwen3-4B-GGUF:Q4_K_M`` or
                ``qwen3:4b``, or ``synthetic:NAME:QUANT`` (real shapes, random weights); default:
                what `triplepoint use` set, else nano.
            threads: threads of every pass; default: as many as are quickest for each kind of pass,
                up to the physical cores this process may use.
            target: CPU feature set, e.g. ``avx2``; default: the best of this machine.
            kv: format of the KV cache: ``bf16``, ``q8`` (int8: half the bytes, faster the longer
                the context) or ``f32``.
            context: most positions of a session; default: what the model was made for, at most
                32,768.
            progress: hears the share of the weights that is packed, 0 to 1.
            cache_packed_weights: keep the packed weights on disk, as large as the model's file, and
                map them from there the next time; `Engine.kept` says what became of it.
            jump_forward: take tokens that a grammar forces without decoding them.
            draft_tokens: most tokens that a pass drafts from the context; 0: none, ``auto``: as
                many as pay. Neither changes what is written.
            tune: settings of passes that are given instead of chosen: ``chunk`` (tokens), ``spin``
                (seconds, or a text such as ``300us``), ``tile`` and ``max_single_tile`` (tokens of
                a register tile), ``kv_split``, ``pages`` and ``adaptive`` (on or off).
            kv_memory: bytes that KV caches may take in all; default: three quarters of what is free
                once the weights are there. Sessions that do not fit beside each other wait, and
                compute again what they had to let go of.
            spill: bytes on disk, in the user's cache folder, for prefixes that memory has no room
                for and that are read sooner than computed; 0: none. Default: 4 GiB, and a tenth of
                what is free on the disk at most.

        Raises:
            ModelError: the file cannot be found, is damaged, or cannot be run.
            TargetError: the target is unknown or cannot run here.
            SettingError: another setting makes no sense.
        """
        if kv not in get_args(KVFormat):
            known = ", ".join(get_args(KVFormat))
            raise SettingError(f"unknown KV cache format {kv!r}; known: {known}")
        if context is not None and not (isinstance(context, int) and context >= 1):
            raise SettingError(f"context must be at least 1 token, not {context!r}")
        count = threads if threads is not None else physical_cores()
        if not (isinstance(count, int) and 1 <= count <= 256):
            raise SettingError(f"threads must be from 1 to 256, not {count!r}")
        if kv_memory is not None and not (isinstance(kv_memory, int) and kv_memory > 0):
            raise SettingError(f"kv_memory must be a number of bytes above 0, not {kv_memory!r}")
        if spill is not None and not (isinstance(spill, int) and spill >= 0):
            raise SettingError(f"spill must be a number of bytes, or 0 for none, not {spill!r}")
        if progress is not None and not callable(progress):
            raise SettingError(f"progress must be a function, not {progress!r}")
        tune = as_mapping(tune or {}, "tune must map settings to values", SettingError)
        speculative = SpeculativeConfig(jump_forward, draft_tokens)
        fixed = Overrides.of({**tune, **({} if threads is None else {"threads": threads})})
        chosen = targets.resolve(target or os.environ.get("TRIPLEPOINT_TARGET"))
        gguf = open_gguf(resolve_model(default_model().value if model is None else model))
        models.architecture_of(gguf)
        library = Library(chosen, ObjectCache(default_folder()))
        pool = Pool(library, count)
        try:
            kind, limits = cast(KVFormat, kv), (kv_memory, spill)
            engine = cls(
                gguf, library, pool, kind, context, progress, cache_packed_weights, fixed, *limits
            )
            engine.speculative = speculative
            return engine
        except BaseException:
            pool.close()
            raise

    def session(self, context: int | None = None) -> Session:
        """A new conversation with an empty KV cache of `context` positions."""
        size = self.context if context is None else context
        if not (isinstance(size, int) and 1 <= size <= self.context):
            raise SettingError(
                f"a session of {size!r} tokens does not fit a context of {self.context}"
            )
        self.plans.build()
        return Session(self, KVCache(self.layout, size), size)

    def load_session(self, folder: str | Path, context: int | None = None) -> Session:
        """The conversation that `Session.save` kept in a folder, with its KV cache.

        Every page is compared with its SHA-256 before it is used. From the first that is damaged or
        missing on, the tokens are there but have to be computed again, as the next prefill does;
        `Session.lost` says why.

        Raises:
            EngineError: there is none, its index is damaged, it is of another model, KV format or
                target, or it does not fit the context.
        """
        from .kv_snapshot import load

        return load(self, folder, context)

    def check_files(self) -> None:
        """Raise ModelError if a file that passes read from was changed since it was mapped.

        It looks once a millisecond at most, and where a mapping lost a page: passes of the smallest
        models take less than a look would be worth.
        """
        now, faults = time.perf_counter(), sigbus.faults()
        if now - self._looked > LOOK_S or faults != self._faults:
            for check in self._mapped:
                check()
            self._looked, self._faults = now, faults  # only if all is well

    @property
    def rotary(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """Rotary tables: cos and sin of each, float32 [positions, rotated dims / 2]."""
        return self.layout.tables

    @cached_property
    def cost(self) -> ModelCost:
        """The model as the cost model sees it."""
        *in_layers, head = self.network.matrices
        experts = [m for m in in_layers if m.experts and not m.by_head]
        body = [m for m in in_layers if not m.experts or m.by_head]
        h = self.network.config.heads
        layers = self.network.config.layers
        return ModelCost(
            layers=layers,
            heads=h.heads,
            head_dim=h.head_dim,
            body_weights=sum(m.parameters for m in body),
            head_weights=head.parameters,
            body_bytes=sum(m.nbytes for m in body),
            head_bytes=head.nbytes,
            kv_bytes=self.layout.position_bytes,
            quantized=head.format.quantized,
            int8_cache=self.kv == "q8",
            expert_weights=sum(m.parameters for m in experts),
            expert_bytes=sum(m.nbytes for m in experts),
            experts=self.network.config.experts,
            experts_used=self.network.config.experts_used,
            dense_layers=self.network.config.dense,
            attention=self._attention_layers(),
            windows=tuple(window for window in self.network.windows if window),
            kv_heads=h.kv_heads,
            state_bytes=sum(4 * part.state_floats for part in self.network.recurrent.values()),
            state_flops=sum(part.state_flops for part in self.network.recurrent.values()),
        )

    def _attention_layers(self) -> tuple[AttentionLayers, ...]:
        """Layers by how they attend; none if all do alike, but for windows, in their own cache."""
        config, windows = self.network.config, self.network.windows
        if len(set(config.shapes)) == 1 and config.sources == tuple(range(config.layers)):
            return ()
        found = Counter(
            (h.heads * h.head_dim, KVLayout(self.kv, [h], 0).position_bytes, window)
            for h, window in zip(config.shapes, windows, strict=True)
            if h
        )
        return tuple(AttentionLayers(n, *kind) for kind, n in found.items())

    @cached_property
    def logit_ranker(self) -> LogitRanker:
        """What samplers look at logits with; of one session at a time, under `lock`."""
        return LogitRanker(self.outputs.n_vocab, self.library, self.pool)

    @cached_property
    def calibration(self) -> Calibration | None:
        """What this model's kernels reach on this machine; None where it was not measured yet."""
        return calibration.load(calibration.path_of(self.cost, self.machine, self.kv))

    @property
    def attained(self) -> tuple[MachineProfile, Efficiency]:
        """The machine's limits and what kernels reach of them: this model's, or a typical one's."""
        known = self.calibration
        return (known.machine, known.efficiency) if known else (self.machine, Efficiency())

    def apply_calibration(self, found: Calibration) -> None:
        """Take what was measured of this model, and choose anew by it how passes are run."""
        self.calibration = found
        self.tuning = self.tuning.renewed(self._known())

    def _known(self) -> policy.TuningInputs:
        """What settings are chosen from: measured limits, and what kernels reach of them."""
        swept = thread_sweep.load(self.library)
        profiles = swept.profiles if swept is not None else ()
        h, layers, kept = self.network.config.heads, self.network.config.layers, self.calibration
        passes = Passes(1, token_tile(h.group), 5 * layers + 4, 8 * layers + 4)
        if kept is not None:
            passes = kept.passes
        machines = policy.by_threads(self.machine, profiles)
        plan = register_tiles.load(self.library) or register_tiles.default(self.target)
        return policy.TuningInputs(self.cost, machines, self.attained[1], passes, self.target, plan)

    def close(self) -> None:
        """End the threads; the engine runs no more passes."""
        self.spill.close()
        self.pool.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def resolve_model(model: str | Path) -> Path:
    """The file that a model's name stands for.

    Raises:
        ModelError: there is no such model.
    """
    if not isinstance(model, str | Path) or not (name := str(model).strip()):
        raise ModelError(
            f"{model!r} names no model; give nano, the path of a GGUF file, or a pulled model"
        )
    if name == "nano":
        if not NANO.exists():
            raise ModelError(f"the embedded model is missing ({NANO}); install triplepoint again")
        return NANO
    if name.startswith("synthetic:"):
        from ..synthetic.write import synthetic_path

        return synthetic_path(name)
    path = Path(name).expanduser()
    if os.path.exists(path):  # False also for a name that no file can have
        return path
    from ..hub.names import alias_hint, is_hub_name, parse_name

    if is_hub_name(name):
        from ..hub.find import find
        from ..hub.settings import HubSettings

        return find(parse_name(name), HubSettings.from_environ()).paths[0]
    raise ModelError(
        f"no such model: {name}; give a path to a GGUF file, the name or alias of a model that was "
        f"pulled, nano, or synthetic:NAME:QUANT{alias_hint(name)}"
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
    )
