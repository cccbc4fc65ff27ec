"""Exports a trace as OTLP JSON, for an OpenTelemetry collector's ``/v1/traces``.

One trace for each run, made of spans as the GenAI conventions name them:

    invoke_agent triplepoint          one question, up to its answer
      chat MODEL                      one reply of the model
        triplepoint.phase prefill     … and its phases, under names of our own
          triplepoint.pass            … with those of their passes that others had rows in
      execute_tool NAME               one tool call

The JSON is the protobuf mapping of OTLP: identifiers in hex, 64-bit integers as text, names in
lowerCamelCase, times in Unix nanoseconds. Identifiers follow from the run's, so exporting twice
gives the same spans.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .events import PassEvent, PhaseEvent, RunStart, ToolEvent
from .reader import Trace
from .records import Record
from .spans import Leaf, RunSpan, Span, StepSpan, TurnSpan, of_runs

Json = dict[str, Any]

PROVIDER = "triplepoint"
INTERNAL = 1  # SpanKind: the model runs in the same process
SERVER = 2  # SpanKind: the client is another process
ERROR = 2  # StatusCode


def document(traces: Iterable[Trace], *, content: bool = False) -> Json:
    """Return the body of an export request.

    Args:
        content: put questions, answers, and arguments and results of tools into the spans; the
            conventions leave them out by default, since they are private.
    """
    return {
        "resourceSpans": [
            _resource(run, Spans(run, content)) for trace in traces for run in of_runs(trace)
        ]
    }


def served(
    trace: Trace, parent: tuple[str, str] | None, about: Json, *, content: bool = False
) -> Json:
    """Return the body of an export request for an answered server request; see `ServedSpans`."""
    runs = of_runs(trace)
    return {
        "resourceSpans": [_resource(run, ServedSpans(run, content, parent, about)) for run in runs]
    }


def _resource(run: RunSpan, made: Spans) -> Json:
    header = run.header
    about: Json = {"service.name": "triplepoint", "triplepoint.run": run.run}
    if header is not None:
        about |= {
            "service.version": header.versions.get("triplepoint", ""),
            "triplepoint.target": header.target,
            "triplepoint.kv": header.kv,
            "triplepoint.cpu": header.machine.cpu,
            "triplepoint.model.sha256": header.model.sha256,
            "triplepoint.redacted": header.redacted,
            "triplepoint.semconv": header.semconv,
        }
    spans = list(made.all())
    scope = {"name": "triplepoint.traces"}
    return {
        "resource": {"attributes": attributes(about)},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }


class Spans:
    """Builder of the OTLP spans of one run."""

    def __init__(self, run: RunSpan, content: bool) -> None:
        self._run = run
        self._content = content
        self._trace_id = _digest(run.run, 32)
        header = run.header
        self._model = header.model.name if header else ""
        self._chat: Json = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.conversation.id": run.run,
            "gen_ai.output.type": "text",
        }

    def all(self) -> Iterator[Json]:
        """Yield every span, parents first."""
        for number, turn in enumerate(self._run.turns):
            if turn.began:
                yield from self._turn(str(number), turn)

    def _turn(self, key: str, turn: TurnSpan) -> Iterator[Json]:
        about: Json = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": "triplepoint",
            "gen_ai.request.model": self._model,
            "gen_ai.conversation.id": self._run.run,
            "triplepoint.turn": turn.number,
        }
        if (close := turn.close) is not None:
            about |= {
                # Under gen_ai.usage a back end would add them to those of the replies.
                "triplepoint.turn.input_tokens": close.input_tokens,
                "triplepoint.turn.output_tokens": close.output_tokens,
                "triplepoint.turn.cached_tokens": close.cached_tokens,
                "triplepoint.turn.ttft_s": close.ttft_s,
                "triplepoint.turn.tpot_s": close.tpot_s,
            }
            if self._content:
                about["gen_ai.output.messages"] = _message("assistant", close.answer, "stop")
        if self._content:
            about["gen_ai.input.messages"] = _message("user", turn.question)
            if (header := self._run.header) is not None:
                about |= _settings(header)
        if close is None:
            about["error.type"] = _failure(turn)
        span = self._span("invoke_agent triplepoint", key, "", turn, about)
        if close is None:
            self._fail(span, turn)
        yield span
        for number, step in enumerate(turn.steps):
            yield from self._step(f"{key}.{number}", key, step)

    def _fail(self, span: Json, turn: TurnSpan) -> None:
        message = turn.outcome.message if turn.outcome and not self._redacted else ""
        span["status"] = {"code": ERROR, "message": message or "no answer"}

    @property
    def _redacted(self) -> bool:
        return self._run.header is not None and self._run.header.redacted

    def _step(self, key: str, parent: str, step: StepSpan) -> Iterator[Json]:
        phases = [leaf for leaf in step.leaves if isinstance(leaf.event, PhaseEvent)]
        if phases:
            reply = Span(start=phases[0].start, end=phases[-1].end)
            yield self._span(f"chat {self._model}", key, parent, reply, self._usage(phases))
        for number, leaf in enumerate(step.leaves):
            if isinstance(leaf.event, PhaseEvent):
                yield from self._phase(f"{key}.{number}", key, leaf, leaf.event)
            else:
                yield self._tool(f"{key}.{number}", parent, leaf, leaf.event)

    def _phase(self, key: str, parent: str, leaf: Leaf, phase: PhaseEvent) -> Iterator[Json]:
        name = f"triplepoint.phase {phase.phase}"
        yield self._span(name, key, parent, leaf, _fields("phase", phase, _PHASE))
        for n, one in enumerate(leaf.passes):
            about = _fields("pass", one.event, _PASS)
            yield self._span("triplepoint.pass", f"{key}.{n}", key, one, about)

    def _usage(self, phases: list[Leaf]) -> Json:
        """Return the attributes of a reply: the requested settings and the usage."""
        about: Json = dict(self._chat)
        fed = sampled = computed = 0
        for leaf in phases:
            phase = leaf.event
            assert isinstance(phase, PhaseEvent)
            if phase.phase == "prefill":
                fed += phase.input_tokens
                computed += phase.computed_tokens
                continue
            sampled += phase.tokens
            about["gen_ai.request.max_tokens"] = phase.max_tokens
            for name in ("temperature", "top_k", "top_p", "seed"):
                about[f"gen_ai.request.{name}"] = (phase.sampling or {}).get(name)
            if phase.ttft_s is not None:
                about["gen_ai.response.time_to_first_chunk"] = phase.ttft_s
            if phase.token_ids:
                about["gen_ai.response.finish_reasons"] = [_finish_reason(phase)]
        about["gen_ai.usage.input_tokens"] = fed
        about["gen_ai.usage.output_tokens"] = sampled
        about["gen_ai.usage.cache_read.input_tokens"] = fed - computed
        return about

    def _tool(self, key: str, parent: str, leaf: Leaf, tool: ToolEvent) -> Json:
        about: Json = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": tool.call_id,
            "triplepoint.tool.effect": tool.effect,
            "triplepoint.tool.decision": tool.decision,
            "triplepoint.tool.result_sha256": tool.result_sha256,
            "triplepoint.tool.result_characters": len(tool.result),
        }
        if self._content:
            about["gen_ai.tool.call.arguments"] = json.dumps(tool.arguments, default=str)
            about["gen_ai.tool.call.result"] = tool.result
        if tool.error is not None:
            about["error.type"] = "tool_error"
        span = self._span(f"execute_tool {tool.name}", key, parent, leaf, about)
        if tool.error is not None:
            span["status"] = {"code": ERROR, "message": tool.error if self._content else ""}
        return span

    def _span(self, name: str, key: str, parent: str, when: Span, about: Json) -> Json:
        span: Json = {
            "traceId": self._trace_id,
            "spanId": _digest(f"{self._run.run}/{key}", 16),
            "name": _sendable(name),
            "kind": INTERNAL,
            "startTimeUnixNano": str(when.start),
            "endTimeUnixNano": str(when.end),
            "attributes": attributes(about),
        }
        if parent:
            span["parentSpanId"] = _digest(f"{self._run.run}/{parent}", 16)
        return span


class ServedSpans(Spans):
    """Builder of the OTLP spans of a request that a server has answered:

    chat MODEL                        the request, from its arrival to its end
      triplepoint.phase prefill       … as above

    Args:
        parent: trace and span of the client, in hex, that the request is part of.
        about: further attributes of the request.
    """

    def __init__(
        self, run: RunSpan, content: bool, parent: tuple[str, str] | None, about: Json
    ) -> None:
        super().__init__(run, content)
        self._parent, self._about = parent, about
        if parent is not None:
            self._trace_id = parent[0]

    def _turn(self, key: str, turn: TurnSpan) -> Iterator[Json]:
        about = self._usage([leaf for leaf in turn.leaves if isinstance(leaf.event, PhaseEvent)])
        about |= self._about
        if self._content:
            about["gen_ai.input.messages"] = _message("user", turn.question)
            if turn.close is not None:
                reasons = about.get("gen_ai.response.finish_reasons") or ["stop"]
                answer = _message("assistant", turn.close.answer, reasons[-1])
                about["gen_ai.output.messages"] = answer
        if turn.close is None:
            about.setdefault("error.type", _failure(turn))
        span = self._span(f"chat {self._model}", key, "", turn, about)
        span["kind"] = SERVER
        if self._parent is not None:
            span["parentSpanId"] = self._parent[1]
        if turn.close is None:
            self._fail(span, turn)
        yield span
        for number, leaf in enumerate(turn.leaves):
            assert isinstance(leaf.event, PhaseEvent), "a request's tools run elsewhere"
            yield from self._phase(f"{key}.{number}", key, leaf, leaf.event)


def _settings(header: RunStart) -> Json:
    """Return the system instructions and tools as attributes."""
    about: Json = {}
    if header.tools:
        about["gen_ai.tool.definitions"] = json.dumps(header.tools, default=str)
    if isinstance(system := header.config.get("system"), str) and system:
        parts = [{"type": "text", "content": system}]
        about["gen_ai.system_instructions"] = json.dumps(parts)
    return about


def _failure(turn: TurnSpan) -> str:
    """Return how an unanswered question ended."""
    return turn.outcome.status if turn.outcome else "unfinished"


_PHASE = (
    *("regime", "predicted_regime", "purpose", "tokens", "cached_tokens", "kv_before", "kv_after"),
    *("wall_s", "flops", "bytes", "mfu", "mbu", "dispatch_share", "limit_share", "threads", "plan"),
    *("memory_level", "experts", "passes", "source", "tokens_per_s", "contended", "shared"),
)
_PASS = (
    *("number", "sequences", "rows", "kv", "own", "why", "plan", "threads", "predicted"),
    *("observed", "predicted_wall_s", "wall_s", "flops", "bytes"),
    *("share_s", "share_flops", "share_bytes"),
)


def _fields(kind: str, event: PhaseEvent | PassEvent, names: Sequence[str]) -> Json:
    """Return fields of an event as attributes; those of a record each by itself."""
    about: Json = {}
    for name in names:
        value = getattr(event, name)
        about |= (
            {f"triplepoint.{kind}.{name}.{inner}": one for inner, one in value.model_dump().items()}
            if isinstance(value, Record)
            else {f"triplepoint.{kind}.{name}": value}
        )
    return about


def _finish_reason(phase: PhaseEvent) -> str:
    """Return why a decode ended; before its limit, it met a stop token or stop text."""
    limit = phase.max_tokens
    if phase.token_ids[-1] not in phase.stop and limit is not None and phase.tokens >= limit:
        return "length"
    return "tool_calls" if phase.purpose == "tool_call" else "stop"


def _message(role: str, text: str, finish: str = "") -> str:
    """Return a list of one message, in the conventions' form, as JSON text."""
    message: Json = {"role": role, "parts": [{"type": "text", "content": text}]}
    return json.dumps([message | ({"finish_reason": finish} if finish else {})])


def attributes(values: Json) -> list[Json]:
    """Convert names and values to OTLP attributes; None and NaN are left out."""
    return [
        {"key": name, "value": found}
        for name, value in values.items()
        if (found := any_value(value)) is not None
    ]


def any_value(value: Any) -> Json | None:
    """Convert a value to OTLP; a 64-bit integer becomes text, as in protobuf's JSON mapping."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)} if -(1 << 63) <= value < 1 << 63 else None
    if isinstance(value, float):
        return {"doubleValue": value} if math.isfinite(value) else None
    if isinstance(value, str):
        return {"stringValue": _sendable(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [v for item in value if (v := any_value(item))]}}
    return None


def _sendable(text: str) -> str:
    """Escape lone surrogates, which protobuf's UTF-8 strings lack."""
    return text.encode("utf-8", "backslashreplace").decode()


def _digest(text: str, digits: int) -> str:
    """Derive a hex identifier from a text; never all zeros."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
