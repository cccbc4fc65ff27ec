"""``GET /metrics``: what a server has done, under the names that dashboards already know.

Those of vLLM and llama.cpp mean what they mean there; what they have no name for is called
``triplepoint_*``: regimes of phases, predicted beside observed time, why passes had their sizes.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from .exposition import Histogram, Labels, family, labeled, sample
from .meter import Meters

if TYPE_CHECKING:
    from ...inference.engine import Engine
    from ...inference.shared_pass import SharedPass
    from ..models.loading import Models
    from .request_record import RequestRecord

RECENT = 200  # ended requests that the status page shows

_LATENCY = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_LONG = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 480)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4)

_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": (_LONG, "Time from a request's arrival to its first token"),
    "vllm:inter_token_latency_seconds": (_LATENCY, "Time between two pieces of an answer"),
    "vllm:request_time_per_output_token_seconds": (
        _LATENCY,
        "(E2E - TTFT) / (tokens - 1) of a request",
    ),
    "vllm:e2e_request_latency_seconds": (_LONG, "Time from a request's arrival to its end"),
    "vllm:request_queue_time_seconds": (
        _LONG,
        "Time from a request's arrival until work on it starts",
    ),
    "triplepoint_shared_pass_prediction_ratio": (
        _RATIO,
        "Time of a pass of several sequences, divided by its prediction",
    ),
}
_COUNTERS = {
    "vllm:prompt_tokens_total": "Prompt tokens, including those found in the prefix cache",
    "vllm:generation_tokens_total": "Generated tokens",
    "vllm:prefix_cache_queries_total": "Prompt tokens looked up in the prefix cache",
    "vllm:prefix_cache_hits_total": "Prompt tokens found in the prefix cache",
    "vllm:request_success_total": "Finished answers by finish reason",
    "triplepoint_requests_failed_total": "Failed requests by HTTP status",
    "triplepoint_requests_cancelled_total": "Requests whose clients disconnected",
    "triplepoint_phases_total": "Phases by regime",
    "triplepoint_phase_passes_total": "Passes by regime of their phase; a shared pass counts in "
    "each of its phases",
    "triplepoint_phase_tokens_total": "Tokens by regime of their phase",
    "triplepoint_phase_seconds_total": "Time by regime of the phase",
    "triplepoint_phase_predicted_seconds_total": "Predicted time by regime of the phase",
    "triplepoint_shared_passes_total": "Shared passes by what limited their rows",
    "triplepoint_shared_pass_rows_total": "Rows in shared passes",
    "triplepoint_shared_pass_seconds_total": "Time of shared passes",
    "triplepoint_shared_pass_predicted_seconds_total": "Predicted time of shared passes",
    "triplepoint_recomputed_tokens_total": "Tokens recomputed because their pages were evicted",
    "triplepoint_prompt_seconds_total": "Time spent in prefill",
    "triplepoint_tokens_predicted_seconds_total": "Time spent generating answers",
    "triplepoint_drafted_tokens_total": "Drafted tokens",
    "triplepoint_accepted_tokens_total": "Accepted draft tokens",
}
_OF_ENGINES: dict[str, tuple[str, str, Callable[[Engine], float]]] = {
    "vllm:kv_cache_usage_perc": (
        "gauge",
        "Used share of the KV cache memory, 0 to 1",
        lambda engine: engine.layout.memory.used / (engine.layout.memory.budget or float("inf")),
    ),
    "vllm:num_preemptions_total": (
        "counter",
        "Sequences preempted for memory",
        lambda engine: engine.scheduler.preempted,
    ),
    "triplepoint_passes_total": ("counter", "Passes", lambda engine: engine.scheduler.passes),
    "triplepoint_kv_used_bytes": (
        "gauge",
        "Memory used by KV cache pages",
        lambda engine: engine.layout.memory.used,
    ),
    "triplepoint_kv_budget_bytes": (
        "gauge",
        "Memory allowed for KV cache pages",
        lambda engine: engine.layout.memory.budget or 0,
    ),
    "triplepoint_prefix_cache_bytes": (
        "gauge",
        "Memory used by the prefix cache",
        lambda engine: engine.prefix_cache.nbytes,
    ),
    "triplepoint_evicted_pages_total": (
        "counter",
        "Pages evicted from the prefix cache",
        lambda engine: engine.prefix_cache.evicted_pages,
    ),
    "triplepoint_spill_written_bytes_total": (
        "counter",
        "KV cache bytes written to disk",
        lambda engine: engine.spill.written,
    ),
    "triplepoint_spill_recalled_bytes_total": (
        "counter",
        "KV cache bytes read back from disk",
        lambda engine: engine.spill.recalled,
    ),
}


class Metrics:
    """The numbers of one server. Safe to use from several threads.

    Attributes:
        live: requests that have not ended.
        recent: those that have, the last ones.
        meters: count tokens as they come.
        on_ended: hears of each that has, while all is known of it.
    """

    def __init__(self) -> None:
        self.live: dict[str, RequestRecord] = {}
        self.recent: deque[RequestRecord] = deque(maxlen=RECENT)
        self.meters = Meters()
        self.on_ended: Callable[[RequestRecord], None] | None = None
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._engines: list[tuple[str, Engine]] = []
        self._closed: Counter[tuple[str, str]] = Counter()  # of engines, by name and model

    def loaded(self, name: str, engine: Engine) -> None:
        """The engine of a model is there: its passes are counted."""
        engine.runner.on_shared = lambda done: self._shared_pass(name, done)
        with self._lock:
            self._engines.append((name, engine))

    def closed(self, engine: Engine) -> None:
        """It has computed for the last time; what it did goes on to count."""
        with self._lock:
            (mine,) = [one for one in self._engines if one[1] is engine]
            self._engines.remove(mine)
            self._closed.update(_done_by(*mine))

    def arrived(self, record: RequestRecord) -> None:
        """A request has come."""
        with self._lock:
            self.live[record.id] = record

    def refused(self, model: str, status: int) -> None:
        """A request has come for which there is no place."""
        with self._lock:
            self._count_failure(model, status)

    def ended(self, record: RequestRecord) -> None:
        """It has ended; nothing is added to it any more."""
        record.ended = time.perf_counter()
        with self._lock:
            if self.live.pop(record.id, None) is not None:
                self.recent.append(record)
                self._count_request(record)
                if self.on_ended is not None:
                    self.on_ended(record)
        record.slim()

    def records(self) -> list[RequestRecord]:
        """Ended and live requests, by their arrival."""
        with self._lock:
            return sorted([*self.recent, *self.live.values()], key=lambda one: one.arrived)

    def rates(self) -> dict[str, float]:
        """Tokens a second over the last seconds: read and not found in caches, and written."""
        meters = self.meters
        return {"prompt": meters.prompt.rate(), "generation": meters.generation.rate()}

    def render(self, models: Models) -> str:
        """All of it in Prometheus' text format."""
        with self._lock:
            counts = dict(self._counts)
            live = list(self.live.values())
            done = Counter(self._closed)
            for one in self._engines:
                done.update(_done_by(*one))
            parts = [self._histogram_family(name) for name in _HISTOGRAMS]
        running = Counter(one.model for one in live if one.started is not None)
        waiting = Counter(one.model for one in live if one.started is None)
        names = models.names
        for name, found, text in (
            ("vllm:num_requests_running", running, "Running requests"),
            ("vllm:num_requests_waiting", waiting, "Queued requests"),
        ):
            lines = [sample(name, (("model_name", one),), found[one]) for one in names]
            parts.append(family(name, "gauge", text, lines))
        sums: Counter[str] = Counter()
        for name, text in _COUNTERS.items():
            mine = [(labels, value) for (key, labels), value in counts.items() if key == name]
            sums[name] = sum(value for _, value in mine)  # pyright: ignore[reportArgumentType]
            mine = mine or [((("model_name", one),), 0.0) for one in names]
            lines = [sample(name, labels, value) for labels, value in mine]
            parts.append(family(name, "counter", text, lines))
        engines = [(one.name, one.engine) for one in models.loaded()]
        for name, (kind, text, value) in _OF_ENGINES.items():
            now = [(n, value(engine)) for n, engine in engines]
            if kind == "counter":
                now = [(n, done[name, n]) for n in names if (name, n) in done]
            lines = [sample(name, (("model_name", n),), number) for n, number in now]
            parts.append(family(name, kind, text, lines))
        passes = sum(done["triplepoint_passes_total", n] for n in names)
        for name, kind, text, number in (
            *_llama_counts(sums, passes),
            ("requests_processing", "gauge", "Running requests", running.total()),
            ("requests_deferred", "gauge", "Queued requests", waiting.total()),
        ):
            name = f"llamacpp:{name}"
            parts.append(family(name, kind, text, [sample(name, (), number)]))
        return "".join(parts)

    # --- counting; the caller has the lock

    def _count(self, name: str, amount: float, **labels: str) -> None:
        self._counts[name, labeled(labels)] += amount  # pyright: ignore[reportArgumentType]

    def _observe(self, name: str, value: float, model: str) -> None:
        key = name, (("model_name", model),)
        if key not in self._histograms:
            self._histograms[key] = Histogram(_HISTOGRAMS[name][0])
        self._histograms[key].observe(value)

    def _histogram_family(self, name: str) -> str:
        found = [(key[1], one) for key, one in self._histograms.items() if key[0] == name]
        lines = [line for labels, one in found for line in one.samples(name, labels)]
        return family(name, "histogram", _HISTOGRAMS[name][1], lines)

    def _count_failure(self, model: str, status: int) -> None:
        name = "triplepoint_requests_failed_total"
        self._count(name, 1, model_name=model, status=str(status))

    def _count_request(self, record: RequestRecord) -> None:
        model, ended = record.model, record.ended or 0.0
        if record.error is not None:
            self._count_failure(model, record.error.status)
        elif record.cancelled:
            self._count("triplepoint_requests_cancelled_total", 1, model_name=model)
        else:
            self._observe("vllm:e2e_request_latency_seconds", ended - record.arrived, model)
        if record.started is not None:
            waited = record.started - record.arrived
            self._observe("vllm:request_queue_time_seconds", waited, model)
        for _, spent in record.written.values():
            self._count("triplepoint_tokens_predicted_seconds_total", spent, model_name=model)
        for done in record.done:
            self._count(
                "vllm:request_success_total", 1, model_name=model, finished_reason=done.reason
            )
        if (read := record.read) is not None:
            self._count("vllm:prompt_tokens_total", read.tokens, model_name=model)
            self._count("vllm:prefix_cache_queries_total", read.tokens, model_name=model)
            self._count("vllm:prefix_cache_hits_total", read.cached, model_name=model)
            self._count("triplepoint_prompt_seconds_total", read.seconds, model_name=model)
        self._count("vllm:generation_tokens_total", record.tokens, model_name=model)
        if record.first is not None:
            self._observe("vllm:time_to_first_token_seconds", record.first - record.arrived, model)
            for gap in record.gaps:
                self._observe("vllm:inter_token_latency_seconds", gap, model)
            if record.tokens > 1 and not record.cancelled and record.error is None:
                each = (ended - record.first) / (record.tokens - 1)
                self._observe("vllm:request_time_per_output_token_seconds", each, model)
        for one in record.phases:
            event, labels = one.event, {"model_name": model, "regime": one.event.regime}
            for name, amount in (
                ("phases_total", 1),
                ("phase_passes_total", event.passes),
                ("phase_tokens_total", event.tokens),
                ("phase_seconds_total", event.wall_s),
                ("phase_predicted_seconds_total", event.predicted_wall_s),
            ):
                self._count(f"triplepoint_{name}", amount, **labels)
            for name in ("recomputed_tokens", "drafted_tokens", "accepted_tokens"):
                self._count(f"triplepoint_{name}_total", getattr(event, name), model_name=model)

    def _shared_pass(self, model: str, done: SharedPass) -> None:
        with self._lock:
            for name, amount in (
                ("shared_passes_total", 1),
                ("shared_pass_rows_total", done.rows),
                ("shared_pass_seconds_total", done.seconds),
                ("shared_pass_predicted_seconds_total", done.expected_s),
            ):
                self._count(f"triplepoint_{name}", amount, model_name=model, end=done.why)
            if done.expected_s > 0:
                ratio = done.seconds / done.expected_s
                self._observe("triplepoint_shared_pass_prediction_ratio", ratio, model)


