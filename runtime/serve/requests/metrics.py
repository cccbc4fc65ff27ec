"""``GET /metrics``: Prometheus metrics of a server, under names that dashboards already know.

Names of vLLM and llama.cpp have the meaning that they have there; what both lack is called
``triplepoint_*``: regimes of phases, predicted and observed time, why passes had their sizes.
"""

from __future__ import annotations

import operator
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....traces.export_otlp import PROVIDER
from ..models.loading import Models, Watcher
from .meter import Meters
from .registry import Registry, family, sample

if TYPE_CHECKING:
    from ....traces.events import PhaseEvent
    from ...engine.engine import Engine
    from ...engine.passes.shared_pass import SharedPass
    from .request_record import RequestRecord

RECENT = 200  # ended requests that the status page shows

_LATENCY = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_LONG = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 480)
_RATIO = (0.25, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4)

_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": (_LONG, "Time from arrival to the first token"),
    "vllm:inter_token_latency_seconds": (_LATENCY, "Time between two pieces of an answer"),
    "vllm:request_time_per_output_token_seconds": (_LATENCY, "(E2E - TTFT) / (tokens - 1)"),
    "vllm:e2e_request_latency_seconds": (_LONG, "Time from arrival to the end"),
    "vllm:request_queue_time_seconds": (_LONG, "Time from arrival until work starts"),
    "triplepoint_shared_pass_prediction_ratio": (_RATIO, "Time of a shared pass / its prediction"),
}
"""Histograms, of requests unless they name something else: bounds and help text."""
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
_OF_ENGINES = {
    "vllm:kv_cache_usage_perc": ("", "Used share of the KV cache memory, 0 to 1"),
    "vllm:num_preemptions_total": (
        "core.scheduler.pages.preempted",
        "Sequences preempted for memory",
    ),
    "triplepoint_passes_total": ("core.scheduler.passes", "Passes"),
    "triplepoint_kv_used_bytes": ("loaded.layout.memory.used", "Memory used by KV cache pages"),
    "triplepoint_kv_budget_bytes": (
        "loaded.layout.memory.budget",
        "Memory allowed for KV cache pages",
    ),
    "triplepoint_prefix_cache_bytes": (
        "core.prefix_cache.nbytes",
        "Memory used by the prefix cache",
    ),
    "triplepoint_evicted_pages_total": (
        "core.prefix_cache.evicted_pages",
        "Evicted prefix cache pages",
    ),
    "triplepoint_spill_written_bytes_total": (
        "core.spill.written",
        "KV cache bytes written to disk",
    ),
    "triplepoint_spill_recalled_bytes_total": (
        "core.spill.recalled",
        "KV cache bytes read from disk",
    ),
}
"""Metrics of engines: path of the attribute, and help text; ``_total`` marks counters."""
_DURATION = tuple(0.01 * 2**n for n in range(14))
_EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(float(4**n) for n in range(14))
OTLP = {
    "gen_ai.server.request.duration": ("s", _DURATION, "Time from arrival to the end"),
    "gen_ai.client.operation.duration": ("s", _DURATION, "The same under the name for clients"),
    "gen_ai.server.time_to_first_token": ("s", _LATENCY, "Time from arrival to the first token"),
    "gen_ai.server.time_per_output_token": ("s", _EACH, "Time per token after the first"),
    "gen_ai.client.token.usage": ("{token}", _TOKENS, "Tokens of a prompt and of its answers"),
    "triplepoint.request.queue_time": ("s", _DURATION, "Time from arrival until work starts"),
    "triplepoint.phase.duration": ("s", _DURATION, "Time of prefills and decodes by regime"),
}
"""Histograms for OpenTelemetry, by the names of the GenAI conventions: unit, bounds, help text."""


