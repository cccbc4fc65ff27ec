"""Exports a trace as Chrome trace event JSON, for https://ui.perfetto.dev and chrome://tracing.

One process for each run, with the run, turns, steps, phases, shared passes, layers and tool calls
as complete slices (``ph`` X) on one track, each inside its parent, and counters (``ph`` C) for
tokens per second, bytes per second and the length of the KV cache. Times are microseconds from the
beginning of the first run.

A layer's slice is the sum of its time over all passes of the phase, so the layers of a phase
are one after the other at its beginning and do not show when each of them ran.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from .events import HEAD, PhaseEvent
from .reader import Trace
from .sanitize import converted, short
from .spans import Leaf, RunSpan, Span, nanoseconds, of_runs
from .timeline import call_text

Json = dict[str, Any]

_TRACK = 1
_LONGEST_NAME = 120
_LONGEST_ARGUMENT = 2000


def document(traces: Iterable[Trace]) -> Json:
    """Convert traces to a JSON document in Chrome's trace event format."""
    runs = [run for trace in traces for run in of_runs(trace)]
    zero = min((run.start for run in runs), default=0)
    events = [event for pid, run in enumerate(runs, 1) for event in _run(pid, run, zero)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"producer": "triplepoint"},
    }


def _run(pid: int, run: RunSpan, zero: int) -> Iterator[Json]:
    header = run.header
    model = header.model.name if header else "unknown model"
    yield _meta(pid, "process_name", name=short(f"{model}, run {run.run}", _LONGEST_NAME))
    yield _meta(pid, "process_sort_index", sort_index=pid)
    yield _meta(pid, "thread_name", name="agent")
    about: Json = {"run": run.run}
    if header is not None:
        about |= {
            **{"target": header.target, "threads": header.threads, "kv": header.kv},
            **{"cpu": header.machine.cpu, "redacted": header.redacted},
        }
    slices = Slices(pid, zero)
    yield slices.add("run", f"run {run.run}", run, about)
    for turn in run.turns:
        name = f"turn {turn.number}: {turn.question}" if turn.question else f"turn {turn.number}"
        yield slices.add("turn", name, turn, {"question": turn.question})
        for step in turn.steps:
            yield slices.add("step", f"step {step.number}", step, {"step": step.number})
            for leaf in step.leaves:
                yield from _leaf(slices, leaf)


def _leaf(slices: Slices, leaf: Leaf) -> Iterator[Json]:
    event = leaf.event
    if not isinstance(event, PhaseEvent):
        about = event.model_dump(include={"arguments", "error", "effect", "decision", "call_id"})
        about["result_characters"] = len(event.result)
        yield slices.add("tool", call_text(event.name, event.arguments), leaf, about)
        return
    about = event.model_dump(exclude={*HEAD, "token_ids", "layers", "stop"})
    yield slices.add("phase", f"{event.purpose}: {event.regime}", leaf, about)
    for one in leaf.passes:
        who = f"{len(one.event.sequences)} sequences, {sum(one.event.rows)} rows"
        shared = one.event.model_dump(exclude={*HEAD})
        yield slices.add("pass", who, one, shared)
    at = leaf.start
    for layer in event.layers if not leaf.passes else ():  # either would hide the other
        part = Span(start=at, end=min(at + nanoseconds(layer.wall_s), leaf.end))
        name = "outside the layers" if layer.layer is None else f"layer {layer.layer}"
        yield slices.add("layer", name, part, layer.model_dump())
        at = part.end
    wall = event.wall_s
    gigabytes = event.bytes / wall / 1e9 if wall > 0 else 0.0
    yield from slices.count("tokens per second", leaf, event.tokens_per_s)
    yield from slices.count("GB per second", leaf, gigabytes)
    yield slices.counter("KV length", leaf.end, event.kv_after)


def _meta(pid: int, kind: str, **args: Any) -> Json:
    return {"ph": "M", "pid": pid, "tid": _TRACK, "name": kind, "args": args}


class Slices:
    """Builder of the trace events of one process, which is one run."""

    def __init__(self, pid: int, zero: int) -> None:
        self._pid = pid
        self._zero = zero

    def add(self, kind: str, name: str, when: Span, args: Json) -> Json:
        """Return the event of a complete slice (``ph`` X)."""
        return {
            "ph": "X",
            "pid": self._pid,
            "tid": _TRACK,
            "cat": kind,
            "name": short(name, _LONGEST_NAME),
            "ts": self._micros(when.start - self._zero),
            "dur": self._micros(when.end - when.start),
            "args": converted(args, _argument, _key),
        }

    def count(self, name: str, leaf: Leaf, value: float) -> Iterator[Json]:
        """Yield a counter that has a value during a leaf, and 0 after it."""
        yield self.counter(name, leaf.start, value)
        yield self.counter(name, leaf.end, 0.0)

    def counter(self, name: str, at: int, value: float) -> Json:
        """Return a counter event with a new value."""
        number = value if math.isfinite(value) else 0.0
        return {
            "ph": "C",
            "pid": self._pid,
            "name": name,
            "ts": self._micros(at - self._zero),
            "args": {"value": number},
        }

    @staticmethod
    def _micros(ns: int) -> float:
        return ns / 1000  # exact to the nanosecond for 52 days


def _argument(value: Any) -> Any:
    """Convert a value to one that the format can hold and the viewer can show."""
    if isinstance(value, str):
        return short(value, _LONGEST_ARGUMENT)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _key(name: object) -> str:
    return short(str(name), _LONGEST_NAME)
