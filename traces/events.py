"""The events of a trace, schema version 2: one JSON object a line, distinguished by ``event``.

A run reads ``run_start``, then turns made of ``message``, ``phase`` and ``tool`` events and closed
by ``turn_end``, then ``run_end``; before a phase stand the ``pass`` events of those of its passes
that other sequences had rows in. Readers keep what they do not know: an unknown field stays on
its event, an unknown event becomes an `UnknownEvent`.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, ClassVar, Literal, get_args

from .records import DraftRecord as DraftRecord
from .records import LayerRecord as LayerRecord
from .records import MachineRecord as MachineRecord
from .records import MissRecord as MissRecord
from .records import ModelRecord as ModelRecord
from .records import Own, text_hash
from .records import Record as Record
from .records import ShareRecord as ShareRecord

SCHEMA_VERSION = 2
"""Version 1 had no `pass` events, and other fields in their place; it is refused."""
SEMCONV = "gen_ai development, semantic-conventions c9e48b1d1 (2026-05-05)"
"""The OpenTelemetry GenAI conventions whose names the exports use; recorded in every header."""

PhaseName = Literal["prefill", "decode"]
PassEnd = Literal["all", "deadline", "chunk", "prefix", "memory", "limit"]
Bound = Literal["compute", "memory", "dispatch", "unknown"]
"""What a pass waited for: arithmetic, bytes from memory, or its own barriers and dispatch; unknown
where another engine ran it and it was timed from outside."""

CONTENDED = 0.1
"""Share of a time without a core above which other work on the machine disturbed it."""

SLOW = 1.25
"""Measured over calibrated seconds from which a phase was slow."""

REGIMES: dict[tuple[PhaseName, Bound], str] = {
    ("prefill", "compute"): "streaming prefill",
    ("prefill", "dispatch"): "dispatch-bound prefill",
    ("prefill", "memory"): "memory-bound prefill",
    ("decode", "memory"): "memory-bound decode",
    ("decode", "dispatch"): "dispatch-bound decode",
    ("decode", "compute"): "compute-bound decode",
    ("prefill", "unknown"): "remote prefill",
    ("decode", "unknown"): "remote decode",
}


class Event(Record):
    """What every line has. The writer fills in ``seq``, ``ts`` and ``run``."""

    v: int = SCHEMA_VERSION
    """Schema version."""
    seq: int = -1
    """Number of this event in its run, from 0; −1 before it is written."""
    ts: float = 0.0
    """When the event was recorded (for a phase or a tool: when it ended), Unix seconds."""
    run: str = ""
    """Identifier of the run; identifiers sort by start time."""

    TEXT: ClassVar[str] = ""
    """The field whose text a file holds once; its hash is in ``<field>_sha256``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.TEXT and not getattr(self, f"{self.TEXT}_sha256"):
            setattr(self, f"{self.TEXT}_sha256", text_hash(getattr(self, self.TEXT)))


HEAD = (*(one.name for one in fields(Event)), "event")
"""The fields that every line begins with, in order."""


