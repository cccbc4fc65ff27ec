"""The dialects in which servers stream an answer: all mean the same, and none loses a part."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import agent_on
from helpers.openai_server import calls, delta, openai_server, text

from triplepoint import EngineError, open_conversation
from triplepoint.runtime.agent.streamed_reply import StreamedReply

READ = '{"path": "a.txt"}'
HEAD, TAIL = READ[:6], READ[6:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a small file."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    return tmp_path / "work"


def piece(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    """A part of a tool call, without the fields that are None."""
    function = {"name": name, "arguments": arguments}
    return {"function": {k: v for k, v in function.items() if v is not None}, **more}


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("read_file", "", id="x"), piece(None, HEAD), piece(None, TAIL)],
        [piece("read_file", "", id="x"), piece(None, HEAD, id="x"), piece(None, TAIL, id="x")],
        [piece("read_file", HEAD, id="x", index="0"), piece(None, TAIL, index="0")],
        [piece("read_file", HEAD, id="x", index=0), piece("read_file", TAIL, id="x", index=0)],
        [piece("read_file", HEAD, index=0), piece("read_file", TAIL, index=0)],
        [piece("read_file", HEAD), piece("read_file", TAIL)],
        [piece(letter, index=0) for letter in "read_file"] + [piece(None, READ, index=0)],
        [piece(None, HEAD, index=0), piece("read_file", TAIL, index=0)],
        [piece("read_file", HEAD, id="", index=0), piece("", TAIL, id="", index=0)],
        [piece("read_file", HEAD, id="a", index=0), piece(None, TAIL, id="b", index=0)],
    ],
)
def test_one_call_in_pieces(pieces: list[dict[str, Any]]) -> None:
    """Without numbers, and with names or ids in every piece, it is one call."""
    reply = StreamedReply()
    for one in pieces:
        reply.take(delta(tool_calls=[one]))

    assert [(c.name, c.arguments) for c in reply.tool_calls()] == [("read_file", {"path": "a.txt"})]


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("read_file", READ, index=0), piece("list_dir", "{}", index=0)],
        [piece("read_file", {"path": "a.txt"}, index=0), piece("list_dir", {}, index=0)],
        [piece("read_file", READ), piece("list_dir")],
        [piece("read_file", READ, id="a", index=1), piece("list_dir", "{}", id="b")],
        [
            piece("read_file", HEAD, id="a"),
            piece("list_dir", "", id="b"),
            piece(None, TAIL, id="a"),
        ],
    ],
)
def test_two_calls(pieces: list[dict[str, Any]]) -> None:
    """Without ids, a call whose arguments are whole is over when another name comes."""
    reply = StreamedReply()
    reply.take(delta(tool_calls=pieces))

    found = [(c.name, c.arguments) for c in reply.tool_calls()]
    assert found == [("read_file", {"path": "a.txt"}), ("list_dir", {})]


def test_two_equal_calls_without_numbers() -> None:
    """Both run, also without arguments."""
    reply = StreamedReply()
    reply.take(delta(tool_calls=[piece("list_dir"), piece("list_dir"), piece("list_dir", "{}")]))

    assert [c.name for c in reply.tool_calls()] == ["list_dir"] * 3


def test_content_in_parts_and_a_refusal(folder: Path) -> None:
    """Text and thinking come as a list from Mistral's models; a refusal is what was said."""
    thoughts = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
    parts = [delta(content=thoughts), delta(content=[{"type": "text", "text": "Hello."}])]
    with openai_server(
        [*parts, delta("stop"), "[DONE]"],
        [delta(content=None, refusal="I cannot."), delta("stop"), "[DONE]"],
    ) as server:
        agent = agent_on(server.url, folder)
        first = agent.run("Hi")
        assert agent.run("Again").answer == "I cannot."

    assert first.answer == "Hello."


def test_another_choice_is_passed_over() -> None:
    """One was asked for: what others say is not mixed in."""
    reply = StreamedReply()
    other = {"index": 1, "delta": {"content": "wrong"}, "finish_reason": "stop"}
    reply.take({"choices": [other, {"index": 0, "delta": {"content": "right"}}]})
    reply.take({"choices": [other]})

    assert (reply.answer, reply.finish) == ("right", "")


@pytest.mark.parametrize("finish", ["error", "abort", "content_filter"])
def test_an_answer_that_the_server_cut_is_none(folder: Path, finish: str) -> None:
    """Nor does a call in it run."""
    call = piece("list_dir", "{}", id="x", index=0)
    with openai_server(
        [delta(content="half of"), delta(finish), "[DONE]"],
        [delta(tool_calls=[call]), delta(finish), "[DONE]"],
    ) as server:
        agent = agent_on(server.url, folder)
        for _ in range(2):
            with pytest.raises(EngineError, match=f"cut the answer: it ended with '{finish}'"):
                agent.run("Hi")

    assert len(server.requests) == 2
    assert not agent.trace.tools


@pytest.mark.parametrize(
    "chunk",
    [
        b'event: error\ndata: {"message": "out of memory", "type": "x"}\n\n',
        {"object": "error", "message": "out of memory", "code": 400},
    ],
)
def test_an_error_without_a_frame(folder: Path, chunk: Any) -> None:
    """It is told, not taken for an empty chunk."""
    with (
        openai_server([chunk]) as server,
        pytest.raises(EngineError, match="failed: out of memory"),
    ):
        agent_on(server.url, folder).run("Hi")


