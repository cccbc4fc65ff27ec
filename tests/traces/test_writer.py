"""Writing traces: one line a record, nothing raw in it, nothing lost."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from triplepoint.errors import TraceError
from triplepoint.traces import Trace, TraceWriter, timeline
from triplepoint.traces.events import (
    AnyEvent,
    MessageEvent,
    PhaseEvent,
    RunStart,
    SealedEvent,
    ToolEvent,
)
from triplepoint.traces.writer import Stamp, new_run_id, to_ascii, to_json_line

HOSTILE = [
    "a\nb",
    "a\r\nb\r",
    "\x1b[2J\x1b[31mred",
    "\x1b]52;c;ZXZpbA==\x07",
    "\x9b2J\x9d52;c;eA==\x9c",
    "line\u2028paragraph\u2029next\x85",
    "lone \ud800 and \udfff",
    "\x00\x08\x7f",
    "\u202eright to left\u2066",
    '"},\n{"v":2,"event":"run_end","status":"answered"}',
    "\U000e0041\ufeff",
    "Zeit: 5 µs, 温度, 🌡",
]


def hostile_copies(event: AnyEvent, text: str) -> list[AnyEvent]:
    """The event with the text in each place that holds text, one place at a time."""
    copies = []
    no_key = "\ud800" in text  # pydantic takes no lone surrogate in the name of a field

    def walk(value: Any, put: Callable[[Any], dict[str, Any]]) -> None:
        if isinstance(value, str):
            copies.append(put(text))
        elif isinstance(value, dict):
            for key, item in value.items():
                walk(item, lambda new, key=key: put({**value, key: new}))
            if not (no_key and value in (body.get("model"), body.get("machine"))):
                copies.append(put({**value, text: "1"}))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                walk(item, lambda new, i=i: put([*value[:i], new, *value[i + 1 :]]))

    fixed = {"v", "seq", "ts", "run", "event", "phase", "predicted", "observed", "status", "regime"}
    body = event.model_dump()
    types = {field.name: field.type for field in dataclasses.fields(event)}
    for name, value in body.items():
        if value is None and types.get(name) == "str | None":
            value = ""
        if name not in {*fixed, *event.COMPUTED}:
            walk(value, lambda new, name=name: {**body, name: new})
    if not no_key:
        copies.append({**body, text: text})
    return [type(event).model_validate(copy) for copy in copies]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_stays_inside_its_line(
    tmp_path: Path, run_events: list[AnyEvent], text: str
) -> None:
    """In any field, hostile text is one line in the file, comes back the same, and is never raw."""
    events = [copy for event in run_events for copy in hostile_copies(event, text)]
    assert len(events) > 40
    with Trace.to_file(tmp_path / "t.jsonl", run=text) as trace:
        for event in events:
            trace.write(event)

    data = (tmp_path / "t.jsonl").read_bytes()
    assert data.count(b"\n") == len(events)
    assert not {byte for byte in data if byte != 0x0A and not 0x20 <= byte < 0x7F}
    again = Trace.load(tmp_path / "t.jsonl")
    assert again.events == events
    assert again.events[0].run == text

    for shown in (timeline.plain(again), terminal(again)):
        assert shown.count("\n") < len(events) * 2
        assert not {c for c in shown if c in "\r\x1b\x07\x00\x08\x7f\u2028\u2029\u202e\ufeff"}
        assert not {c for c in shown if "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff"}
        shown.encode()


def terminal(trace: Trace) -> str:
    """What rich writes for the timeline, without its own colors."""
    from rich.console import Console

    console = Console(width=200, no_color=True, highlight=False, force_terminal=False)
    with console.capture() as capture:
        console.print(timeline.rich(trace))
    return capture.get()


def test_events_are_stamped(tmp_path: Path) -> None:
    """Write fills in seq, ts and run; a time that is set already stays."""
    with TraceWriter(tmp_path / "t.jsonl", run="r1") as writer:
        first = writer.write(MessageEvent(role="user", content="a"))
        second = writer.write(MessageEvent(role="user", content="b", ts=12.5))

    assert (first.seq, first.run, second.seq) == (0, "r1", 1)
    assert first.ts > 1e9
    assert second.ts == 12.5
    line = (tmp_path / "t.jsonl").read_text().splitlines()[1]
    assert line.startswith('{"v":2,"seq":1,"ts":12.5,"run":"r1","event":"message",')


def test_what_json_lacks_is_written_as_text(tmp_path: Path) -> None:
    """NaN, paths, bytes, sets and odd keys make a valid line; NaN in a number field comes back."""
    config = {"p": Path("x"), "b": b"\xff", "s": {2, 1}, (1, 2): math.inf, "n": [math.nan]}
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        event = RunStart.model_validate({"model": {"name": "m"}})
        event.config = config  # type: ignore[assignment]
        writer.write(event)
        writer.write(ToolEvent(name="t", duration_s=math.nan))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = (tmp_path / "t.jsonl").read_text()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert lines[0]["config"] == {
        "p": "x",
        "b": "\\xff",
        "s": [1, 2],
        "(1, 2)": "inf",
        "n": ["nan"],
    }
    tool = Trace.load(tmp_path / "t.jsonl").tools[0]
    assert math.isnan(tool.duration_s)


def test_a_bottomless_event_is_an_error_and_no_line(tmp_path: Path) -> None:
    """An event nested beyond reason is refused; the trace goes on."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    event = ToolEvent(name="t")
    event.arguments = {"x": deep}
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        with pytest.raises((TraceError, ValueError)):
            writer.write(event)
        writer.write(ToolEvent(name="u"))

    assert [tool.name for tool in Trace.load(tmp_path / "t.jsonl").tools] == ["u"]


