"""Traces of requests: each is a run with one question, and replay can verify it.

Its phases hold every prefilled and decoded token, and the constraints of the decode; so a replay in
another process must yield the same tokens. Further answers to one request (`n`) begin with a
phase that takes the prompt over.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....arguments import user_folder
from ....errors import TraceError
from ....traces import retention
from ....traces.events import (
    AnyEvent,
    MessageEvent,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    TurnEnd,
)
from ....traces.writer import TraceWriter, new_run_id
from ...agent.history import History
from ...agent.run_metadata import start_on
from ...conversation.requirement import Requirement
from ...engine.regime_map import regime_map
from ...files import make_folder
from ..http.request_ids import in_config
from ..models.events import Answered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..http.api_error import APIError
    from ..models.loaded_model import LoadedModel
    from .request_record import RequestRecord

log = logging.getLogger("triplepoint.serve")

REFUSED_BYTES = 1 << 20  # of a body that was refused
LOOKS = 20  # at the folder, while as much is written as it may hold


class RequestTraces:
    """A writer of request traces; safe to use from several threads.

    Args:
        which: ``off``, ``errors`` or ``all``.
        folder: of the traces; None: in the user's state folder.
        max_bytes: limit of all traces there; the oldest are deleted first.
    """

    def __init__(self, which: str, folder: Path | None, max_bytes: int) -> None:
        if folder is None:
            folder = user_folder("state") / "served"
        self.which, self.folder, self._max_bytes = which, folder, max_bytes
        self._lock = threading.Lock()
        self._written = max_bytes  # so that the first one looks

    def keep(self, record: RequestRecord, model: LoadedModel) -> None:
        """Write the trace of a request that has ended, if `which` includes it.

        A trace that cannot be written is only logged.
        """
        if record.request is not None and record.request.by is not None:
            return  # it writes its own
        failed = record.error is not None
        if not (self.which == "all" or (self.which == "errors" and failed)):
            return
        if not record.phases and (record.error is None or record.error.status < 500):
            return  # refused, or gone before anything was computed
        self._write(record.id, events_of(record, model))

    def refused(self, path: str, body: bytes, error: APIError, request_id: str = "") -> None:
        """Write the trace of a request that was refused as invalid: its body, and the error."""
        if self.which == "off" or not body:
            return
        refusal = {"path": path, "status": error.status, "param": error.param, "code": error.code}
        config: dict[str, Any] = {"refused": refusal, **in_config(request_id)}
        text = body[:REFUSED_BYTES].decode("utf-8", "replace")
        events = [
            RunStart(task="", model=ModelRecord(name=""), config=config),
            MessageEvent(role="user", content=text, turn=1),
            RunEnd(status="error", message=error.message),
        ]
        self._write(new_run_id(), events)

    def _write(self, run: str, events: Iterable[AnyEvent]) -> None:
        path = self.folder / f"{run}.jsonl"
        try:
            with contextlib.suppress(OSError):  # the file that is then not there says it
                make_folder(self.folder)
            with TraceWriter(path, run=run) as writer:
                for event in events:
                    writer.write(event)
            self.make_room(path)
        except (TraceError, OSError) as error:
            log.warning("a request's trace could not be written: %s", error)

    def make_room(self, path: Path) -> None:
        """Delete the oldest traces from time to time; `path` is the trace just written."""
        with self._lock:
            self._written += path.stat().st_size
            if self._written * LOOKS < self._max_bytes:
                return
            self._written = 0
        retention.enforce(self.folder, self._max_bytes)


def events_of(record: RequestRecord, model: LoadedModel) -> Iterator[AnyEvent]:
    """Yield the trace events of a request that has ended."""
    answer = record.answers.get(0, Answered())
    text, thinking = "".join(answer.text), "".join(answer.thinking)
    yield _header(record, model)
    yield from _messages(record, model)
    yield from _phases(record)
    calls = "".join(f"\n{call.name}({call.arguments})" for call in answer.calls)
    yield MessageEvent(role="assistant", content=text + calls, thinking=thinking, turn=1, step=1)
    totals: dict[str, Any] = {"output_tokens": record.tokens}
    turn = TurnEnd(turn=1, answer=text, output_tokens=record.tokens)
    if record.read is not None:
        turn.input_tokens, turn.cached_tokens = record.read.tokens, record.read.cached
        totals |= {"input_tokens": turn.input_tokens, "cached_tokens": turn.cached_tokens}
    if record.first is not None:
        turn.ttft_s = record.first - record.arrived
    if record.error is None and not record.cancelled:
        yield turn
        totals["finish_reasons"] = [one.reason for one in record.done]
    yield RunEnd(
        status="error" if record.error else "cancelled" if record.cancelled else "answered",
        message=record.error.message if record.error else "",
        answer=text,
        totals=totals,
        wall_s=sum(one.event.wall_s for one in record.phases),
    )


def _messages(record: RequestRecord, model: LoadedModel) -> Iterator[AnyEvent]:
    """Yield the history before the last question, and the messages from it on."""
    assert record.request is not None, "it was prepared before it ran"
    prompt = record.request.prompt
    if prompt.conversation is None:
        text = model.engine.tokenizer.decode(prompt.ids, special=True)
        yield MessageEvent(role="user", content=text, turn=1, step=1, ts=record.at)
        return
    messages = list(prompt.conversation.messages)
    last = max((n for n, one in enumerate(messages) if one.role == "user"), default=0)
    if all(one.role == "system" for one in messages[:last]):
        last = 0
    else:
        history = History(messages=messages[:last]).event()
        history.ts = record.at
        yield history
    for message in messages[last:]:
        yield MessageEvent(
            role=message.role,
            content=message.content or message.text or "",
            thinking=message.thinking,
            turn=1,
            step=1,
            ts=record.at,
        )


def _header(record: RequestRecord, model: LoadedModel) -> RunStart:
    """Return the trace header: the engine, the settings, and the contents that recipes name."""
    request, engine = record.request, model.engine
    assert request is not None, "it was prepared before it ran"
    required = request.prompt.required or Requirement()
    with contextlib.closing(engine.session()) as session:
        known = regime_map(session)
    conversation = request.prompt.conversation
    return start_on(
        engine,
        ts=record.at,
        task=next((m.content for m in reversed(conversation.messages) if m.role == "user"), "")
        if conversation is not None
        else "",
        tools=list(required.tools),
        config={
            "served_as": model.name,
            **in_config(record.request_id),
            "context": record.context or engine.context,
            "max_tokens": request.turn.limits.max_tokens,
            "stop": list(request.turn.stops),
            "n": request.choices,
            "queue_s": (record.started or record.arrived) - record.arrived,
            **record.speculative,
            "output": required.output,
        },
        regime_map=known,
    )


def _phases(record: RequestRecord) -> Iterator[AnyEvent]:
    request = record.request
    assert request is not None, "it was prepared before it ran"
    prompt = request.prompt.ids
    for one in sorted(record.phases, key=lambda one: one.choice):
        event, step = one.event, one.choice + 1
        if one.choice:
            yield PhaseEvent(
                turn=1,
                step=step,
                phase="prefill",
                purpose="fork",
                predicted=event.predicted,
                observed=event.observed,
                tokens=0,
                kv_before=len(prompt),
                kv_after=len(prompt),
                cached_tokens=len(prompt),
                wall_s=0.0,
                token_ids=prompt,
                ts=one.ended - event.wall_s,
            )
        for shared in one.passes():
            shared.turn, shared.step = 1, step
            yield shared
        event.turn, event.step, event.ts = 1, step, one.ended
        if event.phase == "decode" and not one.choice and record.first is not None:
            event.ttft_s = record.first - record.arrived
        yield event
