"""The viewer: traces as one self-contained HTML page, ``triplepoint trace view``.

Everything in a trace is foreign text. Here control characters become escapes, and the page's data
is JSON in which nothing can end its element; in the page every text is set as text, never as
markup; and a content security policy allows the page's own script and style by their hashes, and
nothing else.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from . import html_page, timeline
from .events import MessageEvent, PhaseEvent, RunStart, ToolEvent
from .phase_diagram import phase_diagram
from .reader import Trace
from .spans import Leaf, RunSpan, of_runs

Json = dict[str, Any]

_SCRIPTS = ("dom.js", "charts.js", "view.js")
_PHASE_FIELDS = (
    *("turn", "step", "phase", "purpose", "predicted", "observed", "predicted_regime", "label"),
    *("tokens", "passes", "kv_before", "kv_after", "cached_tokens", "wall_s", "flops", "bytes"),
    *("mfu", "mbu", "dispatch_share", "run_delay_share", "predicted_s", "tokens_per_s", "ttft_s"),
    *("threads", "plan", "memory_level", "experts", "constraint", "source"),
)
_TOOL_FIELDS = ("turn", "step", "name", "duration_s", "effect", "decision", "decided_by", "asked_s")


def page(traces: Iterable[Trace]) -> str:
    """Return the page for the runs of these traces, in their order."""
    pool = Texts()
    runs = [Run(span, pool) for trace in traces for span in of_runs(trace)]
    data = {"runs": [run.data() for run in runs], "texts": pool.texts}
    diagrams = "".join(run.diagram() for run in runs)
    return html_page.page(
        "triplepoint trace",
        html_page.asset("view.html"),
        f'<template id="diagrams">{diagrams}</template>',
        styles=["view.css"],
        script="\n".join(html_page.asset(name) for name in _SCRIPTS),
        data=data,
    )


class Texts:
    """The table of a page's long texts, each stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """Return the text's index in the list."""
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


class Run:
    """The viewer's data on one run: messages and calls (items), phases and calls (leaves)."""

    def __init__(self, span: RunSpan, pool: Texts) -> None:
        self._span = span
        self._pool = pool
        self._items: list[Json] = []
        self._leaves: list[Json] = []
        self._messages: defaultdict[int, list[MessageEvent]] = defaultdict(list)  # by turn
        for event in span.log.events:
            if isinstance(event, MessageEvent):
                self._messages[event.turn].append(event)

    def data(self) -> Json:
        """Return the run as JSON."""
        turns = []
        for turn in self._span.begun:
            first_leaf, first_item = len(self._leaves), len(self._items)
            self._add_turn(turn.number, list(turn.leaves))
            turns.append(
                {
                    "number": turn.number,
                    "question": self._pool.number(turn.question),
                    "start": self._ms(turn.start),
                    "end": self._ms(turn.end),
                    "answered": turn.close is not None,
                    "sources": list(turn.close.sources) if turn.close else [],
                    "unsupported": list(turn.close.unsupported) if turn.close else [],
                    "leaves": [first_leaf, len(self._leaves)],
                    "items": [first_item, len(self._items)],
                }
            )
        return {
            **self._about(),
            "turns": turns,
            "items": self._items,
            "leaves": self._leaves,
            "at": self._span.start / 1e6,
            "end": self._ms(self._span.end),
        }

    def diagram(self) -> str:
        """Return the phase diagram, with the leaf numbers of `data`."""
        return phase_diagram(self._span.log, [leaf for t in self._span.begun for leaf in t.leaves])

    def _about(self) -> Json:
        trace, header = self._span.log, self._span.header
        end = trace.end
        return {
            "run": self._span.run,
            "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._span.start / 1e9)),
            "redacted": trace.redacted,
            "status": end.status if end else "unfinished",
            "message": end.message if end else "",
            "totals": asdict(timeline.totals(trace)),
            "transitions": len(trace.transitions),
            "header": _header(header) if header else None,
        }

    def _add_turn(self, number: int, leaves: list[Leaf]) -> None:
        """Add the items of a turn in conversation order, linked with its leaves."""
        fed: dict[int, int] = {}  # step to the last item that its prefill read
        replies: dict[int, int] = {}  # step to the item that its decode wrote
        ran = [leaf for leaf in leaves if isinstance(leaf.event, ToolEvent)]  # not a client's calls
        order: list[MessageEvent | Leaf] = [*self._messages[number], *ran]
        order.sort(key=lambda part: (part if isinstance(part, MessageEvent) else part.event).seq)
        calls: dict[int, int] = {}  # id of a tool's leaf to its item
        for part in order:
            if isinstance(part, Leaf):
                if isinstance(part.event, ToolEvent):
                    calls[id(part)] = self._item("tool", part.event, "")
                    # Its result is read at the beginning of the next step.
                    fed[part.event.step + 1] = calls[id(part)]
            elif part.role == "assistant":
                replies[part.step] = self._item("assistant", part, part.content)
            elif part.role != "tool" or not ran:  # a tool's message repeats its call's result
                fed[part.step] = self._item(part.role, part, part.content)
        for leaf in leaves:
            event = leaf.event
            if isinstance(event, ToolEvent):
                item = calls[id(leaf)]
            else:
                item = (fed if event.phase == "prefill" else replies).get(event.step)
            self._leaf(leaf, item)

    def _item(self, role: str, event: MessageEvent | ToolEvent, text: str) -> int:
        item: Json = {"role": role, "turn": event.turn, "step": event.step, "leaf": None}
        if isinstance(event, ToolEvent):
            item["call"] = timeline.call_text(event.name, event.arguments)
            item["error"] = event.error
            text = event.result
        self._items.append({**item, "text": self._pool.number(text)})
        return len(self._items) - 1

    def _leaf(self, leaf: Leaf, item: int | None) -> None:
        event = leaf.event
        body: Json = {"start": self._ms(leaf.start), "end": self._ms(leaf.end), "item": item}
        if isinstance(event, PhaseEvent):
            body |= {"kind": "phase", **{name: getattr(event, name) for name in _PHASE_FIELDS}}
            body["layers"] = [layer.model_dump() for layer in event.layers]
            body["shared"] = None if event.shared is None else event.shared.model_dump()
            body["together"] = [
                [self._ms(one.start), self._ms(one.end), len(one.event.sequences)]
                for one in leaf.passes
            ]
        else:
            body |= {"kind": "tool", **{name: getattr(event, name) for name in _TOOL_FIELDS}}
            body |= {"arguments": json.dumps(event.arguments, indent=1, default=str)}
            body |= {"error": event.error, "characters": len(event.result)}
        if item is not None:
            mine = self._items[item]
            # A call's own leaf is the call; a message's the phase that read or wrote it.
            if mine["leaf"] is None or body["kind"] == "tool":
                mine["leaf"] = len(self._leaves)
        self._leaves.append(body)

    def _ms(self, ns: int) -> float:
        return (ns - self._span.start) / 1e6


def _header(header: RunStart) -> Json:
    model = header.model
    return {
        "model": model.name,
        "quant": model.quant,
        "target": header.target,
        "threads": header.threads,
        "kv": header.kv,
        "cpu": header.machine.cpu,
    }