class RunStart(Event):
    """The header of a run: everything needed to do it again."""

    event: Literal["run_start"] = "run_start"
    parent: Own[str | None] = None
    """Run that this one continues."""
    parent_step: Own[str | None] = None
    """Turn and step of the parent from which on it does, e.g. ``2.1``; None: its end."""
    task: str = ""
    workspace: str = ""
    model: ModelRecord
    target: Own[str] = ""
    """CPU target that the kernels were generated for, e.g. ``avx512-bf16``."""
    threads: int = 0
    kv: Own[str] = ""
    """Format of the KV cache: ``bf16``, ``k16v8``, ``q8`` or ``f32``."""
    machine: Own[MachineRecord] = field(default_factory=MachineRecord)
    config: dict[str, Any] = field(default_factory=dict)
    """Settings of the agent: limits, context length, sampling, system prompt."""
    versions: Own[dict[str, str]] = field(default_factory=dict)
    """Package name to version."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    """OpenAI-style schemas of the tools; the grammar of tool calls is made from them."""
    semconv: Own[str] = SEMCONV
    tuning: Own[dict[str, Any]] = field(default_factory=dict)
    """How passes are run: for each setting its ``value`` and ``why``; see docs/policy.md."""
    regime_map: Own[dict[str, Any]] = field(default_factory=dict)
    """Bounds that the cost model names over tokens in a pass and KV length; see docs/trace.md."""
    redacted: bool = False
    """The file holds neither text nor token ids: see `redact`."""


class HistoryEvent(Event):
    """The conversation that a run continues: of a fork, a saved session, a recorded step."""

    event: Literal["history"] = "history"
    turn: int = 0
    """Number of its last question."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """Its tokens; empty where the model has not read it yet."""
    spans: list[dict[str, Any]] = field(default_factory=list)
    """Whose they are: spans of one origin, in order."""
    marks: list[list[int]] = field(default_factory=list)
    """Where each of its questions begins: number of the token, and of the message."""


class MessageEvent(Event):
    """One message of the conversation."""

    event: Literal["message"] = "message"
    TEXT: ClassVar = "content"
    role: Own[str]
    """``system``, ``user``, ``assistant`` or ``tool``."""
    content: str
    """Without the thinking, where that could be told apart."""
    thinking: str = ""
    """What an assistant thought before it spoke."""
    by: Own[str] = ""
    """``harness``: the runtime said it, and neither the person nor the model."""
    attached: dict[str, str] = field(default_factory=dict)
    """With a question: documents that could be read beside the workspace, by name, and where each
    was from."""
    content_sha256: str = ""
    """Filled in when left empty."""
    ids: list[int] | None = None
    """Token ids of the message, where they are known apart from its template text."""
    turn: int = 0
    step: int = 0


class ContentEvent(Event):
    """A value that recipes name by its digest, once for all phases after it."""

    event: Literal["content"] = "content"
    digest: str
    """See `content_digest`."""
    value: Any = None


class PhaseEvent(Event):
    """One phase: a prefill of given tokens, or a decode of sampled ones."""

    event: Literal["phase"] = "phase"
    turn: int = 0
    step: int = 0
    phase: PhaseName
    purpose: Own[str] = "prompt"
    """``prompt``, ``tool_result``, ``tool_call``, ``answer``, or another word for what it was."""
    predicted: Bound
    """Bound that the cost model named before the pass."""
    observed: Bound
    """Bound that the time stamps showed."""
    tokens: int
    """Tokens fed in (prefill) or sampled (decode)."""
    kv_before: int
    kv_after: int
    """Positions in the KV cache before and after the phase."""
    cached_tokens: int = 0
    """Tokens of the context that were not computed in this phase."""
    shared_tokens: int = 0
    """Of `tokens`, those that another session of the engine had computed; among the cached, too."""
    recomputed_tokens: int = 0
    """Tokens whose pages others needed before: they were, or will be, computed again."""
    recalled_bytes: int = 0
    """Bytes of pages that were read back from disk; their tokens are among `shared_tokens`."""
    reread_tokens: int = 0
    """Tokens that were computed again, mostly because thinking before them was dropped."""
    miss: MissRecord | None = None
    """Why that was: the first token that differed, and what the reading took."""
    wall_s: float
    flops: float = 0.0
    bytes: float = 0.0
    mfu: float = 0.0
    """Share of the measured arithmetic peak that was reached, 0 to 1."""
    mbu: float = 0.0
    """Share of the measured read bandwidth that was reached, 0 to 1."""
    dispatch_share: float = 0.0
    """Share of the time spent in barriers and dispatch, 0 to 1."""
    limit_share: float = 0.0
    """Share of the machine's measured limit that the observed bound names, 0 to 1."""
    threads: int = 0
    plan: Own[str] = ""
    """Name of the kernel plan."""
    memory_level: Own[str] = ""
    """Level that the weights and the KV cache came from: ``L1``, ``L2``, ``L3`` or ``DRAM``."""
    experts: float | None = None
    """Distinct experts that a layer touched in a pass, on average; None in a dense model."""
    predicted_experts: float | None = None
    """The same as the cost model expected it."""
    experts_by_layer: Own[list[float]] = field(default_factory=list)
    """The same for each layer; empty in a dense model."""
    token_ids: list[int] = field(default_factory=list)
    """The ids fed in (prefill) or sampled, the stop token included (decode)."""
    sampling: dict[str, Any] | None = None
    """How a decode picked its tokens: temperature, top_k, top_p, seed, …"""
    max_tokens: int | None = None
    """Limit that a decode ran under."""
    stop: Own[list[int]] = field(default_factory=list)
    """Ids that end a decode."""
    constraint: Own[str | None] = None
    """Name of the grammar that a decode ran under; None: every token was allowed."""
    recipe: dict[str, Any] | None = None
    """What that grammar is made of, and other limits of the reply; see docs/trace.md. Tools and
    schemas are named by digest: they are those of the header, or of a `ContentEvent`."""
    finish_reason: Own[str] = ""
    """``repetition`` where a decode was ended because it repeated itself; else empty."""
    ttft_s: float | None = None
    """Time from the start of the turn to the first sampled token, on the decode that sampled it."""
    source: Own[str] = "engine"
    """``engine``: measured by the pass itself; ``remote``: another engine, timed from outside."""
    forced_tokens: int = 0
    """Tokens of a decode that the grammar forced, and that needed no choice and no pass."""
    drafted_tokens: int = 0
    """Tokens that were drafted and computed with what was known."""
    accepted_tokens: int = 0
    """Those of them that were what the model chose."""
    drafts: Own[list[DraftRecord]] = field(default_factory=list)
    """The same by what drafted."""
    saved_s: float = 0.0
    """Seconds that those took less than they would have, by the measured times of passes."""
    dropped: list[dict[str, Any]] = field(default_factory=list)
    """What a compaction took out of the context: message, label, tokens and tokens left of it."""
    passes: int = 0
    """Forward passes that the phase was made of; 0: not recorded."""
    shared: Own[ShareRecord | None] = None
    """Its share of those passes that had rows of other sequences too; None: there were none."""
    predicted_s: Own[dict[str, float]] = field(default_factory=dict)
    """Least seconds by bound that the cost model gave before the pass."""
    tuning: Own[list[str]] = field(default_factory=list)
    """What was corrected in how passes are run, a line each; see docs/policy.md."""
    predicted_by: Own[str] = ""
    """``calibration``, ``quick calibration``, or ``roofline``: the limits alone."""
    predicted_wall_s: float = 0.0
    """Seconds that the phase was expected to take; by a roofline at least."""
    predicted_factor: float = 1.0
    """Factor in these seconds, from the phases before it."""
    bound_shares: Own[dict[str, float]] = field(default_factory=dict)
    """Share of the time that follows each bound, at most 1 together; the largest is `observed`."""
    run_delay_share: float | None = None
    """Share of the time that one of its threads (the one with the most) was ready to run and had no
    core, 0 to 1; None: not known."""
    others_share: float | None = None
    """Share of the cores' time that other work took, a host's included; None: not known."""
    joules: float | None = None
    """Energy of all CPU packages during the phase, other processes' included; None: not known."""
    layers: Own[list[LayerRecord]] = field(default_factory=list)
    """Time by layer, where it was asked for."""
    server_timings: dict[str, Any] = field(default_factory=dict)
    """What another server says of its own times, of `source` ``remote``."""

    COMPUTED: ClassVar = ("tokens_per_s", "regime", "predicted_regime", "contended")
    """Lines hold them for other programs; here they are computed again."""

    @property
    def computed_tokens(self) -> int:
        """Of a prefill's `tokens`, those that this session computed."""
        return self.tokens - self.shared_tokens if self.phase == "prefill" else 0

    @property
    def input_tokens(self) -> int:
        """The prompt of a prefill, cached tokens included; 0 where a conversation is taken over."""
        fed = self.phase == "prefill" and self.tokens > 0
        return self.computed_tokens + self.cached_tokens if fed else 0

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second over the wall time of the phase."""
        return self.tokens / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def regime(self) -> str:
        """Name of phase × observed bound, e.g. ``memory-bound decode``."""
        return REGIMES[self.phase, self.observed]

    @property
    def contended(self) -> bool:
        """Whether a thread lacked a core for a tenth of it, or others took that and it was slow."""
        others = (self.others_share or 0.0) * self.slow
        return max(self.run_delay_share or 0.0, others) > CONTENDED

    @property
    def slow(self) -> bool:
        """Whether it took much longer than was calibrated."""
        calibrated = self.shared is None and "calibration" in self.predicted_by
        return calibrated and 0 < SLOW * self.predicted_wall_s < self.wall_s * self.predicted_factor

    @property
    def label(self) -> str:
        """The regime for people, with `contended` beside it where the phase was."""
        return f"{self.regime} (contended)" if self.contended else self.regime

    @property
    def taken(self) -> str:
        """How much of the CPU others took; empty if little, or if it is not known."""
        share = self.others_share or 0.0
        return f"other processes took {share:.0%} of the CPU" if share > CONTENDED / 2 else ""

    @property
    def predicted_regime(self) -> str:
        """Name of phase × predicted bound."""
        return REGIMES[self.phase, self.predicted]


class PassEvent(Event):
    """A pass that had rows of several sequences, in the trace of one of them.

    Its share of the time is by rows; of the bytes, weights are shared out by rows and the output
    head by rows of logits, and KV caches and operations are its own. So the shares of all
    sequences make up the pass.
    """

    event: Literal["pass"] = "pass"
    turn: int = 0
    step: int = 0
    number: int
    """Of the pass, among the shared ones of its engine: the same in every trace that has it."""
    sequences: Own[list[str]]
    """Whose rows: the run, where it has one."""
    rows: Own[list[int]]
    """Rows of each of them."""
    kv: Own[list[int]]
    """Positions that each had in the KV cache before."""
    own: int
    """Which of them this trace is of: an index from 0."""
    why: PassEnd
    """Why it had so many rows: ``all`` that waited; prompts up to the ``deadline`` of those who
    decode, or to the ``chunk`` that is most efficient; ``prefix``: the rest waited for what this
    pass computes; ``memory``: for pages; ``limit``: a pass holds no more."""
    plan: Own[str] = ""
    threads: int = 0
    predicted: Bound
    observed: Bound
    predicted_wall_s: float = 0.0
    """Seconds that it was expected to take."""
    wall_s: float
    flops: float = 0.0
    bytes: float = 0.0
    share_s: float
    """Seconds, operations and bytes that this sequence accounts for."""
    share_flops: float = 0.0
    share_bytes: float = 0.0


class ToolEvent(Event):
    """One tool call and what came back."""

    event: Literal["tool"] = "tool"
    TEXT: ClassVar = "result"
    turn: int = 0
    step: int = 0
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    result: str = ""
    """The text that the model was given, errors included."""
    result_sha256: str = ""
    """Filled in when left empty."""
    duration_s: float = 0.0
    error: str | None = None
    """Why the call failed; None when it did not."""
    call_id: str = ""
    effect: Own[str] = ""
    """What the tool can do at worst: ``read``, ``write``, ``exec`` or ``net``."""
    decision: Own[str] = ""
    """What the policy said: ``allowed`` or ``denied``; empty for a call that never reached it."""
    decided_by: Own[str] = ""
    """Who or what said so: ``effect``, ``read-only``, ``yes``, ``rule 2``, ``user``, …"""
    asked_s: float = 0.0
    """Time that a person took to decide; not part of ``duration_s``."""
    by: Own[str] = ""
    """``harness``: the runtime made the call, and not the model."""


class TurnEnd(Event):
    """The answer to one question, and what it cost."""

    event: Literal["turn_end"] = "turn_end"
    TEXT: ClassVar = "answer"
    turn: int = 0
    answer: str = ""
    answer_sha256: str = ""
    """Filled in when left empty."""
    input_tokens: int = 0
    """Tokens of the context over all passes of the turn, cached ones included."""
    output_tokens: int = 0
    """Sampled tokens, tool calls included."""
    cached_tokens: int = 0
    """Those input tokens that were not computed again."""
    reread_tokens: int = 0
    """Those that were computed again, because thinking before them was dropped from history."""
    ttft_s: float | None = None
    """Time to the first sampled token of the turn."""
    tpot_s: float | None = None
    """Mean time of a sampled token."""
    by: Own[str] = ""
    """``harness``: the runtime answered, since no line says what the model did."""
    found: bool = True
    """False where the answer is that what was asked for is not there."""
    sources: list[list[Any]] = field(default_factory=list)
    """Facts of the answer: fact, path and line (0: the file's name, or a result without lines)."""
    unsupported: list[str] = field(default_factory=list)
    """Facts of the answer that no line of what was read carries."""


class RunEnd(Event):
    """How the run ended."""

    event: Literal["run_end"] = "run_end"
    TEXT: ClassVar = "answer"
    status: Literal["answered", "limit", "error", "cancelled"]
    message: str = ""
    """What went wrong, for a status other than ``answered``."""
    answer: str = ""
    answer_sha256: str = ""
    """Filled in when left empty."""
    totals: dict[str, Any] = field(default_factory=dict)
    wall_s: float = 0.0


class SealedEvent(Event):
    """Marks the torn line before it: a writer died, or the disk was full, in its middle."""

    event: Literal["sealed"] = "sealed"
    torn_bytes: int = 0
    """Length of that torn line."""


class UnknownEvent(Event):
    """An event that this version does not know, kept as it is."""

    event: str

    def __init__(self, event: str, /, **given: Any) -> None:
        vars(self).update({"v": SCHEMA_VERSION, "seq": -1, "ts": 0.0, "run": ""})
        vars(self).update(given, event=event)
        self.__post_init__()


AnyEvent = (
    RunStart
    | HistoryEvent
    | MessageEvent
    | ContentEvent
    | PassEvent
    | PhaseEvent
    | ToolEvent
    | TurnEnd
    | RunEnd
    | SealedEvent
    | UnknownEvent
)

EVENT_TYPES: dict[str, type[AnyEvent]] = {
    model.event: model for model in get_args(AnyEvent) if model is not UnknownEvent
}
TEXT_FIELDS = {name: model.TEXT for name, model in EVENT_TYPES.items() if model.TEXT}
"""Of each event that has a `TEXT`, that field."""
