"""Reading traces back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from triplepoint.errors import TraceError
from triplepoint.traces import Trace
from triplepoint.traces.events import (
    AnyEvent,
    MessageEvent,
    PhaseEvent,
    RunStart,
    SealedEvent,
    UnknownEvent,
)

PATH = "run.jsonl"


@pytest.fixture
def file(tmp_path: Path, run_events: list[AnyEvent]) -> Path:
    """A trace file of one run."""
    with Trace.to_file(tmp_path / PATH) as trace:
        for event in run_events:
            trace.write(event)
    return tmp_path / PATH


def test_a_file_reads_back_as_written(file: Path, run_events: list[AnyEvent]) -> None:
    """Load gives the events that were written, stamped, and the views on them."""
    trace = Trace.load(file)

    assert trace.events == run_events
    assert [event.seq for event in trace.events] == list(range(len(run_events)))
    assert trace.torn is None
    assert trace.path == file
    assert trace.header is not None
    assert trace.header.model.name == "nano"
    assert trace.end is not None
    assert trace.end.status == "answered"
    assert trace.answer == "disk full"
    assert [phase.purpose for phase in trace.phases] == [
        "prompt",
        "tool_call",
        "tool_result",
        "answer",
    ]
    assert [(a.purpose, b.purpose) for a, b in trace.transitions] == [
        ("prompt", "tool_call"),
        ("tool_call", "tool_result"),
        ("tool_result", "answer"),
    ]
    (turn,) = trace.turns
    assert (turn.question, turn.answer) == ("What's the error in app.log?", "disk full")
    assert (len(turn.phases), len(turn.tools)) == (4, 1)


def test_a_trace_in_memory_numbers_its_events(run_events: list[AnyEvent]) -> None:
    """Without a file the events are numbered too: the timeline is in their order."""
    trace = Trace()
    assert trace.run == ""
    for event in run_events:
        trace.write(event)

    assert trace.run == run_events[0].run
    assert [event.seq for event in trace.events] == list(range(len(run_events)))


def test_several_runs_in_a_file_are_told_apart(file: Path, run_events: list[AnyEvent]) -> None:
    """A second run appended to the file is a run of its own, also when turn numbers repeat."""
    with Trace.to_file(file) as second:
        for event in run_events[:3]:
            second.write(event)

    trace = Trace.load(file)

    assert [len(run.events) for run in trace.runs] == [len(run_events), 3]
    assert len(trace.turns) == 2
    assert trace.end is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_tail_is_reported(file: Path, run_events: list[AnyEvent], cut: int) -> None:
    """A last line that was cut anywhere is left out and reported; the rest reads."""
    data = file.read_bytes()
    file.write_bytes(data[: -cut - 1])

    trace = Trace.load(file)

    assert trace.events == run_events[:-1]
    assert trace.torn is not None
    assert data.splitlines()[-1].startswith(trace.torn.encode())


def test_only_the_newline_missing_is_not_torn(file: Path, run_events: list[AnyEvent]) -> None:
    """A whole object without its newline is a whole event."""
    file.write_bytes(file.read_bytes()[:-1])

    trace = Trace.load(file)

    assert trace.events == run_events
    assert trace.torn is None


def test_a_tail_split_inside_a_character_is_reported(file: Path) -> None:
    """Another writer may use raw UTF-8: half a character at the end does not stop the reading."""
    with file.open("ab") as out:
        out.write('{"v":2,"event":"message","content":"é'.encode()[:-1])

    torn = Trace.load(file).torn

    assert torn is not None
    assert torn.endswith("\\xc3")


def test_unknown_events_and_fields_are_kept(file: Path) -> None:
    """A newer writer's events and fields come through a load and a second write unchanged."""
    newer = [
        {"v": 2, "seq": 9, "ts": 1.5, "run": "r", "event": "approval", "self": 1, "who": ["me"]},
        {"v": 2, "event": "message", "role": "user", "content": "hi", "event_dict": {"a": None}},
        {"v": 3, "event": "phase", "phase": "draft_tokens", "name": "x"},
    ]
    odd = [
        {"v": 9, "event": "message", "self": 1},
        {"v": 2, "event": "message", "role": "user", "content": "hi", "_extra": 5},
    ]
    with file.open("a") as out:
        out.writelines(json.dumps(event) + "\n" for event in [*odd, *newer])

    strange, extra, unknown, message, later = Trace.load(file).events[-5:]
    assert strange.model_dump()["self"] == 1
    assert extra.model_dump()["_extra"] == 5

    assert isinstance(unknown, UnknownEvent)
    assert unknown.model_dump() == newer[0]
    assert isinstance(message, MessageEvent)
    assert message.model_extra == {"event_dict": {"a": None}}
    assert isinstance(later, UnknownEvent)
    assert later.event == "phase"

    copy = file.with_name("copy.jsonl")
    with Trace.to_file(copy) as trace:
        trace.write(RunStart.model_validate({"model": {"name": "m", "license": "MIT"}}))
        for event in (unknown, message, later):
            trace.write(event)
    again = Trace.load(copy)
    assert again.header is not None
    assert again.header.model.model_extra == {"license": "MIT"}
    assert again.events[1].model_extra == {"self": 1, "who": ["me"]}
    assert again.events[2].model_extra == {"event_dict": {"a": None}}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense", "line 3: not JSON: nonsense"),
        (b"\xff\xfe\x1b[2J", r"line 3: not JSON: \\xff\\xfe\\x1b\[2J"),
        (b"[" * 100_000, "line 3: not JSON"),
        (b"[1, 2]", "line 3: not a trace event"),
        (b'{"v": 1}', "line 3: not a trace event"),
        (b'{"event": "phase", "phase": "decode"}', "line 3: event 'phase', field 'predicted'"),
        (
            b'{"event": "message", "role": 3, "content": ""}',
            "'message', field 'role'",
        ),
    ],
)
def test_a_bad_line_is_named(file: Path, line: bytes, message: str) -> None:
    """A line in the middle that is no event is an error that says which and why."""
    lines = file.read_bytes().splitlines()
    file.write_bytes(b"\n".join([*lines[:2], line, *lines[2:], b""]))

    with pytest.raises(TraceError, match=message):
        Trace.load(file)