class Metrics(Watcher):
    """The metrics of one server; safe to use from several threads."""

    def __init__(self) -> None:
        self.live: dict[str, RequestRecord] = {}
        """Requests that have not ended, by ID."""
        self.recent: deque[RequestRecord] = deque(maxlen=RECENT)
        """Requests that ended last."""
        self.meters = Meters()
        """Throughput of all requests."""
        bounds = {name: found[0] for name, found in _HISTOGRAMS.items()}
        self.registry = Registry(bounds | {name: found[1] for name, found in OTLP.items()})
        self._lock = self.registry.lock
        self._engines: list[tuple[str, Engine]] = []
        self._closed: Counter[tuple[str, str]] = Counter()  # of engines, by name and model

    def loaded(self, name: str, engine: Engine) -> None:
        """Register the engine of a model, and count its shared passes from now on."""
        engine.core.runner.shared_observers.append(lambda done: self._shared_pass(name, done))
        with self._lock:
            self._engines.append((name, engine))

    def closed(self, engine: Engine) -> None:
        """Unregister an engine that was closed, and keep its counts."""
        with self._lock:
            (mine,) = [one for one in self._engines if one[1] is engine]
            self._engines.remove(mine)
            self._closed.update(_counters_of(*mine))

    def arrived(self, record: RequestRecord) -> None:
        """Register a request that has arrived."""
        with self._lock:
            self.live[record.id] = record

    def refused(self, model: str, status: int) -> None:
        """Count a request that is refused because too many wait."""
        with self._lock:
            self._count_failure(model, status)

    def ended(self, record: RequestRecord) -> None:
        """Count a request that has ended, and reduce its record to what is shown."""
        record.ended = time.perf_counter()
        with self._lock:
            if self.live.pop(record.id, None) is not None:
                self.recent.append(record)
                self._count_request(record)
        record.slim()

    def records(self) -> list[RequestRecord]:
        """Return the records of ended and live requests, in the order of arrival."""
        with self._lock:
            return sorted([*self.recent, *self.live.values()], key=lambda one: one.arrived)

    def rates(self) -> dict[str, float]:
        """Return the recent tokens per second: computed tokens of prompts, and of answers."""
        meters = self.meters
        return {"prompt": meters.prompt.rate(), "generation": meters.generation.rate()}

    def render(self, models: Models) -> str:
        """Render all metrics in Prometheus' text format."""
        registry, names = self.registry, models.names
        parts: list[str] = []
        with self._lock:
            counters = {name: registry.counter(name) for name in _COUNTERS}
            live = list(self.live.values())
            done = Counter(self._closed)
            for one in self._engines:
                done.update(_counters_of(*one))
            for name, (_, text) in _HISTOGRAMS.items():
                found = registry.histogram(name).items()
                lines = [line for labels, one in found for line in one.samples(name, labels)]
                parts.append(family(name, "histogram", text, lines))

        def add(name: str, kind: str, text: str, values: Mapping[str, float]) -> None:
            lines = [sample(name, (("model_name", n),), value) for n, value in values.items()]
            parts.append(family(name, kind, text, lines))

        started = Counter((one.model, one.started is not None) for one in live)
        running, waiting = ({n: started[n, began] for n in names} for began in (True, False))
        add("vllm:num_requests_running", "gauge", "Running requests", running)
        add("vllm:num_requests_waiting", "gauge", "Queued requests", waiting)
        for name, text in _COUNTERS.items():
            found = counters[name] or {(("model_name", one),): 0.0 for one in names}
            lines = [sample(name, labels, value) for labels, value in found.items()]
            parts.append(family(name, "counter", text, lines))
        engines = [(one.name, one.engine) for one in models.loaded()]
        for name, (_, text) in _OF_ENGINES.items():
            if name.endswith("_total"):
                add(name, "counter", text, {n: done[name, n] for n in names if (name, n) in done})
            else:
                add(name, "gauge", text, {n: _value(name, engine) for n, engine in engines})
        sums = {name: sum(found.values()) for name, found in counters.items()}
        passes = sum(done["triplepoint_passes_total", n] for n in names)
        for name, kind, text, number in (
            *_llama_counts(sums, passes),
            ("requests_processing", "gauge", "Running requests", sum(running.values())),
            ("requests_deferred", "gauge", "Queued requests", sum(waiting.values())),
        ):
            name = f"llamacpp:{name}"
            parts.append(family(name, kind, text, [sample(name, (), number)]))
        return "".join(parts)

    # --- counting; the caller has the lock

    def _count_failure(self, model: str, status: int) -> None:
        labels = {"model_name": model, "status": str(status)}
        self.registry.count("triplepoint_requests_failed_total", 1, labels)

    def _count_request(self, record: RequestRecord) -> None:
        count, observe, ended = self.registry.count, self.registry.observe, record.ended or 0.0
        own, took = {"model_name": record.model}, ended - record.arrived
        about = {
            "gen_ai.operation.name": record.request.operation if record.request else "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": record.model,
        }
        failed: dict[str, str] = {}
        if record.error is not None:
            self._count_failure(record.model, record.error.status)
            failed = {"error.type": record.error.code or str(record.error.status)}
        elif record.cancelled:
            count("triplepoint_requests_cancelled_total", 1, own)
            failed = {"error.type": "cancelled"}
        else:
            observe("vllm:e2e_request_latency_seconds", took, own)
        for side in ("server.request", "client.operation"):
            observe(f"gen_ai.{side}.duration", took, about | failed)
        if record.started is not None:
            waited = record.started - record.arrived
            observe("vllm:request_queue_time_seconds", waited, own)
            observe("triplepoint.request.queue_time", waited, about)
        for _, spent in record.written.values():
            count("triplepoint_tokens_predicted_seconds_total", spent, own)
        for done in record.done:
            labels = {**own, "finished_reason": done.reason}
            count("vllm:request_success_total", 1, labels)
        if (read := record.read) is not None:
            count("vllm:prompt_tokens_total", read.tokens, own)
            count("vllm:prefix_cache_queries_total", read.tokens, own)
            count("vllm:prefix_cache_hits_total", read.cached, own)
            count("triplepoint_prompt_seconds_total", read.seconds, own)
            for kind, tokens in (("input", read.tokens), ("output", record.tokens)):
                observe("gen_ai.client.token.usage", tokens, {**about, "gen_ai.token.type": kind})
        count("vllm:generation_tokens_total", record.tokens, own)
        if record.first is not None:
            first = record.first - record.arrived
            observe("vllm:time_to_first_token_seconds", first, own)
            for gap in record.gaps:
                observe("vllm:inter_token_latency_seconds", gap, own)
            if not failed:
                observe("gen_ai.server.time_to_first_token", first, about)
            if record.tokens > 1 and not failed:
                each = (ended - record.first) / (record.tokens - 1)
                observe("vllm:request_time_per_output_token_seconds", each, own)
                observe("gen_ai.server.time_per_output_token", each, about)
        for one in record.phases:
            self._count_phase(record.model, one.event)

    def _count_phase(self, model: str, phase: PhaseEvent) -> None:
        count, own = self.registry.count, {"model_name": model}
        for name, amount in (
            ("phases_total", 1),
            ("phase_passes_total", phase.passes),
            ("phase_tokens_total", phase.tokens),
            ("phase_seconds_total", phase.wall_s),
            ("phase_predicted_seconds_total", phase.predicted_wall_s),
        ):
            count(f"triplepoint_{name}", amount, {**own, "regime": phase.regime})
        for name in ("recomputed_tokens", "drafted_tokens", "accepted_tokens"):
            count(f"triplepoint_{name}_total", getattr(phase, name), own)
        labels = {"gen_ai.request.model": model, "triplepoint.phase": phase.phase}
        labels["triplepoint.regime"] = phase.regime
        self.registry.observe("triplepoint.phase.duration", phase.wall_s, labels)

    def _shared_pass(self, model: str, done: SharedPass) -> None:
        registry, own = self.registry, {"model_name": model}
        with self._lock:
            for name, amount in (
                ("shared_passes_total", 1),
                ("shared_pass_rows_total", done.rows),
                ("shared_pass_seconds_total", done.seconds),
                ("shared_pass_predicted_seconds_total", done.expected_s),
            ):
                registry.count(f"triplepoint_{name}", amount, {**own, "end": done.why})
            if done.expected_s > 0:
                ratio = done.seconds / done.expected_s
                registry.observe("triplepoint_shared_pass_prediction_ratio", ratio, own)


