"""Each long text stands once in a file, and reads back everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from triplepoint.traces import Trace, TraceWriter
from triplepoint.traces.events import MessageEvent, RunEnd, ToolEvent, TurnEnd
from triplepoint.traces.text_dedup import EMPTY, MIN_CHARS

LONG = "2026-03-14 09:26:53 ERROR disk full\n" * 200


def lines(path: Path) -> list[dict[str, object]]:
    """The raw lines of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_text_is_written_once_and_read_everywhere(tmp_path: Path) -> None:
    """A result that a message repeats, a second reading and an answer cost a hash each."""
    path = tmp_path / "t.jsonl"
    events = [
        ToolEvent(name="read_file", result=LONG),
        MessageEvent(role="tool", content=LONG),
        ToolEvent(name="read_file", result=LONG),
        TurnEnd(answer=LONG),
        RunEnd(status="answered", answer=LONG),
    ]
    with Trace.to_file(path) as trace:
        for event in events:
            trace.write(event)
        assert [e.model_dump() for e in trace.events] == [e.model_dump() for e in events]

    raw = lines(path)
    assert [LONG in line.values() for line in raw] == [True, False, False, False, False]
    assert len(path.read_bytes()) < len(LONG) * 1.4
    again = Trace.load(path)
    assert again.events == events
    assert again.answer == LONG


def test_short_and_empty_texts_stay(tmp_path: Path) -> None:
    """A text that is no longer than a hash is written each time; an empty one is just empty."""
    path = tmp_path / "t.jsonl"
    texts = ["", "yes", "yes", "x" * (MIN_CHARS - 1), "x" * (MIN_CHARS - 1)]
    with TraceWriter(path) as writer:
        for text in texts:
            writer.write(MessageEvent(role="user", content=text))

    assert [line["content"] for line in lines(path)] == texts
    assert lines(path)[0]["content_sha256"] == EMPTY
    assert [e.content for e in Trace.load(path).events if isinstance(e, MessageEvent)] == texts


def test_each_run_in_a_file_stands_alone(tmp_path: Path) -> None:
    """A second run appended to a file holds its texts again: runs can be cut apart."""
    path = tmp_path / "t.jsonl"
    for _ in range(2):
        with TraceWriter(path) as writer:
            writer.write(MessageEvent(role="user", content=LONG))

    assert [line["content"] for line in lines(path)] == [LONG, LONG]


def test_a_text_of_a_lost_line_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the line that had the text first could not be written, the next one has it."""
    from triplepoint.errors import TraceError

    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        with monkeypatch.context() as patch:
            patch.setattr("os.write", lambda fd, data: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(TraceError, match="full"):
                writer.write(MessageEvent(role="user", content=LONG))
        writer.write(MessageEvent(role="user", content=LONG))

    assert [line["content"] for line in lines(path)] == [LONG]


def test_a_false_hash_does_not_change_a_text(tmp_path: Path) -> None:
    """An event that names another hash than its text's keeps its text, and teaches nothing."""
    path = tmp_path / "t.jsonl"
    first = MessageEvent(role="user", content=LONG)
    liar = MessageEvent(role="user", content=LONG[::-1], content_sha256=first.content_sha256)
    with TraceWriter(path) as writer:
        for event in (liar, first, first.model_copy(), liar.model_copy()):
            writer.write(event)

    again = [e.content for e in Trace.load(path).events if isinstance(e, MessageEvent)]
    assert again == [LONG[::-1], LONG, LONG, LONG[::-1]]


def test_a_text_that_is_not_there_says_so(tmp_path: Path) -> None:
    """A line cut out of its file names the text that it lacks."""
    path = tmp_path / "t.jsonl"
    with TraceWriter(path) as writer:
        writer.write(ToolEvent(name="t", result=LONG))
        writer.write(MessageEvent(role="tool", content=LONG))
    second = path.read_text().splitlines()[1]
    path.write_text(second + "\n")

    (event,) = Trace.load(path).events

    assert isinstance(event, MessageEvent)
    assert event.content.startswith("[not in this file: the text with SHA-256 ")