def test_runs_are_appended(tmp_path: Path) -> None:
    """Opening a trace again adds to it; a run's numbers start anew."""
    for name in ("a", "b"):
        with TraceWriter(tmp_path / "t.jsonl") as writer:
            writer.write(ToolEvent(name=name))

    events = Trace.load(tmp_path / "t.jsonl").tools
    assert [(e.name, e.seq) for e in events] == [("a", 0), ("b", 0)]
    assert events[0].run != events[1].run


@pytest.mark.parametrize(
    ("tail", "sealed"),
    [(b'{"v":2,"seq":3,"ev', 18), (b'{"v":2,"torn":[{"a":1}\n', 22), (b"", None)],
)
def test_a_torn_tail_is_sealed_on_opening(tmp_path: Path, tail: bytes, sealed: int | None) -> None:
    """A writer that opens a file with an unfinished last line marks it; what follows is intact."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="before", result="x" * 200_000))
    path.write_bytes(path.read_bytes() + tail)

    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="after"))

    trace = Trace.load(path)
    assert [tool.name for tool in trace.tools] == ["before", "after"]
    assert [e.torn_bytes for e in trace.events if isinstance(e, SealedEvent)] == (
        [sealed] if sealed else []
    )


def test_a_long_torn_tail_is_not_copied_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for in steps that double: their number hardly grows with its length."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="before"))
    path.write_bytes(path.read_bytes() + b'{"v":2,"a":"' + b"x" * (8 << 20))
    sizes: list[int] = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        sizes.append(size)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", counted)
    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="after"))
    monkeypatch.undo()

    assert len(sizes) < 20
    trace = Trace.load(path)
    assert [tool.name for tool in trace.tools] == ["before", "after"]
    sealed = [e.torn_bytes for e in trace.events if isinstance(e, SealedEvent)]
    assert sealed == [(8 << 20) + len('{"v":2,"a":"')]


def test_a_missing_newline_is_added(tmp_path: Path) -> None:
    """A whole last line without its newline is not torn: it only gets the newline."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"v":2,"event":"tool","name":"before"}')

    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="after"))

    assert [tool.name for tool in Trace.load(path).tools] == ["before", "after"]
    assert len(path.read_text().splitlines()) == 2


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """A slip of the user does not append a trace to a log, a folder or a FIFO."""
    log = tmp_path / "app.log"
    log.write_text("ERROR disk full\n")
    with pytest.raises(TraceError, match="is not a trace"):
        TraceWriter(log)
    assert log.read_text() == "ERROR disk full\n"

    with pytest.raises(TraceError, match="cannot write"):
        TraceWriter(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="not a regular file"):
        TraceWriter(tmp_path / "pipe")
    with pytest.raises(TraceError, match="cannot write"):
        TraceWriter(log / "sub" / "t.jsonl")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """A second writer is refused while the first has the file, and welcome after it."""
    with TraceWriter(tmp_path / "t.jsonl"), pytest.raises(TraceError, match="another run"):
        TraceWriter(tmp_path / "t.jsonl")

    TraceWriter(tmp_path / "t.jsonl").close()