def _value(name: str, engine: Engine) -> float:
    """Return the value of a metric in `_OF_ENGINES`."""
    memory = engine.loaded.layout.memory
    if where := _OF_ENGINES[name][0]:
        return operator.attrgetter(where)(engine) or 0
    return memory.used / (memory.budget or float("inf"))


def _counters_of(model: str, engine: Engine) -> dict[tuple[str, str], int]:
    """Return the counters of an engine, by name and model."""
    names = [name for name in _OF_ENGINES if name.endswith("_total")]
    return {(name, model): int(_value(name, engine)) for name in names}


def _llama_counts(sums: Mapping[str, float], passes: int) -> list[tuple[str, str, str, float]]:
    """Return llama.cpp's metrics: name, kind, help text and value."""
    read = sums["vllm:prompt_tokens_total"] - sums["vllm:prefix_cache_hits_total"]
    written = sums["vllm:generation_tokens_total"]
    reading = sums["triplepoint_prompt_seconds_total"]
    writing = sums["triplepoint_tokens_predicted_seconds_total"]
    tokens, mean = "Computed tokens", "Mean tokens per second"
    took = "Time spent on these tokens, summed over requests"
    return [
        ("prompt_tokens_total", "counter", tokens, read),
        ("prompt_seconds_total", "counter", took, reading),
        ("prompt_tokens_seconds", "gauge", mean, read / reading if reading else 0.0),
        ("tokens_predicted_total", "counter", tokens, written),
        ("tokens_predicted_seconds_total", "counter", took, writing),
        ("predicted_tokens_seconds", "gauge", mean, written / writing if writing else 0.0),
        ("n_decode_total", "counter", "See triplepoint_passes_total", passes),
    ]