def test_busy_in_the_stream_and_empty_events(folder: Path) -> None:
    """OpenRouter sends the status 200, comments, and only then says that it is busy."""
    busy = {"error": {"code": 429, "message": "rate limited"}}
    late = [delta(content="half of"), busy]
    with openai_server(
        [b": OPENROUTER PROCESSING\n\n", busy], [b"data:\n\n", *text("Fine."), b"data: "], late
    ) as server:
        agent = agent_on(server.url, folder)
        assert agent.run("Hi").answer == "Fine."
        with pytest.raises(EngineError, match=r"failed: rate limited$"):
            agent.run("Again")

    assert len(server.requests) == 3


def test_ids_that_every_server_takes(folder: Path) -> None:
    """Mistral's want nine letters and digits."""
    with openai_server(calls(("list_dir", {}), ("list_dir", {"path": "."})), text("Ok.")) as server:
        agent_on(server.url, folder).run("What is here?")

    asked, *results = server.requests[1]["messages"][2:]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", one) for one in ids)
    assert len(set(ids)) == 2
    assert [one["tool_call_id"] for one in results] == ids


@pytest.mark.parametrize(
    ("wrote", "sent"),
    [
        ('{"path": NaN, "x": [1e999, -Infinity]}', {"path": "nan", "x": ["inf", "-inf"]}),
        ('{"path": "caf\\udce9"}', {"path": "caf\ufffd"}),
    ],
)
def test_arguments_that_other_servers_cannot_read(
    folder: Path, wrote: str, sent: dict[str, Any]
) -> None:
    """Python reads more than JSON has: what goes back is JSON, or each request would fail."""
    with openai_server(calls(("list_dir", wrote)), text("Ok.")) as server:
        agent_on(server.url, folder).run("What is here?")

    call = server.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(call, parse_constant=lambda name: pytest.fail(name)) == sent


def test_arguments_go_back_as_they_were_written(folder: Path) -> None:
    """Byte by byte, so that the server finds them in its cache."""
    wrote = '{"path":   ".\\u002f"}'
    with openai_server(calls(("list_dir", wrote)), text("Ok.")) as server:
        agent_on(server.url, folder).run("What is here?")

    call = server.requests[1]["messages"][2]["tool_calls"][0]["function"]["arguments"]
    assert call == wrote


def test_arguments_that_are_nested_deeply(folder: Path, tmp_path: Path) -> None:
    """Such a call does not run, and the conversation can be kept."""
    deep = '{"path": ' + "[" * 500 + "]" * 500 + "}"
    with openai_server(calls(("list_dir", deep)), text("Ok.")) as server:
        agent = agent_on(server.url, folder, repetition_stop=False)
        agent.run("What is here?")
    with open_conversation("deep", tmp_path) as session:
        session.save(agent)

    assert [t.error for t in agent.trace.tools] == [
        "the arguments of list_dir are nested more than 100 deep"
    ]


@pytest.mark.parametrize(
    "pieces",
    [
        ["<think>\nwhy not</think>\n\nYes."],
        list("<think>\nwhy not</think>\n\nYes."),
        ["\n<th", "ink>\nwhy not</", "think>", "\n\n", "Yes."],
    ],
)
def test_thinking_at_the_head_of_the_answer(pieces: list[str]) -> None:
    """Servers that do not tell it apart send the model's own tags, wherever they are cut."""
    reply = StreamedReply()
    told = [one for text in pieces for one in reply.take(delta(content=text))]
    reply.end()

    assert (reply.answer, reply.thinking.strip()) == ("Yes.", "why not")
    assert "".join(text for mode, text in told if mode == "answer") == "Yes."
    assert reply.content == "".join(pieces)  # what goes back is what the model wrote


@pytest.mark.parametrize("text", ["<", "<thin", "<thinner> is a tag", "a <think>b</think>", " "])
def test_what_only_looks_like_a_tag_is_the_answer(text: str) -> None:
    """Nothing is lost of an answer that begins like thinking, or speaks of it."""
    reply = StreamedReply()
    for letter in text:
        reply.take(delta(content=letter))
    reply.end()

    assert (reply.answer, reply.thinking) == (text, "")


def test_thinking_that_does_not_end() -> None:
    """A reply that was cut within its thinking has no answer, and keeps all of the thinking."""
    reply = StreamedReply()
    reply.take(delta(content="<think>so far</thi"))
    reply.end()

    assert (reply.answer, reply.thinking) == ("", "so far</thi")


def test_calls_as_text_behind_thinking(folder: Path) -> None:
    """They are calls, and the thinking goes back with them."""
    call = '<tool_call>\n{"name": "list_dir", "arguments": {}}\n</tool_call>'
    written = f"<think>look there</think>\n{call}"
    with openai_server(text(*written), text("a.txt")) as server:
        result = agent_on(server.url, folder).run("What is here?")

    assert result.answer == "a.txt"
    sent = server.requests[1]["messages"][2]
    assert sent["content"].strip() == "<think>look there</think>"
    assert [one["function"]["name"] for one in sent["tool_calls"]] == ["list_dir"]