def test_a_sealed_torn_line_is_forgiven(file: Path, run_events: list[AnyEvent]) -> None:
    """Torn lines before a `sealed` event are left out; elsewhere they are an error."""
    lines = file.read_bytes().splitlines()
    sealed = b'{"v":2,"event":"sealed","torn_bytes":5}'
    file.write_bytes(b"\n".join([*lines[:2], b'{"v":', b'{"v":2,"even', sealed, *lines[2:], b""]))

    trace = Trace.load(file)

    assert len(trace.events) == len(run_events) + 1
    assert isinstance(trace.events[2], SealedEvent)
    assert trace.torn is None


def test_what_is_no_trace_says_so(tmp_path: Path) -> None:
    """A missing file, a folder and a file of something else are clear errors."""
    with pytest.raises(TraceError, match="does not exist"):
        Trace.load(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="not a regular file"):
        Trace.load(tmp_path)
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\x00\x00\x00" * 100)
    with pytest.raises(TraceError, match="is not a trace"):
        Trace.load(tmp_path / "model.gguf")


def test_an_empty_file_is_an_empty_trace(tmp_path: Path) -> None:
    """A run that was killed before its first line left an empty file."""
    (tmp_path / PATH).touch()

    trace = Trace.load(tmp_path / PATH)

    assert (trace.events, trace.header, trace.end, trace.answer, trace.turns) == (
        [],
        None,
        None,
        None,
        [],
    )


def test_reading_needs_no_engine(file: Path) -> None:
    """A trace loads and its timeline renders without numpy and llvmlite."""
    code = (
        "import sys; from triplepoint.traces import PhaseEvent, Trace, TraceWriter, timeline\n"
        "print(timeline.plain(Trace.load(sys.argv[1])))\n"
        "heavy = {'numpy', 'llvmlite', 'tokenizers', 'jinja2', 'httpx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )

    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "streaming prefill" in done.stdout


def test_phases_know_their_type(file: Path) -> None:
    """`Trace.phases` gives phase events with their derived figures."""
    first = Trace.load(file).phases[0]

    assert isinstance(first, PhaseEvent)
    assert first.regime == "dispatch-bound prefill"
    assert first.tokens_per_s == pytest.approx(6000)


def test_an_older_format_is_refused_by_its_number(file: Path) -> None:
    """A trace of version 1 is not read as far as it goes: which it is, and what to do, is said."""
    old = file.with_name("old.jsonl")
    old.write_text(file.read_text().replace('{"v":2,', '{"v":1,'))

    with pytest.raises(TraceError, match=r"old\.jsonl, line 1: this trace has format 1 .*format 2"):
        Trace.load(old)
    with pytest.raises(TraceError, match="a trace of a format other than 2"):
        Trace.to_file(old)