def _done_by(model: str, engine: Engine) -> Counter[tuple[str, str]]:
    """The counters of an engine."""
    found: Counter[tuple[str, str]] = Counter()
    for name, (kind, _, value) in _OF_ENGINES.items():
        if kind == "counter":
            found[name, model] = value(engine)  # pyright: ignore[reportArgumentType]
    return found


def _llama_counts(sums: Mapping[str, float], passes: int) -> Iterator[tuple[str, str, str, float]]:
    """llama.cpp's counters: name, kind, text and number."""
    read = sums["vllm:prompt_tokens_total"] - sums["vllm:prefix_cache_hits_total"]
    written = sums["vllm:generation_tokens_total"]
    for name, rate, tokens in (
        ("prompt", "prompt_tokens_seconds", read),
        ("tokens_predicted", "predicted_tokens_seconds", written),
    ):
        spent = sums[f"triplepoint_{name}_seconds_total"]
        total = "prompt_tokens_total" if name == "prompt" else f"{name}_total"
        yield total, "counter", "Computed tokens", tokens
        yield (
            f"{name}_seconds_total",
            "counter",
            "Time spent on these tokens, summed over requests",
            spent,
        )
        yield rate, "gauge", "Mean tokens per second", tokens / spent if spent else 0.0
    yield "n_decode_total", "counter", "See triplepoint_passes_total", passes