def test_no_folder_is_made_for_it(tmp_path: Path) -> None:
    """A slip in a path is told, and leaves no folders behind."""
    with pytest.raises(TraceError, match=r"the folder .*x does not exist; create it first"):
        TraceWriter(tmp_path / "nope" / "x" / "y.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    """Writing after close is an error, closing twice is none."""
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.close()
    writer.close()

    with pytest.raises(TraceError, match="closed"):
        writer.write(ToolEvent(name="t"))


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A trace holds what was in the files: nobody else may read it."""
    with TraceWriter(tmp_path / "t.jsonl"):
        assert (tmp_path / "t.jsonl").stat().st_mode & 0o077 == 0


def test_threads_share_a_writer(tmp_path: Path) -> None:
    """Lines of several threads do not mix, and each has its own number."""
    with TraceWriter(tmp_path / "t.jsonl") as writer:

        def work() -> None:
            for _ in range(50):
                writer.write(ToolEvent(name="t", result="x" * 5000))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [e.seq for e in Trace.load(tmp_path / "t.jsonl").events] == list(range(200))


def test_run_identifiers_sort_by_time() -> None:
    """Later identifiers are greater, and two of the same millisecond differ."""
    times = [1e9, 1e9 + 0.001, 1e9 + 0.999, 1e9 + 61, 2e9]

    names = [new_run_id(t) for t in times]

    assert names == sorted(names)
    assert len({new_run_id(1e9) for _ in range(20)}) == 20


def test_long_phases_are_one_line(tmp_path: Path) -> None:
    """The ids of a long prefill fit on their line."""
    ids = list(range(100_000))
    phase = {"phase": "prefill", "predicted": "compute", "observed": "compute", "wall_s": 1}
    phase |= {"tokens": len(ids), "kv_before": 0, "kv_after": len(ids), "token_ids": ids}
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        writer.write(PhaseEvent.model_validate(phase))

    assert Trace.load(tmp_path / "t.jsonl").phases[0].token_ids == ids


def test_what_is_not_ascii_is_an_escape(tmp_path: Path) -> None:
    """Letters, signs beyond 16 bits, DEL and line separators: ASCII in the file, the same back."""
    text = 'größer → 𝄞 \x7f \u2028 \x9b2J \x1b[31m \\u00e9 "quoted"'
    with TraceWriter(tmp_path / "t.jsonl") as writer:
        writer.write(ToolEvent(name="t", arguments={text: [text]}, result=text))

    data = (tmp_path / "t.jsonl").read_bytes()
    assert set(data) - {0x0A} <= set(range(0x20, 0x7F))
    tool = Trace.load(tmp_path / "t.jsonl").tools[0]
    assert (tool.result, tool.arguments) == (text, {text: [text]})


def test_the_processors_work_in_structlog() -> None:
    """A pipeline of structlog's makes the same line with them as the writer does."""
    processors: list[Any] = [Stamp("r"), to_json_line, to_ascii]
    logger = structlog.wrap_logger(structlog.ReturnLogger(), processors=processors)

    line = logger.info("tool", ts=1.5, name="é")

    assert line == '{"v":2,"seq":0,"ts":1.5,"run":"r","event":"tool","name":"\\u00e9"}'
